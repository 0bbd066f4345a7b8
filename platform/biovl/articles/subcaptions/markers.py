"""Candidate panel markers of a caption: ``(A)``, ``b)``, ``C–E.``, ``Panel F``.

``label_selection`` selects the labels among them. Every pattern has bounded repeats, so a
caption is parsed in linear time.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from biovl.articles.subcaptions.labels import DASH, LIST, LabelValue, expand, kinds_of
from biovl.core.records import Span

Family = Literal[
    "bracket", "half", "inner", "dot", "colon", "comma", "bare", "loose", "panel", "word"
]

MOST = 1_000
"""Maximum number of markers, ten times that of the longest captions: later steps may be
quadratic."""

_NOUN = (
    r"(?:[Pp]anels?|PANELS?|[Pp]arts?|[Ii]mages?|[Pp]lots?|[Gg]raphs?|[Mm]aps?|[Pp]lates?"
    r"|[Pp]hoto(?:graph)?s?"
    r"|[Nn]umbers?)"
)
_SIDE = (
    r"(?:(?:[Uu]pper|[Ll]ower|[Tt]op|[Bb]ottom|[Mm]iddle|[Cc]ent(?:er|re|ral)|[Ff]ar)[\s-])?"
    r"(?:[Ll]eft|[Rr]ight|[Mm]iddle|[Cc]ent(?:er|re|ral)|[Uu]pper|[Ll]ower|[Tt]op|[Bb]ottom"
    r"|LEFT|RIGHT|TOP|BOTTOM|UPPER|LOWER"
    r"|(?:\d(?:st|nd|rd|th)|[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth)(?=\s(?:row|column|panel)\b))"
    r"(?:[\s-]hand)?(?:[\s-](?:row|column|panel|image|graph|plot|side)s?)?"
)

_BRACKET = re.compile(
    rf"[(\[（](?P<noun>\s?{_NOUN}\s)?\s?(?P<list>{LIST})\.?\s?"
    r"(?:[)\]）]|(?P<tail>[,;:.]\s?[^()\[\]（）]{1,80})[)\]）])"
)
_HALF = re.compile(rf"(?<![\w(\[（{DASH}])(?P<list>{LIST})\s?[)）]")
_PANEL = re.compile(rf"\b{_NOUN}\s(?P<list>{LIST})(?:\s?[)\]]|[.:,](?=\s))?")
_FIGURE = re.compile(rf"\b[Ff]ig(?:ure|\.)?\s?\d{{1,2}}\s?(?P<list>{LIST})\s?[.:]")
_BARE = re.compile(rf"(?P<list>{LIST})(?P<stop>\s?[.:|=](?!\d)|[,;]|\s?[-–—](?=\s)|(?=\s)|$)")
_INNER = re.compile(rf"[,;]\s(?P<list>{LIST})\s?\)")
_LOOSE = re.compile(
    rf"(?<![\w.'’/{DASH}])(?:\d{{1,2}})?(?P<list>{LIST})(?=[.:]?\s[\w(“\"‘[])(?!\.\s[a-z])"
)
_WORD_BRACKET = re.compile(
    rf"[(\[（]\s?(?P<side>{_SIDE})\s?(?:[)\]）]|(?P<tail>[,;:][^()]{{1,80}})\))"
)
# "LB, left border", "upper and lower quartiles", "left vertical line": no positions in the figure.
_PLACE = (
    r"(?!\s(?:and\s\w+\s)?(?:(?:vertical|horizontal|dashed|dotted|solid)\s)?"
    r"(?:border|box|edge|quartile|percentile|whisker|limit|bound|hinge|lines?\b|curves?\b))"
)
_WORD_BARE = re.compile(
    rf"(?:[Tt]he\s)?(?P<side>{_SIDE}){_PLACE}(?:\sand\s(?P<other>{_SIDE})(?=:|\s[a-z]))?\s?(?P<stop>[:,=]|(?=\s))"
)
# Positions where a bare letter can be a label: at the start, or after the end of a clause.
_OPENING = re.compile(
    r"(?:^|(?<=[.;:!?)\]。！？；])\s{0,2}|(?<=,)\s|\n\s?|(?<=\band)\s)", re.MULTILINE
)
_LETTERS_ABOUT = re.compile(
    r"\b(?:letters?|superscripts?|lowercase|lanes?|letter codes?|marked|labell?ed as)[ :]{0,2}$",
    re.IGNORECASE,
)
_KEY_BEFORE = re.compile(
    r"\b(?:abbreviations?|groups?|labels?|legend|key|orientation)(?:\sare)?:\s\Z", re.IGNORECASE
)
_OTHER_FIGURE = re.compile(r"\s?,?\s?(?:of|in)\s(?:the\s)?(?:Fig|fig|Supp|Table|Ref|ref\b)")
# "i.e.," and "S.E.": the second letter stands at no start of a sentence.
_INITIALS = re.compile(r"(?<![^\W\d_])[^\W\d_]\.\Z")
_FIGURE_BEFORE = re.compile(r"(?:[Ff]igs?(?:ures?)?\.?|[Tt]able)\s?(?:S|ED)?\d{1,3} ?\Z")


@dataclass(frozen=True, slots=True)
class Marker:
    """A range of the caption that names panels."""

    start: int
    end: int
    family: Family
    kind: str
    labels: tuple[LabelValue, ...]
    tail_start: int
    """Start of words in the marker that are text: ``left)`` of ``(A, left)``; else ``end``."""
    opens: bool
    """Whether it is at the start of a sentence or clause."""
    starts: bool
    """Whether it is at the start of a sentence."""
    bold: bool

    def names(self) -> tuple[str, ...]:
        """Return the names of the labels, in order."""
        return tuple(label.name for label in self.labels)


def markers(caption: str, bold: Sequence[Span] = (), italic: Sequence[Span] = ()) -> list[Marker]:
    """Return the candidate markers, by start; those of different families may overlap.

    A text with more than ``MOST`` candidates is taken for a table or a list: the result is empty.
    """
    openings = {match.end() for match in _OPENING.finditer(caption)}
    heavy = _Stretches(bold)
    every = itertools.chain(
        _bracketed(caption, openings, heavy),
        _half_bracketed(caption, openings, heavy),
        _bare(caption, openings, heavy),
        _plain(_PANEL, "panel", caption, openings, heavy),
        _named_figures(caption, openings, heavy),
        _plain(_INNER, "inner", caption, openings, heavy),
        _plain(_LOOSE, "loose", caption, openings, heavy),
        _sides(caption, openings, heavy),
    )
    found = list(itertools.islice(every, MOST + 1))
    if len(found) > MOST:
        return []
    slanted = _Stretches(italic)
    found = [
        marker
        for marker in found
        if marker.bold or marker.family not in ("loose", "bare") or not slanted.cover(marker.start)
    ]
    return sorted(found, key=lambda marker: (marker.start, -marker.end))


class _Stretches:
    """Tests whether a position is inside one of some spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self.starts = [span.start for span in self.spans]

    def cover(self, place: int) -> bool:
        at = bisect_right(self.starts, place) - 1
        return at >= 0 and place < self.spans[at].end


