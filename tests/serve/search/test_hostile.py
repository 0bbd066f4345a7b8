"""Thousands of inputs that nobody should send: each is answered, none with 5xx.

They are made from a seed, so that a failure names its case. Memory is looked at, since a bomb that
is refused late has done its work.
"""

import base64
import io
import json
import random
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from serve.http import strict_json
from serve.search import uploads
from tests.serve.search.small_engine import DIM, drawn, make_client, png
from tests.serve.search.small_engine import jpeg as jpeg_of

JSON = {"Content-Type": "application/json"}
ALLOWED_GROWTH_MIB = 300


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def memory() -> Iterator[None]:
    """Bound what all cases of this file together may add to the peak."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < ALLOWED_GROWTH_MIB


def refused_or_answered(response: httpx.Response, case: object) -> None:
    assert response.status_code < 500, (case, response.status_code, response.text[:300])
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json", case
        problem = response.json()
        assert problem["status"] == response.status_code, case
        assert problem["detail"], case
        assert len(response.content) < 20_000, case


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Images: damaged, cut, and of other kinds.


def saved(form: str, **options: Any) -> bytes:
    written = io.BytesIO()
    drawn("purple", "ring", side_px=40).save(written, form, **options)
    return written.getvalue()


FILES = {
    "png": png(drawn("red", "circle", side_px=40)),
    "jpeg": jpeg_of(drawn("red", "circle", side_px=40)),
    "progressive": saved("JPEG", progressive=True),
    "gif": saved("GIF"),
    "tiff": saved("TIFF"),
    "tiff deflate": saved("TIFF", compression="tiff_deflate"),
    "webp": saved("WEBP"),
    "bmp": saved("BMP"),
}


def cut(data: bytes, random_: random.Random) -> bytes:
    return data[: random_.randrange(len(data))]


def flipped(data: bytes, random_: random.Random) -> bytes:
    some = bytearray(data)
    for _ in range(random_.randint(1, 8)):
        some[random_.randrange(len(some))] ^= 1 << random_.randrange(8)
    return bytes(some)


def header_flipped(data: bytes, random_: random.Random) -> bytes:
    some = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        some[random_.randrange(min(64, len(some)))] = random_.randrange(256)
    return bytes(some)


def doubled(data: bytes, random_: random.Random) -> bytes:
    at = random_.randrange(len(data))
    return data[:at] + data[random_.randrange(len(data)) :] + data[at:]


@pytest.mark.parametrize("damage", [cut, flipped, header_flipped, doubled])
@pytest.mark.parametrize("name", FILES)
def test_damaged_images_are_answered(
    client: TestClient, name: str, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    random_ = random.Random(f"{name} {damage.__name__}")
    for number in range(25):
        data = damage(FILES[name], random_)
        ways = (
            lambda data=data: client.post("/v1/proxy", json={"image": encoded(data)}),
            lambda data=data: client.post(
                "/v1/search/image?k=2", content=data, headers={"Content-Type": "image/png"}
            ),
            lambda data=data: client.post("/v1/embeddings", json={"input": _url(data)}),
            lambda data=data: client.post(
                "/v1/classify", files={"image": data}, data={"classes": ["a", "b"]}
            ),
        )
        refused_or_answered(ways[number % 4](), (name, damage.__name__, number))


def _url(data: bytes) -> str:
    return f"data:image/png;base64,{encoded(data)}"


def png_of(width: int, height: int, data: bytes, *, depth: int = 8, colour: int = 2) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def unusual() -> dict[str, bytes]:
    """Return files that are odd, huge when decoded, or no images."""
    zeros = zlib.compress(bytes(30 << 20), 9)
    frames = [Image.new("P", (16, 16), number % 256) for number in range(500)]
    animated = saved_frames(frames)
    rotated = Image.Exif()
    rotated[0x0112] = 6
    return {
        "png of 50,000 x 50,000": png_of(50_000, 50_000, zeros),
        "png of 2^31 x 2^31": png_of(2**31 - 1, 2**31 - 1, b""),
        "png of 0 x 0": png_of(0, 0, b""),
        "png of 8 x 1,000,000": png_of(8, 1_000_000, zeros),
        "png of zeros": png_of(3_000, 3_000, zeros),
        "gif of 65,535 x 65,535": b"GIF89a\xff\xff\xff\xff\x00\x00\x00;",
        "bmp of 2^31": b"BM"
        + bytes(12)
        + struct.pack("<IiiHHI", 40, 2**31 - 1, -(2**31), 1, 24, 0),
        "tiff of nothing": b"II*\x00\x08\x00\x00\x00\xff\xff" + bytes(100),
        "tiff whose directories circle": b"II*\x00\x08\x00\x00\x00\x00\x00\x08\x00\x00\x00",
        "animation": animated,
        "1 x 1": saved_image(Image.new("RGB", (1, 1))),
        "1 x 10,000": saved_image(Image.new("RGB", (1, 10_000))),
        "16 bit": saved_image(Image.fromarray(np.full((20, 20), 40_000, np.uint16))),
        "cmyk": saved_image(Image.new("CMYK", (20, 20)), "JPEG"),
        "palette": saved_image(Image.new("P", (20, 20)), "PNG", transparency=0),
        "rotated": saved_image(Image.new("RGB", (20, 30)), "JPEG", exif=rotated),
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        "svg bomb": b"<!DOCTYPE svg [<!ENTITY a '&a;&a;'>]><svg>&a;</svg>",
        "html": b"<html><script>alert(1)</script>",
        "pdf": b"%PDF-1.7\n1 0 obj",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n(/etc/passwd) run",
        "zip": b"PK\x03\x04" + bytes(50),
        "polyglot": FILES["jpeg"] + b"PK\x03\x04<script>alert(1)</script>",
        "gif and script": b"GIF89a/*" + bytes(20) + b"*/=alert(1)",
        "zero bytes": b"",
        "one byte": b"\x89",
        "zeros": bytes(1_000),
        "pickle": b"\x80\x04cos\nsystem\n(S'id'\ntR.",
        "video": b"\x00\x00\x00\x18ftypmp42" + bytes(50),
        "heif": b"\x00\x00\x00\x18ftypheic" + bytes(50),
    }


def saved_image(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, form, **options)
    return written.getvalue()


def saved_frames(frames: list[Image.Image]) -> bytes:
    return saved_image(frames[0], "GIF", save_all=True, append_images=frames[1:])


@pytest.mark.parametrize("way", ["json", "raw", "form", "many"])
def test_unusual_files_are_answered(client: TestClient, way: str) -> None:
    for name, data in unusual().items():
        if way == "json":
            response = client.post("/v1/proxy", json={"image": encoded(data)})
        elif way == "raw":
            headers = {"Content-Type": "image/tiff"}
            response = client.post("/v1/search/image", content=data, headers=headers)
        elif way == "form":
            files = {"image": (f"{name}.png", data, "image/png")}
            response = client.post("/v1/search", files=files)
        else:
            response = client.post("/v1/embeddings", json={"input": ["a", _url(data)]})
        refused_or_answered(response, name)


@pytest.mark.parametrize(
    "name", ["1 x 1", "svg", "html", "pdf", "zip", "eps", "zero bytes", "heif"]
)
def test_what_is_no_image_is_called_so(client: TestClient, name: str) -> None:
    response = client.post("/v1/proxy", json={"image": encoded(unusual()[name])})
    assert response.status_code in (415, 422)


# JSON: wrong types for every field of every message, and what is no JSON.

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e308, 10**30, 0.5),
    *("", " ", "a", "\x01", "‮gnp.exe", "🩻" * 100, "ı" * 5_000, "x" * 200_000),
    *("../../etc/passwd", "{}", "%s%n", "<script>alert(1)</script>", "' OR 1=1 --", "${jndi:x}"),
    *([], [None], [[]], [{}], ["a"] * 3, ["a"] * 5_000, [1e300] * DIM, [0] * DIM, list(range(DIM))),
    *({}, {"a": 1}, {"text": 1}, {"gte": 1}, {"$ne": 1}, {"__class__": "x"}, {"": ""}),
)
FIELDS = {
    "/v1/search": (
        {"text": "a"},
        *("text", "image", "figure_id", "embedding", "weights", "over", "words", "k", "cursor"),
        *("filter", "exact", "nprobe", "k_factor", "unknown"),
    ),
    "/v1/classify": (
        {"image": encoded(FILES["png"]), "classes": ["a", "b"]},
        *("image", "images", "classes", "benchmark", "templates", "logit_scale", "unknown"),
    ),
    "/v1/embeddings": (
        {"input": "a"},
        *("input", "model", "encoding_format", "dimensions", "user", "unknown"),
    ),
    "/v1/proxy": (
        {"image": encoded(FILES["png"])},
        *("image", "k", "classes", "filter", "unknown"),
    ),
}


@pytest.mark.parametrize("path", FIELDS)
def test_wrong_values_of_every_field_are_answered(client: TestClient, path: str) -> None:
    body, *fields = FIELDS[path]
    assert isinstance(body, dict)
    for field in fields:
        for value in VALUES:
            response = client.post(path, json={**body, field: value})
            refused_or_answered(response, (path, field, str(value)[:60]))


FILTERS = ("license_group", "journal", "concept", "article_id", "mesh_term", "year", "unknown")


@pytest.mark.parametrize("field", FILTERS)
def test_wrong_values_of_filters_are_answered(client: TestClient, field: str) -> None:
    for value in (*VALUES, {"gte": "20x4"}, {"lte": 1e400}, {"gte": -5}, {"gt": 1}, {"gte": None}):
        body = json.dumps({"text": "a", "filter": {field: value}})
        response = client.post("/v1/search", content=body, headers=JSON)
        refused_or_answered(response, (field, str(value)[:60]))


BODIES = (
    *(b"", b"{", b"}", b"[]", b"null", b"true", b"1", b'"a"', b"{}", b"\xff\xfe{", b"\x00"),
    *(b"[" * 5_000, b'{"a":' * 5_000, b'{"text":' + b"[" * 100_000, b'{"text": NaN}'),
    *(b'{"embedding": [1e400]}', b'{"embedding": [NaN, Infinity, -Infinity]}'),
    *(b'{"text": "a", "text": "b"}', b'{"text": "\\ud800"}', b'{"text": "\\u0000"}'),
    *(
        b'{"text": "\xc3"}',
        b'{"text": "a"} x',
        b"{'text': 'a'}",
        b'{"text": "a",}',
        b"\xef\xbb\xbf{}",
    ),
    *(b'{"text": "a", "k": ' + b"9" * 10_000 + b"}", b'{"k": 1' + b"0" * 400 + b".5}"),
    *(b'{"text": "' + b"a" * (1 << 20) + b'"}', b'{"' + b"k" * 100_000 + b'": 1}'),
    *(b'{"filter": {"journal": [' + b'"x",' * 10_000 + b'"x"]}, "text": "a"}',),
    *(b"{" + b",".join(b'"k%d": 1' % n for n in range(20_000)) + b"}",),
)
TYPES = ("application/json", "application/json; charset=utf-16", "text/html", "image/png", "x", "")


@pytest.mark.parametrize("path", FIELDS)
def test_bodies_that_are_no_message_are_answered(client: TestClient, path: str) -> None:
    for body in BODIES:
        for content_type in TYPES:
            response = client.post(path, content=body, headers={"Content-Type": content_type})
            refused_or_answered(response, (path, body[:40], content_type))


# Forms.


def form(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + end


def part(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    return b'Content-Disposition: form-data; name="' + name + b'"' + more + b"\r\n\r\n" + value


FORMS = (
    form(),
    form(end=b""),
    form(part(b"text", b"a"), end=b""),
    form(*[part(b"text", b"a")] * 2),
    form(*[part(b"text", b"a")] * 1_000),
    form(part(b"text", b"\xff\xfe")),
    form(part(b"", b"a")),
    form(part(b"text", b"a" * (2 << 20))),
    form(part(b"k", b"NaN"), part(b"text", b"a")),
    form(part(b"filter", b"["), part(b"text", b"a")),
    form(part(b"filter", b"[" * 10_000), part(b"text", b"a")),
    form(part(b"filter", b"not json"), part(b"text", b"a")),
    form(part(b"embedding", b"[1, 2]")),
    form(part(b"embedding", b"1")),
    form(part(b"image", b"", b'; filename="x"')),
    form(part(b"image", FILES["png"], b'; filename="../../../../etc/passwd"')),
    form(part(b"image", FILES["png"], b'; filename="' + b"x" * 100_000 + b'"')),
    form(part(b"image", FILES["png"], b'; filename="a"; filename="b"')),
    form(part(b"other", FILES["png"], b'; filename="x"')),
    form(*[part(b"image", FILES["png"], b'; filename="x"')] * 90),
    form(b"\r\n"),
    form(b"A: b\r\n" * 1_000 + b"\r\n"),
    form(b"A" * 100_000 + b": b\r\n\r\n"),
    form(b"Content-Disposition: attachment\r\n\r\na"),
    form(b": \r\n\r\n"),
    b"--b",
    b"\r\n" * 1_000,
    b"--b\r\n" * 10_000,
)
BOUNDARIES = (
    *("multipart/form-data; boundary=b", "multipart/form-data", "multipart/form-data; boundary="),
    *('multipart/form-data; boundary="b"', f"multipart/form-data; boundary={'b' * 1_000}"),
    *("multipart/mixed; boundary=b", "multipart/form-data; boundary=c"),
)


@pytest.mark.parametrize("path", FIELDS)
def test_forms_that_are_none_are_answered(client: TestClient, path: str) -> None:
    for number, body in enumerate(FORMS):
        for content_type in BOUNDARIES:
            response = client.post(path, content=body, headers={"Content-Type": content_type})
            refused_or_answered(response, (path, number, content_type[:60]))


# Query strings and paths.

IDS = (
    *("..", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "..%5c..%5c", "%00", "a%00b", "%ff", "%c0%ae"),
    *("%F0%9F%A9%BB", "%E2%80%AE", "%0d%0aSet-Cookie:%20a=b", "*", "%25", "%", "a" * 10_000, "~"),
    *("PMC1000_F1%2fimage", "PMC1000_F1;x", "PMC1000_F1?x", "-1", "0", "null", "__proto__", "'--"),
)


def test_ids_that_are_none_are_answered(client: TestClient) -> None:
    for one in IDS:
        for path in (
            "/{}",
            "/{}/image",
            "/{}/thumbnail",
            "?ids={}",
            "?ids={0},{0}",
            "?ids=a&ids={}",
        ):
            refused_or_answered(client.get("/v1/figures" + path.format(one)), (path, one[:50]))


def test_query_strings_beside_an_image_are_answered(client: TestClient) -> None:
    for field in (*FIELDS["/v1/search"][1:], "image", "%00", ""):
        for value in (
            "",
            "a",
            "-1",
            "1e999",
            "[",
            "[]",
            "{}",
            "[1]",
            '{"a":1}',
            "%ff",
            "null",
            "true",
        ):
            response = client.post(
                f"/v1/search/image?{field}={value}",
                content=FILES["png"],
                headers={"Content-Type": "image/png"},
            )
            refused_or_answered(response, (field, value))


def test_requests_of_the_largest_size_are_refused_before_they_are_decoded(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def decode(data: str, **_: Any) -> bytes:
        decoded.append(len(data))
        return b""

    monkeypatch.setattr(uploads.binascii, "a2b_base64", decode)
    large = json.dumps({"embedding": [0.123456789] * 1_500_000}).encode()
    assert 15 << 20 < len(large) < 20 << 20
    text = b'{"image": "' + b"A" * (19 << 20) + b'"}'
    assert client.post("/v1/proxy", content=text, headers=JSON).status_code == 413
    assert decoded == []
    monkeypatch.setattr(strict_json, "_DECODER", None)
    assert client.post("/v1/search", content=large, headers=JSON).status_code == 413
