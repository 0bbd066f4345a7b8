"""Items of a list of panels: what is one item's own, and what precedes or follows for all."""

import itertools
import re
from collections.abc import Sequence

from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.words import (
    ANY_VERB,
    CLAUSE,
    CONTRAST,
    JOINT_BEFORE,
    JOINT_VERB,
    LED_BY,
    NEEDS_OF,
    OWN_VERB,
    PLANE,
    PREPOSITION,
    SHARED,
    VALUE,
    VERB,
    VIEW,
    VIEW_END,
    VIEWS,
)

_LONGEST_VALUE = 30
"""Characters in which a number with its unit is looked for."""
_LONGEST_HEAD = 40
"""Characters in which the kind of image is looked for that an item begins with."""
_JOINT = re.compile(r"(?:,?\s(?:and|or)|,)?\s\Z")
_STRONG = re.compile(r";\s(?:and\s)?\Z")
_WEAK = re.compile(r",\s(?:and\s)?\Z|\sand\s\Z")
_NUMBER = re.compile(r"\s?\d[\d.]*(?!\S)")


def is_coordinated(caption: str, own: Sequence[Marker]) -> bool:
    """Return whether labels number items of a phrase: ``(a) Wet and (b) dry weight of …``."""
    gaps = [caption[a.end : b.start] for a, b in itertools.pairwise(own)]
    if not gaps or not gaps[-1].endswith((" and ", " or ")):
        return False
    return all("." not in gap and len(gap.split()) < 8 for gap in gaps)


def end_of_last(caption: str, own: Sequence[Marker], end: int) -> int:
    """Return where the last item of a list ends, and what holds for all begins.

    "Growth of (A) oat and (B) rye in spring.": no other item has a preposition.

    Args:
        caption: The whole caption.
        own: Markers of the items, in order, each before its text; at least two.
        end: Position in the caption where the list ends, which is returned if nothing is shared.
    """
    items = [caption[a.end : b.start] for a, b in itertools.pairwise(own)]
    if VERB.match(caption, own[-1].end, end):
        return end
    # "(A) Axial and (B) coronal images show a cyst."
    plane = PLANE.match(caption, own[-1].end, end)
    are_planes = all(PLANE.fullmatch(_JOINT.sub("", item)) for item in items)
    if plane and are_planes and VIEWS.match(caption, plane.end(), end):
        return plane.end()
    # "(A) 0, (B) 0.5 and (C) 2.0 mg of X per litre"
    number = _NUMBER.match(caption, own[-1].end, end)
    if number and all(_NUMBER.fullmatch(_JOINT.sub("", item)) for item in items):
        return number.end()
    if any(SHARED.search(item) or item.rstrip().endswith(";") for item in items):
        return end
    # "(A) Mice were weighed and (B) tumors were measured."
    if any(map(ANY_VERB.search, items)):
        return end
    longest = max(item.count(" ") for item in items)
    verb = JOINT_VERB.search(caption, own[-1].end, end)
    last = caption[own[-1].end : verb.start()] if verb else ""
    # "(A) Mass and (B) height were measured at noon."
    is_short = len(own) > 2 or last.count(" ") <= longest + 1
    is_joint = OWN_VERB.search(last) is None and is_short
    if verb and is_joint:
        return verb.start()
    shared = SHARED.search(caption, own[-1].end + 3, end)
    last = caption[own[-1].end : shared.start()] if shared else ""
    # "(A) Flow chart and (B) number of patients"
    is_alike = last.count(" ") <= longest + 1 and NEEDS_OF.search(last) is None
    if not (shared and is_alike and ";" not in last):
        return end
    before = LED_BY.search(caption, own[-1].end + 3, shared.start())
    return before.start() if before else shared.start()


def clause_before(caption: str, start: int, end: int) -> int:
    """Return where the last clause that starts in a range starts; ``end`` if none does."""
    return max((m.start() for m in CLAUSE.finditer(caption, start, end)), default=end)


