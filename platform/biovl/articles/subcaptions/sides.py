"""Evidence for labels before or after their text."""

import re
from collections.abc import Sequence

from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.words import (
    COMPLEMENT,
    CONJUNCTION,
    ITEM_END,
    POST_BEHIND,
    PREDICATE,
    SEPARATORS,
    SUBJECT,
    VERB,
)
from biovl.core.records import Span

CERTAIN = 100
"""The evidence where a label starts the sentence."""


_LONGEST_PREPOSITION = 12
_PREPOSITIONS = r"(?:before|prior\sto|after|following|with|without|during|under|above|below|in|at)"
_PLACED = re.compile(rf"\b{_PREPOSITIONS}\s\Z")
_PLACED_NEXT = re.compile(
    rf"\s?(?:,\s?)?(?:and|or|versus|vs\.?|,)\s(?:\w+\s){{0,3}}{_PREPOSITIONS}\s"
)


def vote(caption: str, span: Span, inside: Sequence[Marker]) -> int:
    """Return the evidence for labels before (positive) or after (negative) their text.

    Args:
        caption: The whole caption.
        span: A sentence of it, or a part of one.
        inside: Markers of labels in the sentence, in order.

    Returns:
        A sum of hand-set weights, each from -3 to 3; ``CERTAIN`` if a label starts the
        sentence, 0 without markers.
    """
    if _open_items(caption, inside) or _are_parallel(caption, span, inside):
        return 3
    if _are_contrasted(caption, inside):
        return -3
    total = 0
    for at, marker in enumerate(inside):
        if at == 0 and not caption[span.start : marker.start].strip(SEPARATORS):
            return CERTAIN
        if marker.family not in ("bracket", "word"):
            total += 3
            continue
        end = inside[at + 1].start if at + 1 < len(inside) else span.end
        behind = caption[marker.end : min(end, marker.end + 60)]
        before = caption[max(span.start, marker.start - 12) : marker.start]
        if SUBJECT.search(before) and VERB.match(behind):
            total += 3
            continue
        if _ends_clause(caption, marker):
            total -= 2
        elif PREDICATE.match(behind):
            total -= 1
        elif behind[:1] == " " and behind[1:2].isupper():
            total += 2
        if before.rstrip()[-1:] in (";", ":"):
            total += 2
        total += 1 if COMPLEMENT.search(before) else -1
        # No text ends with a conjunction.
        total += 3 * (CONJUNCTION.search(before) is not None)
    if total == 0 and inside:
        rest = caption[inside[-1].end : span.end]
        return -1 if POST_BEHIND.match(rest) or PREDICATE.match(rest) else 1
    return total


def _open_items(caption: str, inside: Sequence[Marker]) -> bool:
    """Return whether all labels open items: ``dose (A) at rest, (B) in sleep, (C) at work``."""
    if len(inside) < 2 or any(marker.family != "bracket" for marker in inside):
        return False
    before = (caption[max(0, marker.start - 6) : marker.start] for marker in inside[1:])
    return all(map(ITEM_END.search, before)) and not any(
        _ends_clause(caption, marker) for marker in inside[:-1]
    )


def _are_parallel(caption: str, span: Span, inside: Sequence[Marker]) -> bool:
    """Return whether the same words follow each label: ``(a) animal ID 1 (b) animal ID 2``."""
    if len(inside) < 2 or any(marker.family != "bracket" for marker in inside):
        return False
    ends = [*(marker.start for marker in inside[1:]), span.end]
    items = [caption[m.end : end].split() for m, end in zip(inside, ends, strict=True)]
    lengths = [len(item) for item in items]
    is_alike = len({tuple(item[:2]) for item in items}) == 1 and min(lengths) > 2
    if not is_alike or max(lengths) - min(lengths) > 1 or VERB.match(caption, inside[0].end):
        return False
    return all(
        caption[m.end : m.end + 1] == " " and item[0][0] not in "(,"
        for m, item in zip(inside, items, strict=True)
    )


def _ends_clause(caption: str, marker: Marker) -> bool:
    """Return whether a clause, or the bracket around the label, ends behind it."""
    if POST_BEHIND.match(caption, marker.end) is not None:
        return True
    return caption[marker.end : marker.end + 1] == ")"


def _are_contrasted(caption: str, inside: Sequence[Marker]) -> bool:
    """Return whether prepositions precede the labels: ``before (A) and after (B) surgery``."""
    if len(inside) < 2 or inside[0].family not in ("bracket", "word"):
        return False
    first, second = inside[:2]
    led = _PLACED.search(caption, max(0, first.start - _LONGEST_PREPOSITION), first.start)
    return led is not None and _PLACED_NEXT.fullmatch(caption, first.end, second.start) is not None
