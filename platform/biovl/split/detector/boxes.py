"""Decode the network's output maps to the boxes of a figure, in NumPy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST = 0.05
"""Minimum score of boxes that are returned."""

_MOST_CELLS = 400
_MOST = 100
_SAME = 0.55
"""IoU of two boxes above which the one with the lower score is dropped."""
_VOTES = 0.75
"""IoU with a kept box above which a box votes for its sides."""


class Maps(NamedTuple):
    """Output of the network for one figure. Shapes: H and W cells."""

    score_HW: np.ndarray
    """Expected overlap of each cell's box with a panel, float32, 0..1."""
    boxes_4HW: np.ndarray
    """Boxes, float32: left, top, right and bottom side in pixels of the input."""
    compound: float
    """Probability that the figure has several panels."""


def decode_boxes(maps: Maps, least: float) -> list[tuple[float, Sequence[float]]]:
    """Return score and corners of the boxes in a figure, by decreasing score.

    Non-maximum suppression: of overlapping boxes, the one with the highest score is kept. Its sides
    are the score-weighted mean over boxes that nearly coincide with it (box voting).
    """
    score_M = maps.score_HW.ravel()
    kept_M = np.flatnonzero(score_M >= max(least, LEAST))
    kept_M = kept_M[np.argsort(-score_M[kept_M], kind="stable")][:_MOST_CELLS]
    score_M, boxes_M4 = score_M[kept_M], maps.boxes_4HW.reshape(4, -1).T[kept_M]
    overlap_MM = _overlaps(boxes_M4)
    free_M = np.ones(len(kept_M), np.bool_)
    found: list[tuple[float, Sequence[float]]] = []
    for at in range(len(kept_M)):
        if not free_M[at] or len(found) >= _MOST:
            continue
        votes_M = score_M * (overlap_MM[at] >= _VOTES)
        corners_4 = votes_M @ boxes_M4 / votes_M.sum()
        found.append((float(score_M[at]), corners_4.tolist()))
        free_M &= overlap_MM[at] < _SAME
    return found


def _overlaps(boxes_M4: np.ndarray) -> np.ndarray:
    """Return the intersection over union of all pairs of boxes. Shape [M, M]."""
    low, high = boxes_M4[:, None, :2], boxes_M4[:, None, 2:]
    shared = np.clip(
        np.minimum(high, boxes_M4[None, :, 2:]) - np.maximum(low, boxes_M4[None, :, :2]), 0, None
    ).prod(2)
    area_M = np.clip(boxes_M4[:, 2:] - boxes_M4[:, :2], 0, None).prod(1)
    total = area_M[:, None] + area_M[None] - shared
    return np.asarray(shared / np.maximum(total, 1e-6))
