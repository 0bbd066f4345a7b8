"""POST /v1/search: search figures by text, image, figure, vector, or a weighted sum of these."""

import hashlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from biovl.index.query import Query
from biovl.index.ranking import level_end
from biovl.index.vectors import cells_of
from serve.http.problems import Problem
from serve.http.request_context import Exchange, exchange_in
from serve.search.answers import NO_STORE, SCORE_DIGITS, hits_json, json_answer, refusals
from serve.search.bodies import ParsedRequest, body_documentation, parse_request
from serve.search.context import Context
from serve.search.cursors import hash_of, stale_cursor
from serve.search.messages import Message, SearchAnswer, SearchRequest
from serve.search.queries import (
    MAX_ID_CHARS,
    QueryParts,
    check_filter,
    check_k,
    check_text,
    embed_and_search,
    invalid,
    unit_vector,
)
from serve.search.recall import recall_at_10
from serve.search.uploads import image_of


class _Identity(Message):
    """Fields that are the same on every page of a query."""

    request: SearchRequest
    image_sha256: str | None


def router(context: Context) -> APIRouter:
    """Return the routes for search: JSON, multipart forms, or a raw image as the body."""
    routes = context.router(tags=["search"], dependencies=[context.needs("search")])

    async def search(request: Request) -> Response:
        parsed = await parse_request(request, SearchRequest, context.settings.limits)
        return await _answer(context, exchange_in(request.scope), parsed)

    ways = (
        (
            "/v1/search",
            "search",
            "Find figures by text, image, figure, vector, or several of these",
        ),
        ("/v1/search/image", "search_image", "Find figures like the image that is the body"),
    )
    for path, operation_id, summary in ways:
        routes.post(
            path,
            summary=summary,
            operation_id=operation_id,
            response_model=SearchAnswer,
            responses=refusals(404, 409, 410),
            openapi_extra=body_documentation(SearchRequest),
        )(search)
    return routes


async def _answer(
    context: Context, exchange: Exchange, parsed: ParsedRequest[SearchRequest]
) -> Response:
    message, limits, served = parsed.message, context.settings.limits, context.served
    image = _image(parsed, context)
    about = await served.index()
    figures = about["figures"]
    if message.exact and figures > limits.exact_figures:
        reason = (
            f"the index has {figures:,} figures, and up to {limits.exact_figures:,} are compared "
            "one by one; leave it out, few that fit a filter are compared so anyway"
        )
        raise invalid("exact", reason)
    _check_nprobe(message, about, limits.exact_figures)
    parts = _query_parts(message, image, (await served.model())["dim"], context)
    identity = hash_of(
        _Identity(
            request=message.model_copy(update={"cursor": None, "k": 1, "image": None}),
            image_sha256=hashlib.sha256(image).hexdigest() if image else None,
        )
    )
    offset, paged_version = 0, None
    if message.cursor is not None:
        offset, paged_version = context.cursors.read(message.cursor, identity)
    # The last page ends at the limit.
    k = min(message.k, limits.depth_max - offset)
    if k < (1 if message.cursor else message.k):
        reason = f"this page ends beyond the first {limits.depth_max:,} figures; narrow the filter"
        raise invalid("cursor" if message.cursor else "k", reason)
    settings = {"nprobe": message.nprobe, "k_factor": message.k_factor}
    query = Query(
        words=message.text if message.words else None,
        over=tuple(dict.fromkeys(message.over)),
        # Request one more hit to detect whether there is another page.
        k=min(k + 1, limits.depth_max - offset),
        offset=offset,
        filter=message.filter,
        exact=message.exact,
        settings={name: value for name, value in settings.items() if value is not None},
    )
    found = await embed_and_search(context, exchange, parts, query)
    results = found.results
    if paged_version not in (None, results.index_version):
        raise stale_cursor()
    # Compared as shown, so that the score of a hit is a minimum that the hit itself reaches.
    least = -math.inf if message.min_score is None else message.min_score
    near = [round(hit.score, SCORE_DIGITS) >= least for hit in results.hits]
    hits = list(itertools.compress(results.hits[:k], near))
    # Pages continue by rank.
    after = offset + k
    # Scores may rise again further down: see biovl.index.ranking.deepening.
    is_joined = len(query.over) > 1 or query.words is not None
    is_exact = results.plan.startswith("exact")
    may_rise = is_joined or (not is_exact and level_end(after) < limits.depth_max)
    is_last = len(near) <= k or not (may_rise or all(near))
    cursor = None if is_last else context.cursors.make(after, results.index_version, identity)
    exchange.stages.update(results.timings_ms)
    index = await served.index_of(results.index_version)
    return json_answer(
        {
            "request_id": exchange.request_id,
            "model": await served.versioned_name(found.model_version),
            "index": results.index_version,
            "results": hits_json(hits, context.settings.rights, exchange.prefix),
            "matching": results.matching,
            "next_cursor": cursor,
            "plan": results.plan,
            "recall_at_10": recall_at_10(index, query, parts.kind, is_exact=is_exact),
            "truncated": found.truncated,
            "timings_ms": exchange.timings_ms(),
        },
        headers=NO_STORE if image or message.embedding else None,
    )


def _check_nprobe(message: SearchRequest, index: Mapping[str, Any], most: int) -> None:
    """Reject an ``nprobe`` so large that the search would be nearly exhaustive.

    Raises:
        Problem: 422.
    """
    if message.nprobe is None or index["figures"] <= most:
        return
    for over in message.over:
        cells = cells_of(index["factories"].get(over, ""))
        if cells and min(message.nprobe, cells) * index["figures"] > most * cells:
            reason = f"at most {most * cells // index['figures']:,} of this index's {cells:,} cells"
            raise invalid("nprobe", reason)


def _image(parsed: ParsedRequest[SearchRequest], context: Context) -> bytes | None:
    message = parsed.message
    if len(parsed.files) + (message.image is not None) > 1:
        raise invalid("image", "one image is searched for at a time")
    if parsed.files:
        return parsed.files[0]
    if message.image is None:
        return None
    return image_of(message.image, context.settings.limits, ("body", "image"))


def _query_parts(
    message: SearchRequest, image: bytes | None, dim: int, context: Context
) -> QueryParts:
    """Return the validated parts of a query."""
    limits = context.settings.limits
    check_k(message.k, limits)
    check_filter(message.filter)
    if message.text is not None:
        check_text("text", message.text, limits)
    if message.words and message.text is None:
        raise invalid("words", "needs text: its words are looked for in captions")
    if message.figure_id is not None and not 0 < len(message.figure_id) <= MAX_ID_CHARS:
        raise invalid("figure_id", f"must have 1 to {MAX_ID_CHARS} characters")
    parts = {
        "text": message.text is not None,
        "image": image is not None,
        "figure_id": message.figure_id is not None,
        "embedding": message.embedding is not None,
    }
    if not any(parts.values()):
        reason = "nothing to look for; send at least one of text, image, figure_id and embedding"
        raise Problem(422, "empty-query", reason)
    if all(getattr(message.weights, name) == 0 for name, is_given in parts.items() if is_given):
        raise invalid("weights", "all parts of the query have weight 0")
    embedding = message.embedding
    return QueryParts(
        text=message.text,
        image=image,
        figure_id=message.figure_id,
        embedding_D=unit_vector(embedding, dim) if embedding is not None else None,
        weights=message.weights,
    )
