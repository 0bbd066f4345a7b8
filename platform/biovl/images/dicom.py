"""DICOM files to PNG: one frame as displayed, and nothing else of the file.

Defects never quote values of the file, which may identify a patient. PS3.3 and so on are parts
of the DICOM standard.
"""

import copy
import functools
import io
import logging
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gdcm
import numpy as np
import pydicom
import pydicom.config
from PIL import Image
from pydicom import uid
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut, apply_voi

from biovl.images.decode import MAX_PIXELS, TOO_LARGE
from biovl.images.formats import image_format

UNREADABLE = "DICOM file cannot be read"
NO_PIXELS = "DICOM file without an image"
UNDECODABLE = "DICOM image does not decode"
NO_FRAME = "DICOM image without this frame"
BURNED_IN = "DICOM image with burned-in annotations"

Frame = int | Literal["middle"]
"""Number of a frame, from 1 as in the standard; or the frame in the middle."""

_MAX_PIXELS = min(MAX_PIXELS, 60_000_000)
"""A pixel takes up to 24 bytes while it is converted, in all ``decode.MAX_MEMORY_BYTES``."""
_MOST_LEVELS = 1 << 16
# What pydicom 3 raises for damaged files: it checks little before it computes.
_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pydicom.errors.BytesLengthException,
    pydicom.errors.InvalidDicomError,
    struct.error,
    zlib.error,
)


_SHORT = "AE AS CS DA DS DT FD FL IS LO LT PN SH SL SS ST SV TM UC UI UL UR US UT UV".split()
"""Value representations of texts and numbers."""
_SOF3, _SOS = 0xC3, 0xDA
_SEGMENTS = (_SOF3, 0xC4, _SOS, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE)
"""Markers before the data of a lossless JPEG: frame, tables, scan, restarts, application, text."""
_LOSSLESS_JPEG = (uid.JPEGLossless, uid.JPEGLosslessSV1)
# Pillow and CharLS reject damaged frames; gdcm may end the process, so it decodes nothing else.
_DECODERS = {
    **dict.fromkeys((uid.JPEGBaseline8Bit, uid.JPEGExtended12Bit), "pillow"),
    **dict.fromkeys((uid.JPEG2000Lossless, uid.JPEG2000), "pillow"),
    **dict.fromkeys((uid.JPEGLSLossless, uid.JPEGLSNearLossless), "pyjpegls"),
    **dict.fromkeys(_LOSSLESS_JPEG, "gdcm"),
}


@dataclass(frozen=True)
class Converted:
    """A frame as PNG, or the reason why there is none."""

    png: bytes | None
    """8 bits, grey or RGB, without metadata."""
    defect: str | None = None
    detail: str | None = None


def is_dicom(data: bytes, name: str) -> bool:
    """Return whether a file is DICOM: by its content, or its suffix .dcm or .dicom."""
    if data[128:132] == b"DICM":
        return True
    # Files without a preamble begin with the group 0002 or 0008, little-endian.
    may_be = data[:2] in (b"\x02\0", b"\x08\0") or name.lower().endswith((".dcm", ".dicom"))
    return may_be and image_format(data) is None


def to_png(data: bytes, *, frame: Frame = "middle", burned_in: bool = False) -> Converted:
    """Return a frame of a DICOM file as PNG.

    Args:
        data: The file.
        frame: Number of the frame, from 1, or ``middle``.
        burned_in: Whether to convert an image that states that text is burned into its pixels,
            which may name the patient.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            file = _read(data)
            count = int(file.get("NumberOfFrames") or 1)
            size = int(file.get("Rows") or 0) * int(file.get("Columns") or 0)
        except _BROKEN as error:
            return Converted(None, UNREADABLE, type(error).__name__)
        if not _has_pixels(file):
            return Converted(None, NO_PIXELS)
        if str(file.get("BurnedInAnnotation") or "").strip().upper() == "YES" and not burned_in:
            return Converted(None, BURNED_IN, "source.dicom_burned_in=true reads it nevertheless")
        number = count // 2 if frame == "middle" else frame - 1
        if not 0 <= number < count:
            return Converted(None, NO_FRAME, f"frame {frame} of {count}")
        if size > _MAX_PIXELS:
            return Converted(None, TOO_LARGE, f"{size:,} pixels")
        try:
            shown = _shown(file, number)
        except _BROKEN as error:
            # Not the message, which may quote values.
            is_known = isinstance(error, NotImplementedError)
            reason = "not supported" if is_known else f"damaged ({type(error).__name__})"
            return Converted(None, UNDECODABLE, f"{_syntax(file)}: {reason}")
    stream = io.BytesIO()
    Image.fromarray(shown).save(stream, "PNG")
    return Converted(stream.getvalue())


def frame_count(data: bytes) -> int:
    """Return the number of frames of a DICOM file; 1 if it cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return int(_read(data, pixels=False).get("NumberOfFrames") or 1)
        except _BROKEN:
            return 1


