"""Documents of very many values: refused before they cost the time that others wait."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient

from serve.http import strict_json
from tests.serve.search.small_engine import make_client

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


class Unused:
    """Takes the place of what is too slow for the document at hand."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was used")


@pytest.mark.parametrize("value", [b"1", b"[]", b'""', b"{}", b"0.5"])
def test_millions_of_values_are_refused_before_they_are_read(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    body = b'{"input": [%s]}' % b",".join([value] * 2_000_000)
    monkeypatch.setattr(strict_json, "_DECODER", Unused())
    if b'"' in value:
        # Nor are so many strings looked for one by one.
        monkeypatch.setattr(strict_json, "_STRING", Unused())
    assert client.post("/v1/embeddings", content=body, headers=JSON).status_code == 413


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": [1] * 60_000}),
        ("/v1/classify", {"images": [1] * 60_000}),
        ("/v1/search", {"text": "a", "filter": {"journal": [1] * 60_000}}),
    ],
)
def test_long_lists_are_refused_without_a_look_at_each_value(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    listed: list[int] = []
    errors = RequestValidationError.errors

    def counted(self: RequestValidationError) -> Any:
        found = errors(self)
        listed.append(len(found))
        return found

    monkeypatch.setattr(RequestValidationError, "errors", counted)
    response = client.post(path, json=body)
    assert (response.status_code, len(response.json()["errors"]) < 5) == (422, True)
    # All that were found, before the answer leaves out some: one per value would take seconds.
    assert listed
    assert max(listed) < 5


def test_commas_in_texts_are_no_values(client: TestClient) -> None:
    body = {"input": [',"\\,' * 1_000] * 40}
    assert client.post("/v1/embeddings", json=body).status_code == 200
