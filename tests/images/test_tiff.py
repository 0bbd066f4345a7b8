"""TIFFs of every kind have the pixels that were meant."""

import io
import itertools
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from biovl.images import decode
from biovl.images.decode import decode_rgb, inspect, stated_size_px
from tests.images.image_files import camera_row, encoded, picture


def test_rare_colour_spaces_of_tiff_are_read() -> None:
    for mode in ("LAB", "YCbCr"):
        data = encoded("TIFF", Image.new(mode, (20, 20)))
        assert (inspect(data).defect, decode_rgb(data).defect) == (None, None)


def planar_tiff(pixels_HWC: np.ndarray, order: str, *, photometric: int = 2) -> bytes:
    """Return an uncompressed TIFF of 16 bits with a plane for each channel, in two strips each."""
    height, width, channels = pixels_HWC.shape
    planes = np.moveaxis(pixels_HWC, 2, 0).astype(f"{order}u2")
    strips = [part.tobytes() for plane in planes for part in (plane[:40], plane[40:])]
    starts = [8 + sum(map(len, strips[:number])) for number in range(len(strips))]
    end = 8 + sum(map(len, strips))
    entries = {
        **{256: [width], 257: [height], 258: [16] * channels, 259: [1], 262: [photometric]},
        **{273: starts, 277: [channels], 278: [40], 279: list(map(len, strips)), 284: [2]},
    }
    if channels == 4 and photometric == 2:
        entries[338] = [2]  # alpha
    table, values = b"", b""
    for tag, numbers in entries.items():
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(numbers) > 1:
            place = end + 6 + 12 * len(entries) + len(values)
            values += packed
            packed = struct.pack(f"{order}I", place)
        table += struct.pack(f"{order}HHI", tag, 4, len(numbers)) + packed
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", end)
    count = struct.pack(f"{order}H", len(entries))
    return head + b"".join(strips) + count + table + bytes(4) + values


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_planes_of_16_bits_are_read(order: str, mode: str) -> None:
    shown = picture(mode)
    if mode == "RGBA":
        shown.putalpha(picture("L").rotate(180))
    low_bytes = np.arange(96, dtype=np.uint16)[None, :, None]
    pixels = np.asarray(shown).astype(np.uint16) * 256 + low_bytes
    data, expected = planar_tiff(pixels, order), encoded("PNG", shown)
    np.testing.assert_array_equal(decode_rgb(data).pixels, decode_rgb(expected).pixels)
    found = inspect(data)
    assert (found.defect, found.phash) == (None, inspect(expected).phash)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [3, 4])
def test_colours_of_a_12_bit_camera_are_scaled_by_one_factor(order: str, channels: int) -> None:
    camera = camera_row(channels)
    found = decode_rgb(planar_tiff(np.tile(camera, (48, 1, 1)), order)).pixels
    np.testing.assert_array_equal(found[0], np.rint(camera[:, :3] * (255 / 4095)))


def test_planes_of_16_bits_that_are_not_read_are_a_defect() -> None:
    data = planar_tiff(np.zeros((64, 96, 4)), "<", photometric=5)
    assert decode_rgb(data).defect == inspect(data).defect == decode.UNDECODABLE


@pytest.mark.parametrize("is_compressed", [False, True])
def test_planes_of_grey_and_alpha_are_a_defect(is_compressed: bool) -> None:
    planes = [np.full((48, 64), value, np.uint8).tobytes() for value in (90, 255)]
    strips = [zlib.compress(plane) if is_compressed else plane for plane in planes]
    first, second = map(len, strips)
    end = 8 + first + second
    entries = [
        *((256, 1, 64), (257, 1, 48), (258, 2, 8 | 8 << 16), (259, 1, 8 if is_compressed else 1)),
        *((262, 1, 1), (273, 2, end + 138), (277, 1, 2), (278, 1, 48), (279, 2, end + 146)),
        *((284, 1, 2), (338, 1, 2)),
    ]
    table = b"".join(
        struct.pack("<HHII", tag, 3 if tag == 258 else 4, *values) for tag, *values in entries
    )
    ends = struct.pack("<4I", 8, 8 + first, first, second)
    data = b"II*\0" + struct.pack("<I", end) + b"".join(strips)
    data += struct.pack("<H", len(entries)) + table + bytes(4) + ends
    assert decode_rgb(data).defect == inspect(data).defect == decode.UNDECODABLE


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    values = np.linspace(1_000, 60_000, 64 * 64).reshape(64, 64).astype(np.uint16)
    decoded = decode_rgb(encoded("TIFF", Image.fromarray(values)))
    assert decoded.pixels is not None
    assert len(np.unique(decoded.pixels)) > 200


def grey_tiff(pixels_HW: np.ndarray, sample_format: int) -> bytes:
    """Return a TIFF of one channel whose SampleFormat is stated."""
    as_signed = struct.pack("<HHIHH", 339, 3, 1, 2, 0)
    as_stated = struct.pack("<HHIHH", 339, 3, 1, sample_format, 0)
    image = Image.fromarray(pixels_HW.view({1: np.uint8, 4: np.int32}[pixels_HW.itemsize]))
    file = encoded("TIFF", image, tiffinfo={339: 2})
    assert as_signed in file
    return file.replace(as_signed, as_stated)


