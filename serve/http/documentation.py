"""The OpenAPI document, and an HTML page that shows it without scripts or external hosts."""

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

_PROBLEMS = {
    "400": "The request is not JSON, or not what it says it is.",
    "401": "No key, or one that is not known.",
    "403": "The key lacks a scope.",
    "408": "The body came too slowly.",
    "413": "The body is too large.",
    "415": "The body is compressed or of another type.",
    "421": "Without keys: Host is not this machine.",
    "422": "A field is wrong; `errors` says which.",
    "429": "Too many requests of this key; see Retry-After.",
    "500": "The service failed.",
    "503": "Busy or not ready; see Retry-After.",
    "504": "It took too long.",
}
_OPEN = ("/healthz", "/readyz")
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
h2{border-top:1px solid #8884;padding-top:1rem;margin-top:2rem;font-size:1.1rem}
h2 b{display:inline-block;min-width:4rem}table{border-collapse:collapse}
td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}
pre{overflow:auto;border:1px solid #8884;padding:.5rem}
:root{color-scheme:light dark}
"""


class Problem(BaseModel):
    """Schema of an error response, ``application/problem+json`` (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str
    errors: list[dict[str, Any]] = []


def document(app: FastAPI) -> None:
    """Add ``/openapi.json`` and ``/docs`` to an application.

    FastAPI's own page loads its scripts from another host.
    """
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'"

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        page = _page(app.openapi())
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema:
        return app.openapi_schema
    found = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    parts = found.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    # FastAPI's own schema of 422 responses, which this service never sends.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    parts["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in found["paths"].keys() - _OPEN:
        for operation in found["paths"][path].values():
            for status, meaning in _PROBLEMS.items():
                description = operation["responses"].setdefault(status, {"description": meaning})
                description["content"] = content
            operation["security"] = [{"bearer": []}, {"header": []}]
    app.openapi_schema = found
    return found


def _page(found: dict[str, Any]) -> str:
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(found['info']['title'])}"
        f"</title><meta name=viewport content='width=device-width'><style>{_STYLE}</style>",
        f"<h1>{escape(found['info']['title'])} {escape(found['info']['version'])}</h1>",
        f"<p>{escape(found['info'].get('description', ''))}</p>",
        "<p>For programs: <a href=openapi.json>openapi.json</a>.</p>",
    ]
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            parts += _operation(method, path, operation, found)
    return "\n".join(parts)


def _operation(
    method: str, path: str, operation: dict[str, Any], found: dict[str, Any]
) -> Iterator[str]:
    yield f"<h2><b>{method.upper()}</b> <code>{escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
    rows = [
        (parameter["name"], parameter.get("schema", {}), parameter.get("required", False))
        for parameter in operation.get("parameters", [])
    ]
    descriptions = {
        one["name"]: one.get("description", "") for one in operation.get("parameters", [])
    }
    content = operation.get("requestBody", {}).get("content", {})
    body = _resolved(content.get("application/json", {}).get("schema", {}), found)
    required = body.get("required", [])
    fields = body.get("properties", {})
    rows += [(field, schema, field in required) for field, schema in fields.items()]
    if rows:
        yield "<table><tr><th>parameter<th>type<th>default<th>"
        for field, schema, is_required in rows:
            default = "required" if is_required else _default(schema)
            description = schema.get("description", descriptions.get(field, ""))
            yield (
                f"<tr><td><code>{escape(field)}</code><td>{escape(_kind(schema))}"
                f"<td>{escape(default)}<td>{escape(description)}"
            )
        yield "</table>"
    if content:
        yield f"<p>Body: {escape(', '.join(content))}.</p>"
    yield f"<p>Answers {', '.join(sorted(operation['responses']))}.</p>"


def _resolved(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object: that of a reference, or the first object of a union."""
    for one in schema.get("anyOf", [schema]):
        name = one.get("$ref", "").rpartition("/")[2]
        object_schema: dict[str, Any] = (
            found["components"]["schemas"].get(name, {}) if name else one
        )
        if "properties" in object_schema:
            return object_schema
    return {}


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "") else json.dumps(default, ensure_ascii=False)


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
