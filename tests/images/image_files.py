"""Pictures as tests encode them."""

import io

import numpy as np
from PIL import Image


def picture(mode: str = "RGB", size: tuple[int, int] = (96, 64)) -> Image.Image:
    """Return a picture with structure: a gradient, a disc and a frame."""
    y, x = np.mgrid[: size[1], : size[0]]
    values = (x * 2 + y) % 256
    values[(x - 40) ** 2 + (y - 30) ** 2 < 400] = 20
    values[:6] = 240
    grey = Image.fromarray(values.astype(np.uint8))
    if mode == "I;16":
        return Image.fromarray((values * 200).astype(np.uint16))
    if mode == "F":
        return Image.fromarray(values.astype(np.float32) / 7)
    if mode == "I":
        return Image.fromarray((values * 1000).astype(np.int32))
    return grey.convert("RGB").convert(mode)


def encoded(kind: str, image: Image.Image, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def camera_row(channels: int = 3) -> np.ndarray:
    """Return colours of 12 bits, with opaque alpha, [64, C]."""
    row = np.linspace(0, 4095, 64)
    return np.stack([row, row[::-1] / 2, row / 4, row * 0 + 4095], -1)[:, :channels].astype(">u2")
