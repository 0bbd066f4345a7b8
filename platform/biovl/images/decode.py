"""Image bytes to pixels. Invalid files are results, not exceptions: their defect is a column."""

import contextlib
import io
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin

from biovl.images import tiff
from biovl.images.formats import image_format
from biovl.images.hashing import phash_hex

MAX_PIXELS = 178_956_970
"""Larger images are defects: a file of a few kB can claim more than a worker's memory. This is
Pillow's own limit. Real scans reach 150 million pixels."""

MAX_MEMORY_BYTES = 1_500_000_000
"""Maximum memory of one file, encoded and decoded together; above it the image is too large.
Computed from the header, before decoding."""

MIN_SIDE_PX = 8
"""Smaller images are spacers and rules, not figures."""

EMPTY = "image is empty"
UNDECODABLE = "image does not decode"
TRUNCATED = "image is truncated"
TOO_LARGE = "image too large"
TOO_SMALL = "image too small"
NOT_AN_IMAGE = "graphic is not an image"
_NOT_READ = (
    *("svg", "eps", "pdf", "wmf", "emf", "pict", "cdr"),
    *("avif", "heif", "jxr", "jxl", "psd", "dicom", "fits", "djvu"),
)
"""Formats in which publishers deliver figures and that are not decoded."""
_VIDEO = "graphic is a video"
DEFECTS = (
    *(EMPTY, UNDECODABLE, TRUNCATED, TOO_LARGE, TOO_SMALL, NOT_AN_IMAGE, _VIDEO),
    *(f"graphic is {kind}" for kind in _NOT_READ),
)

# Only these decoders are ever tried. Pillow's others start Ghostscript or are rarely maintained.
_PILLOW = {
    "jpeg": "JPEG",
    "png": "PNG",
    "gif": "GIF",
    "tiff": "TIFF",
    "webp": "WEBP",
    "bmp": "BMP",
    "jp2": "JPEG2000",
}
# Exceptions of Pillow 13 on damaged files. The first seven occurred when files of every format were
# truncated, had bytes flipped, and TIFF entries and PNG chunks replaced (SyntaxError is how it
# reports a malformed PNG chunk). The others did not occur in 260,000 files, but its header readers
# could raise them, and one file must not cost an article its figures.
_BROKEN = (
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    EOFError,
    KeyError,
    ZeroDivisionError,
    MemoryError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zlib.error,
)
_GREY_STEPS = {"L;2": 85, "L;4": 17}
"""Step in 8 bits from one grey of a PNG to the next, by how Pillow reads its pixels."""
_UNSIGNED, _SIGNED = 1, 2
"""Values of SampleFormat in TIFF 6.0."""
_DARK = 64
"""High byte that no value of 14 bits has."""
_OPAQUE = tuple((high, high) for high in (3, 15, 63, 255))
"""Least and largest high byte of an alpha channel that is opaque in 10, 12, 14 or 16 bits."""
_OTHER_ORDER = {"L": "B", "B": "L", "N": "L" if sys.byteorder == "big" else "B"}
"""The other byte order of a raw mode such as ``RGB;16B``, by its last letter."""
_FOUR_BYTES = "RGBA"
"""Raw mode of pixels of four bytes, here those of a grey and an alpha of 16 bits."""
_LARGEST = 1e38
"""Larger values of floats are not measured: they stand for missing pixels, or are infinite."""
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How to undo each EXIF orientation (CIPA DC-008, tag 0x0112)."""


@dataclass(frozen=True)
class Inspected:
    """Properties of an image file, from a single decode."""

    format: str | None
    mode: str | None = None
    """Pillow's mode as published: RGB, L, CMYK, I;16, P …"""
    width_px: int | None = None
    """Width as displayed: EXIF rotation is applied, unless the image has a defect."""
    height_px: int | None = None
    phash: str | None = None
    defect: str | None = None
    defect_detail: str | None = None


@dataclass(frozen=True)
class Decoded:
    """Decoded pixels of an image, or its defect."""

    pixels: np.ndarray | None
    """RGB, uint8, shape [H, W, 3]."""

    defect: str | None


def stated_size_px(data: bytes) -> tuple[int, int] | None:
    """Return the (width, height) in the header, before rotation, without decoding.

    None if the header cannot be read, or the format is never decoded.

    Raises:
        Image.DecompressionBombError: Above twice ``MAX_PIXELS``: Pillow then reports no size.
    """
    kind = image_format(data)
    if kind not in _PILLOW:
        return None
    try:
        with _opened(data, kind) as image:
            return image.size
    except Image.DecompressionBombError:
        raise
    except _BROKEN:
        return None


