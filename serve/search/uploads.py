"""Read images from requests: JSON, multipart and raw bodies, in memory only.

Starlette's own form parser writes files of more than a megabyte to a temporary file. An image may
be a patient's, so multipart forms are parsed in memory here. The type of an image is detected from
its bytes, not from its name or declared type, and its size is read from its header before anything
is decoded.
"""

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import python_multipart
from PIL import Image
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from biovl.images import decode
from biovl.images.formats import image_format
from serve.http.pixels import CostlyFileError, without_texts
from serve.http.problems import Problem
from serve.http.settings import Limits

Location = tuple[str | int, ...]
"""Location of a value in a request: ``("body", "images", 3)``."""

FORMATS = ("jpeg", "png", "gif", "tiff", "webp", "bmp")
"""Accepted formats. Only the first image of animations and multi-page files is used."""

MIN_SIDE_PX = decode.MIN_SIDE_PX
MAX_RATIO = 100
"""Maximum ratio of the longer to the shorter side. Models resize by the shorter side: an image of 8
x 1,000,000 pixels would become 224 x 28,000,000."""

MAX_PARTS = 100
"""Maximum parts of a form. Each part may add some hundred bytes of headers."""
MAX_FIELD_BYTES = 1 << 20
MAX_HEADERS = 16
"""Maximum headers of one part of a form."""

_REMOTE = re.compile(r"\s*([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)


def image_of(text: str, limits: Limits, at: Location) -> bytes:
    """Return the image in a data URL or in plain base64, after ``validate_image``.

    Base64 must follow RFC 4648 section 4, with padding and without line breaks: the URL-safe
    alphabet and white space are rejected.

    Raises:
        Problem: 400 for invalid base64; 413, 415 or 422 for the image; 422 ``remote-image`` for an
            HTTP URL, because the service fetches nothing.
    """
    encoded = text
    if text[:5].lower() == "data:":
        match = _DATA_URL.match(text[:1_000])
        if match is None:
            raise _refused(400, "invalid-image", "the data URL has no comma", at)
        media_type, options = match[1].lower(), match[2].lower()
        if not media_type.startswith("image/"):
            reason = f"the data URL is of {media_type or 'text/plain'}, expected image/…"
            raise _refused(415, "unsupported-image", reason, at)
        if not options.endswith(";base64"):
            raise _refused(400, "invalid-image", "the data URL is not ;base64", at)
        encoded = text[match.end() :]
    elif _REMOTE.match(text):
        reason = "images are not fetched; send the image itself as data:image/…;base64,…"
        raise _refused(422, "remote-image", reason, at)
    # Checked before decoding; padding may add up to two bytes.
    _check_bytes(len(encoded) * 3 // 4 - 2, limits, at)
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError):
        reason = "not base64 (RFC 4648 section 4: A-Z a-z 0-9 + /, padded with =, no line breaks)"
        raise _refused(400, "invalid-image", reason, at) from None
    return validate_image(data, limits, at)


def images_of(texts: Sequence[str], limits: Limits, name: str) -> list[bytes]:
    """Apply ``image_of`` to several images; errors state the position of the image."""
    return [image_of(text, limits, ("body", name, number)) for number, text in enumerate(texts)]


def validate_image(data: bytes, limits: Limits, at: Location) -> bytes:
    """Return the bytes of an image, validated before decoding; a PNG without text chunks.

    Raises:
        Problem: 413 for too many bytes, 415 for another kind of file, 422 for an image that is
            empty, has too many pixels or segments, or is too small or too narrow.
    """
    _check_bytes(len(data), limits, at)
    kind = image_format(data)
    if not data:
        raise _refused(422, "invalid-image", decode.EMPTY, at)
    if kind not in FORMATS:
        reason = f"the file is {kind or 'no image'}; send one of {', '.join(FORMATS)}"
        raise _refused(415, "unsupported-image", reason, at)
    try:
        data = without_texts(data)
        size = decode.stated_size_px(data)
    except CostlyFileError as error:
        raise _refused(422, "invalid-image", f"{error}; save it again", at) from None
    # Pillow raises this for images larger than twice its own limit.
    except Image.DecompressionBombError:
        reason = f"the image has more than {limits.image_megapixels:g} million pixels; shrink it"
        raise _refused(422, "image-too-large", reason, at) from None
    # The header cannot be read: the decoder reports the error.
    if size is None:
        return data
    width, height = size
    stated = f"the image has {width:,} x {height:,} pixels"
    if width * height > limits.image_megapixels * 1e6:
        reason = f"{stated}, at most {limits.image_megapixels:g} million are accepted; shrink it"
        raise _refused(422, "image-too-large", reason, at)
    if min(width, height) < MIN_SIDE_PX:
        reason = f"{stated}; each side must have at least {MIN_SIDE_PX}"
        raise _refused(422, "invalid-image", reason, at)
    if max(width, height) > MAX_RATIO * min(width, height):
        reason = f"{stated}; a side may be at most {MAX_RATIO} times the other"
        raise _refused(422, "invalid-image", reason, at)
    return data


@dataclass
class Form:
    """Fields and files of a multipart form."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)


def form_of(content_type: str, body: bytes) -> Form:
    """Parse a ``multipart/form-data`` body in memory.

    Parts with a file name or a media type other than text are files. File names are discarded.

    Raises:
        Problem: 400 for an invalid form, 413 for too many parts or too long fields.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:
        raise _refused(400, "invalid-form", "Content-Type has no boundary of 1 to 70 characters")
    parts = _Parts()
    try:
        parser = python_multipart.MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError):
        raise _refused(400, "invalid-form", "the body is not multipart/form-data") from None
    if not parts.is_finished:
        raise _refused(400, "invalid-form", "the form ends before its last boundary")
    return parts.form


