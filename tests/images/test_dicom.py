"""DICOM to PNG: display values as in PS3.3, and nothing else of the file."""

import io
from pathlib import Path
from typing import Any

import gdcm
import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.uid import (
    MPEG2MPML,
    UID,
    DeflatedExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGLSLossless,
    RLELossless,
)

from biovl.images import dicom as dicoms
from biovl.images.dicom import to_png
from tests.images.dicom_files import PATIENT, dicom

CT = np.linspace(0, 4095, 256).astype(np.uint16).reshape(16, 16)
"""12-bit stored values; Hounsfield units with the intercept -1024."""
HU = CT.astype(np.float64) - 1024
RESCALE = {"RescaleSlope": 1, "RescaleIntercept": -1024, "bits": 12}


def pixels(data: bytes, **settings: Any) -> np.ndarray:
    converted = to_png(data, **settings)
    assert converted.png is not None, converted
    return np.asarray(Image.open(io.BytesIO(converted.png)))


def windowed(x: np.ndarray, c: float, w: float, function: str) -> np.ndarray:
    """Return the window functions, pixel by pixel, as PS3.3 C.11.2.1.2 and C.11.2.1.3 write them."""
    y = np.zeros_like(x)
    for place, value in np.ndenumerate(x):
        if function == "SIGMOID":
            y[place] = 255 / (1 + np.exp(-4 * (value - c) / w))
        elif function == "LINEAR_EXACT":
            if value <= c - w / 2:
                y[place] = 0
            elif value > c + w / 2:
                y[place] = 255
            else:
                y[place] = ((value - c) / w + 0.5) * 255
        elif value <= c - 0.5 - (w - 1) / 2:
            y[place] = 0
        elif value > c - 0.5 + (w - 1) / 2:
            y[place] = 255
        else:
            y[place] = ((value - (c - 0.5)) / (w - 1) + 0.5) * 255
    return np.rint(y).astype(np.uint8)


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_values_are_rescaled_and_windowed(function: str) -> None:
    data = dicom(CT, **RESCALE, WindowCenter=40, WindowWidth=400, VOILUTFunction=function)
    np.testing.assert_array_equal(pixels(data), windowed(HU, 40, 400, function))


def test_the_first_window_counts_and_its_function_is_linear_unless_stated() -> None:
    data = dicom(CT, **RESCALE, WindowCenter=[40, -600], WindowWidth=[400, 1500])
    np.testing.assert_array_equal(pixels(data), windowed(HU, 40, 400, "LINEAR"))


def test_a_window_of_width_one_is_a_threshold() -> None:
    data = dicom(CT, **RESCALE, WindowCenter=40, WindowWidth=1)
    np.testing.assert_array_equal(pixels(data), np.where(HU > 39.5, 255, 0))


def test_without_a_window_the_full_range_is_displayed() -> None:
    stored = np.array([[100, 300], [200, 500]], np.uint16)
    assert pixels(dicom(stored, bits=12)).tolist() == [[0, 128], [64, 255]]
    # A negative slope inverts; a width of zero is no window.
    inverse = dicom(stored, RescaleSlope=-2, RescaleIntercept=0, WindowCenter=1, WindowWidth=0)
    assert pixels(inverse).tolist() == [[255, 128], [191, 0]]
    signed = np.array([[-100, 0], [50, 100]], np.int16)
    assert pixels(dicom(signed)).tolist() == [[0, 128], [191, 255]]
    assert pixels(dicom(np.full((2, 2), 7, np.uint16))).tolist() == [[0, 0], [0, 0]]


def test_padding_is_not_part_of_the_range() -> None:
    stored = np.array([[-2000, 0], [100, 200]], np.int16)
    assert pixels(dicom(stored, PixelPaddingValue=-2000)).tolist() == [[0, 0], [128, 255]]


def test_eight_bits_are_displayed_as_stored_and_monochrome1_is_inverted() -> None:
    stored = np.array([[10, 20], [30, 200]], np.uint8)
    assert pixels(dicom(stored)).tolist() == stored.tolist()
    inverted = dicom(stored, PhotometricInterpretation="MONOCHROME1")
    assert pixels(inverted).tolist() == (255 - stored).tolist()


