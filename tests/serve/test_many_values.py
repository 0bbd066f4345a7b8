"""Documents of very many values: refused before they cost the time that others wait."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.serve.small_engine import make_client

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


@pytest.mark.parametrize("value", [b"1", b"[]", b'""', b"{}", b"0.5"])
def test_millions_of_values_are_refused_before_they_are_read(
    client: TestClient, value: bytes
) -> None:
    body = b'{"input": [%s]}' % b",".join([value] * 2_000_000)
    started = time.monotonic()
    assert client.post("/v1/embeddings", content=body, headers=JSON).status_code == 413
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": [1] * 60_000}),
        ("/v1/classify", {"images": [1] * 60_000}),
        ("/v1/search", {"text": "a", "filter": {"journal": [1] * 60_000}}),
    ],
)
def test_long_lists_are_refused_without_a_look_at_each_value(
    client: TestClient, path: str, body: dict[str, Any]
) -> None:
    started = time.monotonic()
    response = client.post(path, json=body)
    assert (response.status_code, len(response.json()["errors"]) < 5) == (422, True)
    assert time.monotonic() - started < 0.5


def test_commas_in_texts_are_no_values(client: TestClient) -> None:
    body = {"input": [',"\\,' * 1_000] * 40}
    assert client.post("/v1/embeddings", json=body).status_code == 200
