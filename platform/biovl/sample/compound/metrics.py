"""Metrics for the panels of figures, as defined in the literature."""

from collections.abc import Sequence
from dataclasses import dataclass

from biovl.images.boxes import Box, iou


@dataclass(frozen=True, slots=True)
class Scored:
    """A predicted box with its confidence."""

    box: Box
    confidence: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of correct predictions, predictions and true items."""

    hits: int
    """Number of correct predictions."""
    found: int
    """Number of predictions."""
    true: int
    """Number of true items."""

    @property
    def precision(self) -> float:
        """Share of correct predictions; 1 if nothing was predicted."""
        return self.hits / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Share of true items that were predicted; 1 if there are none."""
        return self.hits / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 if there are no true and no predicted items."""
        total = self.found + self.true
        return 2 * self.hits / total if total else 1.0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.hits + other.hits, self.found + other.found, self.true + other.true)


def match_boxes(found: Sequence[Box], true: Sequence[Box], at: float = 0.5) -> dict[int, int]:
    """Return the true box that each predicted box matches: best pairs first, one match per box.

    Args:
        found: Predicted boxes; their indices are the keys.
        true: True boxes; their indices are the values.
        at: Minimum intersection over union.
    """
    pairs = [
        (iou(box, other), -i, -j) for i, box in enumerate(found) for j, other in enumerate(true)
    ]
    hits: dict[int, int] = {}
    for value, i, j in sorted(pairs, reverse=True):
        if value < at:
            break
        if -i not in hits and -j not in hits.values():
            hits[-i] = -j
    return hits


def box_counts(found: Sequence[Box], true: Sequence[Box], at: float = 0.5) -> Counts:
    """Return the number of matching boxes in one figure."""
    return Counts(len(match_boxes(found, true, at)), len(found), len(true))


def average_precision(
    figures: Sequence[tuple[Sequence[Scored], Sequence[Box]]], at: float = 0.5
) -> float:
    """Return the average precision of predicted boxes over all figures.

    There is one class, so it equals the mean average precision. The precision at a recall is the
    highest at that recall or above. Boxes are matched by descending confidence: each to the true
    box of highest IoU, if that is still free. Ties are in the order of the figures.

    Source:
        Everingham et al. 2010, the PASCAL visual object classes challenge, all points.
    """
    total = sum(len(true) for _, true in figures)
    ranked = [
        (scored.confidence, number, scored.box)
        for number, (found, _) in enumerate(figures)
        for scored in found
    ]
    ranked.sort(key=lambda item: -item[0])
    if not total or not ranked:
        return 0.0
    taken: set[tuple[int, int]] = set()
    points: list[tuple[float, float]] = []
    hits = 0
    for rank, (_, number, box) in enumerate(ranked, 1):
        values = [(iou(box, other), -j) for j, other in enumerate(figures[number][1])]
        value, j = max(values, default=(0.0, 0))
        if value >= at and (number, -j) not in taken:
            taken.add((number, -j))
            hits += 1
        points.append((hits / total, hits / rank))
    area, best, beyond = 0.0, 0.0, points[-1][0]
    for recall, precision in reversed(points):
        area += (beyond - recall) * best
        beyond, best = recall, max(best, precision)
    return area + beyond * best
