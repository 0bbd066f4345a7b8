"""Work that a small request may ask for: counted from headers, and refused before it is done."""

import asyncio
import base64
import hashlib
import io
import resource
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from serve.http.pixels import (
    MAX_CHUNKS,
    MAX_SEGMENTS,
    CostlyFileError,
    PixelBudget,
    megapixels,
    without_texts,
)
from serve.http.problems import Problem
from serve.http.rate import Buckets
from serve.http.request_context import Caller
from serve.http.settings import Limits, Rate
from serve.search.engine import EmbeddedVectors
from serve.search.preprocessing import Preparer
from tests.serve.search.small_engine import SmallEngine, drawn, jpeg, make_app, make_client, png


def bilevel(width: int, height: int) -> bytes:
    """A PNG of a few kB, however many pixels."""
    stream = io.BytesIO()
    Image.new("1", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Squares:
    """Cuts a square of some pixels, as a model's preparation does."""

    def __init__(self, image_size: int) -> None:
        self.image_size = image_size

    def crop(self, pixels: np.ndarray) -> np.ndarray:
        size = (self.image_size, self.image_size)
        return np.asarray(Image.fromarray(pixels).resize(size))


class NeverDecodes(SmallEngine):
    """Says so by an error of 500 if it is asked to."""

    async def prepare(self, images: Sequence[bytes]) -> list[np.ndarray]:
        raise RuntimeError("something was decoded")


PNG = {"Content-Type": "image/png"}
LARGE = bilevel(7_937, 7_937)  # 63 million, below the limit of one image


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/classify", {"json": {"images": [text(LARGE)] * 3, "classes": ["a", "b"]}}),
        (
            "/v1/classify",
            {
                "files": [("images", ("a.png", LARGE, "image/png"))] * 3,
                "data": {"classes": '["a", "b"]'},
            },
        ),
        ("/v1/embeddings", {"json": {"input": ["data:image/png;base64," + text(LARGE)] * 3}}),
    ],
    ids=["base64", "form", "data URL"],
)
def test_many_large_images_are_refused_before_one_is_decoded(
    path: str, sent: dict[str, Any]
) -> None:
    with make_client(NeverDecodes()) as client:
        response = client.post(path, **sent)
    assert response.status_code == 422
    assert response.json()["type"].endswith("too-many-pixels")
    assert "189" in response.json()["detail"]


def test_so_many_pixels_as_are_allowed_are_taken() -> None:
    million = bilevel(1_000, 1_000)
    with make_client(limits={"request_megapixels": 2}) as client:
        for count, status in ((2, 200), (3, 422)):
            body = {"images": [text(million)] * count, "classes": ["a", "b"]}
            assert client.post("/v1/classify", json=body).status_code == status
        # One image by itself is within the limit of an image, and not within that of a request.
        large = bilevel(2_000, 2_000)
        for path in ("/v1/search/image?k=1", "/v1/proxy?k=1"):
            response = client.post(path, content=large, headers={"Content-Type": "image/png"})
            assert response.json()["type"].endswith("too-many-pixels")


def test_a_key_has_a_rate_of_pixels_whoever_asks() -> None:
    with make_client(
        rate={"megapixels_per_s": 0.001, "megapixels_burst": 1},
        limits={"request_megapixels": 1},
    ) as client:
        body = {"image": text(bilevel(1_000, 1_000)), "k": 1}
        assert client.post("/v1/search", json=body).status_code == 200
        refused = client.post("/v1/search", json=body)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 900  # a thousand seconds for a million
        # Texts are not pixels.
        assert client.post("/v1/search", json={"text": "red"}).status_code == 200


def test_pixels_come_back_with_time_and_keys_do_not_share_them() -> None:
    now = [0.0]
    rate = Rate(megapixels_per_s=2, megapixels_burst=10)
    budget = PixelBudget(
        Limits(request_megapixels=8), rate, Buckets(clock=lambda: now[0]), clock=lambda: now[0]
    )
    ann, bob = (
        Caller(name=name, scopes=frozenset(), bucket=f"key:{name}") for name in ("ann", "bob")
    )
    four = [bilevel(2_000, 2_000)]

    async def spent(caller: Caller) -> int | str:
        try:
            await budget.spend(caller, four)
        except Problem as problem:
            return problem.headers["Retry-After"]
        return 200

    async def all_of_it() -> None:
        assert [await spent(ann), await spent(ann)] == [200, 200]
        # 2 of 10 are left, 2 come each second.
        assert await spent(ann) == "1"
        assert await spent(bob) == 200
        now[0] = 1.0
        assert await spent(ann) == 200
        assert await spent(ann) == "2"

    asyncio.run(all_of_it())


def test_scans_of_a_jpeg_beyond_the_usual_count_as_pixels() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (2_000, 1_000)).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    assert data.count(b"\xff\xda") == 10
    assert megapixels(data) == 2
    assert megapixels(data[:-2] + b"\xff\xda" * 90 + data[-2:]) == 20


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunks(chunks: bytes) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((40, 30), 90).convert("RGB").save(stream, "PNG")
    return stream.getvalue()[:33] + chunks + stream.getvalue()[33:]


