"""Items of a list of panels: words of a single item, and words before or after that all share."""

import itertools
import re
from collections.abc import Sequence

from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.shared import Cut, end_of_head, start_of_tail
from biovl.articles.subcaptions.words import CLAUSE, VIEW

_LONGEST_HEAD = 40
"""Characters in which the kind of image is looked for that an item begins with."""
_STRONG = re.compile(r";\s(?:and\s)?\Z")
_WEAK = re.compile(r",\s(?:and\s)?\Z|\sand\s\Z")


def is_coordinated(caption: str, own: Sequence[Marker]) -> bool:
    """Return whether labels mark coordinated items: ``(a) Wet and (b) dry weight of …``."""
    gaps = _between(caption, own)
    if not gaps or not gaps[-1].endswith((" and ", " or ")):
        return False
    return all("." not in gap and len(gap.split()) < 8 for gap in gaps)


def end_of_last(caption: str, own: Sequence[Marker], end: int) -> Cut:
    """Return the end of the last item of a list; text after it applies to all items.

    "Growth of (A) oat and (B) rye in spring.": before ``in spring``, which is about both.

    Args:
        caption: The whole caption.
        own: Markers of the items, in order, each before its text; at least two.
        end: Position in the caption where the list ends, which is returned if nothing is shared.
    """
    start = own[-1].end
    cut = start_of_tail(caption[start:end], _between(caption, own))
    return cut._replace(at=start + cut.at)


def clause_before(caption: str, start: int, end: int) -> int:
    """Return the start of the last clause that begins in a range; ``end`` if there is none."""
    return max((m.start() for m in CLAUSE.finditer(caption, start, end)), default=end)


def end_of_lead(caption: str, start: int, own: Sequence[Marker]) -> Cut:
    """Return the end of the shared words at the start of a list: they apply to all items.

    "Sections of liver (A) and lung (B)": after ``Sections of``.

    Args:
        caption: The whole caption.
        start: Position in the caption where the text of the list, with the shared words, starts.
        own: Markers of the items, in order, each after its text.
    """
    if len(own) < 2:
        return Cut(start, 1.0)
    cut = end_of_head(caption[start : own[0].start], _between(caption, own))
    return cut._replace(at=start + cut.at)


def led_by(caption: str, start: int, own: Sequence[Marker]) -> Sequence[Marker]:
    """Return the markers of the items that the text in front of a list is about.

    "Structures of (A) X, (B) Y; (C) chromatogram of Z": the first two.

    Args:
        caption: The whole caption.
        start: Position in the caption where the text in front of the list starts.
        own: Markers of the items, in order, each before its text.
    """
    gaps = _between(caption, own)
    ends = [at for at, gap in enumerate(gaps, 1) if _STRONG.search(gap)]
    if len(ends) != 1 or len(gaps) < 2 or caption[start : own[0].start].rstrip().endswith(":"):
        return own
    (end,) = ends
    item = caption[own[end].end : own[end + 1].start if end + 1 < len(own) else len(caption)]
    is_listed = all(_WEAK.search(gap) for at, gap in enumerate(gaps, 1) if at != end)
    return own[:end] if is_listed and VIEW.search(item[:_LONGEST_HEAD]) else own


def _between(caption: str, own: Sequence[Marker]) -> list[str]:
    return [caption[a.end : b.start] for a, b in itertools.pairwise(own)]
