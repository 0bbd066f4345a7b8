"""POST /v1/embeddings: the exact shape of OpenAI's API, for texts and images."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from serve.search.answers import nine_digits
from serve.search.engine import EmbeddedVectors
from tests.serve.search.small_engine import (
    CONTEXT,
    DIM,
    SmallEngine,
    drawn,
    make_client,
    png,
    text_vector,
)


class Counting(SmallEngine):
    """Counts tokens, one for each word."""

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        one = await super().embed_texts(texts)
        tokens = [len(text.split()) for text in texts]
        return replace(one, tokens=tokens)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client(Counting()) as client:
        yield client


IMAGE = "data:image/png;base64," + base64.b64encode(png(drawn("blue", "cross"))).decode()


def embedded(client: TestClient, **asked: Any) -> dict[str, Any]:
    response = client.post("/v1/embeddings", json=asked)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_the_answer_has_the_shape_of_openais(client: TestClient) -> None:
    answer = embedded(client, model="small", input="a red circle")
    assert set(answer) == {"object", "data", "model", "usage", "truncated", "request_id"}
    assert answer["object"] == "list"
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    (one,) = answer["data"]
    assert set(one) == {"object", "index", "embedding"}
    assert (one["object"], one["index"]) == ("embedding", 0)
    assert one["embedding"] == pytest.approx(text_vector("a red circle").tolist(), abs=1e-6)


def test_base64_is_little_endian_float32_of_the_same_numbers(client: TestClient) -> None:
    # What OpenAI's client asks for by default, and reads by numpy.frombuffer.
    asked = {"input": ["red", "blue"], "model": "small"}
    as_text = embedded(client, **asked, encoding_format="base64")["data"]
    as_numbers = embedded(client, **asked, encoding_format="float")["data"]
    for one, other in zip(as_text, as_numbers, strict=True):
        read = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        assert read.tolist() == np.array(other["embedding"], np.float32).tolist()


def test_texts_that_the_model_does_not_read_to_their_end_are_named(client: TestClient) -> None:
    long = " ".join(["red"] * (CONTEXT + 1))
    assert embedded(client, input=[IMAGE, "red", long, long[4:], long])["truncated"] == [2, 4]
    assert embedded(client, input=[IMAGE])["truncated"] == []


def test_texts_and_images_come_back_in_their_order(client: TestClient) -> None:
    parts = [
        IMAGE,
        "red",
        {"type": "text", "text": "green"},
        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
        {"type": "text", "text": "data:image/png;base64,x"},
    ]
    data = embedded(client, input=parts)["data"]
    assert [one["index"] for one in data] == [0, 1, 2, 3, 4]
    assert data[0]["embedding"] == data[3]["embedding"]
    assert data[1]["embedding"] == pytest.approx(text_vector("red").tolist(), abs=1e-6)
    # What is called a text is one.
    literally = text_vector("data:image/png;base64,x").tolist()
    assert data[4]["embedding"] == pytest.approx(literally, abs=1e-6)


def test_an_image_needs_no_text_beside_it(client: TestClient) -> None:
    answer = embedded(client, input=IMAGE)
    assert answer["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    assert np.linalg.norm(answer["data"][0]["embedding"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["small", "SMALL", "aaaaaaaaaaaa", "small@aaaaaaaaaaaa"])
def test_the_model_may_be_named_by_name_version_or_both(client: TestClient, name: str) -> None:
    assert embedded(client, model=name, input="a")["model"] == "small@aaaaaaaaaaaa"


def test_another_model_is_not_found(client: TestClient) -> None:
    response = client.post("/v1/embeddings", json={"model": "text-embedding-3", "input": "a"})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "unknown-model"
    assert error["param"] == "model"


def test_dimensions_are_the_models(client: TestClient) -> None:
    assert len(embedded(client, input="a", dimensions=DIM)["data"][0]["embedding"]) == DIM
    response = client.post("/v1/embeddings", json={"input": "a", "dimensions": 3})
    assert response.status_code == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"input": None}, 422),
        ({"input": []}, 422),
        ({"input": ""}, 422),
        ({"input": ["a", " "]}, 422),
        ({"input": ["a"] * 65}, 422),
        ({"input": "a" * 5_000}, 422),
        ({"input": [[1, 2, 3]]}, 422),  # tokens, which OpenAI's API takes
        ({"input": [1, 2]}, 422),
        ({"input": "a", "encoding_format": "hex"}, 422),
        ({"input": "a", "modality": "text"}, 422),
        ({"input": [{"type": "audio", "text": "a"}]}, 422),
        ({"input": [{"type": "text"}]}, 422),
        ({"input": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}, 422),
        ({"input": [{"type": "image_url", "image_url": "data:image/png;base64,"}]}, 422),
        ({"input": "data:image/png;base64,AAAA"}, 415),
        ({"input": "data:image/png;base64,A"}, 400),
    ],
)
def test_what_cannot_be_embedded_is_refused_as_openais_clients_read_it(
    client: TestClient, body: dict[str, Any], status: int
) -> None:
    response = client.post("/v1/embeddings", json=body)
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"]
    assert response.headers["content-type"] == "application/problem+json"


def test_one_bad_image_is_named_by_its_number(client: TestClient) -> None:
    pdf = "data:image/png;base64," + base64.b64encode(b"%PDF-1.7").decode()
    response = client.post("/v1/embeddings", json={"input": ["a", IMAGE, pdf]})
    assert response.json()["errors"][0]["loc"] == ["body", "input", 2]


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-12, 1e-30])
def test_numbers_are_written_with_nine_digits_and_read_as_the_same(size: float) -> None:
    row_D = (np.random.default_rng(0).normal(size=500) * size).astype(np.float32)
    row_D[0] = 0
    written = nine_digits(row_D)
    np.testing.assert_array_equal(np.array(written, np.float32), row_D)
    if size > 1e-6:
        digits = [repr(value).partition("e")[0].replace(".", "").strip("-0") for value in written]
        assert max(map(len, digits)) <= 9