def _is_inside(caption: str, place: int) -> bool:
    """Return whether a bracket is open at a position."""
    recent = caption[max(0, place - 80) : place]
    return recent.rfind("(") > recent.rfind(")")


def _tail(match: re.Match[str]) -> int:
    has_tail = "tail" in match.re.groupindex and match["tail"]
    return match.start("tail") if has_tail else match.end()


def _starts(caption: str, place: int) -> bool:
    before = caption[max(0, place - 3) : place].rstrip()
    return not before or before[-1] in ".!?。！？" or "\n" in caption[max(0, place - 2) : place]


def _made(
    caption: str,
    match: re.Match[str],
    family: Family,
    openings: set[int],
    heavy: _Stretches,
    end: int | None = None,
) -> Iterator[Marker]:
    start = match.start("list") if family == "inner" else match.start()
    before = caption[max(0, start - 24) : start]
    if _LETTERS_ABOUT.search(before):
        return
    if family in ("comma", "colon") and _KEY_BEFORE.search(before):
        return
    # "as in Figure 1 (b) Whole mounts …": the next panel, not a part of Figure 1.
    is_next = caption[start - 1 : start] == " " and caption[match.end() + 1 :][:1].isupper()
    if _FIGURE_BEFORE.search(before) and not is_next:
        return
    if _OTHER_FIGURE.match(caption, match.end()):
        return
    for kind in kinds_of(match["list"]):
        labels = expand(match["list"], kind)
        if labels:
            yield Marker(
                start=start,
                end=match.end() if end is None else end,
                family=family,
                kind=kind,
                labels=labels,
                tail_start=_tail(match),
                opens=start in openings,
                starts=_starts(caption, start),
                bold=heavy.cover(match.start("list")),
            )


def _bracketed(caption: str, openings: set[int], heavy: _Stretches) -> Iterator[Marker]:
    for match in _BRACKET.finditer(caption):
        tail = match["tail"]
        if caption[match.end() : match.end() + 1].isdigit():
            continue
        if tail and re.search(r"[;,]\s?[^\W\d_]\d?\s?[,:=]\s[^\W\d_]", tail):
            continue
        before = caption[max(0, match.start() - 3) : match.start()]
        # "f(z)", "As(V)", "poly(A)": a symbol with its argument; a word may be glued to its label.
        if before and before[-1].isalnum() and (len(before.split()[-1]) < 3 or before == "oly"):
            continue
        yield from _made(caption, match, "bracket", openings, heavy)


