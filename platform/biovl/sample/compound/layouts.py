"""Layouts of synthetic figures: rows and columns with the frequencies of published figures.

The numbers were counted in the training set of the panel annotations of Zou, Antani and Thoma
(open-access figures of PMC, boxes drawn by hand; 5,843 of its 9,642 figures are compound), as
published in github.com/GaetanLepage/compound-figure-separator. Only the counts are included, no
annotations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from biovl.images.boxes import Box

Rng = np.random.Generator
T = TypeVar("T")

ROWS: dict[tuple[int, ...], int] = {
    (2,): 1202, (1, 1): 970, (2, 2): 737, (1, 1, 1): 425, (3,): 350, (2, 2, 2): 238, (2, 1): 202,
    (3, 3): 190, (1, 1, 1, 1): 130, (1, 2): 114, (2, 2, 1): 88, (3, 2): 81, (4,): 74,
    (2, 2, 2, 2): 70, (2, 3): 47, (3, 3, 3): 46, (4, 4): 45, (1, 1, 1, 1, 1): 43, (3, 1): 35,
    (2, 1, 1): 30, (1, 1, 2): 30, (5,): 28, (1, 2, 2): 25, (1, 1, 1, 1, 1, 1): 23,
    (3, 3, 3, 3): 22, (2, 2, 2, 1): 20, (4, 4, 4): 20, (2, 2, 3): 18, (2, 2, 2, 2, 2): 16,
    (4, 2): 15, (3, 2, 2): 15, (1, 2, 1): 14, (4, 3): 13, (3, 3, 2): 13, (2, 1, 2): 11,
    (1, 3): 11, (3, 4): 10, (3, 2, 1): 10, (3, 3, 3, 3, 3, 3): 9, (2, 2, 1, 1): 9, (2, 3, 3): 8,
    (3, 3, 1): 7, (7,): 7, (3, 3, 3, 3, 3): 6, (2, 2, 2, 2, 2, 2): 6, (5, 4): 4,
}  # fmt: skip
"""Number of figures by arrangement: panels in each row, from the top."""

MANY: tuple[tuple[int, ...], ...] = (
    *((4, 4, 4, 2), (5, 5, 4), (3, 3, 3, 3, 3), (4, 4, 4, 4), (3, 3, 3, 3, 3, 3), (5, 5, 5, 3)),
    *((6, 6, 6), (2, 3, 4, 5), (5, 5, 5, 5), (6, 6, 6, 6), (4, 4, 3, 3)),
)
"""Arrangements of 13 and more panels, as they occur among the 180 such figures."""

_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
GAP_PX = (0, 0, 0, 1, 4, 10, 32, 40, 40)
"""Quantiles of the distance to the nearest panel; in a fifth of figures, panels touch."""
WIDTH_PX = (368, 368, 438, 567, 616, 726, 784, 799, 800)
PANEL_ASPECT = (0.31, 0.45, 0.56, 0.97, 1.25, 1.52, 3.24, 3.6, 3.6)
"""Quantiles of the width over height of a panel."""
LABEL_HEIGHT_PX = (9, 9, 11, 16, 20, 24, 33, 43, 43)
"""Quantiles of the height of a label's box, at the usual figure width."""
LABEL_INSET_PX = (0, 0, 0, 1, 5, 14, 25, 25, 25)
"""Quantiles of the distance of a label from the corner of its panel."""

LABEL_PLACES = {
    ("left", "top"): 13067, ("left", "bottom"): 3424, ("middle", "bottom"): 1245,
    ("right", "bottom"): 1011, ("right", "top"): 505, ("middle", "top"): 236,
    ("left", "middle"): 187,
}  # fmt: skip
"""Number of labels by third of the panel, across and down; 19,773 in total."""


@dataclass(frozen=True)
class PageLayout:
    """An empty page, and the boxes of its panels in reading order."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    scale: float
    """Size of the page relative to the usual width: the factor for labels and type."""


def sample_quantiles(rng: Rng, quantiles: Sequence[float]) -> float:
    """Return a random number from the distribution with the given equidistant quantiles."""
    return float(np.interp(rng.uniform(), _QUANTILES, quantiles))


def random_key(rng: Rng, counts: dict[T, int]) -> T:
    """Return a random key with probability proportional to its count."""
    keys = list(counts)
    weights = np.array([counts[key] for key in keys], float)
    return keys[int(rng.choice(len(keys), p=weights / weights.sum()))]


def make_layout(
    rng: Rng,
    *,
    rows: tuple[int, ...] | None = None,
    gap_px: float | None = None,
    margin_px: int = 0,
    aspect: float | None = None,
) -> PageLayout:
    """Return a layout of panels in rows.

    One in six layouts with rows of different lengths is transposed, so that panels span rows.

    Args:
        rng: Selects the parameters that are None.
        rows: Panels in each row; None: with published frequencies.
        gap_px: Distance between panels, on a page of the usual width.
        margin_px: Margin around all panels.
        aspect: Width over height of a typical panel.
    """
    rows = rows or random_key(rng, ROWS)
    wide = sample_quantiles(rng, WIDTH_PX)
    # Today's figures have two to three times the pixels of those counted in 2013.
    scale = float(rng.choice((1.0, 1.5, 2.0), p=(0.7, 0.2, 0.1)))
    width = round(wide * scale)
    gap = (sample_quantiles(rng, GAP_PX) if gap_px is None else gap_px) * scale
    gap = float(round(gap))
    aspect = aspect or sample_quantiles(rng, PANEL_ASPECT)
    turned = len(rows) > 1 and len(set(rows)) > 1 and rng.integers(6) == 0
    if turned:
        boxes = [Box(b.y0, b.x0, b.y1, b.x1) for b in _in_rows(rng, rows, width, gap, 1 / aspect)]
    else:
        boxes = _in_rows(rng, rows, width, gap, aspect)
    # A page is never more than three times as high as it is wide.
    tall = max(box.y1 for box in boxes)
    if tall > 3 * width:
        shrink = 3 * width / tall
        boxes = [Box(b.x0, round(b.y0 * shrink), b.x1, round(b.y1 * shrink)) for b in boxes]
    boxes = [box.moved(margin_px, margin_px) for box in boxes]
    return PageLayout(
        round(max(box.x1 for box in boxes)) + margin_px,
        round(max(box.y1 for box in boxes)) + margin_px,
        tuple(boxes),
        width / 616,
    )


def _in_rows(rng: Rng, rows: tuple[int, ...], width: int, gap: float, aspect: float) -> list[Box]:
    """Return boxes that fill rows of a width; the heights follow from the aspect."""
    columns = max(rows)
    is_grid, is_ragged = bool(rng.integers(2)), bool(rng.integers(2))
    cell = (width - gap * (columns - 1)) / columns
    boxes, y = [], 0.0
    for number in rows:
        free = width - gap * (number - 1)
        if number == columns or (is_ragged and number < columns):
            widths = np.full(number, cell)
        else:
            widths = np.full(number, free / number)
        if not is_grid:
            widths = rng.uniform(0.6, 1.4, number)
            widths *= free / widths.sum()
        height = max(float(cell / aspect), 40.0)
        if not is_grid:
            height *= float(rng.uniform(0.75, 1.3))
        x = 0.0
        for wide in widths:
            boxes.append(Box(round(x), round(y), round(x + wide), round(y + height)))
            x += wide + gap
        y += height + gap
    return boxes