def inspect(data: bytes) -> Inspected:
    """Return the properties of an image file, after a single full decode.

    Memory: at most ``MAX_MEMORY_BYTES``, whatever the header claims.
    """
    kind = image_format(data)
    if unread := _unread(data, kind):
        return Inspected(kind, defect=unread, defect_detail=_shown(data, kind, unread))
    mode = width = height = None
    try:
        with _opened(data, kind) as image:
            mode, (width, height) = image.mode, image.size
            size = f"{width} x {height} px"
            if _is_too_large(image, data):
                return Inspected(kind, mode, width, height, None, TOO_LARGE, size)
            if min(width, height) < MIN_SIDE_PX:
                return Inspected(kind, mode, width, height, None, TOO_SMALL, size)
            # The hash needs 32 pixels: libjpeg then skips most of its arithmetic, but still reads
            # every coded byte, so truncated files are detected.
            image.draft("L", (128, 128))
            _load(image, data, kind)
            if _orientation(image) >= 5:
                width, height = height, width
            return Inspected(kind, mode, width, height, phash_hex(_displayed(image)))
    except _BROKEN as error:
        # Pillow names the object in memory, which differs in each process.
        detail = f"{type(error).__name__}: {error}".partition(" <_io.BytesIO")[0][:200]
        return Inspected(kind, mode, width, height, None, _reason(error, data, kind), detail)


def decode_rgb(data: bytes, *, enough_px: int | None = None) -> Decoded:
    """Return the pixels of an encoded image as RGB, as displayed.

    Transparent parts are white, as on the page. 16-bit grey images are scaled to their own value
    range, without infinite values and NaN, which is black. 16-bit colours of TIFF and PNG are
    scaled to their maximum if they have 14 bits or fewer.

    Args:
        data: The file.
        enough_px: Minimum side. A larger image may be returned downscaled by an integer factor such
            that each side is still this long; libjpeg then skips decoding the rest.
    """
    kind = image_format(data)
    if unread := _unread(data, kind):
        return Decoded(None, unread)
    try:
        with _opened(data, kind) as image:
            if _is_too_large(image, data):
                return Decoded(None, TOO_LARGE)
            if enough_px is not None:
                # No effect on formats that libjpeg does not decode.
                image.draft(None, (enough_px, enough_px))
            _load(image, data, kind)
            shown = _displayed(image)
            times = min(shown.size) // enough_px if enough_px is not None else 1
            return Decoded(
                _pixels(shown.convert("RGB").reduce(times) if times > 1 else shown), None
            )
    except _BROKEN as error:
        return Decoded(None, _reason(error, data, kind))


def is_stored_as_displayed(data: bytes) -> bool:
    """Return whether readers that ignore orientation and transparency show a JPEG or PNG correctly.

    Most data loaders for training are such readers: they call Pillow's ``convert("RGB")``. False if
    the file cannot be decoded.
    """
    kind = image_format(data)
    try:
        with _opened(data, kind) as image:
            # A PNG may store EXIF after the pixels.
            is_read = image.has_transparency_data or b"eXIf" in data or _low_byte_tiles(image)
            is_changed = bool(kind == "png" and is_read and _load(image, data, kind))
            return not is_changed and _orientation(image) == 1 and not _has_transparent_parts(image)
    except _BROKEN:
        return False


def _has_transparent_parts(image: Image.Image) -> bool:
    return image.has_transparency_data and any(
        np.asarray(image.crop(box).convert("RGBA").getchannel("A")).min() < 255
        for box in _strips(image)
    )


def _unread(data: bytes, kind: str | None) -> str | None:
    """Return why a file is not opened at all, None if it is."""
    if not data:
        return EMPTY
    if kind in _PILLOW:
        return None
    if kind in _NOT_READ:
        return f"graphic is {kind}"
    return _VIDEO if kind == "video" else NOT_AN_IMAGE


def _shown(data: bytes, kind: str | None, defect: str) -> str | None:
    """Return what a file that is not an image is: its format, or its first bytes."""
    if defect != NOT_AN_IMAGE:
        return None
    return kind or f"begins with {data[:12].hex(' ')}"


def _is_too_large(image: ImageFile.ImageFile, data: bytes) -> bool:
    """Return whether an opened image has too many pixels, or would take too much memory."""
    pixels = image.width * image.height
    need = pixels * _bytes_a_pixel(image) + 2 * len(data)
    return pixels > MAX_PIXELS or need > MAX_MEMORY_BYTES


def _bytes_a_pixel(image: ImageFile.ImageFile) -> int:
    """Return the bytes per pixel needed to decode an image, rotate it and convert it to RGB.

    Measured as the growth of a process, at 178 million pixels of each format, and rounded up.
    """
    kind, mode = image.format, image.mode
    if kind == "WEBP":
        return 21
    if kind == "JPEG2000":
        return 24
    depth = 4 if mode in ("LA", "PA", "La", "RGBA", "RGBa", "RGBX", "CMYK", "LAB") else 0
    bands = 8 if mode.startswith(("I", "F")) else 4 if mode not in ("1", "L", "P") else 1
    transparent = mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in image.info
    # Dark colours of 16 bits are read twice.
    depth += 8 if _low_byte_tiles(image) else 0
    # libjpeg holds the coefficients of a progressive file, two bytes each.
    coefficients = 2 * len(image.getbands()) if image.info.get("progressive") else 0
    return max(bands, depth) + (7 if transparent else 3) + 1 + coefficients