def _half_bracketed(caption: str, openings: set[int], heavy: _Stretches) -> Iterator[Marker]:
    for match in _HALF.finditer(caption):
        if not _is_inside(caption, match.start()):
            yield from _made(caption, match, "half", openings, heavy)


_STOPS: dict[str, Family] = {
    ".": "dot",
    "|": "dot",
    ":": "colon",
    "=": "colon",
    ",": "comma",
    ";": "comma",
    "-": "colon",
    "–": "colon",
    "—": "colon",
}
_VERB = re.compile(
    r"\s(?:and\s)?(?:indicates?|represents?|shows?|denotes?|depicts?|corresponds?|illustrates?|"
    r"displays?|presents?|demonstrates?|includes?|contains?|gives?|compares?|is|are)\b"
)


def _bare(caption: str, openings: set[int], heavy: _Stretches) -> Iterator[Marker]:
    bold_starts = {span.start for span in heavy.spans}
    brackets = {match.end() for match in re.finditer(r"\(", caption)} - bold_starts
    done = 0
    for place in sorted(openings | bold_starts | brackets):
        match = _BARE.match(caption, place) if place >= done else None
        if match is None or _INITIALS.search(caption[max(0, place - 3) : place]):
            continue
        done = match.end("list")
        if place in bold_starts and _is_inside(caption, place):
            continue
        stop = match["stop"].strip()
        # "(a: front, b: back)"; the other styles are read with their bracket.
        if place in brackets and (not stop or stop not in ":-–—"):
            continue
        family: Family = _STOPS.get(stop, "bare")
        rest = caption[match.end() : match.end() + 6].lstrip()
        is_bold = heavy.cover(place)
        # "B scRNA-seq of …": capitals within a word count as well.
        is_capital = bool(rest) and (
            not rest[0].isalpha() or any(map(str.isupper, rest.split(" ", 1)[0]))
        )
        if family == "bare" and not is_bold:
            is_new = _starts(caption, place) or caption[place - 2 : place - 1] in (";", ")", "]")
            is_list = len(match["list"]) > 2
            # No sentence starts with a lower-case letter, except for a label.
            is_small = _starts(caption, place) and caption[place].islower()
            is_said = is_list or is_small or _VERB.match(caption, match.end())
            if not is_new or not ((is_capital or is_said) and rest[:1] != "("):
                continue
        if family == "dot" and not (is_capital or is_bold or _starts(caption, place)):
            continue
        yield from _made(caption, match, family, openings | {place}, heavy)


def _plain(
    pattern: re.Pattern[str],
    family: Family,
    caption: str,
    openings: set[int],
    heavy: _Stretches,
) -> Iterator[Marker]:
    for match in pattern.finditer(caption):
        yield from _made(caption, match, family, openings, heavy)


def _named_figures(caption: str, openings: set[int], heavy: _Stretches) -> Iterator[Marker]:
    """Yield the labels of ``Fig. 1a: …. Fig. 1b: …``, which start sentences."""
    for match in _FIGURE.finditer(caption):
        if _starts(caption, match.start()):
            yield from _made(caption, match, "panel", openings, heavy)


def _sides(caption: str, openings: set[int], heavy: _Stretches) -> Iterator[Marker]:
    for pattern in (_WORD_BRACKET, _WORD_BARE):
        for match in pattern.finditer(caption):
            opens = match.start() in openings
            if pattern is _WORD_BARE:
                if not opens or _is_inside(caption, match.start()):
                    continue
                if caption[match.end() :].lstrip()[:3] in ("to ", "and", "of "):
                    continue
                is_said = _VERB.match(caption, match.end("other" if match["other"] else "side"))
                last = match["other"] or match["side"]
                is_panel = last.split()[-1] != last and is_said is not None
                if not match["stop"] and match["side"][0].isupper() and not is_panel:
                    continue
                if match[0][:4].lower() == "the " and not is_panel:
                    continue
            sides = (match["side"], match.groupdict().get("other"))
            if sides[1] and " " in sides[1] and " " not in sides[0]:
                sides = (f"{sides[0]} {sides[1].split()[-1]}", sides[1])
            yield Marker(
                start=match.start(),
                end=match.end(),
                family="word",
                kind="bracket" if pattern is _WORD_BRACKET else "bare",
                labels=tuple(LabelValue(_side(side), "word", 0) for side in sides if side),
                tail_start=_tail(match),
                opens=opens,
                starts=_starts(caption, match.start()),
                bold=heavy.cover(match.start()),
            )


def _side(text: str) -> str:
    """Return a position in lower case: ``Left-hand panels`` gives ``left``, ``Top row`` itself."""
    return re.sub(r"[\s-]+(?:hand|panels?|side)?\b", " ", text.lower()).strip()
