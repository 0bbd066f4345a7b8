"""Every format and mode that figures come in, and what breaks decoders."""

import gzip
import io
import random
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from imagehash import hex_to_hash
from PIL import Image, PngImagePlugin

from biovl.images import decode
from biovl.images.decode import decode_rgb, inspect, stated_size_px
from biovl.images.encode import for_training
from biovl.images.formats import image_format
from tests.images.image_files import camera_row, encoded, picture

FILES = {
    "jpeg": encoded("JPEG", picture()),
    "jpeg grey": encoded("JPEG", picture("L")),
    "jpeg cmyk": encoded("JPEG", picture("CMYK")),
    "jpeg progressive": encoded("JPEG", picture(), progressive=True),
    "png": encoded("PNG", picture()),
    "png palette": encoded("PNG", picture("P")),
    "png alpha": encoded("PNG", picture("RGBA")),
    "png grey alpha": encoded("PNG", picture("LA")),
    "png 16": encoded("PNG", picture("I;16")),
    "png 1": encoded("PNG", picture("1")),
    "gif": encoded("GIF", picture("P")),
    "gif animated": encoded("GIF", picture("P"), save_all=True, append_images=[picture("P")]),
    "tiff": encoded("TIFF", picture()),
    "tiff lzw": encoded("TIFF", picture(), compression="tiff_lzw"),
    "tiff 16": encoded("TIFF", picture("I;16")),
    "tiff float": encoded("TIFF", picture("F")),
    "tiff 32": encoded("TIFF", picture("I")),
    "tiff cmyk": encoded("TIFF", picture("CMYK")),
    "tiff pages": encoded("TIFF", picture(), save_all=True, append_images=[picture("L")]),
    "webp": encoded("WEBP", picture()),
    "bmp": encoded("BMP", picture()),
    "jp2": encoded("JPEG2000", picture()),
    "jp2 stream": encoded("JPEG2000", picture(), no_jp2=True),
    "jp2 alpha": encoded("JPEG2000", picture("RGBA")),
    "jp2 lossy": encoded("JPEG2000", picture(), irreversible=True, quality_layers=[20]),
}


