"""POST /v1/proxy: analyse a private image by its most similar indexed figures.

The image is decoded and embedded in this service, and only its embedding is compared. Neither is
stored, logged, cached or forwarded, and the response contains nothing of either: labels and
evidence are those of indexed figures. Multipart forms are rejected, because proxies in front of the
service may store their files.
"""

import asyncio

from fastapi import APIRouter, Request, Response

from biovl.index.query import Query
from serve.http.request_context import Exchange, exchange_in
from serve.http.settings import Limits
from serve.search.answers import NO_STORE, hits_json, json_answer, refusals
from serve.search.bodies import ParsedRequest, body_documentation, parse_request
from serve.search.context import Context
from serve.search.messages import ProxyAnswer, ProxyRequest
from serve.search.queries import (
    QueryParts,
    check_filter,
    check_k,
    check_text,
    embed_and_search,
    invalid,
)
from serve.search.uploads import image_of
from serve.search.votes import labels_of, votes

DISCLOSURE = (
    "Images are never kept, logged or sent outside this service."
    " Labels and evidence are those of indexed figures."
)

MAX_PHRASES = 50
"""Maximum phrases per class."""
MAX_PHRASE_CHARS = 200
MAX_LOOK_UPS = 100_000
"""Maximum cost of a request: phrases of all classes times captions that are searched."""


class _AnyProxyRequest(ProxyRequest):
    """``ProxyRequest`` whose image may also be the raw body."""

    image: str | None = None  # type: ignore[assignment]


def router(context: Context) -> APIRouter:
    """Return the routes for proxy analysis; none if it is disabled in the settings."""
    routes = context.router(tags=["proxy"], dependencies=[context.needs("search")])
    if not context.settings.proxy:
        return routes

    @routes.post(
        "/v1/proxy",
        summary="Label a private image by its most similar indexed figures",
        response_model=ProxyAnswer,
        responses=refusals(404, 409),
        openapi_extra=body_documentation(ProxyRequest, form=False),
    )
    async def proxy(request: Request) -> Response:
        limits = context.settings.limits
        parsed = await parse_request(request, _AnyProxyRequest, limits, form=False)
        return await _answer(context, exchange_in(request.scope), parsed)

    return routes


async def _answer(
    context: Context, exchange: Exchange, parsed: ParsedRequest[_AnyProxyRequest]
) -> Response:
    message, limits, served = parsed.message, context.settings.limits, context.served
    await served.index()
    check_k(message.k, limits)
    check_filter(message.filter)
    classes = _classes(message, limits)
    look_ups = message.k * sum(map(len, (classes or {}).values()))
    if look_ups > MAX_LOOK_UPS:
        reason = f"phrases times k are {look_ups:,}, at most {MAX_LOOK_UPS:,}"
        raise invalid("classes", reason)
    image = _image(parsed, limits)
    if classes is None and not (await context.engine.facets()).get("concept"):
        raise invalid(
            "classes", "must be given: the figures of this index have no concepts to vote"
        )
    query = Query(k=message.k, filter=message.filter)
    nearest = await embed_and_search(context, exchange, QueryParts(image=image), query)
    results = nearest.results

    def count_votes() -> list[tuple[str, float, list[str]]]:
        # Retracted figures are returned as evidence but have no vote.
        neighbours = [
            (hit.figure_id, float(hit.score), labels_of(hit.about, classes))
            for hit in results.hits
            if not hit.about.get("retracted")
        ]
        return votes(neighbours, classes or ())

    # In a thread: searching captions must not block the event loop.
    shares = await asyncio.to_thread(count_votes) if classes else count_votes()
    exchange.stages.update(results.timings_ms)
    return json_answer(
        {
            "request_id": exchange.request_id,
            "model": await served.versioned_name(nearest.model_version),
            "index": results.index_version,
            "votes": [
                {"name": name, "share": round(share, 6), "figures": figures}
                for name, share, figures in shares
            ],
            "evidence": hits_json(results.hits, context.settings.rights, exchange.prefix),
            "disclosure": DISCLOSURE,
            "timings_ms": exchange.timings_ms(),
        },
        headers=NO_STORE,
    )


def _image(parsed: ParsedRequest[_AnyProxyRequest], limits: Limits) -> bytes:
    text = parsed.message.image
    if len(parsed.files) + (text is not None) != 1:
        raise invalid("image", "send one: in JSON, or as the body")
    return parsed.files[0] if text is None else image_of(text, limits, ("body", "image"))


def _classes(message: _AnyProxyRequest, limits: Limits) -> dict[str, list[str]] | None:
    """Return the phrases of each class; a class without phrases is its own phrase."""
    classes_sent = message.classes
    if classes_sent is None:
        return None
    if not 1 <= len(classes_sent) <= limits.classes_max:
        raise invalid("classes", f"has {len(classes_sent):,}, expected 1 to {limits.classes_max:,}")
    if isinstance(classes_sent, list) and len(set(classes_sent)) < len(classes_sent):
        raise invalid("classes", "names one class twice")
    classes = (
        classes_sent if isinstance(classes_sent, dict) else {name: [name] for name in classes_sent}
    )
    for name, phrases in classes.items():
        check_text("classes", name, limits)
        if not 1 <= len(phrases) <= MAX_PHRASES:
            raise invalid("classes", f"a class has 1 to {MAX_PHRASES} phrases")
        if any(not phrase.strip() or len(phrase) > MAX_PHRASE_CHARS for phrase in phrases):
            raise invalid("classes", f"phrases have 1 to {MAX_PHRASE_CHARS} characters")
    return classes
