"""Metrics for the panels and labels of figures, as defined in the literature.

``imageclef_accuracy`` must not be reported alone: it divides the intersection by the candidate's
area, so that a figure of tiny boxes, one within each true panel, scores 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from biovl.images.boxes import Box, iou, overlap

_SHARED = 2 / 3


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


def imageclef_accuracy(found: Sequence[Box], true: Sequence[Box]) -> float:
    """Return the score of one figure in the figure separation task of ImageCLEF.

    Each true panel matches the unmatched predicted box with the largest share of its own area
    inside the panel, if that is at least two thirds. The score is the number of matches divided by
    the larger number of boxes, predicted or true. The task's score is the mean over its figures.

    Source:
        García Seco de Herrera et al., ImageCLEF 2013 and 2016, as its official scorer computes it.
    """
    if not found or not true:
        return 0.0
    taken: set[int] = set()
    matches = 0
    for box in true:
        shares = [
            (overlap(other, box) / other.area, -at)
            for at, other in enumerate(found)
            if at not in taken and other.area > 0
        ]
        share, at = max(shares, default=(0.0, 0))
        if share >= _SHARED:
            taken.add(-at)
            matches += 1
    return matches / max(len(found), len(true))


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


def alignment_counts(
    found: Sequence[tuple[str | None, Box]], true: Sequence[tuple[str | None, Box]]
) -> Counts:
    """Return the number of panels with both the correct box and the correct label, in one figure.

    A panel without a true label is correct if none was predicted.
    """
    boxes = match_boxes([box for _, box in found], [box for _, box in true])
    hits = sum(found[i][0] == true[j][0] for i, j in boxes.items())
    return Counts(hits, len(found), len(true))
