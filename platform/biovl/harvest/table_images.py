"""Image files of a table, of which only pixels are stored: DICOM frames become PNG."""

import contextlib
from collections.abc import Callable, Sequence

from biovl.harvest.sources import FileError
from biovl.images import decode, dicom
from biovl.images.formats import image_format

_ARCHIVES = ("zip", "gzip", "rar", "7z", "ole")


def dicom_values(
    path: str, read_file: Callable[[str], bytes], keywords: Sequence[str]
) -> dict[str, str | None]:
    """Return attributes of an image file by keyword; None where there are none.

    Args:
        path: The file; empty if there is none.
        read_file: Returns the content of a path.
        keywords: Keywords of DICOM.
    """
    if not keywords:
        return {}
    with contextlib.suppress(OSError):
        data = read_file(path) if path else b""
        if path and dicom.is_dicom(data, path):
            return dicom.values(data, keywords)
    return dict.fromkeys(keywords)


def all_frames(name: str, path: str, read_file: Callable[[str], bytes]) -> dict[str, dicom.Frame]:
    """Return the frames of an image by the names of their figures."""
    with contextlib.suppress(OSError):
        data = read_file(path)
        count = dicom.frame_count(data) if dicom.is_dicom(data, path) else 1
        if count > 1:
            return {f"{name}#frame-{number}": number for number in range(1, count + 1)}
    return {name: 1}


def pixels_of(data: bytes, path: str, *, frame: dicom.Frame, burned_in: bool) -> bytes:
    """Return an image file unchanged, or a frame of a DICOM file as PNG, without its header.

    Args:
        data: The file.
        path: Its name.
        frame: Frame of a DICOM file.
        burned_in: Whether to read DICOM files that declare annotations burned into their pixels.

    Raises:
        FileError: If the file is an unusable DICOM file, an archive or of an unknown format.
            Nothing of it is stored, since its header may contain a patient's name.
    """
    if dicom.is_dicom(data, path):
        converted = dicom.to_png(data, frame=frame, burned_in=burned_in)
        if converted.png is None:
            raise FileError(converted.defect or dicom.UNREADABLE, converted.detail or "")
        return converted.png
    kind = image_format(data)
    if kind == "dicom":
        raise FileError(dicom.UNREADABLE, "it is compressed as a whole (gzip): unpack it")
    if data and (kind is None or kind in _ARCHIVES):
        raise FileError(decode.NOT_AN_IMAGE, f"{kind or 'unknown format'}: nothing of it is stored")
    return data
