"""Conversion of drawing calls and arrays to the pixels of one panel."""

from collections.abc import Callable
from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from skimage import data, filters

from biovl.sample.words import Rng

HEIGHT, WIDTH = 280, 360
"""Size of a panel, in pixels."""

Box = tuple[float, float, float, float]
FRAMED: Box = (0.18, 0.18, 0.77, 0.74)
"""Left, bottom, width and height of axes with labels, as fractions of the panel."""
BARE: Box = (0.02, 0.02, 0.96, 0.96)

X, Y = (axis.astype(np.float32) for axis in np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)))
"""Coordinates of a panel's pixels. Shape [H, W]."""

# Restore matplotlib's defaults: a sample must not depend on the user's matplotlibrc.
_STYLE: dict[Any, Any] = {
    name: value
    for name, value in matplotlib.rcParamsDefault.items()
    if name.startswith(("font.", "axes.", "lines.", "xtick.", "ytick.", "figure.", "legend."))
} | {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def plot_pixels(draw: Callable[[Axes], None], box: Box = FRAMED) -> np.ndarray:
    """Return the pixels that ``draw`` produces. RGB, uint8, shape [280, 360, 3]."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        canvas = FigureCanvasAgg(figure)
        draw(figure.add_axes(box))
        canvas.draw()  # type: ignore[no-untyped-call]
        drawn = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return drawn[..., :3].copy()


@cache
def bundled(name: str) -> np.ndarray:
    """Return an image inside scikit-image's wheel; nothing is downloaded."""
    return np.asarray(getattr(data, name)())


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return a grey or RGB image with values in 0..1 as RGB uint8."""
    pixels = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return np.dstack([pixels] * 3) if pixels.ndim == 2 else pixels


def blur(image: np.ndarray, sigma: float | tuple[float, ...]) -> np.ndarray:
    """Return an image after a Gaussian filter, as float."""
    return np.asarray(filters.gaussian(image.astype(np.float32), sigma))  # type: ignore[no-untyped-call]


def noise(rng: Rng, sigma: float) -> np.ndarray:
    """Return smooth noise with mean 0 and standard deviation 1. Shape [H, W]."""
    field = blur(rng.normal(size=(HEIGHT, WIDTH)), sigma)
    return np.asarray((field - field.mean()) / field.std())


def ellipse(x: float, y: float, rx: float, ry: float, angle: float = 0.0) -> np.ndarray:
    """Return which pixels an ellipse covers. Bool, shape [H, W]."""
    c, s = np.cos(angle), np.sin(angle)
    u, v = (X - x) * c + (Y - y) * s, -(X - x) * s + (Y - y) * c
    return np.asarray((u / rx) ** 2 + (v / ry) ** 2 < 1)


def crop(image: np.ndarray, rng: Rng, zoom: tuple[float, float]) -> np.ndarray:
    """Return a random crop of a photograph, resized to a panel."""
    height, width = image.shape[:2]
    h = int(min(height, width * HEIGHT / WIDTH) * rng.uniform(*zoom))
    w = int(h * WIDTH / HEIGHT)
    top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    part = Image.fromarray(image[top : top + h, left : left + w])
    return np.asarray(part.resize((WIDTH, HEIGHT)))


def with_scale_bar(image: np.ndarray, grey: int) -> np.ndarray:
    """Return RGB pixels with a scale bar in the lower right corner."""
    marked = image.copy()
    marked[HEIGHT - 18 : HEIGHT - 14, WIDTH - 80 : WIDTH - 16] = grey
    return marked