@contextlib.contextmanager
def _opened(data: bytes, kind: str | None) -> Iterator[ImageFile.ImageFile]:
    """Open an image with its own decoder only, without output on standard error."""
    tiff.silence()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=[_PILLOW[kind or ""]]) as image:
            if isinstance(image, TiffImagePlugin.TiffImageFile):
                tiff.correct(image)
            if kind == "png" and "transparency" in image.info and image.mode == "L":
                # Pillow scales the pixels to 8 bits, but not the transparent value.
                image.info["transparency"] *= _GREY_STEPS.get(str(image.tile[0].args), 1)
            yield image


def _load(image: ImageFile.ImageFile, data: bytes, kind: str | None) -> bool:
    """Load an opened image. Dark colours of 16 bits, as of 12-bit cameras, become brighter.

    Not those with transparent parts: they may be dark ink on the page.

    Returns:
        Whether they did.
    """
    tiles = _low_byte_tiles(image)
    image.load()
    if not tiles:
        return False
    ends = np.asarray(image.getextrema())
    is_dark = ends[:3].max() < _DARK and (image.mode == "RGB" or tuple(ends[3]) in _OPAQUE)
    # Pillow would compare the 16 bits of a transparent colour with the 8 of the pixels.
    key = image.info.pop("transparency", None)
    if not is_dark and key is None:
        return False
    with _opened(data, kind) as opened:
        opened.tile = tiles
        opened.load()
        low: Image.Image = opened
        if tiles[0].args == _FOUR_BYTES:
            _, grey, _, alpha = opened.split()
            low = Image.merge("RGBA", (grey, grey, grey, alpha))
        gone = (
            []
            if key is None
            else [(_values_of_16_bits(image, low, b) == key).all(2) for b in _strips(image)]
        )
        is_brighter = is_dark and _brighten(image, low)
    for box, is_gone in zip(_strips(image), gone, strict=False):
        image.paste((255, 255, 255), box, Image.fromarray(is_gone))
    return is_brighter


def _low_byte_tiles(image: ImageFile.ImageFile) -> list[ImageFile._Tile]:
    """Return the tiles that read the low bytes of an opened image's 16-bit colours, if it has them.

    Pillow reads the high bytes only. The low ones are those of the other byte order.
    """
    found: list[ImageFile._Tile] = []
    if image.format not in ("PNG", "TIFF") or image.mode not in ("RGB", "RGBA"):
        return found
    for tile in image.tile:
        first, *rest = (tile.args,) if isinstance(tile.args, str) else tile.args or ("",)
        # Premultiplied colours are divided by their alpha.
        if isinstance(first, str) and ";16" in first and not first.startswith("RGBa"):
            # Pillow has no other order of greys with alpha: their bytes are read as they are.
            is_grey = first.startswith("LA")
            other = _FOUR_BYTES if is_grey else first[:-1] + _OTHER_ORDER[first[-1]]
            found.append(tile._replace(args=(other, *rest) if rest else other))
    return found


def _values_of_16_bits(
    high: Image.Image, low: Image.Image, box: tuple[int, int, int, int]
) -> np.ndarray:
    """Return 16-bit values of a part of an image. uint16, shape [H, W, C]."""
    whole: np.ndarray = np.asarray(high.crop(box), np.uint16) * 256
    return whole + np.asarray(low.crop(box), np.uint16)


def _brighten(image: Image.Image, low: Image.Image) -> bool:
    """Scale an image of 16-bit colours to their maximum; return whether it was.

    Not if they are values of 8 bits, repeated or shifted: these are meant to be dark.

    Args:
        image: The high bytes, which are changed.
        low: The low bytes.
    """
    boxes = list(_strips(image))
    is_shifted = np.asarray(low.getextrema())[:3].max() == 0
    if is_shifted or all(
        (np.asarray(image.crop(box)) == np.asarray(low.crop(box))).all() for box in boxes
    ):
        return False
    most_C = np.max([_values_of_16_bits(image, low, box).max((0, 1)) for box in boxes], 0)
    factor = np.float32(255 / max(1, most_C[:3].max()))
    for box in boxes:
        pixels = (
            np.rint(_values_of_16_bits(image, low, box) * factor).clip(max=255).astype(np.uint8)
        )
        pixels[..., 3:] = 255
        image.paste(Image.fromarray(pixels), box)
    return True


