"""Ink of a figure as integral images: the count in any strip takes constant time.

A figure is reduced to a copy of bounded size. Three masks are stored: pixels that are not white,
not black, and not the colour of the figure's border if that is neither; and the positions where the
colour changes between neighbouring columns or rows, the only separation of panels that touch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

LONGEST_PX = 1000
"""Maximum side of the copy in pixels. Gutters are 1 % of a figure and stay visible."""

_BAND = 64
"""Rows of the copy computed at once: the largest images need no second full copy."""

_NEAR = 28
"""Levels (of 255) by which JPEG changes the colour of a gutter, and a scan that of its paper."""

_JUMP = 14
"""Difference in levels between neighbours that counts as an edge."""

Cut = tuple[int, int, int, int]
"""A rectangle of the copy: x0, y0, x1, y1, end exclusive."""


@dataclass(frozen=True)
class Ink:
    """Integral images of a downscaled copy of a figure, H x W pixels."""

    width: int
    height: int

    scale_x: float
    """Pixels of the figure per pixel of the copy."""

    scale_y: float

    inked: tuple[np.ndarray, ...]
    """Number of pixels above and left of each that differ from a background; one table per
    background, the first for the figure's own. Shape [H + 1, W + 1], int32."""

    jumps_across: np.ndarray
    """Number of pixels above and left of each that differ from their right neighbour. Shape [H + 1,
    W + 1]."""

    jumps_down: np.ndarray
    """Number of pixels above and left of each that differ from the neighbour below. Shape [H + 1, W
    + 1]."""

    def columns(self, table: np.ndarray, cut: Cut) -> np.ndarray:
        """Return the count of every column of a rectangle. Shape [x1 - x0], int32."""
        x0, y0, x1, y1 = cut
        sums = table[y1, x0 : x1 + 1] - table[y0, x0 : x1 + 1]
        counts: np.ndarray = sums[1:] - sums[:-1]
        return counts

    def rows(self, table: np.ndarray, cut: Cut) -> np.ndarray:
        """Return the count of every row of a rectangle. Shape [y1 - y0], int32."""
        x0, y0, x1, y1 = cut
        sums = table[y0 : y1 + 1, x1] - table[y0 : y1 + 1, x0]
        counts: np.ndarray = sums[1:] - sums[:-1]
        return counts

    def trimmed(self, cut: Cut) -> Cut | None:
        """Return a rectangle cropped to its ink; None if it has none."""
        x0, y0, x1, y1 = cut
        table = self.inked[0]
        # Cumulative counts are monotonic: the first and last ink is found by binary search.
        right = table[y1, x0 : x1 + 1] - table[y0, x0 : x1 + 1]
        if right[-1] - right[0] < 2:
            return None
        down = table[y0 : y1 + 1, x1] - table[y0 : y1 + 1, x0]
        return (
            x0 + int(right.searchsorted(right[0], "right")) - 1,
            y0 + int(down.searchsorted(down[0], "right")) - 1,
            x0 + int(right.searchsorted(right[-1], "left")),
            y0 + int(down.searchsorted(down[-1], "left")),
        )

    def share_within(self, cuts: Sequence[Cut]) -> float:
        """Return the share of the ink that is in any of several rectangles, 0..1."""
        inked_HW = np.diff(np.diff(self.inked[0], axis=0), axis=1)
        within_HW = np.zeros(inked_HW.shape, bool)
        for x0, y0, x1, y1 in cuts:
            within_HW[y0:y1, x0:x1] = True
        return float(inked_HW[within_HW].sum() / max(inked_HW.sum(), 1))


def ink_of(pixels: np.ndarray) -> Ink:
    """Return the integral images of a figure. RGB, uint8, shape [H, W, 3]."""
    planes = _planes(pixels)
    height, width = planes[0].shape
    lightest = np.maximum(np.maximum(planes[0], planes[1]), planes[2])
    darkest = np.minimum(np.minimum(planes[0], planes[1]), planes[2])
    masks = [darkest < 255 - _NEAR, lightest > _NEAR]
    share, colour = _border_colour(planes)
    if share > 0.5:
        if colour.max() <= _NEAR:
            masks.reverse()
        elif colour.min() < 255 - _NEAR:
            masks.insert(0, _differs(planes, colour))
    return Ink(
        width,
        height,
        pixels.shape[1] / width,
        pixels.shape[0] / height,
        tuple(_summed(mask) for mask in masks),
        _summed(_jumps(planes, 1)),
        _summed(_jumps(planes, 0)),
    )


def _planes(pixels: np.ndarray) -> list[np.ndarray]:
    """Return the copy, one plane per channel. Shape [H, W], uint8."""
    height, width = pixels.shape[:2]
    by_x = by_y = -(-max(height, width) // LONGEST_PX)
    # A side of one pixel stays one pixel.
    by_x, by_y = min(by_x, max(width // 8, 1)), min(by_y, max(height // 8, 1))
    if by_x == by_y == 1:
        return [np.ascontiguousarray(pixels[:, :, channel]) for channel in range(3)]
    bands = []
    for top in range(0, height, _BAND * by_y):
        band = np.ascontiguousarray(pixels[top : top + _BAND * by_y])
        bands.append(np.asarray(Image.fromarray(band).reduce((by_x, by_y))))
    copy = np.concatenate(bands)
    return [np.ascontiguousarray(copy[:, :, channel]) for channel in range(3)]


def _border_colour(planes: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the most frequent colour of the border, and its share."""
    edge = np.stack(
        [np.concatenate([plane[0], plane[-1], plane[:, 0], plane[:, -1]]) for plane in planes], 1
    ).astype(np.int64)
    coarse = (edge // 16) @ np.array([256, 16, 1])
    values, counts = np.unique(coarse, return_counts=True)
    chosen = edge[coarse == values[np.argmax(counts)]]
    colour: np.ndarray = np.median(chosen, axis=0).astype(np.int64)
    share = (np.abs(edge - colour).max(axis=1) <= _NEAR).mean()
    return float(share), colour


def _differs(planes: list[np.ndarray], colour: np.ndarray) -> np.ndarray:
    differs = np.zeros(planes[0].shape, bool)
    for plane, level in zip(planes, colour, strict=True):
        differs |= (plane < max(level - _NEAR, 0)) | (plane > min(level + _NEAR, 255))
    return differs


def _jumps(planes: list[np.ndarray], axis: int) -> np.ndarray:
    """Return where the next pixel along an axis has another colour; false at the end."""
    jumps = np.zeros(planes[0].shape, bool)
    here = jumps[:-1] if axis == 0 else jumps[:, :-1]
    for plane in planes:
        first, second = (plane[:-1], plane[1:]) if axis == 0 else (plane[:, :-1], plane[:, 1:])
        here |= np.maximum(first, second) - np.minimum(first, second) > _JUMP
    return jumps


def _summed(mask: np.ndarray) -> np.ndarray:
    table = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), np.int32)
    np.cumsum(mask, axis=0, dtype=np.int32, out=table[1:, 1:])
    np.cumsum(table[1:, 1:], axis=1, out=table[1:, 1:])
    return table