def test_a_look_up_table_is_applied_where_there_is_no_window() -> None:
    item = Dataset()
    item.LUTDescriptor = [4, 1, 16]
    item.LUTData = [0, 257, 25700, 65535]
    item["LUTData"].VR = "US"
    stored = np.array([[0, 1], [2, 3], [4, 9]], np.uint16)
    data = dicom(stored, VOILUTSequence=[item])
    assert pixels(data).tolist() == [[0, 0], [1, 100], [255, 255]]


@pytest.mark.parametrize("bits", [12, 16])
def test_a_modality_look_up_table_has_values_of_any_depth(bits: int) -> None:
    item = Dataset()
    item.LUTDescriptor = [4, 0, bits]
    item.LUTData = [0, 100, 200, 4000]
    item["LUTData"].VR = "US"
    stored = np.array([[0, 1], [2, 3]], np.uint16)
    data = dicom(stored, ModalityLUTSequence=[item])
    assert pixels(data).tolist() == [[0, 6], [13, 255]]


def test_colours_are_rgb() -> None:
    rgb = np.array([[[255, 0, 0], [0, 128, 0]], [[1, 2, 3], [255, 255, 255]]], np.uint8)
    assert pixels(dicom(rgb)).tolist() == rgb.tolist()
    # Red in YBR_FULL (PS3.3 C.7.6.3.1.2).
    ybr = np.broadcast_to(np.array([76, 85, 255], np.uint8), (2, 2, 3))
    red = pixels(dicom(ybr, PhotometricInterpretation="YBR_FULL"))
    np.testing.assert_allclose(red, np.broadcast_to([254, 0, 0], (2, 2, 3)), atol=1)


def test_palette_colours_are_looked_up() -> None:
    tables = {}
    for name, values in (("Red", [0, 65535]), ("Green", [0, 256 * 128]), ("Blue", [65535, 0])):
        tables[f"{name}PaletteColorLookupTableDescriptor"] = [2, 0, 16]
        tables[f"{name}PaletteColorLookupTableData"] = np.array(values, "<u2").tobytes()
    stored = np.array([[0, 1], [1, 0]], np.uint8)
    data = dicom(stored, PhotometricInterpretation="PALETTE COLOR", **tables)
    blue, orange = [0, 0, 255], [255, 128, 0]
    assert pixels(data).tolist() == [[blue, orange], [orange, blue]]


@pytest.mark.parametrize(
    "syntax",
    [ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian, RLELossless],
    ids=lambda syntax: syntax.name,
)
def test_uncompressed_and_rle_files_are_read(syntax: UID) -> None:
    data = dicom(CT, **RESCALE, WindowCenter=40, WindowWidth=400, syntax=syntax)
    np.testing.assert_array_equal(pixels(data), windowed(HU, 40, 400, "LINEAR"))


@pytest.mark.parametrize("name", ["JPEGLosslessProcess14_1", "JPEGLSLossless", "JPEG2000Lossless"])
def test_lossless_compression_is_decoded(tmp_path: Path, name: str) -> None:
    plain, compressed = str(tmp_path / "plain"), tmp_path / "compressed"
    window = {"WindowCenter": 40, "WindowWidth": 400}
    Path(plain).write_bytes(dicom(CT, **RESCALE, **window))
    reader, change, writer = (
        gdcm.ImageReader(),
        gdcm.ImageChangeTransferSyntax(),
        gdcm.ImageWriter(),
    )
    reader.SetFileName(plain)
    assert reader.Read()
    change.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, name)))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer.SetFileName(str(compressed))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    found = pixels(compressed.read_bytes())
    np.testing.assert_array_equal(found, windowed(HU, 40, 400, "LINEAR"))


def test_a_baseline_jpeg_is_decoded() -> None:
    rgb = np.broadcast_to(np.array([200, 60, 20], np.uint8), (16, 16, 3))
    stream = io.BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=95, subsampling=1)
    jpeg = stream.getvalue()
    kind = "YBR_FULL_422"
    data = dicom(rgb, PhotometricInterpretation=kind, syntax=JPEGBaseline8Bit, encoded=jpeg)
    np.testing.assert_allclose(pixels(data).astype(int), rgb, atol=4)


