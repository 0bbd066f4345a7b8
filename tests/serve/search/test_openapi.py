"""The OpenAPI document, and that the service keeps to it whatever is sent (schemathesis)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serve.search.endpoints.admin import ReloadRequest
from serve.search.endpoints.embeddings import EmbeddingsRequest
from serve.search.messages import ClassifyRequest, ProxyRequest, SearchRequest
from tests.serve.search.small_engine import make_app, make_client

EXAMPLES = 12
"""Of each operation; a night's run may take a thousand."""

_OWN_MACHINE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def document() -> Iterator[dict[str, Any]]:
    with make_client() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
        yield found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


ENDPOINTS = {
    ("/v1/search", "post"),
    ("/v1/search/image", "post"),
    ("/v1/classify", "post"),
    ("/v1/classify/benchmarks", "get"),
    ("/v1/embeddings", "post"),
    ("/v1/proxy", "post"),
    ("/v1/figures", "get"),
    ("/v1/figures/{figure_id}", "get"),
    ("/v1/figures/{figure_id}/image", "get"),
    ("/v1/figures/{figure_id}/thumbnail", "get"),
}


def test_every_endpoint_is_documented_with_a_summary_and_a_name_of_its_own(
    document: dict[str, Any],
) -> None:
    found = {(path, method): operation for path, method, operation in operations(document)}
    assert set(found) >= ENDPOINTS
    assert all(found[one]["summary"] for one in ENDPOINTS)
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)


def test_problems_are_documented_as_problems(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if path.startswith("/v1/") and status >= "400":
                assert list(response["content"]) == ["application/problem+json"], (path, status)


def test_all_ways_to_send_an_image_are_documented(document: dict[str, Any]) -> None:
    search = document["paths"]["/v1/search"]["post"]["requestBody"]["content"]
    assert {"application/json", "multipart/form-data"} <= set(search)
    assert "text" in search["application/json"]["schema"]["properties"]
    raw = document["paths"]["/v1/search/image"]["post"]["requestBody"]["content"]
    assert "image/png" in raw
    assert (
        "multipart/form-data"
        not in document["paths"]["/v1/proxy"]["post"]["requestBody"]["content"]
    )


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    schemas = document["components"]["schemas"]
    for reference in set(references(document)):
        assert reference.rpartition("/")[2] in schemas, reference


class _OwnMachine:
    """The application as the own machine sees it: without keys nobody else is answered."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [one for one in scope["headers"] if one[0] != b"host"]
            own = {"client": ("127.0.0.1", 50_000), "headers": [*headers, (b"host", b"127.0.0.1")]}
            scope = {**scope, **own}
        await self.app(scope, receive, send)


schema = schemathesis.openapi.from_asgi("/openapi.json", _OwnMachine(make_app()))


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_answers_keep_to_the_document(case: schemathesis.Case) -> None:
    case.call_and_validate(
        checks=(
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        )
    )


def test_the_page_lists_every_parameter_of_every_endpoint() -> None:
    app = make_app()
    with make_client() as client:
        page = client.get("/docs").text
    sections = dict(
        zip(
            re.findall(r"<h2><b>(\w+ ?)</b> <code>(.*?)</code>", page),
            page.split("<h2>")[1:],
            strict=True,
        )
    )
    expected = {
        ("POST", "/v1/search"): SearchRequest,
        ("POST", "/v1/search/image"): SearchRequest,
        ("POST", "/v1/embeddings"): EmbeddingsRequest,
        ("POST", "/v1/proxy"): ProxyRequest,
        ("POST", "/v1/classify"): ClassifyRequest,
        ("POST", "/v1/admin/reload"): ReloadRequest,
    }
    for endpoint, message in expected.items():
        for field in message.model_fields:
            assert f"<code>{field}</code>" in sections[endpoint], (endpoint, field)
    assert "required" in sections["POST", "/v1/proxy"]
    assert "<code>ids</code>" in sections["GET", "/v1/figures"]
    assert len(sections) == sum(len(one) for one in app.openapi()["paths"].values())
