"""Image bytes for training: as published, or a smaller copy."""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from biovl.images.decode import decode_rgb, is_stored_as_displayed
from biovl.images.formats import image_format

_LONGEST_JPEG_PX = 65_500
"""Longest side that libjpeg writes."""


@dataclass(frozen=True)
class Encoded:
    """Image bytes for a shard, or the defect of the image."""

    data: bytes
    suffix: str
    """File extension: ``jpg`` or ``png``, the formats that common training readers support."""
    defect: str | None = None


def for_training(data: bytes, *, short_side_px: int | None, jpeg_quality: int) -> Encoded:
    """Return the bytes of an image for a shard.

    Args:
        data: The published bytes.
        short_side_px: Resize the shorter side to this length, in RGB JPEG (PNG if a side is too
            long for JPEG); images are never enlarged. None keeps JPEG and PNG as published, byte
            for byte. Images that training readers do not support (TIFF, GIF, WebP, BMP, PNG of
            16-bit grey) or decode wrongly are converted to 8-bit RGB PNG: transparent parts become
            white, and the EXIF orientation is applied.
        jpeg_quality: Pillow's scale, 1 to 95. No chroma subsampling: thin coloured lines in plots
            would blur.
    """
    kind = image_format(data)
    is_kept = short_side_px is None and kind in ("jpeg", "png") and not _is_deep_grey_png(data)
    if is_kept and is_stored_as_displayed(data):
        return Encoded(data, "jpg" if kind == "jpeg" else "png")
    decoded = decode_rgb(data)
    if decoded.pixels is None:
        return Encoded(b"", "", decoded.defect)
    image = Image.fromarray(decoded.pixels)
    scale = 1.0 if short_side_px is None else short_side_px / min(image.size)
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    if short_side_px is None or max(image.size) > _LONGEST_JPEG_PX:
        stream = io.BytesIO()
        image.save(stream, "PNG")
        return Encoded(stream.getvalue(), "png")
    return Encoded(jpeg(image, jpeg_quality), "jpg")


def jpeg(image: Image.Image, quality: int) -> bytes:
    """Return an image as JPEG of a quality on Pillow's scale, without chroma subsampling."""
    stream = io.BytesIO()
    try:
        image.save(stream, "JPEG", quality=quality, subsampling="4:4:4", optimize=True)
    except OSError:
        # Optimized, Pillow has room for a byte or two per pixel: coloured noise needs more.
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=quality, subsampling="4:4:4")
    return stream.getvalue()


def _is_deep_grey_png(data: bytes) -> bool:
    # Pillow's convert("RGB"), which every training reader calls, clips these to white (measured).
    # IHDR is the first chunk: bit depth is byte 24 of the file, colour type 0 (grey) byte 25.
    return data.startswith(b"\x89PNG") and data[24:26] == b"\x10\x00"


def thumbnail(pixels_HWC: np.ndarray, *, longer_side_px: int) -> bytes:
    """Return a small JPEG of an image; images are never enlarged.

    Args:
        pixels_HWC: RGB, uint8.
        longer_side_px: Maximum length of the longer side.
    """
    image = Image.fromarray(pixels_HWC)
    # Halved by averaging down to twice the size, then Lanczos: ten times faster on large scans.
    image.thumbnail((longer_side_px, longer_side_px), Image.Resampling.LANCZOS, reducing_gap=2.0)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=80, optimize=True)
    return stream.getvalue()
