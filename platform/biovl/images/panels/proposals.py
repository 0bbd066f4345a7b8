"""Panel proposals of a detector, compared with the regions of a figure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from biovl.images.boxes import Box, Proposal, iou, overlap
from biovl.images.panels.ink import Cut, Ink

_SAME = 0.5
"""Minimum intersection over union at which a region matches a proposal."""

_NEARLY = 0.7
"""Minimum intersection over union of two boxes of the same panel."""

_INSET = 0.3
"""Maximum area of an inset, as a fraction of the panel around it."""
_INSIDE = 0.6
"""Minimum fraction of an inset that is in the panel around it; it may extend beyond the panel."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A detector's proposal in the downscaled figure, cropped to its ink."""

    box: Cut
    score: float


def proposed_in(ink: Ink, proposals: Sequence[Proposal]) -> list[Proposed]:
    """Return the distinct proposals that contain ink, the most confident first."""
    found: dict[Cut, float] = {}
    for one in sorted(proposals, key=lambda one: -one.score):
        x0, x1 = (min(max(round(x / ink.scale_x), 0), ink.width) for x in (one.box.x0, one.box.x1))
        y0, y1 = (min(max(round(y / ink.scale_y), 0), ink.height) for y in (one.box.y0, one.box.y1))
        box = ink.trimmed((x0, y0, x1, y1)) if x0 < x1 and y0 < y1 else None
        if box is not None and one.score > 0:
            found.setdefault(box, one.score)
    return [Proposed(box, score) for box, score in found.items()]


def agreement(regions: Iterable[Cut], proposed: Sequence[Proposed]) -> dict[Cut, float]:
    """Return each region's agreement with the proposals, from 0 to the score of the best one."""
    boxes_N4 = np.array(list(regions), np.float64).reshape(-1, 4)
    best_N = np.zeros(len(boxes_N4))
    for one in proposed:
        low = np.maximum(boxes_N4[:, :2], one.box[:2])
        high = np.minimum(boxes_N4[:, 2:], one.box[2:])
        shared = np.clip(high - low, 0, None).prod(1)
        own = (boxes_N4[:, 2:] - boxes_N4[:, :2]).prod(1)
        both = own + np.prod(np.subtract(one.box[2:], one.box[:2])) - shared
        over = np.clip((shared / both - _SAME) / (1 - _SAME), 0, None)
        best_N = np.maximum(best_N, one.score * over)
    return {
        (int(x0), int(y0), int(x1), int(y1)): float(value)
        for (x0, y0, x1, y1), value in zip(boxes_N4.tolist(), best_N, strict=True)
    }


def partition(proposed: Sequence[Proposed], count: int) -> list[Cut]:
    """Return the ``count`` most confident proposals if they do not overlap, else none.

    A small one may be inside a large one, as an inset.
    """
    chosen = [one.box for one in proposed[:count]]
    clear = all(
        _are_clear(Box(*first), Box(*second))
        for number, first in enumerate(chosen)
        for second in chosen[:number]
    )
    return chosen if clear and len(chosen) == count else []


def same_panels(boxes: Sequence[Cut], known: Sequence[Cut]) -> Sequence[Cut]:
    """Return the known box of each panel; the boxes themselves if one of them is unknown."""
    if len(boxes) != len(known):
        return boxes
    found = []
    for box in boxes:
        shared, nearest = max((iou(Box(*box), Box(*other)), other) for other in known)
        if shared < _NEARLY:
            return boxes
        found.append(nearest)
    return found


def _are_clear(first: Box, second: Box) -> bool:
    """Return whether two boxes are beside each other, or one is an inset of the other."""
    small, large = sorted((first, second), key=lambda box: box.area)
    is_inset = small.area < _INSET * large.area and overlap(small, large) > _INSIDE * small.area
    return is_inset or iou(first, second) < 0.05