def png_claiming(width: int, height: int) -> bytes:
    """Return a small PNG whose header claims a size that no memory holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("name", FILES)
def test_every_format_and_mode_is_inspected_and_decoded(name: str) -> None:
    found = inspect(FILES[name])
    assert found.defect is None, found
    assert found.format == name.split()[0]
    assert (found.width_px, found.height_px) == (96, 64)
    assert found.phash is not None
    assert len(found.phash) == 16
    decoded = decode_rgb(FILES[name])
    assert decoded.defect is None
    assert decoded.pixels is not None
    assert decoded.pixels.shape == (64, 96, 3)
    assert decoded.pixels.dtype == np.uint8
    assert decoded.pixels.std() > 20


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("png 1",)])
def test_the_same_picture_looks_the_same_in_every_format(name: str) -> None:
    first, other = (hex_to_hash(inspect(FILES[key]).phash or "") for key in ("png", name))
    assert first - other <= 6


@pytest.mark.parametrize(
    ("data", "kind", "defect"),
    [
        (b"", None, decode.EMPTY),
        (b"\x00" * 100, None, decode.NOT_AN_IMAGE),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg", "graphic is svg"),
        (b"<?xml version='1.0'?>\n<!-- x --><svg/>", "svg", "graphic is svg"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "eps", "graphic is eps"),
        (b"\xc5\xd0\xd3\xc6" + bytes(30), "eps", "graphic is eps"),
        (b"%PDF-1.4", "pdf", "graphic is pdf"),
        (b"\x00\x00\x00\x20ftypisom", "video", "graphic is a video"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "video", "graphic is a video"),
        (b"\x00\x00\x00\x20ftypavif", "avif", "graphic is avif"),
        (b"\x00\x00\x00\x18ftypheic", "heif", "graphic is heif"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jp2", decode.UNDECODABLE),
        (b"<!DOCTYPE svg [" + b"<!ENTITY n 'x'>" * 200 + b"]><svg/>", "svg", "graphic is svg"),
        (
            gzip.compress(b"<svg xmlns='http://www.w3.org/2000/svg'/>", mtime=0),
            "svg",
            "graphic is svg",
        ),
        (gzip.compress(gzip.compress(b"<svg/>", mtime=0), mtime=0), "gzip", decode.NOT_AN_IMAGE),
        (b"\x1b%-12345X@PJL\r\n%!PS-Adobe", "eps", "graphic is eps"),
        (b"\r\n%PDF-1.7", "pdf", "graphic is pdf"),
        (b"\xd7\xcd\xc6\x9a" + bytes(40), "wmf", "graphic is wmf"),
        (b"\x01\0\x09\0\0\x03" + bytes(40), "wmf", "graphic is wmf"),
        (b"\x01\0\0\0" + bytes(36) + b" EMF" + bytes(40), "emf", "graphic is emf"),
        (b"II\xbc\x01" + bytes(40), "jxr", "graphic is jxr"),
        (b"\xff\x0a" + bytes(40), "jxl", "graphic is jxl"),
        (b"8BPS\0\1" + bytes(40), "psd", "graphic is psd"),
        (bytes(128) + b"DICM", "dicom", "graphic is dicom"),
        (b"RIFF\0\0\0\0CDRvvrsn", "cdr", "graphic is cdr"),
        (b"\xd0\xcf\x11\xe0" + bytes(40), "ole", decode.NOT_AN_IMAGE),
        (b"\xff\x4f\xff\x51" + bytes(9), "jp2", decode.UNDECODABLE),
        (b"<!DOCTYPE html><html>", "html", decode.NOT_AN_IMAGE),
        (b"PK\x03\x04", "zip", decode.NOT_AN_IMAGE),
        (png_claiming(60_000, 60_000), "png", decode.TOO_LARGE),
        (png_claiming(2**31 - 1, 2**31 - 1), "png", None),
        (png_claiming(1, 500), "png", decode.TOO_SMALL),
        (png_claiming(500, 500), "png", None),
        (b"\x89PNG\r\n\x1a\n", "png", decode.UNDECODABLE),
        (b"\xff\xd8\xff", "jpeg", decode.UNDECODABLE),
    ],
)
def test_what_is_no_usable_image_has_a_named_reason(
    data: bytes, kind: str | None, defect: str | None
) -> None:
    assert image_format(data) == kind
    found = inspect(data)
    assert found.defect in decode.DEFECTS
    assert defect in (None, found.defect)
    if found.defect != decode.TOO_SMALL:
        assert decode_rgb(data).pixels is None


@pytest.mark.parametrize("name", ["jpeg", "jpeg progressive", "png", "gif", "tiff", "webp", "bmp"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_found_out(name: str, share: float) -> None:
    data = FILES[name]
    found = inspect(data[: int(len(data) * share)])
    assert found.defect in (decode.TRUNCATED, decode.UNDECODABLE)


def test_damaged_bytes_never_raise_nor_warn() -> None:
    rng = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in FILES.values():
            for _ in range(60):
                broken = bytearray(data)
                for _ in range(rng.randint(1, 6)):
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
                found = inspect(bytes(broken))
                assert found.defect is None or found.defect in decode.DEFECTS
                decoded = decode_rgb(bytes(broken))
                assert (decoded.pixels is None) == (decoded.defect is not None)


def test_a_rotation_in_exif_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded("JPEG", picture(), exif=exif.tobytes())
    found = inspect(data)
    assert (found.width_px, found.height_px) == (64, 96)
    decoded = decode_rgb(data)
    assert decoded.pixels is not None
    assert decoded.pixels.shape == (96, 64, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_size_and_pixels_agree_on_every_orientation(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    how = {"tiffinfo": {0x0112: orientation}} if kind == "TIFF" else {"exif": exif.tobytes()}
    # White in one corner only, so that each of the eight orientations looks different.
    corner = Image.new("L", (96, 64))
    corner.paste(255, (0, 0, 48, 16))
    data = encoded(kind, corner.convert("RGB"), **how)
    size = (96, 64) if orientation < 5 else (64, 96)
    found, decoded = inspect(data), decode_rgb(data)
    assert (found.width_px, found.height_px) == size
    assert decoded.pixels is not None
    assert decoded.pixels.shape == (size[1], size[0], 3)
    top, left = WHITE_CORNER[orientation]
    rows, columns = ((0, 8) if top else (-8, None)), ((0, 8) if left else (-8, None))
    assert decoded.pixels[slice(*rows), slice(*columns)].min() > 200


# EXIF's "row 0 is the visual … side, column 0 the visual … side": is it top, is it left?
WHITE_CORNER = {
    **{1: (True, True), 2: (True, False), 3: (False, False), 4: (False, True)},
    **{5: (True, True), 6: (True, False), 7: (False, False), 8: (False, True)},
}

TIFF_WITH = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0garbage!!",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        TIFF_WITH + b"\x02\0\x04\0\0\0abc\0\0\0\0\0",  # the orientation is a text
        TIFF_WITH + b"\x03\0\x01\0\0\0\x63\0\0\0\0\0\0\0",  # the orientation is 99
    ],
)
def test_nonsense_in_exif_spoils_no_image(kind: str, exif: bytes) -> None:
    data = encoded(kind, picture(), exif=exif)
    found = inspect(data)
    assert (found.defect, found.width_px, found.height_px) == (None, 96, 64)
    assert decode_rgb(data).defect is None


def test_an_orientation_in_a_text_is_ignored_as_by_browsers() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", '<x:xmpmeta tiff:Orientation="6"></x:xmpmeta>')
    data = encoded("PNG", picture(), pnginfo=texts)
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif()[0x0112] == 6
    assert (inspect(data).width_px, inspect(data).height_px) == (96, 64)


def test_damaged_tiffs_say_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(FILES["tiff lzw"])
    data[1_000:3_000:50] = b"\xff" * 40
    # Tag 277, SamplesPerPixel, one SHORT: 255 samples instead of 3.
    many = FILES["tiff"].replace(b"\x15\x01\x03\0\x01\0\0\0\x03", b"\x15\x01\x03\0\x01\0\0\0\xff")
    for broken in (bytes(data), many):
        assert inspect(broken).defect is not None
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_a_cut_webp_is_called_truncated() -> None:
    assert inspect(FILES["webp"][:200]).defect == decode.TRUNCATED


def test_transparent_parts_are_white() -> None:
    image = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    decoded = decode_rgb(encoded("PNG", image))
    assert decoded.pixels is not None
    assert (decoded.pixels == 255).all()


def png_of_rows(row: bytes, depth: int, colour: int, key: list[int] | None = None) -> bytes:
    """Return a PNG, 64 pixels wide, of 48 equal rows, with a colour that is transparent."""

    def chunk(name: bytes, body: bytes) -> bytes:
        sum32 = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + sum32

    transparent = chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b""
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, depth, colour, 0, 0, 0)),
            transparent,
            chunk(b"IDAT", zlib.compress((b"\0" + row) * 48)),
            chunk(b"IEND", b""),
        )
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_of_12_bits_in_a_png_are_scaled(channels: int) -> None:
    row, colour = camera_row(channels), {3: 2, 4: 6}[channels]
    data = png_of_rows(row.tobytes(), 16, colour)
    expected = np.rint(row[:, :3] * (255 / 4095))
    np.testing.assert_array_equal(decode_rgb(data).pixels[0], expected)
    kept = for_training(data, short_side_px=None, jpeg_quality=90).data
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(kept)))[0], expected)


def test_greys_of_16_bits_with_alpha_are_read() -> None:
    greys = np.stack([np.arange(64) * 1_000, np.full(64, 65_535)], -1).astype(">u2")
    pixels = decode_rgb(png_of_rows(greys.tobytes(), 16, 4)).pixels
    assert pixels is not None
    np.testing.assert_array_equal(pixels[0, :, 0], greys[:, 0] >> 8)
    greys[:, 0] = np.linspace(0, 4095, 64)
    data, expected = png_of_rows(greys.tobytes(), 16, 4), np.rint(greys[:, :1] * (255 / 4095))
    np.testing.assert_array_equal(decode_rgb(data).pixels[0], expected.repeat(3, 1))
    kept = for_training(data, short_side_px=None, jpeg_quality=90).data
    np.testing.assert_array_equal(read_by_stock_reader(kept)[0], expected.repeat(3, 1))


def test_details_of_a_defect_are_the_same_in_each_process() -> None:
    broken = FILES["png"][:12] + bytes(40)
    assert inspect(broken) == inspect(bytes(bytearray(broken)))
    assert inspect(broken).defect_detail == "UnidentifiedImageError: cannot identify image file"


def test_dark_pixels_of_8_bits_and_dark_ink_on_the_page_stay_dark() -> None:
    for factor in (256, 257):
        row = ((camera_row() >> 8) * factor).astype(">u2")
        data = png_of_rows(row.tobytes(), 16, 2)
        np.testing.assert_array_equal(decode_rgb(data).pixels[0], row >> 8)
    assert for_training(data, short_side_px=None, jpeg_quality=90).data == data
    ink = camera_row(4)
    ink[:, 3] = np.linspace(0, 65_535, 64)
    page = decode_rgb(png_of_rows(ink.tobytes(), 16, 6)).pixels
    assert page is not None
    assert (page[0, 0].min(), page[0, -1].max()) == (255, 15)


@pytest.mark.parametrize("bits", [12, 16])
def test_a_transparent_colour_of_16_bits_is_white(bits: int) -> None:
    row = (camera_row() << (bits - 12)).astype(">u2")
    data = png_of_rows(row.tobytes(), 16, 2, key=row[40].tolist())
    pixels = decode_rgb(data).pixels
    assert pixels is not None
    assert np.flatnonzero((pixels[0] == 255).all(-1)).tolist() == [40]
    # Values that differ in the lower byte are others.
    row[:] = 60_000
    row[7] = 60_001
    pixels = decode_rgb(png_of_rows(row.tobytes(), 16, 2, key=[60_001] * 3)).pixels
    assert pixels is not None
    assert (pixels[0, 7].min(), pixels[0, 8].max()) == (255, 234)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_a_transparent_grey_of_a_png_has_the_depth_of_its_pixels(depth: int) -> None:
    greys = np.arange(64) % 2**depth
    bits = "".join(f"{grey:0{depth}b}" for grey in greys)
    data = png_of_rows(int(bits, 2).to_bytes(len(bits) // 8, "big"), depth, 0, key=[1])
    expected = np.where(greys == 1, 255, greys * 255 // (2**depth - 1))
    np.testing.assert_array_equal(decode_rgb(data).pixels[0, :, 0], expected)


def test_a_transparent_grey_of_16_bits_is_white_and_not_part_of_the_range() -> None:
    greys = np.linspace(20_000, 30_000, 64).astype(">u2")
    greys[5] = 0
    pixels = decode_rgb(png_of_rows(greys.tobytes(), 16, 0, key=[0])).pixels
    assert pixels is not None
    assert (pixels[0, 0, 0], pixels[0, 5, 0], pixels[0, 63, 0]) == (0, 255, 255)
    assert pixels[0, 32, 0] == 130


def bmp(bits: int, masks: tuple[int, ...], pixels: np.ndarray) -> bytes:
    """Return a BMP whose channels are where the masks say; rows are from the top."""
    height, width = pixels.shape
    data = pixels.tobytes()
    head = struct.pack(
        f"<IiiHHIIiiII{len(masks)}I",
        *(56 if len(masks) == 4 else 40, width, -height, 1, bits, 3, len(data), 0, 0, 0, 0),
        *masks,
    )
    return b"BM" + struct.pack("<IHHI", 14 + len(head + data), 0, 0, 14 + len(head)) + head + data


def test_colours_of_a_bmp_are_where_its_masks_say() -> None:
    reds = np.tile(np.arange(32) << 11, (48, 1)).astype("<u2")
    found = decode_rgb(bmp(16, (0xF800, 0x7E0, 0x1F), reds)).pixels
    assert found is not None
    assert (found[0, 0].tolist(), found[0, -1].tolist()) == ([0, 0, 0], [255, 0, 0])
    # With an alpha channel that was never written.
    reds = np.full((48, 64), 200 << 16, "<u4")
    found = decode_rgb(bmp(32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000), reds)).pixels
    assert found is not None
    assert found[0, 0].tolist() == [200, 0, 0]


def test_published_jpeg_and_png_stay_as_they_are_and_the_rest_becomes_png() -> None:
    for name in ("jpeg", "jpeg cmyk", "png", "png palette"):
        kept = for_training(FILES[name], short_side_px=None, jpeg_quality=90)
        assert kept.data == FILES[name]
        assert kept.suffix == {"jpeg": "jpg", "png": "png"}[name.split()[0]]
    for name in ("tiff", "gif", "webp", "bmp", "tiff 16", "png 16"):
        converted = for_training(FILES[name], short_side_px=None, jpeg_quality=90)
        assert (converted.suffix, image_format(converted.data)) == ("png", "png")
        expected = decode_rgb(FILES[name]).pixels
        np.testing.assert_array_equal(decode_rgb(converted.data).pixels, expected)


def test_no_published_greys_are_white_to_a_stock_reader() -> None:
    for name in ("png 16", "png grey alpha", "png 1"):
        kept = for_training(FILES[name], short_side_px=None, jpeg_quality=90)
        with Image.open(io.BytesIO(kept.data)) as image:
            assert np.asarray(image.convert("RGB")).std() > 20


def read_by_stock_reader(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def black_on_transparent(mode: str) -> Image.Image:
    """Return a black disc on a page whose transparent pixels are black as well."""
    disc = picture("L").point(lambda value: 255 * (value == 20))
    shown = Image.merge("LA", (Image.new("L", disc.size), disc))
    return shown.convert("RGBA").quantize() if mode == "P" else shown.convert(mode)


@pytest.mark.parametrize("mode", ["LA", "RGBA", "P"])
def test_a_stock_reader_sees_transparent_parts_as_white(mode: str) -> None:
    data = encoded("PNG", black_on_transparent(mode))
    stored = for_training(data, short_side_px=None, jpeg_quality=90)
    assert stored.suffix == "png"
    shown = read_by_stock_reader(stored.data)
    np.testing.assert_array_equal(shown, decode_rgb(data).pixels)
    assert (shown.min(), shown.max()) == (0, 255)


@pytest.mark.parametrize("colour", [0, (0, 0, 0)])
def test_a_stock_reader_sees_a_transparent_colour_as_white(colour: int | tuple) -> None:
    page = picture("L" if colour == 0 else "RGB")
    page.paste(colour, (0, 0, 10, 10))
    data = encoded("PNG", page, transparency=colour)
    stored = for_training(data, short_side_px=None, jpeg_quality=90)
    assert read_by_stock_reader(stored.data)[5, 5].tolist() == [255, 255, 255]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_stock_reader_sees_images_upright(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(kind, picture(), exif=exif.tobytes())
    stored = for_training(data, short_side_px=None, jpeg_quality=90)
    np.testing.assert_array_equal(read_by_stock_reader(stored.data), decode_rgb(data).pixels)
    assert (stored.data == data) == (orientation == 1)


def test_an_alpha_channel_that_hides_nothing_is_kept() -> None:
    for name in ("png alpha", "png grey alpha"):
        kept = for_training(FILES[name], short_side_px=None, jpeg_quality=90)
        assert kept.data == FILES[name]


def test_training_copies_are_smaller_rgb_and_never_enlarged() -> None:
    small = for_training(FILES["png"], short_side_px=32, jpeg_quality=90)
    with Image.open(io.BytesIO(small.data)) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (48, 32))
    same = for_training(FILES["png"], short_side_px=500, jpeg_quality=90)
    with Image.open(io.BytesIO(same.data)) as image:
        assert image.size == (96, 64)
    assert for_training(b"\xff\xd8\xff", short_side_px=32, jpeg_quality=90).defect is not None


@pytest.mark.parametrize(
    ("width", "height", "suffix"),
    [
        pytest.param(300, 300, "jpg", id="coloured noise"),
        pytest.param(66_000, 2, "png", id="longer than a JPEG can be"),
    ],
)
def test_images_that_jpeg_hardly_holds_are_encoded(width: int, height: int, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    data = encoded("PNG", Image.fromarray(noise))
    stored = for_training(data, short_side_px=height, jpeg_quality=90)
    assert stored.suffix == suffix
    pixels = decode_rgb(stored.data).pixels
    assert pixels is not None
    assert np.abs(pixels.astype(int) - noise).mean() < 10


@pytest.mark.shared
def test_real_images_are_inspected_without_an_exception(shared_data: Path) -> None:
    import tarfile

    looked_at = usable = 0
    for path in sorted((shared_data / "packages").glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and not member.name.endswith(("xml", "nxml")):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    looked_at += 1
                    usable += inspect(stream.read()).defect is None
    assert looked_at > 900
    assert usable > 800


@pytest.mark.parametrize("name", FILES)
def test_the_size_is_read_from_the_header_alone(name: str) -> None:
    data = FILES[name]
    assert stated_size_px(data) == Image.open(io.BytesIO(data)).size


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", FILES["jpeg"][:20]])
def test_where_no_header_can_be_read_no_size_is_stated(data: bytes) -> None:
    assert stated_size_px(data) is None


@pytest.mark.parametrize(
    ("form", "enough", "side"),
    [
        ("JPEG", None, (400, 320)),
        ("JPEG", 100, (200, 160)),  # libjpeg halves; a quarter would be too little
        ("PNG", 100, (134, 107)),  # a third, rounded up
        ("PNG", 321, (400, 320)),
    ],
)
def test_a_large_image_is_reduced_by_a_whole_number(
    form: str, enough: int | None, side: tuple[int, int]
) -> None:
    image = picture(size=(400, 320))
    pixels = decode_rgb(encoded(form, image), enough_px=enough).pixels
    assert pixels is not None
    assert pixels.shape == (side[1], side[0], 3)
    # The same picture: its halves and quarters are as bright as they were.
    small, whole = (
        np.asarray(one.resize((2, 2), Image.Resampling.BOX), np.float64)
        for one in (Image.fromarray(pixels), image)
    )
    assert np.abs(small - whole).max() < 2