def test_texts_of_a_png_are_not_unpacked() -> None:
    packed = b"a\0\0" + zlib.compress(bytes(1 << 20), 9)
    bomb = with_chunks(chunk(b"zTXt", packed) * 60 + chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\0"))
    kept = without_texts(bomb)
    assert b"zTXt" not in kept
    assert b"eXIf" in kept
    before, after = (np.asarray(Image.open(io.BytesIO(data))) for data in (bomb, kept))
    np.testing.assert_array_equal(before, after)
    plain = with_chunks(b"")
    assert without_texts(plain) is plain


def test_files_of_very_many_pieces_are_refused() -> None:
    crowded = with_chunks(chunk(b"prIv", b"") * MAX_CHUNKS)
    with pytest.raises(CostlyFileError):
        without_texts(crowded)
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, "JPEG")
    start, rest = stream.getvalue()[:2], stream.getvalue()[2:]
    with pytest.raises(CostlyFileError):
        without_texts(start + b"\xff\xe5\x00\x02" * MAX_SEGMENTS + rest)
    few = start + b"\xff\xe5\x00\x02" * 100 + rest
    assert without_texts(few) is few
    with make_client() as client:
        response = client.post("/v1/search/image", content=crowded, headers=PNG)
    assert (response.status_code, response.json()["type"]) == (
        422,
        "urn:biovl:problem:invalid-image",
    )


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 20])
def test_files_that_break_off_are_left_to_the_decoder(length: int) -> None:
    for whole in (with_chunks(b""), jpeg(Image.new("RGB", (9, 9)))):
        assert without_texts(whole[:length]) == whole[:length]


class NeverEnds(SmallEngine):
    """Embeds until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError


def test_a_request_that_is_too_much_by_itself_is_told_so() -> None:
    async def statuses() -> list[int]:
        engine = NeverEnds()
        app = make_app(engine, limits={"timeout_s": 0.2})
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            many = await client.post("/v1/embeddings", json={"input": ["a", "b", "c"]})
            # One text is no work: it is the service that is slow.
            one = await client.post("/v1/embeddings", json={"input": "a"})
        assert many.json()["type"].endswith("too-much-work")
        return [many.status_code, one.status_code]

    assert asyncio.run(statuses()) == [422, 504]


def test_a_request_that_others_kept_waiting_may_be_repeated(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    names = ("ann", "bob")
    lines = [
        f"- {{name: {name}, sha256: {hashlib.sha256(name.encode()).hexdigest()}, scopes: [embed]}}"
        for name in names
    ]
    keys.write_text("keys:\n" + "\n".join(lines))

    async def statuses() -> list[int]:
        app = make_app(NeverEnds(), limits={"timeout_s": 0.5}, auth={"keys_file": str(keys)})
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = await asyncio.gather(
                *(
                    client.post(
                        "/v1/embeddings",
                        json={"input": ["a", "b"]},
                        headers={"Authorization": f"Bearer {name}"},
                    )
                    for name in names
                )
            )
        return [answer.status_code for answer in answers]

    # The first to end was one of two; the last may be alone by then.
    assert 504 in asyncio.run(statuses())


def test_phrases_times_captions_are_bounded() -> None:
    classes = {f"class {n}": [f"phrase {n} {m}" for m in range(50)] for n in range(200)}
    # Ten thousand phrases take longer than the usual limit where the machine is busy.
    with make_client(limits={"timeout_s": 600}) as client:
        body = {"image": text(bilevel(96, 96)), "classes": classes, "k": 11}
        assert client.post("/v1/proxy", json=body).status_code == 422
        assert client.post("/v1/proxy", json={**body, "k": 10}).status_code == 200


def test_very_many_cells_are_refused_as_comparing_all_is() -> None:
    class Large(SmallEngine):
        async def about(self) -> dict[str, Any]:
            about = dict(await super().about())
            factories = {"images": "IVF1000,SQ8", "captions": "IVF1000,SQ8"}
            about["index"] = {**about["index"], "figures": 10_000_000, "factories": factories}
            return about

    with make_client(Large(), limits={"exact_figures": 2_000_000}) as client:
        # A fifth of the cells are two million figures.
        for nprobe, status in ((200, 200), (201, 422), (65_536, 422)):
            body = {"text": "red circle", "k": 1, "nprobe": nprobe}
            assert client.post("/v1/search", json=body).status_code == status


def test_memory_of_large_images_is_given_back() -> None:
    stream = io.BytesIO()
    Image.new("L", (6_000, 6_000)).save(stream, "PNG")  # 36 million pixels, 400 MB to decode
    preparation = Squares(32)

    async def grown_bytes() -> int:
        preparer = Preparer(Limits())
        small = [png(drawn("red", "circle"))]
        await preparer(small, preparation)
        before = resident_bytes()
        (pixels,) = await preparer([stream.getvalue()], preparation)
        assert pixels.shape == (32, 32, 3)
        # What comes after it in the thread of large images has seen the memory given back.
        await asyncio.wrap_future(preparer._for_large.submit(int))
        return resident_bytes() - before

    assert asyncio.run(grown_bytes()) < 100e6