def is_keyword(name: str) -> bool:
    """Return whether DICOM has an attribute of this keyword that is a text or a number."""
    tag = tag_for_keyword(name)
    return tag is not None and dictionary_VR(tag) in _SHORT


def values(data: bytes, keywords: Sequence[str]) -> dict[str, str | None]:
    """Return attributes of a DICOM file as text, by keyword; None for missing ones.

    The values may identify a patient.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            file = _read(data, pixels=False)
            found = {name: file.get(name) for name in keywords}
            # 0 is a value.
            return {
                name: None if value is None else str(value).strip() or None
                for name, value in found.items()
            }
        except _BROKEN:
            return dict.fromkeys(keywords)


def _read(data: bytes, *, pixels: bool = True) -> Dataset:
    """Return the dataset of a file, with or without a preamble."""
    _silence()
    file = pydicom.dcmread(io.BytesIO(data), force=True, stop_before_pixels=not pixels)
    if "TransferSyntaxUID" not in file.file_meta:
        implicit, little = file.original_encoding
        syntax = (
            *(uid.ExplicitVRBigEndian, uid.ExplicitVRLittleEndian),
            *(uid.ImplicitVRLittleEndian, uid.ImplicitVRLittleEndian),
        )[2 * bool(implicit) + bool(little)]
        file.file_meta = FileMetaDataset()
        file.file_meta.TransferSyntaxUID = syntax
    return file


@functools.cache
def _silence() -> None:
    """Keep libraries from logging values of files, which may be those of patients."""
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    gdcm.Trace.WarningOff()
    gdcm.Trace.ErrorOff()


def _has_pixels(file: Dataset) -> bool:
    return any(name in file for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData"))


def _syntax(file: Dataset) -> str:
    """Return the name of the transfer syntax, not an unknown UID, which may hold anything."""
    syntax = file.file_meta.TransferSyntaxUID
    return syntax.name if syntax.name != syntax else "unknown transfer syntax"


def _shown(file: Dataset, number: int) -> np.ndarray:
    """Return a frame as displayed. Shape [H, W] or [H, W, 3], uint8."""
    syntax = file.file_meta.TransferSyntaxUID
    if syntax in _LOSSLESS_JPEG:
        _check_lossless_jpeg(file, number)
    stored, about = get_decoder(syntax).as_array(
        file, index=number, raw=False, decoding_plugin=_DECODERS.get(syntax, "")
    )
    kind = about["photometric_interpretation"]
    if kind in ("MONOCHROME1", "MONOCHROME2"):
        grey = _grey(file, number, stored)
        return 255 - grey if kind == "MONOCHROME1" else grey
    if kind == "PALETTE COLOR":
        # The alpha channel of a palette, if any, is left out.
        colors = apply_color_lut(stored, file)[..., :3]
        bits = 16 if colors.dtype.itemsize > 1 and colors.max() > 255 else 8
        return (colors >> (bits - 8)).astype(np.uint8)
    if kind == "RGB":
        return (stored >> max(0, int(file.BitsStored) - 8)).astype(np.uint8)
    raise NotImplementedError("photometric interpretation")


def _check_lossless_jpeg(file: Dataset, number: int) -> None:
    """Reject a frame with broken headers or another size than stated: gdcm would abort.

    Raises:
        ValueError: If the headers (ITU-T T.81, annex B) are not as stated.
        struct.error: If they are truncated.
    """
    count = int(file.get("NumberOfFrames") or 1)
    frame = get_frame(file.PixelData, number, number_of_frames=count)
    sizes, marker, place = [], 0, 2
    while marker != _SOS:
        start, marker, length = struct.unpack_from(">BBH", frame, place)
        if start != 0xFF or marker not in _SEGMENTS:
            raise ValueError
        if marker == _SOF3:
            sizes.append(struct.unpack_from(">BHHB", frame, place + 4))
        place += 2 + length
    ((bits, *size),) = sizes
    if size != [file.Rows, file.Columns, file.SamplesPerPixel]:
        raise ValueError
    if not 2 <= bits <= file.BitsAllocated <= 16:
        raise ValueError


def _grey(file: Dataset, number: int, stored: np.ndarray) -> np.ndarray:
    """Return the display values of stored values of one sample. Shape [H, W], uint8."""
    low, high = stored.min(), stored.max()
    convert = _display(file, number, stored)
    if not np.issubdtype(stored.dtype, np.integer) or int(high) - int(low) >= _MOST_LEVELS:
        return convert(stored)
    # Each level is converted once: there are fewer of them than pixels.
    levels = np.arange(int(low), int(high) + 1).astype(np.int64)
    return convert(levels)[stored.astype(np.int64) - int(low)]


def _display(file: Dataset, number: int, stored: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from stored to display values (PS3.4 section N.2).

    Values are rescaled, then the first window is applied, otherwise the first look-up table, and
    otherwise the full range: that of the type up to 8 bits, and that of the frame's values above.
    """
    modality = _with_whole_bytes(_of_frame(file, number, "PixelValueTransformationSequence"))
    voi = _of_frame(file, number, "FrameVOILUTSequence")
    window = _window(voi)

    def rescaled(values: np.ndarray) -> np.ndarray:
        return np.asarray(apply_modality_lut(values, modality))

    if window is not None:
        return lambda values: _rounded(255 * window(rescaled(values).astype(np.float64)))
    if file.get("VOILUTSequence"):
        highest = 2.0 ** int(file.VOILUTSequence[0].LUTDescriptor[2]) - 1

        def looked_up(values: np.ndarray) -> np.ndarray:
            levels = np.rint(rescaled(values)).astype(np.int64)
            return _rounded(255 * apply_voi(levels, file).astype(np.float64) / highest)

        return looked_up
    ends = np.asarray(rescaled(np.array(_range(file, stored))), np.float64)
    low, span = ends.min(), max(float(np.ptp(ends)), np.finfo(np.float64).tiny)
    return lambda values: _rounded(255 * (rescaled(values).astype(np.float64) - low) / span)


