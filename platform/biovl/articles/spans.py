"""Lookup of the ranges of a text that overlap a given range, by binary search."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Generic, TypeVar

from biovl.core.records import Span

T = TypeVar("T")


class SpanIndex(Generic[T]):
    """Objects by their range in a text.

    A lookup takes O(log N + number of results) if ranges are not nested; those of references and
    superscripts are never nested.
    """

    def __init__(self, items: Iterable[T], span_of: Callable[[T], Span]) -> None:
        """Sort objects by the start of their range."""
        pairs = [(span_of(item), item) for item in items]
        pairs.sort(key=lambda pair: (pair[0].start, pair[0].end))
        self._pairs = pairs
        self._starts = [span.start for span, _ in pairs]
        self._ends = list(accumulate((span.end for span, _ in pairs), max))

    def overlapping(self, start: int, end: int) -> list[T]:
        """Return the objects whose range overlaps ``[start, end)``, sorted by start."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return [item for span, item in self._pairs[first:last] if span.end > start]

    def starting_in(self, start: int, end: int) -> list[T]:
        """Return the objects whose range starts in ``[start, end)``, ordered by start."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return [item for _, item in self._pairs[first:last]]

    def last_before(self, place: int) -> list[T]:
        """Return the last object that ends at or before a position, as a list; empty if none."""
        last = bisect_right(self._ends, place)
        return [item for _, item in self._pairs[:last][-1:]]
