"""Labels of panels inside a panel, ``(A) … (a) … (b)``, and panels listed by order alone."""

import re
from collections.abc import Sequence
from dataclasses import replace

from biovl.articles.subcaptions.clauses import Segment
from biovl.articles.subcaptions.labels import LabelValue
from biovl.articles.subcaptions.markers import Marker
from biovl.core.records import Span

_ORDERED = re.compile(
    r"\b(?:From\s(?=[lt])|(?=[LT]))(?:(?P<first>[Ll]eft|[Tt]op)\sto\s(?P<last>right|bottom)\s?[:,]\s)|"
    r"\b[Cc]lockwise,?\s(?:from|starting\s(?:from|at|in|with))\s(?:the\s)?(?P<from>top|upper)[\s-]left"
    r"(?:\s(?:corner|panel|image))?\s?[:,]\s"
)
_CORNERS = ("left", "right", "right", "left")
_GAP = re.compile(r"\([^()]{0,200}\)|(?P<strong>;\s(?:and\s)?)|(?P<weak>,\s(?:and\s)?|\sand\s)")
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z\[]|\s*$)")


def with_children(found: Sequence[Segment], candidates: Sequence[Marker]) -> list[Segment]:
    """Return segments with nested panels separated, named ``A.a``.

    Only lower-case letters that start sentences within the part of one capital count; others, above
    all ``(i)`` and ``(ii)`` in a sentence, enumerate the content of one panel.
    """
    children = [
        marker
        for marker in candidates
        if marker.kind == "lower" and marker.family in ("bracket", "half") and marker.starts
    ]
    segments: list[Segment] = []
    at = 0
    for segment in found:
        while at < len(children) and children[at].start < segment.start:
            at += 1
        own: list[Marker] = []
        while at < len(children) and children[at].end <= segment.end:
            if children[at].labels[0].index == sum(len(child.labels) for child in own) + 1:
                own.append(children[at])
            at += 1
        if segment.labels is None or len(segment.labels) != 1 or len(own) < 2:
            segments.append(segment)
            continue
        parent = segment.labels[0]
        segments.append(replace(segment, end=own[0].start))
        ends = [*(child.start for child in own[1:]), segment.end]
        for child, end in zip(own, ends, strict=True):
            names = tuple(f"{parent}.{name}" for name in child.names())
            segments.append(Segment(child.start, end, names, (child,)))
    return segments


def ordered(caption: str) -> list[Marker]:
    """Return a marker before each item of a list in the order of the panels, or none.

    ``Clockwise from top left: …`` has four items, ``From left to right: …`` two or three.
    """
    match = _ORDERED.search(caption)
    if match is None:
        return []
    end = _SENTENCE_END.search(caption, match.end())
    stop = end.start() if end else len(caption)
    gaps = [gap for gap in _GAP.finditer(caption, match.end(), stop) if gap.lastgroup]
    strong = [gap for gap in gaps if gap["strong"]] or [gap for gap in gaps if gap[0][0] == ","]
    # "CT, MRI and PET": no comma before the last.
    is_whole = bool(strong) and "and" in strong[-1][0]
    gaps = strong if is_whole else [*strong, *(gap for gap in gaps[-1:] if gap not in strong)]
    names = _names(match, len(gaps) + 1)
    places = [Span(match.start(), match.end()), *(Span(*gap.span()) for gap in gaps)]
    return [
        Marker(
            start=place.start,
            end=place.end,
            family="word",
            kind="ordered",
            labels=(LabelValue(name, "word", 0),),
            tail_start=place.end,
            opens=True,
            starts=False,
            bold=False,
        )
        for place, name in zip(places, names, strict=False)
    ]


def _names(match: re.Match[str], items: int) -> list[str]:
    """Return the positions of the items of a list, or none if their number does not fit."""
    if match["first"] is None:
        upper = match["from"]
        rows = (upper, upper, *["bottom" if upper == "top" else "lower"] * 2)
        corners = [f"{row} {side}" for row, side in zip(rows, _CORNERS, strict=True)]
        return corners if items == 4 else []
    first, last = match["first"].lower(), match["last"]
    return {2: [first, last], 3: [first, "middle", last]}.get(items, [])