def _with_whole_bytes(modality: Dataset) -> Dataset:
    """Return attributes whose look-up table has values of 8 or 16 bits; pydicom reads no others."""
    if not modality.get("ModalityLUTSequence"):
        return modality
    tables = copy.deepcopy(modality.ModalityLUTSequence)
    entries, first, bits = tables[0].LUTDescriptor
    tables[0].LUTDescriptor = [entries, first, 16 if 8 < bits < 16 else bits]
    copied = copy.copy(modality)
    copied.ModalityLUTSequence = tables
    return copied


def _of_frame(file: Dataset, number: int, sequence: str) -> Dataset:
    """Return the attributes of a frame: its own or shared item of a sequence, or the file."""
    frames = file.get("PerFrameFunctionalGroupsSequence") or ()
    shared = file.get("SharedFunctionalGroupsSequence") or ()
    for groups in (*frames[number : number + 1], *shared[:1]):
        if groups.get(sequence):
            item: Dataset = groups[sequence][0]
            return item
    return file


def _window(attributes: Dataset) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the function of the first window to 0..1 (PS3.3 section C.11.2.1.2).

    None if there is no window, or its width is not allowed.
    """
    center, width = (_first(attributes.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if center is None or width is None:
        return None
    kind = str(attributes.get("VOILUTFunction") or "LINEAR").upper()
    if kind == "SIGMOID" and width > 0:
        return lambda values: 1 / (1 + np.exp(np.clip(-4 * (values - center) / width, -700, 700)))
    if kind == "LINEAR_EXACT" and width > 0:
        return lambda values: (values - center) / width + 0.5
    if kind == "LINEAR" and width > 1:
        return lambda values: (values - (center - 0.5)) / (width - 1) + 0.5
    if kind == "LINEAR" and width == 1:
        return lambda values: (values > center - 0.5).astype(np.float64)
    return None


def _first(value: Any) -> float | None:
    """Return the first of the values of an attribute."""
    if value is None or value == "":
        return None
    first = value if isinstance(value, int | float) else next(iter(value), None)
    return None if first is None else float(first)


def _range(file: Dataset, stored: np.ndarray) -> tuple[float, float]:
    """Return the range of stored values that is displayed from black to white."""
    if np.issubdtype(stored.dtype, np.integer) and int(file.BitsStored) <= 8:
        bits = int(file.BitsStored)
        is_signed = int(file.PixelRepresentation) == 1
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    is_image = np.isfinite(stored)
    padding = file.get("PixelPaddingValue")
    if padding is not None:
        # Padding surrounds a round image with a value that may be far from all others.
        limits = sorted([int(padding), int(file.get("PixelPaddingRangeLimit", padding))])
        is_image &= (stored < limits[0]) | (stored > limits[1])
    values = stored[is_image] if is_image.any() else np.zeros(1)
    return values.min(), values.max()


def _rounded(values: np.ndarray) -> np.ndarray:
    rounded: np.ndarray = np.rint(np.clip(np.nan_to_num(values), 0, 255)).astype(np.uint8)
    return rounded
