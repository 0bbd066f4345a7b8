"""Images to the square inputs of towers: random crop for training, center crop for evaluation.

Both are the transforms of open_clip, which are torchvision's on Pillow images: the same boxes and
the same filter, without tensors. JPEGs are decoded in full, as in open_clip: a scaled decode
changes the input of the filter, and saves nothing on images already resized for training.
"""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

_ATTEMPTS = 10
_LONGEST = 64
"""Maximum aspect ratio; longer images are cropped first, because resizing a line one pixel high
would exhaust memory."""


@dataclass(frozen=True)
class CropBox:
    """A rectangle of an image, in pixels."""

    left: int
    top: int
    width: int
    height: int


def random_box(
    width: int,
    height: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> CropBox:
    """Return a random crop box as RandomResizedCrop selects it.

    Args:
        width: Width of the image in pixels, at least 1.
        height: Height of the image in pixels, at least 1.
        scale: Minimum and maximum fraction of the area, uniform.
        ratio: Minimum and maximum width / height, log-uniform.
        rng: Two numbers are drawn per attempt, in at most ten attempts, and two for the position.

    Source:
        torchvision 0.29, ``RandomResizedCrop.get_params``.
    """
    for _ in range(_ATTEMPTS):
        area = width * height * _between(*scale, rng)
        aspect = math.exp(_between(math.log(ratio[0]), math.log(ratio[1]), rng))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = _below(height - h + 1, rng), _below(width - w + 1, rng)
            return CropBox(left, top, w, h)
    # Fallback: the largest center crop with an allowed ratio.
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return CropBox((width - w) // 2, (height - h) // 2, w, h)


def random_resized_crop(
    image: Image.Image,
    size_px: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> np.ndarray:
    """Return a random crop of an RGB image as a square, bicubic. Shape [size, size, 3], uint8."""
    box = random_box(image.width, image.height, scale, ratio, rng)
    cut = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    return np.asarray(cut.resize((size_px, size_px), Image.Resampling.BICUBIC))


def resize_center_crop(image: Image.Image, size_px: int) -> np.ndarray:
    """Return the center crop of an RGB image resized to a shorter side of ``size_px``, bicubic.

    The bytes equal those of open_clip's transform for evaluation. Shape [size, size, 3], uint8.
    """
    image = without_ends(image)
    width, height = image.size
    short = min(width, height)
    # Truncated and not rounded, as in torchvision.
    size = int(size_px * width / short), int(size_px * height / short)
    resized = image.resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - size_px) / 2), round((size[1] - size_px) / 2)
    return np.asarray(resized.crop((left, top, left + size_px, top + size_px)))


def without_ends(image: Image.Image) -> Image.Image:
    """Return the middle of an image with an aspect ratio above 64; other images unchanged."""
    longest = _LONGEST * min(image.size)
    if max(image.size) <= longest:
        return image
    width, height = min(image.width, longest), min(image.height, longest)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


# Only Generator.random is used: its stream is the same in every version of NumPy.
def _between(low: float, high: float, rng: np.random.Generator) -> float:
    return low + (high - low) * rng.random()


def _below(count: int, rng: np.random.Generator) -> int:
    return int(rng.random() * count)
