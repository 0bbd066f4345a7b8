"""Figures fitted into the network's input square, unchanged or augmented for training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from biovl.images.boxes import Box

AROUND = 128
"""Grey padding: different from paper and ink."""

_LEAST_SCALE = 0.6


@dataclass(frozen=True)
class Fitted:
    """A figure scaled to the input size, without padding."""

    pixels_HWC: np.ndarray
    """RGB, uint8; the longer side equals the side of the square."""
    boxes_N4: np.ndarray
    """Boxes of the true panels in these pixels, float32, shape [N, 4]: x0, y0, x1, y1."""


@dataclass(frozen=True)
class Square:
    """A figure in the centre of a square, with its position there."""

    pixels_HWC: np.ndarray
    """RGB, uint8, shape [size, size, 3]."""
    scale_x: float
    scale_y: float
    left: int
    top: int
    width: int
    height: int
    """Height and width of the figure in its own pixels, to which boxes are clipped."""

    def in_figure(self, box: Sequence[float]) -> Box:
        """Return a box of the square in pixels of the figure, clipped to its bounds."""
        x0, y0, x1, y1 = box
        return Box(
            min(max((x0 - self.left) / self.scale_x, 0.0), self.width),
            min(max((y0 - self.top) / self.scale_y, 0.0), self.height),
            min(max((x1 - self.left) / self.scale_x, 0.0), self.width),
            min(max((y1 - self.top) / self.scale_y, 0.0), self.height),
        )


def fit(pixels: np.ndarray, boxes: Sequence[Box], size_px: int) -> Fitted:
    """Scale a figure, RGB uint8 [H, W, 3], and its boxes; its longer side becomes ``size_px``."""
    scaled, scale_x, scale_y = _scaled(pixels, size_px)
    corners = [(b.x0 * scale_x, b.y0 * scale_y, b.x1 * scale_x, b.y1 * scale_y) for b in boxes]
    return Fitted(scaled, np.array(corners, np.float32).reshape(-1, 4))


def square(pixels: np.ndarray, size_px: int) -> Square:
    """Center a figure, RGB uint8 [H, W, 3], in a square."""
    scaled, scale_x, scale_y = _scaled(pixels, size_px)
    height, width = scaled.shape[:2]
    left, top = (size_px - width) // 2, (size_px - height) // 2
    page = _placed(scaled, size_px, left, top)
    return Square(page, scale_x, scale_y, left, top, pixels.shape[1], pixels.shape[0])


def view(figure: Fitted, size_px: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a figure, randomly flipped, transposed, scaled, moved and recoloured, and its panels.

    Returns:
        Pixels [size, size, 3], uint8, and boxes [N, 4], float32.
    """
    pixels, boxes = figure.pixels_HWC, figure.boxes_N4.copy()
    # Labels are upright, and mostly in the upper left corner.
    if rng.integers(4) == 0:
        pixels = pixels[:, ::-1]
        boxes[:, [0, 2]] = pixels.shape[1] - boxes[:, [2, 0]]
    if rng.integers(6) == 0:
        pixels = pixels[::-1]
        boxes[:, [1, 3]] = pixels.shape[0] - boxes[:, [3, 1]]
    if rng.integers(6) == 0:
        pixels, boxes = pixels.transpose(1, 0, 2), boxes[:, [1, 0, 3, 2]]
    if rng.integers(3) == 0:
        longest = max(round(float(rng.uniform(_LEAST_SCALE, 1)) * size_px), 8)
        pixels, scale_x, scale_y = _scaled(pixels, longest)
        boxes = boxes * np.array([scale_x, scale_y, scale_x, scale_y], np.float32)
    if rng.integers(12) == 0:
        pixels = 255 - pixels
    if rng.integers(3) == 0:
        pixels = np.clip(pixels * rng.uniform(0.7, 1.1, 3), 0, 255).astype(np.uint8)
    if rng.integers(8) == 0:
        pixels = np.repeat(pixels.mean(2, keepdims=True).astype(np.uint8), 3, 2)
    left = int(rng.integers(size_px - pixels.shape[1] + 1))
    top = int(rng.integers(size_px - pixels.shape[0] + 1))
    moved = boxes + np.array([left, top, left, top], np.float32)
    return _placed(pixels, size_px, left, top), moved


def _scaled(pixels: np.ndarray, longest_px: int) -> tuple[np.ndarray, float, float]:
    height, width = pixels.shape[:2]
    scale = longest_px / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    resized = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
    return resized, size[0] / width, size[1] / height


def _placed(pixels: np.ndarray, size_px: int, left: int, top: int) -> np.ndarray:
    page = np.full((size_px, size_px, 3), AROUND, np.uint8)
    page[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return page
