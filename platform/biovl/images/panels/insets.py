"""Panels within panels: framed rectangles around labels."""

from collections.abc import Sequence

import numpy as np

from biovl.images.panels.cuts import Mark, area
from biovl.images.panels.ink import Cut, Ink

_EDGE = 0.8
"""Minimum share of a line next to a label along which the colour changes."""

_SIDE = 0.55
"""The same for all sides of a rectangle; their mean is at least ``_SIDES``."""
_SIDES = 0.75

_NEAREST = 4
"""Lines on each side of a label that are tried."""

_LEAST_SIDE = 0.05
"""Minimum side of an inset, as a fraction of the figure's longer side."""


def insets_of(ink: Ink, marks: Sequence[Mark]) -> dict[int, Cut]:
    """Return the best framed rectangle around each label and no other one, by label index."""
    found = {}
    page = (0, 0, ink.width, ink.height)
    for mark in (mark for mark in marks if mark.within(page)):
        others = [other for other in marks if other is not mark]
        box = _framed(ink, mark, others)
        if box is not None:
            found[mark.index] = box
    return found


def _framed(ink: Ink, mark: Mark, others: Sequence[Mark]) -> Cut | None:
    x0, y0, x1, y1 = (round(value) for value in mark.box)
    tall = max(y1 - y0, 4)
    top, end = max(y0 - tall // 2, 0), min(max(y1, 0) + tall, ink.height)
    left, right = max(x0 - tall // 2, 0), min(max(x1, 0) + tall, ink.width)
    least = _LEAST_SIDE * max(ink.width, ink.height)
    columns = _lines(ink.columns(ink.jumps_across, (0, top, ink.width, end)), end - top)
    rows = _lines(ink.rows(ink.jumps_down, (left, 0, right, ink.height)), right - left)
    best, most = None, _SIDES
    for a in columns[columns <= x0 + 1][-_NEAREST:].tolist():
        for b in columns[columns >= x1 - 1][:_NEAREST].tolist():
            if b - a < least:
                continue
            across = _share(ink.rows(ink.jumps_down, (a, 0, b, ink.height)), b - a)
            for c in rows[rows <= y0 + 1][-_NEAREST:].tolist():
                for d in rows[rows >= y1 - 1][:_NEAREST].tolist():
                    if d - c < least or min(across[c - 1], across[d - 1]) < _SIDE:
                        continue
                    down = _share(ink.columns(ink.jumps_across, (0, c, ink.width, d)), d - c)
                    sides = [down[a - 1], down[b - 1], across[c - 1], across[d - 1]]
                    score = float(np.mean(sides))
                    box = (a, c, b, d)
                    if min(sides) < _SIDE or score <= most:
                        continue
                    if not any(other.within(box) for other in others):
                        best, most = box, score
    return best


def _lines(counts: np.ndarray, length: int) -> np.ndarray:
    """Return the positions behind lines along which the colour changes. Shape [lines]."""
    return np.flatnonzero(counts >= _EDGE * length) + 1


def _share(counts: np.ndarray, length: int) -> np.ndarray:
    """Return the share of each line, or of a neighbour, along which the colour changes."""
    share = counts / length
    near = share.copy()
    near[1:] = np.maximum(near[1:], share[:-1])
    near[:-1] = np.maximum(near[:-1], share[1:])
    return near


def may_hold(box: Cut, inset: Cut) -> bool:
    """Return whether a region may have an inset: it contains it, and is much larger."""
    contains = (
        box[0] - 2 <= inset[0]
        and box[1] - 2 <= inset[1]
        and inset[2] <= box[2] + 2
        and inset[3] <= box[3] + 2
    )
    return contains and area(inset) < _LARGEST * area(box)


_LARGEST = 0.4
"""Maximum area of an inset, as a fraction of its panel's."""