@pytest.mark.parametrize(
    ("kind", "sample_format"), [(np.uint32, 1), (np.int32, 2), (np.int8, 2), (np.uint8, 1)]
)
def test_values_of_a_tiff_may_be_signed_or_not(kind: type, sample_format: int) -> None:
    ends = np.iinfo(kind)
    row = np.linspace(ends.min, ends.max, 64).astype(kind)
    found = decode_rgb(grey_tiff(np.tile(row, (48, 1)), sample_format)).pixels
    expected = np.rint((row.astype(np.float64) - ends.min) * 255 / (float(ends.max) - ends.min))
    np.testing.assert_array_equal(found[0, :, 0], expected)


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf, np.finfo(np.float32).min])
def test_missing_values_of_a_tiff_do_not_change_the_others(missing: float) -> None:
    values = np.tile(np.linspace(1_000, 1_001, 64, dtype=np.float32), (48, 1))
    expected = decode_rgb(encoded("TIFF", Image.fromarray(values))).pixels
    assert expected is not None
    values[0, 20] = missing
    found = decode_rgb(encoded("TIFF", Image.fromarray(values))).pixels
    expected[0, 20] = 255 if missing == np.inf else 0
    np.testing.assert_array_equal(found, expected)


def test_a_tiff_without_any_value_is_a_defect() -> None:
    found = inspect(encoded("TIFF", Image.fromarray(np.full((48, 64), np.nan, np.float32))))
    assert found.defect == decode.UNDECODABLE
    assert found.defect_detail == "ValueError: no pixel has a finite value"


@pytest.mark.parametrize(
    ("kind", "is_compressed"),
    # Pillow reads big-endian integers of 16 bits only where they are compressed.
    [(">i2", True), *itertools.product(["<f4", ">f4", "<i4", ">i4", "<i2"], [False, True])],
)
def test_values_of_either_byte_order_are_read(kind: str, is_compressed: bool) -> None:
    values = np.tile(np.linspace(-1_000, 1_000, 64), (48, 1)).astype(kind)
    strip = zlib.compress(values.tobytes()) if is_compressed else values.tobytes()
    entries = {
        **{256: 64, 257: 48, 258: 8 * values.itemsize, 259: 8 if is_compressed else 1, 262: 1},
        **{273: 8, 277: 1, 278: 48, 279: len(strip), 339: 3 if values.dtype.kind == "f" else 2},
    }
    order, end = kind[0], 8 + len(strip)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", end)
    table = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, n) for tag, n in entries.items())
    count = struct.pack(f"{order}H", len(entries))
    found = decode_rgb(head + strip + count + table + bytes(4)).pixels
    assert found is not None
    expected = (values[0].astype(np.float64) + 1_000) * 255 / 2_000
    np.testing.assert_allclose(found[0, :, 0], expected, atol=0.51)


@pytest.mark.parametrize("step", [1, 256])
def test_a_palette_of_a_tiff_may_have_8_bits(step: int) -> None:
    image = Image.fromarray(np.tile(np.arange(64, dtype=np.uint8), (48, 1)))
    levels = np.arange(256)[:, None] // [1, 2, 3]
    image.putpalette(levels.astype(np.uint8).tobytes())
    data, written = encoded("TIFF", image), (levels.T * 256).astype("<u2").tobytes()
    assert written in data
    data = data.replace(written, (levels.T * step).astype("<u2").tobytes())
    np.testing.assert_array_equal(decode_rgb(data).pixels[0], levels[:64])


@pytest.mark.parametrize("kind", [np.uint16, np.float32])
def test_the_least_value_of_a_tiff_may_be_white(kind: type) -> None:
    values = np.linspace(0, 60_000, 64 * 64).reshape(64, 64).astype(kind)
    # WhiteIsZero. Pillow writes these modes as they are and inverts 8 bits only.
    data = encoded("TIFF", Image.fromarray(values), tiffinfo={262: 0})
    decoded = decode_rgb(data).pixels
    assert decoded is not None
    assert (decoded[0, 0, 0], decoded[-1, -1, 0]) == (255, 0)


def _pages(*pages: tuple[tuple[int, int], int]) -> bytes:
    """Return a TIFF with pages of a size and a NewSubfileType."""
    stream = io.BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(stream, new=True) as writer:
        for size, kind in pages:
            picture(size=size).save(writer, "TIFF", tiffinfo={254: kind})
            writer.newFrame()
    return stream.getvalue()


@pytest.mark.parametrize(
    ("pages", "size"),
    [
        ([((24, 16), 1), ((96, 64), 0)], (96, 64)),
        ([((24, 16), 1), ((12, 8), 1), ((96, 64), 2), ((9, 9), 0)], (96, 64)),
        # A thumbnail of one page of several, and a second one as in DNG.
        ([((24, 16), 3), ((24, 16), 0x10001), ((96, 64), 0)], (96, 64)),
        ([((96, 64), 0), ((24, 16), 1)], (96, 64)),
        ([((96, 64), 1), ((24, 16), 1)], (96, 64)),
        ([((12, 8), 1)] * 8 + [((96, 64), 0)], (96, 64)),
        # A hostile file may have 100,000 thumbnails.
        ([((24, 16), 1)] + [((12, 8), 1)] * 8 + [((96, 64), 0)], (24, 16)),
    ],
)
def test_the_image_of_a_tiff_is_no_thumbnail(
    pages: list[tuple[tuple[int, int], int]], size: tuple[int, int]
) -> None:
    data = _pages(*pages)
    pixels = decode_rgb(data).pixels
    assert pixels is not None
    assert np.array_equal(pixels, np.asarray(picture(size=size)))
    found = inspect(data)
    assert (found.width_px, found.height_px, stated_size_px(data)) == (*size, size)
