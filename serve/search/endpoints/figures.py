"""GET /v1/figures: metadata and images of figures."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from biovl.articles import rights
from serve.http.problems import Problem, shortened
from serve.http.request_context import exchange_in
from serve.search.answers import figure_json, json_answer, refusals
from serve.search.context import Context
from serve.search.engine import FigureMetadata, Size, unknown_figure
from serve.search.messages import Answer, FigureAbout
from serve.search.queries import MAX_ID_CHARS

MAX_IDS = 100

MEDIA_TYPES = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/tiff": "tif",
    "image/webp": "webp",
    "image/bmp": "bmp",
}
"""Media types that may be sent. SVG is excluded, because browsers run its scripts."""

# Figures with an id never change but may be withdrawn: caches revalidate after a day.
_CACHING = "private, max-age=86400"
_CACHING_INSTEAD = "private, max-age=60"
"""Of a thumbnail that is sent because the full image is unavailable."""

FigureId = Annotated[str, Path(min_length=1, max_length=MAX_ID_CHARS)]


class FigureAnswer(Answer):
    """Response with the metadata of a figure."""

    figure: FigureAbout


class FiguresAnswer(Answer):
    """Metadata of figures, in the order of the request."""

    figures: list[FigureAbout | None]


def router(context: Context) -> APIRouter:
    """Return the routes for figures."""
    routes = context.router(tags=["figures"], dependencies=[context.needs("search")])
    shown = context.settings.rights

    @routes.get(
        "/v1/figures",
        summary="Get the metadata of several figures; null for unknown ids",
        response_model=FiguresAnswer,
        responses=refusals(),
    )
    async def several(request: Request, ids: Annotated[str, Query(min_length=1)]) -> Response:
        figure_ids = ids.split(",")
        if len(figure_ids) > MAX_IDS or any(not 0 < len(one) <= MAX_ID_CHARS for one in figure_ids):
            reason = f"1 to {MAX_IDS} ids of 1 to {MAX_ID_CHARS} characters, joined by commas"
            errors = [{"loc": ["query", "ids"], "msg": reason}]
            raise Problem(422, "invalid-request", f"ids: {reason}", errors=errors)
        metadata = await context.engine.figures(figure_ids)
        prefix = exchange_in(request.scope).prefix
        figures = [
            one if one is None else figure_json(one, shown, prefix) for one in metadata.figures
        ]
        return json_answer({**await _head(context, request, metadata), "figures": figures})

    @routes.get(
        "/v1/figures/{figure_id}",
        summary="Get the metadata of a figure",
        response_model=FigureAnswer,
        responses=refusals(404),
    )
    async def one(request: Request, figure_id: FigureId) -> Response:
        metadata = await context.engine.figures([figure_id])
        (about,) = metadata.figures
        if about is None:
            raise unknown_figure(figure_id)
        figure = figure_json(about, shown, exchange_in(request.scope).prefix)
        return json_answer({**await _head(context, request, metadata), "figure": figure})

    async def image(request: Request, figure_id: FigureId, size: Size) -> Response:
        (about,) = (await context.engine.figures([figure_id])).figures
        if about is None:
            raise unknown_figure(figure_id)
        why = rights.reason_to_withhold(about, shown.accepted)
        if why is not None:
            raise _withheld(about, why)
        file = await context.engine.image(figure_id, size)
        extension = MEDIA_TYPES.get(file.media_type)
        if extension is None:
            raise Problem(404, "no-image", "this figure's file is not one that browsers may show")
        is_instead = size == "full" and file.size != "full"
        headers = {
            "ETag": f'"{file.etag}"',
            "Cache-Control": _CACHING_INSTEAD if is_instead else _CACHING,
            "X-Image-Size": file.size,
            "Content-Disposition": f'inline; filename="{_file_name(figure_id)}.{extension}"',
        }
        if _is_known(request.headers.get("if-none-match", ""), file.etag):
            return Response(status_code=304, headers=headers)
        return Response(file.data, media_type=file.media_type, headers=headers)

    files: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "The image",
            "content": {
                name: {"schema": {"type": "string", "format": "binary"}} for name in MEDIA_TYPES
            },
        },
        304: {"description": "The client has it already (If-None-Match)"},
    }

    sizes: tuple[tuple[str, Size, str], ...] = (
        ("image", "full", "A figure's image, as published; X-Image-Size says which was sent"),
        ("thumbnail", "thumbnail", "A figure's image, small"),
    )
    for name, size, summary in sizes:
        routes.get(
            f"/v1/figures/{{figure_id}}/{name}",
            summary=summary,
            operation_id=f"figure_{name}",
            response_class=Response,
            responses={**refusals(403, 404), **files},
        )(_of_size(image, size))
    return routes


def _withheld(about: Mapping[str, Any], why: str) -> Problem:
    """Return the problem of an image that may not be redistributed."""
    at = f"; see the article, {about['url']}" if about.get("url") else ""
    return Problem(
        403,
        "image-withheld",
        f"the image of {shortened(about['figure_id'])} is not sent: {why}{at}. Whoever runs this"
        " service and has the right to send it sets rights.images",
        headers={"Cache-Control": "no-store"},
    )


async def _head(context: Context, request: Request, metadata: FigureMetadata) -> dict[str, Any]:
    exchange = exchange_in(request.scope)
    return {
        "request_id": exchange.request_id,
        "model": await context.served.versioned_name(metadata.model_version),
        "index": metadata.index_version,
        "timings_ms": exchange.timings_ms(),
    }


def _of_size(image: Any, size: Size) -> Any:
    async def answer(request: Request, figure_id: FigureId) -> Response:
        response: Response = await image(request, figure_id, size)
        return response

    return answer


def _is_known(if_none_match: str, etag: str) -> bool:
    etags = [one.strip().removeprefix("W/").strip('"') for one in if_none_match.split(",")]
    return etag in etags or "*" in etags


def _file_name(figure_id: str) -> str:
    """Return a figure id as a file name for the Content-Disposition header."""
    name = (letter if letter.isascii() and letter.isalnum() else "_" for letter in figure_id)
    return "".join(name)[:80]
