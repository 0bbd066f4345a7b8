"""References to figures in a sentence, recognized by grammar alone.

A reference is a word such as "Fig." followed by a list of numbers and panels, or preceded by one as
in "S1 Fig". The words around it determine whose figure it is: a supplement's, another article's …
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from biovl.articles.citances import patterns
from biovl.articles.citances.labels import Item, panel_at, places_in
from biovl.articles.citances.lists import ListReader
from biovl.articles.citances.patterns import DASH
from biovl.articles.spans import SpanIndex
from biovl.core.records import Span

Kind = Literal["main", "supplementary", "appendix", "scheme", "other-article"]

MOST = 1_000
"""Number of references after which no more are read in a sentence: it is a table pasted as one."""

_LOOK_BACK = 80
_APPENDICES = frozenset("ABCD")


@dataclass(frozen=True, slots=True)
class FigureReference:
    """A reference to one figure in a sentence, with the panels it cites."""

    figure: str
    """Figure number as written: ``3``, ``S7``, ``A1``, ``3—figure supplement 1``."""
    panels: tuple[str, ...]
    """Cited panels: ``A``, part d of panel A as ``A.d``, ``b (left)``, ``lower``; empty for the
    whole figure."""
    kind: Kind
    span: Span
    """Range in the sentence. Of ``Figures 1–3`` the first has the whole, the others ``1–3``."""
    by: Literal["xref", "text"] = "text"
    """How the reference was recognized: ``xref``, a link by the publisher, or ``text``, its
    wording."""


def references(sentence: str) -> list[FigureReference]:
    """Return the figure references of a sentence, in order.

    Adjacent items of one list that name the same figure are one reference: ``Fig. 3A, 3B``; those
    that are contrasted stay separate: ``Figs. 3E vs. 3F``.
    """
    found: list[tuple[Item, Kind]] = []
    position = 0
    for match in patterns.HEAD.finditer(sentence):
        if match.start() >= position and len(found) < MOST:
            position = max(position, _read_head(sentence, match, position, found))
    numbered = [match.start() for match in patterns.PLOS.finditer(sentence)]
    if not (found or numbered):
        return []
    known = SpanIndex(found, lambda pair: Span(pair[0].start, pair[0].end))
    position = 0
    for start in numbered:
        if start >= position and len(found) < MOST and not known.overlapping(start, start + 1):
            position = _read_numbered(sentence, start, found)
    found.sort(key=lambda pair: (pair[0].start, pair[0].end))
    if _read_again(sentence, found):
        found.sort(key=lambda pair: (pair[0].start, pair[0].end))
    _read_panel_words(sentence, found)
    return [
        FigureReference(
            item.figure, tuple(dict.fromkeys(item.panels)), kind, Span(item.start, item.end)
        )
        for item, kind in found
    ]


def _read_head(
    sentence: str, head: re.Match[str], taken: int, found: list[tuple[Item, Kind]]
) -> int:
    """Parse the list after one "Fig."; return where it ends."""
    before = sentence[max(taken, head.start() - _LOOK_BACK) : head.start()]
    reader = ListReader(sentence, is_plural=bool(head["plural"] or head["schemes"]))
    end = reader.read(head.end())
    if not reader.items:
        return head.end()
    start = head.start()
    kind: Kind | None = "scheme" if head["scheme"] else None
    own_prefix = ""
    supplement = patterns.SUPPLEMENT_BEFORE.search(before)
    appendix = patterns.APPENDIX_BEFORE.search(before)
    if head["electronic"] or supplement:
        kind = "supplementary"
    elif appendix:
        kind = "appendix"
        if appendix["sign"].strip() and appendix["sign"].strip() in DASH:
            own_prefix = appendix["name"] + "—figure "
    elif _is_of_another(before, head[0]) or patterns.OTHER_AFTER.match(sentence, end):
        kind = "other-article"
    elif patterns.SUPPLEMENT_AFTER.match(sentence, end):
        kind = "supplementary"
    elif patterns.APPENDIX_AFTER.match(sentence, end):
        kind = "appendix"
    shared = supplement or appendix
    if shared:
        start -= (
            len(before)
            - len(before[: shared.start()])
            - len(shared[0])
            + len(shared[0].lstrip(" ,:;.({–—-"))
        )
    where = _apply_before(before[: shared.start()] if shared else before, reader.items)
    if where is not None and not shared:
        start = head.start() - (len(before) - where)
    reader.items[0].start = start
    for item in reader.items:
        item.start = max(item.start, start) if item is not reader.items[0] else start
        item.figure = own_prefix + item.figure
        found.append((item, kind or _kind_of(item)))
    return end


def _is_of_another(before: str, head: str) -> bool:
    """Return whether preceding words make a reference one to another article."""
    match = patterns.OTHER_BEFORE.search(before)
    # "(Smith et al., 2004, Fig. 1B)" lists a work and a figure of this article.
    return match is not None and not (match["listed"] and head[0].isupper())


def _read_numbered(sentence: str, start: int, found: list[tuple[Item, Kind]]) -> int:
    """Parse a list before the word for figures, ``S1A and S2 Figs``; return where it ends."""
    reader = ListReader(sentence, is_plural=True, is_before_word=True)
    end = reader.read(start)
    behind = patterns.NUMBERED_BEHIND.match(sentence, end)
    if not reader.items or behind is None:
        # "S1, S2 and S3 Tables" is not read again at each of its numbers.
        return end
    end = reader.items[-1].end = behind.end()
    if len(reader.items) == 1 and not reader.items[0].panels:
        end = reader.read_panels(end)
    found.extend((item, _kind_of(item)) for item in reader.items)
    return end


def _apply_before(before: str, items: list[Item]) -> int | None:
    """Add panels that are named before the reference; return where they start in the text."""
    named = patterns.PANELS_BEFORE.search(before)
    if named is not None:
        for item in items:
            reader = ListReader(named["labels"], is_plural=True)
            reader.items = [replace(item, panels=[])]
            reader.read_labels(0)
            item.panels += reader.items[0].panels
        return named.start()
    placed = patterns.PLACES_BEFORE.search(before)
    if placed is None:
        return None
    places = ["inset"] if placed["inset"] else places_in(placed["places"], placed["noun"])
    for item in items:
        own = item.panels or [""]
        item.panels = [panel_at(panel, place) for panel in own for place in places]
    return placed.start()


def _read_again(sentence: str, found: list[tuple[Item, Kind]]) -> bool:
    """Parse panels of a figure cited before: ``Fig. 1A for mice and 1B for rats``.

    Returns whether there are any.
    """
    cited = [item for item, kind in found if kind == "main" and item.panels]
    if not cited:
        return False
    known = SpanIndex(found, lambda pair: Span(pair[0].start, pair[0].end))
    before = len(found)
    position, at = cited[0].end, 0
    cases: dict[str, set[bool]] = {}
    for match in patterns.NUMBER_AGAIN.finditer(sentence, position):
        start, end = match.span()
        while at < len(cited) and cited[at].end <= start:
            panels = cases.setdefault(cited[at].figure, set())
            panels |= {panel[0].isupper() for panel in cited[at].panels}
            at += 1
        is_alike = sentence[end].isupper() in cases.get(match["digits"], ())
        is_word = (
            patterns.NO_PANEL_WORD.match(sentence, end + 1) is not None
            or patterns.CHROMOSOMES.search(sentence, max(0, start - 60), start) is not None
        )
        is_known = is_word or start < position or bool(known.overlapping(start, end + 1))
        if is_known or not is_alike or len(found) >= MOST:
            continue
        reader = ListReader(sentence, is_plural=False)
        position = reader.read(start)
        found.extend((item, _kind_of(item)) for item in reader.items if item.panels)
    return len(found) > before


def _read_panel_words(sentence: str, found: list[tuple[Item, Kind]]) -> None:
    """Assign "(panel A)" to the reference before it that has its panels from such words.

    Also to the single figure that a sentence names as a whole.
    """
    if len(found) == 1 and not found[0][0].panels:
        found[0][0].outer = ""
    if all(item.outer is None for item, _ in found):
        return
    at = 0
    for match in patterns.PANEL_WORD.finditer(sentence):
        while at + 1 < len(found) and found[at + 1][0].start <= match.start():
            at += 1
        item = found[at][0]
        if item.outer is None or match.start() < item.end:
            continue
        reader = ListReader(sentence, is_plural=True)
        reader.items = [Item(item.figure, item.prefix, match.start(), match.end(), outer="")]
        reader.read_labels(match.end())
        item.panels += [f"{item.outer}{name}" for name in reader.items[0].panels]


def _kind_of(item: Item) -> Kind:
    prefix = item.prefix.strip(" -.")
    if not prefix:
        return "main"
    return "appendix" if prefix in _APPENDICES else "supplementary"
