"""TIFFs that Pillow opens, but reads wrongly: corrected before their pixels are read."""

import contextlib
import ctypes
import functools
import logging

from PIL import ExifTags, ImagePalette, TiffImagePlugin, _imaging

_BITS, _PLANES = TiffImagePlugin.BITSPERSAMPLE, TiffImagePlugin.PLANAR_CONFIGURATION
_REDUCED = 1
"""Bit of NewSubfileType: the page is a reduced copy of another."""
_MOST_THUMBNAILS = 8
"""Pages of a TIFF that are skipped: the time to find a page grows with the square of its number."""


def correct(image: TiffImagePlugin.TiffImageFile) -> None:
    """Have an opened TIFF read as it is meant, in place; its pixels must not be read before.

    Thumbnails in front of the image are skipped. Planes of 16 bits, compressed big-endian numbers,
    and palettes of 8 bits have the right values.

    Raises:
        ValueError: If grey and alpha are in planes: Pillow 13 makes compressed ones transparent.
    """
    if image.tag_v2.get(_PLANES) == 2 and image.mode in ("LA", "PA"):
        raise ValueError("planes of grey and alpha are not read")
    _skip_thumbnails(image)
    _read_planes_of_16_bits(image)
    _read_native_order(image)
    _read_palette_of_8_bits(image)


@functools.cache
def silence() -> None:
    """Keep Pillow and libtiff from logging errors that Pillow raises, too."""
    # Pillow also raises what it logs here.
    logging.getLogger("PIL.TiffImagePlugin").setLevel(logging.CRITICAL)
    # libtiff writes every error to standard error, and Pillow raises it, too. If Pillow bundles
    # libtiff, the symbol is not found and the messages remain.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)


def _skip_thumbnails(image: TiffImagePlugin.TiffImageFile) -> None:
    """Go to the first page of an opened TIFF that is no reduced copy of another, if there is one.

    Cameras and scanners may put a thumbnail in front of the image.
    """
    with contextlib.suppress(EOFError):
        for page in range(_MOST_THUMBNAILS + 1):
            image.seek(page)
            kind = image.tag_v2.get(ExifTags.Base.NewSubfileType)
            if not (isinstance(kind, int) and kind & _REDUCED):
                return
    image.seek(0)


def _read_native_order(image: TiffImagePlugin.TiffImageFile) -> None:
    """Have compressed numbers of an opened TIFF read in the byte order of this machine.

    libtiff returns them so. Pillow 13 reads floats and signed integers of a big-endian file in the
    order of the file.
    """
    image.tile = [
        tile._replace(args=(f"{tile.args[0][:-2]}N{tile.args[0][-1]}", *tile.args[1:]))
        if tile.codec_name == "libtiff"
        and isinstance(tile.args, tuple)
        and tile.args[0].endswith(("BF", "BS"))
        else tile
        for tile in image.tile
    ]


def _read_planes_of_16_bits(image: TiffImagePlugin.TiffImageFile) -> None:
    """Have the planes of an opened TIFF read with 16 bits per value, if it has such planes.

    Pillow 13 reads uncompressed ones as if they had 8 bits: the pixels are those of the first half
    of each plane, alternating between high and low bytes. It cannot read such planes of CMYK and of
    premultiplied alpha, and says so.
    """
    tags = image.tag_v2
    if tags.get(_PLANES) != 2 or set(tags.get(_BITS, ())) != {16} or len(image.getbands()) == 1:
        return
    order = "L" if tags.prefix == b"II" else "B"
    image.tile = [
        tile._replace(args=(f"{tile.args[0]};16{order}", *tile.args[1:]))
        if tile.codec_name == "raw" and isinstance(tile.args, tuple)
        else tile
        for tile in image.tile
    ]


def _read_palette_of_8_bits(image: TiffImagePlugin.TiffImageFile) -> None:
    """Have a palette of an opened TIFF read whose values are 8 bits, against the standard's 16.

    Pillow takes their high bytes, so that all colours are black. libtiff's tools do as we do.
    """
    colours = image.tag_v2.get(TiffImagePlugin.COLORMAP, ())
    if image.mode in ("P", "PA") and max(colours, default=256) < 256:
        image.palette = ImagePalette.raw("RGB;L", bytes(colours))
