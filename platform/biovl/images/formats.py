"""The format of an image file, from its bytes and not its name."""

import zlib

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
    (b"\x00\x00\x00\x0cjP  ", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
    (b"II\xbc\x01", "jxr"),
    (b"\xff\x0a", "jxl"),
    (b"\x00\x00\x00\x0cJXL ", "jxl"),
    (b"\xd7\xcd\xc6\x9a", "wmf"),
    (b"\x01\x00\x09\x00\x00\x03", "wmf"),
    (b"8BPS", "psd"),
    (b"AT&TFORM", "djvu"),
    (b"SIMPLE  =", "fits"),
    (b"\xd0\xcf\x11\xe0", "ole"),
    (b"Rar!", "rar"),
    (b"7z\xbc\xaf", "7z"),
)
# Still images in an MP4 container, by the brand that follows "ftyp".
_STILLS = {b"avif": "avif", b"avis": "avif", b"heic": "heif", b"heix": "heif", b"mif1": "heif"}
# Formats with their signature after the first bytes.
_MAGIC_AT = (
    (40, b" EMF", "emf"),
    (128, b"DICM", "dicom"),
    (522, b"\x00\x11\x02\xff\x0c\x00", "pict"),
)
_MAX_PREAMBLE = 1024
"""Bytes that printer commands or a mail program may put before a PDF or PostScript file."""


def image_format(data: bytes) -> str | None:
    """Return the format of a file, from its content and not its name; None if unknown."""
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF":
        form = data[8:12]
        return "cdr" if form[:3] == b"CDR" else {b"WEBP": "webp", b"AVI ": "video"}.get(form)
    for place, magic, name in _MAGIC_AT:
        if data.startswith(magic, place):
            return name
    if data.startswith(b"\x1f\x8b"):
        return image_format(_first_unpacked(data)) or "gzip"
    if data[4:8] == b"ftyp":
        return _STILLS.get(data[8:12], "video")
    if data[4:8] in (b"moov", b"mdat", b"wide"):
        return "video"
    head = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    # Illustrator puts kilobytes of entity declarations between the DOCTYPE and the element.
    if head.startswith(b"<") and (b"<svg" in head or b"<!doctype svg" in head):
        return "svg"
    if head.startswith((b"<!doctype html", b"<html")):
        return "html"
    for magic, name in ((b"%PDF-", "pdf"), (b"%!PS", "eps")):
        if magic in data[:_MAX_PREAMBLE]:
            return name
    return None


def _first_unpacked(data: bytes) -> bytes:
    """Return the first decompressed bytes of a gzip file, as vector graphics often are."""
    try:
        first = zlib.decompressobj(wbits=31).decompress(data[:65_536], 4_096)
    except zlib.error:
        return b""
    return b"" if first.startswith(b"\x1f\x8b") else first
