"""Parsing of request bodies into messages and images, and its OpenAPI documentation.

A message is sent as JSON, as a multipart form with files (browsers, ``curl -F``), or as query
parameters with a raw image as the body. In forms and query parameters, lists are repeated names or
JSON, and objects are JSON: ``-F k=5 -F 'filter={"license_group": ["commercial"]}'``.
"""

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from serve.http.problems import Problem
from serve.http.settings import Limits
from serve.http.strict_json import is_json, read_json
from serve.search.uploads import FORMATS, form_of, validate_image

Message = TypeVar("Message", bound=BaseModel)

FORM = "multipart/form-data"
_RAW = ("image/", "application/octet-stream")
FILE_FIELDS = ("image", "file", "images")
"""Names of the form fields for images."""


@dataclass(frozen=True)
class ParsedRequest(Generic[Message]):
    """A message and the images uploaded as files."""

    message: Message
    files: list[bytes]


async def parse_request(
    request: Request, kind: type[Message], limits: Limits, *, form: bool = True
) -> ParsedRequest[Message]:
    """Parse the body of a request into a message and its images.

    Args:
        request: The request; ``serve.http.limits`` has read and limited its body.
        kind: Class of the message.
        limits: Limits of images.
        form: Whether multipart forms are accepted.

    Raises:
        Problem: 400 if the body cannot be parsed, 413, 415 or 422 for invalid images, 415 for
            other content types.
        RequestValidationError: If the message is invalid.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    body = await request.body()
    if is_json(content_type):
        # Already parsed by StrictRoute.
        return ParsedRequest(valid(kind, await request.json() if body else None), [])
    if media_type.startswith(_RAW):
        values = _values(kind, request.query_params.multi_items())
        return ParsedRequest(
            valid(kind, values, "query"), [validate_image(body, limits, ("body",))]
        )
    if media_type == FORM and form:
        found = form_of(content_type, body)
        unknown = sorted({name for name, _ in found.files} - set(FILE_FIELDS))
        if unknown:
            expected = ", ".join(FILE_FIELDS)
            raise Problem(422, "invalid-form", f"files are sent as one of: {expected}")
        files = [validate_image(data, limits, ("body", name)) for name, data in found.files]
        return ParsedRequest(valid(kind, _values(kind, found.fields)), files)
    raise _unsupported(media_type, form=form)


def valid(kind: type[Message], values: Any, source: str = "body") -> Message:
    """Return a message of a class, validated.

    Raises:
        RequestValidationError: If values are invalid; locations start with ``source``.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        placed = [{**one, "loc": (source, *one["loc"])} for one in errors]
        raise RequestValidationError(placed) from None


def _values(kind: type[BaseModel], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the values of a form or of query parameters, parsed by the types of the fields."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        origins = _origins(kind, name)
        # "[18F]FDG" is a name, and no list.
        is_json_list = text.startswith("[") and (text.endswith("]") or text.startswith('["'))
        is_json_object = text.startswith("{") and dict in origins
        if list in origins and not is_json_list and not is_json_object:
            values.setdefault(name, []).append(text)
            continue
        if name in values:
            raise Problem(422, "invalid-form", "a field that takes one value came twice")
        is_json_text = text.startswith(("[", "{")) and str not in origins
        values[name] = read_json(text.encode()) if is_json_text else text
    return values


def _origins(kind: type[BaseModel], name: str) -> set[Any]:
    """Return the types a field may have: list for ``list[str] | None``."""
    field = kind.model_fields.get(name)
    if field is None:
        return set()
    hint = field.annotation
    is_union = isinstance(hint, types.UnionType)
    options = typing.get_args(hint) if is_union else (hint,)
    return {typing.get_origin(option) or option for option in options}


def _unsupported(media_type: str, *, form: bool) -> Problem:
    taken = ["application/json", *([FORM] if form else []), "image/*"]
    if media_type == FORM:
        detail = (
            "forms are not taken here: what takes them apart between client and service may keep"
            " files on a disk. Send JSON, or the image itself as the body"
        )
    else:
        found = f"the body is {media_type[:80]}" if media_type else "the body has no Content-Type"
        detail = f"{found}; send one of {', '.join(taken)}"
    return Problem(415, "unsupported-media-type", detail, headers={"Accept": ", ".join(taken)})


def body_documentation(kind: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """Return the OpenAPI documentation of the body of an endpoint that uses ``parse_request``."""
    content: dict[str, Any] = {"application/json": {"schema": inline_references(kind)}}
    image = {"type": "string", "format": "binary"}
    if form:
        fields = {
            name: {"type": "string", "description": f"as of JSON: {name}"}
            for name in kind.model_fields
            if name not in FILE_FIELDS
        }
        schema = {"type": "object", "properties": {"image": image, **fields}}
        content[FORM] = {"schema": {**schema, "additionalProperties": False}}
    content |= {f"image/{name}": {"schema": image} for name in FORMATS}
    return {"requestBody": {"required": True, "content": content}}


def inline_references(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a message with all references inlined."""
    schema = kind.model_json_schema()
    definitions = schema.pop("$defs", {})

    def replaced(node: Any) -> Any:
        if isinstance(node, Mapping):
            if "$ref" in node:
                own = {name: value for name, value in node.items() if name != "$ref"}
                return {**replaced(definitions[node["$ref"].rpartition("/")[2]]), **own}
            return {name: replaced(value) for name, value in node.items()}
        return [replaced(item) for item in node] if isinstance(node, list) else node

    result: dict[str, Any] = replaced(schema)
    return result