def _reason(error: Exception, data: bytes, kind: str | None) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return TOO_LARGE
    # libwebp does not report why it fails, but the file contains its length after "RIFF".
    is_short_webp = kind == "webp" and int.from_bytes(data[4:8], "little") + 8 > len(data)
    if is_short_webp or "truncated" in str(error).lower():
        return TRUNCATED
    return UNDECODABLE


def _orientation(image: Image.Image) -> int:
    """Return the orientation of a loaded image, 1 to 8; 1 (upright) if the EXIF value is invalid.

    Pillow already rotates a TIFF when loading it, and a PNG may store EXIF after the pixels. Like
    browsers, only the EXIF block is read, not an orientation in XMP or in a PNG's text chunks.
    """
    if image.format == "TIFF":
        return 1
    # A valid image with a damaged EXIF block is still valid.
    try:
        exif = Image.Exif()
        exif.load(image.info.get("exif", b""))
        stated = exif.get(ExifTags.Base.Orientation)
    except _BROKEN:
        return 1
    return stated if isinstance(stated, int) and stated in _TURNS else 1


def _displayed(image: Image.Image) -> Image.Image:
    """Return a loaded image as displayed: upright, on white, 8 bits, in L, RGB or CMYK."""
    orientation = _orientation(image)
    turned = image.transpose(_TURNS[orientation]) if orientation in _TURNS else image
    if turned.mode.startswith(("I", "F")):
        scaled = _scaled(turned)
        return ImageOps.invert(scaled) if _is_white_zero(image) else scaled
    if turned.mode == "L" and _sample_format(image) == _SIGNED:
        turned = turned.point([value ^ 128 for value in range(256)])
    if (
        image.format == "BMP"
        and turned.mode == "RGBA"
        and turned.getchannel("A").getextrema() == (0, 0)
    ):
        # Programs that write no alpha leave it zero. Browsers show such images, too.
        turned = turned.convert("RGB")
    if turned.mode == "La":  # Pillow has no direct way from it to RGBA
        turned = turned.convert("LA")
    if turned.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in turned.info:
        page = Image.new("RGB", turned.size, "white")
        for box in _strips(turned):
            strip = turned.crop(box).convert("RGBA")
            page.paste(strip, box, strip.getchannel("A"))
        return page
    # Pillow converts LAB to RGB, but not to grey.
    return turned.convert("RGB") if turned.mode == "LAB" else turned


def _is_white_zero(image: Image.Image) -> bool:
    """Return whether the smallest value of a TIFF is white. Pillow inverts those of 8 bits only."""
    tags = getattr(image, "tag_v2", {})
    return tags.get(ExifTags.Base.PhotometricInterpretation) == 0


def _sample_format(image: Image.Image) -> int:
    """Return what the bits of a TIFF's first channel are: 1 (unsigned) unless stated."""
    stated = getattr(image, "tag_v2", {}).get(TiffImagePlugin.SAMPLEFORMAT)
    return int(stated[0]) if stated else _UNSIGNED


def _scaled(image: Image.Image) -> Image.Image:
    """Return an image in 8 bits, with its value range stretched to 0..255.

    NaN is the least value, and infinite values are the nearest one.

    Raises:
        ValueError: If no value is finite.
    """
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for box in _strips(image):
        values = _values(image, box)
        finite = np.abs(values) < _LARGEST
        low = min(low, values.min(where=finite, initial=np.inf))
        high = max(high, values.max(where=finite, initial=-np.inf))
    if low > high:
        raise ValueError("no pixel has a finite value")
    scaled = Image.new("L", image.size)
    for box in _strips(image):
        values = _values(image, box)
        values[np.isnan(values)] = low
        np.clip(values, low, high, out=values)
        values -= low
        values *= 255 / (high - low) if high > low else 0
        np.rint(values, out=values)
        scaled.paste(Image.fromarray(values.astype(np.uint8)), box)
    return scaled


def _values(image: Image.Image, box: tuple[int, int, int, int]) -> np.ndarray:
    values = np.asarray(image.crop(box))
    if values.dtype == np.int32 and _sample_format(image) == _UNSIGNED:
        # Pillow has no unsigned mode of 32 bits.
        values = values.view(np.uint32)
    shown = values.astype(np.float32)
    if (key := image.info.get("transparency")) is not None:
        # White, and not part of the range.
        shown[values == key] = np.inf
    return shown


def _pixels(image: Image.Image) -> np.ndarray:
    """Return an image as an RGB array. Pillow's own conversion holds two more copies."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for box in _strips(image):
        pixels[box[1] : box[3]] = np.asarray(image.crop(box).convert("RGB"))
    return pixels


_STRIP_PIXELS = 4_000_000


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Yield boxes of few pixels that divide an image into strips, from the top."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield 0, top, image.width, min(top + rows, image.height)
