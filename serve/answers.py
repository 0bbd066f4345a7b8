"""Answers as ready bytes. Messages document them; they are not validated a second time."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from pydantic_core import to_json

from biovl.retrieval.query import Hit
from serve.context import Context
from serve.exchanges import exchange_in
from serve.messages import FigureAbout, Problem

NO_STORE = {"Cache-Control": "no-store"}
"""For answers that a private image led to."""

_URLS = ("image_url", "thumbnail_url")
_COLUMNS = tuple(name for name in FigureAbout.model_fields if name not in _URLS)


def json_answer(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of plain values; what is no number is null."""
    body = to_json(content, inf_nan_mode="null")
    return Response(body, media_type="application/json", headers=headers)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the problems that an endpoint answers with.

    With those that every endpoint below ``/v1/`` may answer with.
    """
    every = {400, 401, 403, 405, 413, 415, 422, 429, 500, 503, 504}
    content: dict[str, Any] = {"application/problem+json": {}}
    return {
        status: {"model": Problem, "description": _REASONS[status], "content": content}
        for status in sorted(every | set(statuses))
    }


_REASONS = {
    400: "The request cannot be parsed",
    401: "No key, or not a valid one",
    403: "The key lacks the scope",
    404: "There is no such thing",
    405: "Not by this method",
    409: "Model and index are being exchanged; ask again",
    410: "The index has changed since the cursor was made",
    413: "Too large",
    415: "Not of a type that is taken",
    422: "Not valid; errors says where",
    429: "Too many requests; see Retry-After",
    500: "The service failed",
    503: "Not ready, or too busy; see Retry-After",
    504: "Took too long",
}


async def head_of(request: Request, context: Context) -> dict[str, Any]:
    """Return what every answer carries but its timings, which come last."""
    about = await context.engine.about()
    model, index = about["model"], about["index"]
    return {
        "request_id": exchange_in(request.scope).request_id,
        "model": f"{model['name']}@{model['version']}",
        "index": index["version"] if index else None,
    }


def figure_json(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``FigureAbout`` says of a row of the metadata table."""
    place = f"/v1/figures/{quote(about['figure_id'], safe='')}"
    columns = {name: about.get(name) for name in _COLUMNS}
    return {**columns, "image_url": f"{place}/image", "thumbnail_url": f"{place}/thumbnail"}


def hits_json(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Return hits as ``SearchHit`` says."""
    return [
        {
            "rank": hit.rank,
            "score": round(float(hit.score), 6),
            "matched": list(hit.matched),
            **figure_json({**hit.about, "figure_id": hit.figure_id}),
        }
        for hit in hits
    ]
