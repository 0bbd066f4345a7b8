"""Image bytes to pixels. Bad files are results, not exceptions: they end up as a column."""

import io
import struct
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from biovl.images.hashing import phash_hex

MAX_PIXELS = 178_956_970
"""Larger images are defects: a file of a few kB can claim more than a worker's memory. Pillow's own
limit; decoded to RGB it is 540 MB. Real scans reach 150 million pixels."""

MIN_SIDE_PX = 8
"""Smaller images are spacers and rules, not figures."""

EMPTY = "image is empty"
UNDECODABLE = "image does not decode"
TRUNCATED = "image is truncated"
TOO_LARGE = "image too large"
TOO_SMALL = "image too small"
NOT_AN_IMAGE = "graphic is not an image"
_VECTOR = {"svg": "graphic is svg", "eps": "graphic is eps", "pdf": "graphic is pdf"}
_VIDEO = "graphic is a video"
DEFECTS = (
    *(EMPTY, UNDECODABLE, TRUNCATED, TOO_LARGE, TOO_SMALL, NOT_AN_IMAGE, _VIDEO),
    *_VECTOR.values(),
)

# Only these decoders are ever tried. Pillow's others start Ghostscript or are seldom looked after.
_PILLOW = {
    "jpeg": "JPEG",
    "png": "PNG",
    "gif": "GIF",
    "tiff": "TIFF",
    "webp": "WEBP",
    "bmp": "BMP",
}
_MAGIC = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"BM", "bmp"),
    (b"%!PS", "eps"),
    (b"\xc5\xd0\xd3\xc6", "eps"),
    (b"%PDF", "pdf"),
    (b"\x1aE\xdf\xa3", "video"),
    (b"FLV\x01", "video"),
    (b"\x00\x00\x01\xba", "video"),
    (b"\x00\x00\x01\xb3", "video"),
    (b"0&\xb2u\x8ef\xcf\x11", "video"),
    (b"PK\x03\x04", "zip"),
)
# What Pillow 13 raises on damaged files: found by cutting and flipping the bytes of every format.
# SyntaxError is how it reports a malformed PNG chunk.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True)
class Inspected:
    """What one look at an image file finds."""

    format: str | None
    mode: str | None = None
    """Pillow's mode as published: RGB, L, CMYK, I;16, P …"""
    width_px: int | None = None
    """As displayed: a rotation stated in EXIF is applied."""
    height_px: int | None = None
    phash: str | None = None
    defect: str | None = None
    defect_detail: str | None = None


@dataclass(frozen=True)
class Decoded:
    """An image, or the reason there is none."""

    pixels: np.ndarray | None
    """RGB, uint8, shape [H, W, 3]."""

    defect: str | None


def image_format(data: bytes) -> str | None:
    """Return what a file is, by its content and not by its name; None if it is nothing known."""
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF":
        return {b"WEBP": "webp", b"AVI ": "video"}.get(data[8:12])
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return "video"
    head = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in head and head.startswith(b"<"):
        return "svg"
    if head.startswith((b"<!doctype html", b"<html")):
        return "html"
    return None


def inspect(data: bytes) -> Inspected:
    """Look at one image file in one decode, to its last byte."""
    kind = image_format(data)
    if not data:
        return Inspected(None, defect=EMPTY)
    if kind not in _PILLOW:
        reason = _VIDEO if kind == "video" else _VECTOR.get(kind or "", NOT_AN_IMAGE)
        return Inspected(kind, defect=reason)
    mode = width = height = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=[_PILLOW[kind]]) as image:
                mode, (width, height) = image.mode, image.size
                if image.getexif().get(0x0112, 1) >= 5:
                    width, height = height, width
                size = f"{width} x {height} px"
                if width * height > MAX_PIXELS:
                    return Inspected(kind, mode, width, height, None, TOO_LARGE, size)
                if min(width, height) < MIN_SIDE_PX:
                    return Inspected(kind, mode, width, height, None, TOO_SMALL, size)
                # The hash needs 32 pixels: libjpeg then skips most of its arithmetic, but still
                # reads every coded byte, so a truncated file is found out.
                image.draft("L", (128, 128))
                image.load()
                phash = phash_hex(_displayed(image))
        except Image.DecompressionBombError as error:
            return Inspected(kind, defect=TOO_LARGE, defect_detail=str(error)[:200])
        except _BROKEN as error:
            detail = f"{type(error).__name__}: {error}"[:200]
            reason = TRUNCATED if "truncated" in str(error).lower() else UNDECODABLE
            return Inspected(kind, mode, width, height, None, reason, detail)
    return Inspected(kind, mode, width, height, phash)


def decode_rgb(data: bytes) -> Decoded:
    """Decode one encoded image to RGB, as displayed.

    Transparent parts are white, as on the page. 16-bit images are scaled to their own range.
    """
    kind = image_format(data)
    if kind not in _PILLOW:
        return Decoded(None, NOT_AN_IMAGE if data else EMPTY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=[_PILLOW[kind]]) as image:
                if image.width * image.height > MAX_PIXELS:
                    return Decoded(None, TOO_LARGE)
                image.load()
                return Decoded(np.asarray(_displayed(image).convert("RGB")), None)
        except Image.DecompressionBombError:
            return Decoded(None, TOO_LARGE)
        except _BROKEN as error:
            return Decoded(None, TRUNCATED if "truncated" in str(error).lower() else UNDECODABLE)


def _displayed(image: Image.Image) -> Image.Image:
    """Return an image as a page shows it: rotated, on white, in 8 bits."""
    turned = ImageOps.exif_transpose(image)
    if turned.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(turned, np.float64))
        low, high = values.min(), values.max()
        scaled = (values - low) / (high - low) * 255 if high > low else np.zeros_like(values)
        return Image.fromarray(scaled.round().astype(np.uint8))
    if turned.mode in ("LA", "PA", "La", "RGBA", "RGBa") or "transparency" in turned.info:
        with_alpha = turned.convert("RGBA")
        page = Image.new("RGBA", with_alpha.size, "white")
        return Image.alpha_composite(page, with_alpha).convert("RGB")
    return turned
