"""Files made to hurt a reader: they claim sizes no memory holds, or are two things at once."""

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from biovl.images import decode
from biovl.images.decode import decode_rgb, inspect
from biovl.images.encode import for_training
from biovl.images.formats import image_format


def encoded(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(stream, kind)
    return stream.getvalue()


def patched(data: bytes, places: dict[int, bytes]) -> bytes:
    changed = bytearray(data)
    for offset, value in places.items():
        changed[offset : offset + len(value)] = value
    return bytes(changed)


def png_claiming(side: int) -> bytes:
    claimed = patched(encoded("PNG"), {16: struct.pack(">II", side, side)})
    return patched(claimed, {29: struct.pack(">I", zlib.crc32(claimed[12:29]))})


def tiff(**entries: int) -> bytes:
    """Return a grey TIFF of 8 x 8 pixels whose directory says what it is told to."""
    tags = {"width": 256, "height": 257, "rows_per_strip": 278, "strip_bytes": 279}
    said = {256: 8, 257: 8, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 8, 279: 64}
    said |= {tags[name]: value for name, value in entries.items()}
    pixels = bytes(range(0, 256, 4))
    count = struct.pack("<H", len(said))
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, said[tag]) for tag in sorted(said))
    where = struct.pack("<I", 8 + len(pixels))
    return b"II*\0" + where + pixels + count + directory + bytes(4)


SIDE = 60_000
BOMBS = {
    "png": png_claiming(SIDE),
    "gif": patched(encoded("GIF"), {6: struct.pack("<HH", SIDE, SIDE)}),
    "bmp": patched(encoded("BMP"), {18: struct.pack("<ii", SIDE, SIDE)}),
    "tiff": tiff(width=SIDE, height=SIDE),
    "tiff in one strip": tiff(width=SIDE, height=SIDE, rows_per_strip=SIDE, strip_bytes=2**32 - 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_too_large_by_its_header(name: str) -> None:
    # A reader that tried to decode these would call them truncated, or run out of memory.
    assert inspect(BOMBS[name]).defect == decode.TOO_LARGE
    assert decode_rgb(BOMBS[name]).defect == decode.TOO_LARGE
    assert for_training(BOMBS[name], short_side_px=64, jpeg_quality=90).defect == decode.TOO_LARGE


def test_strips_longer_than_the_file_are_a_truncation() -> None:
    assert inspect(tiff()).defect is None
    assert inspect(tiff(height=4_000, rows_per_strip=4_000)).defect == decode.TRUNCATED


@pytest.mark.parametrize("tail", [b"PK\x03\x04", b"%PDF-1.4", b"<html><script>", bytes(50_000)])
def test_what_follows_an_image_changes_nothing(tail: bytes) -> None:
    for kind in ("JPEG", "PNG"):
        alone, followed = encoded(kind), encoded(kind) + tail
        assert inspect(followed) == inspect(alone)


def test_an_image_inside_something_else_is_that_something() -> None:
    assert image_format(b"%!PS-Adobe-3.0 EPSF-3.0\n" + encoded("JPEG")) == "eps"
    assert inspect(b"%PDF-1.4\n" + encoded("PNG")).defect == "graphic is pdf"


def test_postscript_is_never_run() -> None:
    # Pillow's EPS reader starts Ghostscript; a DOS EPS header is what it would follow.
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n"
    header = b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, len(program)) + bytes(18)
    for data in (program, header + program):
        assert inspect(data).defect == decode_rgb(data).defect == "graphic is eps"


WORST = {
    "jpeg progressive": ("JPEG", "RGB", {"progressive": True, "subsampling": 0}),
    "jpeg cmyk": ("JPEG", "CMYK", {"progressive": True}),
    "png alpha": ("PNG", "RGBA", {}),
    "png 16": ("PNG", "I;16", {}),
    "tiff float": ("TIFF", "F", {}),
    "webp": ("WEBP", "RGBA", {}),
    "jp2": ("JPEG2000", "RGB", {}),
}
_PEAK = """
import resource, sys
from biovl.images import decode
data = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decoded = decode.decode_rgb(data)
seen = decode.inspect(data)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert decoded.defect is None and seen.defect is None, (decoded.defect, seen.defect)
print((peak - before) * 1024 / (seen.width_px * seen.height_px))
"""


@pytest.mark.parametrize("name", WORST)
def test_an_image_takes_no_more_memory_than_is_reckoned(name: str, tmp_path: Path) -> None:
    kind, mode, options = WORST[name]
    path = tmp_path / "image"
    Image.new(mode, (3_000, 2_500)).save(path, kind, **options)
    asked = [sys.executable, "-c", _PEAK, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    taken = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    with Image.open(path) as image:
        reckoned = decode._bytes_a_pixel(image)
    # Strips of four million pixels are most of so small an image.
    assert float(taken.stdout) < reckoned + 16


@pytest.mark.parametrize("name", WORST)
def test_what_would_take_too_much_memory_is_too_large(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, mode, options = WORST[name]
    stream = io.BytesIO()
    Image.new(mode, (400, 400)).save(stream, kind, **options)
    data = stream.getvalue()
    assert inspect(data).defect is None
    # No mode takes less than five bytes a pixel.
    monkeypatch.setattr(decode, "MAX_MEMORY_BYTES", 400 * 400 * 5)
    assert inspect(data).defect == decode_rgb(data).defect == decode.TOO_LARGE
