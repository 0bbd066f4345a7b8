"""Images out of JSON, forms and raw bodies: what is taken, and what is refused with which reason."""

import base64
import io
import struct
import tempfile
import zlib

import pytest
from PIL import Image

from biovl.images.formats import image_format
from serve.http.problems import Problem
from serve.http.settings import Limits
from serve.search.uploads import FORMATS, form_of, image_of, validate_image

LIMITS = Limits(image_mib=1, image_megapixels=4)
AT = ("body", "image")


def written(form: str, size: tuple[int, int] = (32, 24)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", size, "red").save(data, form.upper())
    return data.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def refused(text: str) -> Problem:
    with pytest.raises(Problem) as caught:
        image_of(text, LIMITS, AT)
    return caught.value


@pytest.mark.parametrize("form", FORMATS)
def test_images_of_every_format_come_as_data_urls_and_as_plain_base64(form: str) -> None:
    data = written(form)
    assert image_format(data) == form
    assert image_of(f"data:image/{form};base64,{encoded(data)}", LIMITS, AT) == data
    assert image_of(encoded(data), LIMITS, AT) == data


def test_the_content_decides_what_an_image_is_and_not_the_declared_type() -> None:
    data = written("png")
    assert image_of(f"DATA:image/JPEG;name=x.gif;BASE64,{encoded(data)}", LIMITS, AT) == data


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/x.png",
        "https://example.org/x.png",
        "HTTP://169.254.169.254/latest/meta-data",
        "http://[::ffff:7f00:1]/",
        "file:///etc/passwd",
        "ftp://example.org/x",
        "//example.org/x.png",
        " http://2130706433/",
        "javascript:alert(1)",
    ],
)
def test_an_address_is_refused_and_not_fetched(address: str) -> None:
    problem = refused(address)
    assert (problem.status, problem.slug) == (422, "remote-image")


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("data:image/png;base64", 400, "no comma"),
        ("data:image/png,iVBORw0", 400, "not ;base64"),
        ("data:text/html;base64,PGI+", 415, "text/html"),
        ("data:,x", 415, "text/plain"),
        ("not base64!", 400, "not base64"),
        ("iVBORw0KGgo", 400, "not base64"),  # without padding
        ("iVBO\nRw0K", 400, "not base64"),
        ("-_-_", 400, "not base64"),  # the URL-safe alphabet
        ("ÿ" * 8, 400, "not base64"),
        ("", 422, "image is empty"),
        ("data:image/png;base64,", 422, "image is empty"),
    ],
)
def test_what_is_no_base64_of_an_image_is_refused(text: str, status: int, says: str) -> None:
    problem = refused(text)
    assert problem.status == status
    assert says in problem.detail
    assert problem.errors[0]["loc"] == ["body", "image"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg"),
        (b"<!DOCTYPE html><script>1</script>", "html"),
        (b"%PDF-1.7 ...", "pdf"),
        (b"PK\x03\x04 zip", "zip"),
        (b"%!PS-Adobe-3.0 EPSF", "eps"),
        (b"hello", "no image"),
    ],
)
def test_other_files_are_refused_whatever_they_are_called(data: bytes, says: str) -> None:
    problem = refused(f"data:image/png;base64,{encoded(data)}")
    assert problem.status == 415
    assert says in problem.detail


@pytest.mark.parametrize("size", [(50_000, 50_000), (2_001, 2_000), (2**31 - 1, 8)])
def test_an_image_of_too_many_pixels_is_refused_by_its_header(size: tuple[int, int]) -> None:
    problem = refused(encoded(bomb(*size)))
    assert (problem.status, problem.slug) == (422, "image-too-large")
    assert "4 million" in problem.detail


@pytest.mark.parametrize("size", [(7, 100), (8, 801)])
def test_an_image_that_resizing_would_blow_up_is_refused(size: tuple[int, int]) -> None:
    assert refused(encoded(bomb(*size))).status == 422
    assert validate_image(bomb(8, 800), LIMITS, AT)


def test_the_size_is_refused_before_anything_is_decoded() -> None:
    # Not even base64: were it decoded first, that would be said.
    problem = refused("!" * (2 << 20))
    assert problem.status == 413
    assert "1.5 MiB" in problem.detail


def test_exactly_the_allowed_bytes_are_taken() -> None:
    data = written("bmp") + bytes(1 << 20)
    assert validate_image(data[: 1 << 20], LIMITS, AT)
    assert image_of(encoded(data[: 1 << 20]), LIMITS, AT)
    assert refused(encoded(data[: (1 << 20) + 3])).status == 413


def multipart(*parts: bytes, boundary: bytes = b"xYz") -> bytes:
    joined = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts)
    return joined + b"--" + boundary + b"--\r\n"


CONTENT_TYPE = "multipart/form-data; boundary=xYz"


def test_a_forms_fields_and_files_come_in_order_and_whole() -> None:
    data = written("png") + b"\r\n--xY\r\n"
    body = multipart(
        b'Content-Disposition: form-data; name="k"\r\n\r\n5',
        b'content-disposition: form-data; name="image"; filename="../../etc/x.png"\r\n'
        b"Content-Type: image/png\r\n\r\n" + data,
        'Content-Disposition: form-data; name="text"\r\n\r\nfluorescência'.encode(),
    )
    form = form_of(CONTENT_TYPE, body)
    assert form.fields == [("k", "5"), ("text", "fluorescência")]
    assert form.files == [("image", data)]


def test_a_file_of_some_megabytes_is_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(*args: object, **options: object) -> None:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", no_file)
    monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", no_file)
    data = bytes(5 << 20)
    head = b'Content-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
    assert form_of(CONTENT_TYPE, multipart(head + data)).files == [("image", data)]


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("multipart/form-data", multipart(b"\r\n"), 400),
        (f"multipart/form-data; boundary={'x' * 71}", multipart(b"\r\n"), 400),
        (CONTENT_TYPE, b"", 400),
        (CONTENT_TYPE, b"no form", 400),
        (CONTENT_TYPE, multipart(b'Content-Disposition: form-data; name="k"\r\n\r\n5')[:-8], 400),
        (CONTENT_TYPE, multipart(b"Content-Disposition: form-data\r\n\r\n5"), 400),
        (CONTENT_TYPE, multipart(b'Content-Disposition: form-data; name="k"\r\n\r\n\xff'), 400),
        (CONTENT_TYPE, multipart(b"A: b\r\n" * 17 + b"\r\n5"), 400),
        (
            CONTENT_TYPE,
            multipart(*[b'Content-Disposition: form-data; name="k"\r\n\r\n5'] * 101),
            413,
        ),
        (
            CONTENT_TYPE,
            multipart(b'Content-Disposition: form-data; name="k"\r\n\r\n' + b"5" * (2 << 20)),
            413,
        ),
    ],
)
def test_what_is_no_form_of_modest_size_is_refused(
    content_type: str, body: bytes, status: int
) -> None:
    with pytest.raises(Problem) as caught:
        form_of(content_type, body)
    assert caught.value.status == status