def test_a_file_without_a_preamble_is_read() -> None:
    data = dicom(CT, **RESCALE, syntax=ImplicitVRLittleEndian, preamble=False)
    assert dicoms.is_dicom(data, "scan")
    assert pixels(data).shape == (16, 16)
    assert dicoms.is_dicom(b"anything", "a/SCAN.DCM")
    assert not dicoms.is_dicom(b"\x89PNG\r\n\x1a\n", "misnamed.dcm")
    assert not dicoms.is_dicom(b"anything", "scan.png")


def test_the_middle_frame_is_read_or_the_one_named() -> None:
    frames = np.arange(5, dtype=np.uint8)[:, None, None] * np.full((1, 4, 4), 10, np.uint8)
    data = dicom(frames, NumberOfFrames=5)
    assert dicoms.frame_count(data) == 5
    assert pixels(data)[0, 0] == 20
    assert pixels(data, frame=5)[0, 0] == 40
    converted = to_png(data, frame=6)
    assert (converted.defect, converted.detail) == (dicoms.NO_FRAME, "frame 6 of 5")


def test_an_enhanced_file_has_a_window_for_each_frame() -> None:
    frames = np.stack([CT, CT])
    groups = []
    for center in (0, 500):
        rescale, window, group = Dataset(), Dataset(), Dataset()
        rescale.RescaleSlope, rescale.RescaleIntercept = 1, -1024
        window.WindowCenter, window.WindowWidth = center, 1000
        group.PixelValueTransformationSequence = [rescale]
        group.FrameVOILUTSequence = [window]
        groups.append(group)
    data = dicom(frames, NumberOfFrames=2, bits=12, PerFrameFunctionalGroupsSequence=groups)
    for frame, center in ((1, 0), (2, 500)):
        expected = windowed(HU, center, 1000, "LINEAR")
        np.testing.assert_array_equal(pixels(data, frame=frame), expected)


def test_what_cannot_be_decoded_is_a_defect_with_the_transfer_syntax() -> None:
    video = to_png(dicom(CT, syntax=MPEG2MPML, encoded=b"not a frame", bits=12))
    assert video.defect == dicoms.UNDECODABLE
    assert video.detail == "MPEG2 Main Profile / Main Level: not supported"
    corrupt = to_png(dicom(CT, syntax=JPEGLSLossless, encoded=b"not a frame", bits=12))
    assert corrupt.detail == "JPEG-LS Lossless Image Compression: damaged (RuntimeError)"
    truncated = to_png(dicom(CT, bits=12)[:-100])
    assert truncated.defect == dicoms.UNDECODABLE
    assert truncated.detail == "Explicit VR Little Endian: damaged (ValueError)"
    assert to_png(b"no DICOM at all").defect in (dicoms.UNREADABLE, dicoms.NO_PIXELS)


def test_burned_in_annotations_must_be_allowed() -> None:
    data = dicom(CT, BurnedInAnnotation="YES")
    assert to_png(data).defect == dicoms.BURNED_IN
    assert to_png(data, burned_in=True).png is not None


def test_nothing_of_the_header_is_in_the_result_or_printed(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    good = dicom(CT, ImageComments=PATIENT["PatientName"], **RESCALE)
    rng = np.random.default_rng(0)
    for number in range(300):
        data = bytearray(good)
        if number:
            places = rng.integers(132, len(good), size=8)
            for place, value in zip(places, rng.integers(0, 256, size=8), strict=True):
                data[place] = value
        converted = to_png(bytes(data))
        text = repr(converted.detail).encode() + (converted.png or b"")
        assert not [value for value in PATIENT.values() if value.encode() in text]
    assert caplog.text == ""
    assert "".join(capfd.readouterr()) == ""


def test_an_attribute_that_is_zero_is_no_missing_one() -> None:
    data = dicom(CT, InstanceNumber=0, Modality="CT")
    found = dicoms.values(data, ["InstanceNumber", "Modality", "SeriesNumber"])
    assert found == {"InstanceNumber": "0", "Modality": "CT", "SeriesNumber": None}
