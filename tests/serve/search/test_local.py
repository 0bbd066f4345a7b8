"""The engine of one process answers as the model itself, and says what it cannot read."""

import asyncio
import io
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biovl.core import artifacts
from biovl.index.query import Query, QueryPart
from biovl.models import encoder
from serve.http.problems import Problem
from serve.http.settings import Limits
from serve.search.local import LocalEngine
from serve.search.settings import BatchSettings, Settings
from tests.serve.search.published import a_picture, publish_index, publish_model

LONG = "a word " * 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_model(tmp_path_factory.mktemp("published") / "model")


def run(model: Path, test: Callable[[LocalEngine], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        engine = LocalEngine(Settings(model=str(model), **settings))
        await engine.start()
        await test(engine)
        await engine.close()

    asyncio.run(asyncio.wait_for(whole(), timeout=600))


def test_texts_and_images_are_embedded_as_by_the_model_alone(model: Path) -> None:
    alone = encoder.load(str(model))
    texts = ["a chest x-ray", LONG, "liver", "a chest x-ray"]
    images = [a_picture(seed) for seed in range(3)]

    async def test(engine: LocalEngine) -> None:
        found = await engine.embed_texts(texts)
        np.testing.assert_allclose(found.rows_ND, alone.embed_texts(texts), atol=1e-5)
        assert found.model_version == artifacts.fingerprint(str(model))[:12]
        assert found.logit_scale == pytest.approx(alone.logit_scale)
        assert list(found.truncated) == [False, True, False, False]
        assert found.tokens[0] == found.tokens[3] == len(alone.tokenizer.encode(texts[:1])[0])
        # Once more: now they are remembered.
        again = await engine.embed_texts(texts)
        np.testing.assert_array_equal(found.rows_ND, again.rows_ND)
        found = await engine.embed_images(await engine.prepare(images))
        np.testing.assert_allclose(found.rows_ND, alone.embed_images(images), atol=1e-5)

    run(model, test)


def test_many_requests_at_a_time_are_answered_each_with_its_own(model: Path) -> None:
    alone = encoder.load(str(model))
    texts = [f"figure {number}" + " and so on" * (number % 3) for number in range(200)]

    async def test(engine: LocalEngine) -> None:
        found = await asyncio.gather(*(engine.embed_texts([text]) for text in texts))
        rows_ND = np.concatenate([one.rows_ND for one in found])
        np.testing.assert_allclose(rows_ND, alone.embed_texts(texts), atol=1e-5)

    run(model, test, batch=BatchSettings(texts_max=16))


def test_a_call_of_more_texts_than_the_queue_holds_is_answered(model: Path) -> None:
    async def test(engine: LocalEngine) -> None:
        found = await engine.embed_texts([f"class {number}" for number in range(700)])
        assert found.rows_ND.shape == (700, 16)

    run(model, test, batch=BatchSettings(queue_max=64))


def png_that_claims(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header claims many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"", 422, "image is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "graphic is svg"),
        (b"%PDF-1.7", 415, "graphic is pdf"),
        (b"PK\x03\x04 an archive", 415, "graphic is not an image"),
        (a_picture()[:200], 422, "truncated"),
        (png_that_claims(50_000, 50_000), 422, "image too large"),
        (png_that_claims(9_000, 9_000), 422, "9000 x 9000 px are 81.0 megapixels, 64 are allowed"),
        (a_picture(size=(300, 4)), 422, "300 x 4 px, at least 8 a side"),
    ],
)
def test_what_is_no_usable_image_is_named_with_its_number(
    model: Path, data: bytes, status: int, reason: str
) -> None:
    async def test(engine: LocalEngine) -> None:
        with pytest.raises(Problem) as caught:
            await engine.prepare([a_picture(), data])
        assert caught.value.status == status
        assert "image 1 " in caught.value.detail
        assert reason in caught.value.detail
        assert caught.value.errors[0]["loc"] == ["images", 1]

    run(model, test)


def test_every_kind_of_image_is_prepared_to_the_size_of_the_model(model: Path) -> None:
    def palette() -> bytes:
        stream = io.BytesIO()
        Image.open(io.BytesIO(a_picture())).convert("P").save(stream, "GIF")
        return stream.getvalue()

    images = [a_picture(kind=kind) for kind in ("PNG", "JPEG", "TIFF", "WEBP", "BMP")]

    async def test(engine: LocalEngine) -> None:
        prepared = await engine.prepare([*images, palette()])
        assert {(one.shape, str(one.dtype)) for one in prepared.pixels} == {((32, 32, 3), "uint8")}

    run(model, test, limits=Limits(image_megapixels=0.01))


def test_without_an_index_there_is_nothing_to_search(model: Path) -> None:
    async def test(engine: LocalEngine) -> None:
        vector_D = (await engine.embed_texts(["liver"])).rows_ND[0]
        for ask in (engine.search(Query(parts=(QueryPart(vector_D=vector_D),))), engine.facets()):
            with pytest.raises(Problem, match="index=DIR") as caught:
                await ask
            assert caught.value.status == 503
        assert (await engine.about())["index"] is None

    run(model, test)


def test_figures_are_found_by_the_vectors_of_the_model(model: Path, tmp_path: Path) -> None:
    index = publish_index(tmp_path / "pictures", model)

    async def test(engine: LocalEngine) -> None:
        assert (await engine.about())["index"]["figures"] == 40
        image = await engine.embed_images(await engine.prepare([a_picture(7)]))
        query = Query(parts=(QueryPart(vector_D=image.rows_ND[0]),), k=5)
        found = await engine.search(query, model_version=image.model_version)
        assert found.hits[0].figure_id == "pictures_7"
        assert found.model_version == image.model_version
        like = await engine.search(Query(parts=(QueryPart(figure_id="pictures_7"),), k=40))
        assert len(like.hits) == 39
        assert (await engine.image("pictures_7", "full")).data == a_picture(7)
        small = await engine.image("pictures_7", "thumbnail")
        assert (small.data, small.media_type) == (
            a_picture(7, size=(24, 20), kind="JPEG"),
            "image/jpeg",
        )
        for ask in (engine.image("nowhere", "full"), engine.search(of_figure("nowhere"))):
            with pytest.raises(Problem, match="figure nowhere") as caught:
                await ask
            assert caught.value.status == 404
        with pytest.raises(Problem) as stale:
            await engine.search(query, model_version="0" * 12)
        assert stale.value.slug == "stale-model"

    run(model, test, index=str(index))


def test_where_the_corpus_is_missing_thumbnails_are_sent_and_readyz_says_so(
    model: Path, tmp_path: Path
) -> None:
    index = publish_index(tmp_path / "pictures", model)
    corpus = tmp_path / "pictures-corpus"
    corpus.rename(tmp_path / "moved")

    async def without(engine: LocalEngine) -> None:
        about = await engine.about()
        assert about["ready"]
        (warning,) = about["warnings"]
        assert "setting corpus" in warning
        assert str(corpus) in warning
        image = await engine.image("pictures_7", "full")
        assert image.size == "thumbnail"
        assert image.data == a_picture(7, size=(24, 20), kind="JPEG")
        assert image.media_type == "image/jpeg"

    async def named(engine: LocalEngine) -> None:
        assert (await engine.about())["warnings"] == []
        image = await engine.image("pictures_7", "full")
        assert (image.size, image.data) == ("full", a_picture(7))

    run(model, without, index=str(index))
    run(model, named, index=str(index), corpus=str(tmp_path / "moved"))


def test_a_model_and_its_index_are_exchanged_together(model: Path, tmp_path: Path) -> None:
    first = publish_index(tmp_path / "first", model)
    other = publish_model(tmp_path / "other", seed=7)
    second = publish_index(tmp_path / "second", other)

    async def test(engine: LocalEngine) -> None:
        before = await engine.embed_texts(["liver"])
        await engine.reload(model=str(other), index=str(second))
        after = await engine.embed_texts(["liver"])
        for text, index in ((before, "first"), (after, "second")):
            query = Query(parts=(QueryPart(vector_D=text.rows_ND[0], kind="text"),), k=3)
            found = await engine.search(query, model_version=text.model_version)
            assert found.model_version == text.model_version
            assert all(hit.figure_id.startswith(f"{index}_") for hit in found.hits)
        with pytest.raises(Problem, match=str(first)):
            await engine.reload(index=str(first))

    run(model, test, index=str(first))


def test_images_prepared_for_the_model_of_before_are_prepared_again(
    model: Path, tmp_path: Path
) -> None:
    """The two have images of the same size, but may crop or interpolate them differently."""
    other = publish_model(tmp_path / "other", seed=7)

    async def test(engine: LocalEngine) -> None:
        prepared = await engine.prepare([a_picture()])
        await engine.reload(model=str(other))
        with pytest.raises(Problem) as caught:
            await engine.embed_images(prepared)
        assert (caught.value.status, caught.value.slug) == (409, "stale-model")
        assert (await engine.embed_images(await engine.prepare([a_picture()]))).rows_ND.any()

    run(model, test)


def of_figure(figure_id: str) -> Query:
    return Query(parts=(QueryPart(figure_id=figure_id),))


def test_what_is_served_is_told(model: Path) -> None:
    async def test(engine: LocalEngine) -> None:
        about = await engine.about()
        assert about["ready"]
        assert about["model"]["name"] == "model"
        assert about["model"]["version"] == artifacts.fingerprint(str(model))[:12]
        assert about["model"]["dim"] == 16
        assert about["model"]["image_size"] == 32
        assert about["model"]["licenses"] == ["CC-BY-4.0"]

    run(model, test)


def test_models_are_exchanged_under_load_without_a_failure_or_a_mixture(
    model: Path, tmp_path: Path
) -> None:
    other = publish_model(tmp_path / "other", seed=7)
    texts = [f"figure {number}" for number in range(40)]
    expected = {
        artifacts.fingerprint(str(path))[:12]: encoder.load(str(path)).embed_texts(texts)
        for path in (model, other)
    }

    async def test(engine: LocalEngine) -> None:
        seen: set[str] = set()
        stop = asyncio.Event()

        async def ask(number: int) -> None:
            while not stop.is_set():
                found = await engine.embed_texts([texts[number]])
                seen.add(found.model_version)
                np.testing.assert_allclose(
                    found.rows_ND[0], expected[found.model_version][number], atol=1e-5
                )
                await asyncio.sleep(0.001)

        asking = [asyncio.create_task(ask(number)) for number in range(len(texts))]
        for path in (other, model, other):
            await engine.reload(model=str(path))
        stop.set()
        await asyncio.gather(*asking)
        assert seen == set(expected)

    run(model, test, poll_s=0.01)