def shared_lead(caption: str, start: int, own: Sequence[Marker]) -> int:
    """Return the length of the text from ``start`` on that the items of a list share.

    "Sections of liver (A) and lung (B)": the 12 characters of "Sections of ".

    Args:
        caption: The whole caption.
        start: Position in the caption where the text of the list starts.
        own: Markers of the items, in order, each behind its text.
    """
    if len(own) < 2:
        return 0
    first = caption[start : own[0].start]
    second = caption[own[0].end : own[1].start]
    # "Spectra of X (A); circuit (B)": two statements, no shared head.
    # "Scores by sex (A); by age (B)" share one.
    # "Views of X: control (A); treated (B)" do, too.
    is_apart = (
        second.lstrip().startswith(";")
        and ": " not in first
        and not PREPOSITION.match(second.lstrip(" ;"))
    )
    if VERB.match(second) or is_apart:
        return 0
    # "Cells are shown in (A), and nuclei are shown in (B)."
    if ANY_VERB.search(first) and ANY_VERB.search(second):
        return 0
    # "… of the hip before (A) and after (B) surgery": all but the preposition is shared.
    contrast = CONTRAST.search(first)
    if contrast and CONTRAST.search(second):
        return contrast.start()
    if ": " in first:
        return first.rindex(": ") + 2
    second = second[JOINT_BEFORE.match(second).end() :]  # type: ignore[union-attr]
    # "… at t = 0 h (A), 24 h (B)": numbers differ, what precedes them is shared.
    value = VALUE.search(first[-_LONGEST_VALUE:])
    if value and VALUE.fullmatch(second[:_LONGEST_VALUE]):
        return len(first) - len(value[0])
    if _are_views(caption, first, second, own):
        return 0
    word = second.split(" ", 1)[0].lower()
    if word in ("a", "an") or PREPOSITION.fullmatch(word + " "):
        same = first.lower().rfind(f" {word} ")
        if same >= 0:
            return same + 1
    places = [match.end() for match in PREPOSITION.finditer(first)]
    repeated = len(PREPOSITION.findall(second))
    shared = len(places) - repeated
    if shared <= 0:
        if first.rstrip().endswith("-") and " " in first.rstrip():
            return first.rstrip().rfind(" ") + 1
        return 0
    place = places[shared - 1]
    # "The structure of muscle (A) and the expression of genes (B)": heads of their own.
    if word == "the" and first[:4].lower() == "the " and first[place : place + 4] != "the ":
        return 0
    article = re.match(r"(?:the|a|an)\s", first[place:])
    if first.rstrip().endswith("-"):
        return first.rstrip().rfind(" ") + 1
    return place + (article.end() if article else 0)


def _are_views(caption: str, first: str, second: str, own: Sequence[Marker]) -> bool:
    """Return whether items are kinds of images: ``Photograph of the lesion (A), dermoscopy (B)``.

    Not ``Images of control (A) and treated sections (B)``: the first begins with what all are.
    """
    head = PREPOSITION.search(first)
    if second.startswith(("its ", "their ")):
        return True
    if not head or not VIEW_END.search(first, 0, head.start()) or VIEW_END.search(first.rstrip()):
        return False
    gaps = [caption[a.end : b.start].rstrip() for a, b in itertools.pairwise(own)]
    return any(map(VIEW_END.search, gaps))


def led_by(caption: str, start: int, own: Sequence[Marker]) -> Sequence[Marker]:
    """Return the markers of the items that the text in front of a list is about.

    "Structures of (A) X, (B) Y; (C) chromatogram of Z": the first two.

    Args:
        caption: The whole caption.
        start: Position in the caption where the text in front of the list starts.
        own: Markers of the items, in order, each before its text.
    """
    gaps = [caption[a.end : b.start] for a, b in itertools.pairwise(own)]
    ends = [at for at, gap in enumerate(gaps, 1) if _STRONG.search(gap)]
    if len(ends) != 1 or len(gaps) < 2 or caption[start : own[0].start].rstrip().endswith(":"):
        return own
    (end,) = ends
    item = caption[own[end].end : own[end + 1].start if end + 1 < len(own) else len(caption)]
    is_listed = all(_WEAK.search(gap) for at, gap in enumerate(gaps, 1) if at != end)
    return own[:end] if is_listed and VIEW.search(item[:_LONGEST_HEAD]) else own