class _Parts:
    """Callbacks of the multipart parser."""

    def __init__(self) -> None:
        self.form = Form()
        self.is_finished = False
        self._begin()
        self._count = 0

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._part_begin,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._data = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header_name = b""
        self._header_text = b""

    def _part_begin(self) -> None:
        self._begin()
        self._count += 1
        if self._count > MAX_PARTS:
            raise _refused(413, "form-too-large", f"a form may have at most {MAX_PARTS} parts")

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_text += data[start:end]

    def _header_end(self) -> None:
        if len(self._headers) >= MAX_HEADERS:
            raise _refused(400, "invalid-form", f"a part has more than {MAX_HEADERS} headers")
        self._headers[self._header_name.lower()] = self._header_text
        self._header_name = self._header_text = b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += memoryview(data)[start:end]

    def _part_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        # Browsers and curl write UTF-8 here.
        name = options.get(b"name", b"").decode(errors="replace")
        if not name:
            raise _refused(400, "invalid-form", "a part of the form has no name")
        media_type = self._headers.get(b"content-type", b"text/plain").lower()
        if b"filename" in options or not media_type.startswith((b"text/", b"application/json")):
            self.form.files.append((name, bytes(self._data)))
            return
        if len(self._data) > MAX_FIELD_BYTES:
            raise _refused(
                413, "form-too-large", f"a field has more than {MAX_FIELD_BYTES:,} bytes"
            )
        try:
            self.form.fields.append((name, self._data.decode()))
        except UnicodeDecodeError:
            raise _refused(400, "invalid-form", "a field is not UTF-8") from None

    def _end(self) -> None:
        self.is_finished = True


def _refused(status: int, slug: str, reason: str, at: Location = ()) -> Problem:
    place = ".".join(str(step) for step in at[1:])
    errors = [{"loc": list(at), "msg": reason}] if at else []
    return Problem(status, slug, f"{place}: {reason}" if place else reason, errors=errors)


def _check_bytes(size: int, limits: Limits, at: Location) -> None:
    if size > limits.image_mib * (1 << 20):
        reason = f"the image has {size / (1 << 20):.1f} MiB, at most {limits.image_mib:g} are taken"
        raise _refused(413, "image-too-large", reason, at)
