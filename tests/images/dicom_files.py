"""DICOM files of a patient who does not exist."""

import io
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian, RLELossless, generate_uid

PATIENT = {
    "PatientName": "Doe^Secretive",
    "PatientID": "MRN-90210-7",
    "PatientBirthDate": "19330102",
    "InstitutionName": "Hospital of Nowhere",
    "AccessionNumber": "ACC4711",
}


def dicom(
    pixels: np.ndarray,
    *,
    syntax: UID = ExplicitVRLittleEndian,
    preamble: bool = True,
    bits: int | None = None,
    encoded: bytes | None = None,
    **attributes: Any,
) -> bytes:
    """Return a file with stored values: [H, W], frames [F, H, W] with NumberOfFrames, or RGB.

    Args:
        pixels: The stored values.
        syntax: Transfer syntax: uncompressed, RLE, or that of ``encoded``.
        preamble: Whether the file has one, and file meta information.
        bits: Bits stored, if they are not all.
        encoded: The compressed frame.
        attributes: Other attributes by keyword.
    """
    file = Dataset()
    file.SOPClassUID = CTImageStorage
    file.SOPInstanceUID = generate_uid()
    for name, value in {**PATIENT, **attributes}.items():
        setattr(file, name, value)
    is_color = pixels.ndim > 2 and pixels.shape[-1] == 3
    file.Rows, file.Columns = pixels.shape[-3:-1] if is_color else pixels.shape[-2:]
    file.SamplesPerPixel = 3 if is_color else 1
    if is_color:
        file.PlanarConfiguration = 0
    if "PhotometricInterpretation" not in attributes:
        file.PhotometricInterpretation = "RGB" if is_color else "MONOCHROME2"
    file.BitsAllocated = 8 * pixels.dtype.itemsize
    file.BitsStored = bits or file.BitsAllocated
    file.HighBit = file.BitsStored - 1
    file.PixelRepresentation = int(pixels.dtype.kind == "i")
    file.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    file["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    if syntax == RLELossless:
        file.compress(syntax, generate_instance_uid=False)
    elif encoded is not None:
        file.PixelData = encapsulate([encoded])
    file.file_meta.TransferSyntaxUID = syntax
    stream = io.BytesIO()
    if preamble:
        file.save_as(stream, enforce_file_format=True)
    else:
        del file.file_meta
        file.save_as(stream, implicit_vr=syntax.is_implicit_VR, little_endian=True)
    return stream.getvalue()
