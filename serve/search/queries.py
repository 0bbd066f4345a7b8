"""Run a query: validate its parts, embed them, and search the index."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from biovl.index.query import Filter, Kind, Query, QueryPart, Results
from serve.http.problems import Problem
from serve.http.request_context import Exchange
from serve.http.settings import Limits
from serve.search.context import Context
from serve.search.engine import EmbeddedVectors
from serve.search.messages import Weights
from serve.search.preprocessing import prepare_images

T = TypeVar("T")

ATTEMPTS = 3
"""Attempts to embed and search, if a reload happens in between."""

MAX_FILTER_CHARS = 300
MAX_ID_CHARS = 300
_LAST_YEAR = 9_999


def invalid(name: str, reason: str) -> Problem:
    """Return the problem of an invalid field of the body."""
    errors = [{"loc": ["body", name], "msg": reason}]
    return Problem(422, "invalid-request", f"{name}: {reason}", errors=errors)


def check_text(name: str, text: str, limits: Limits) -> None:
    """Reject a text that is empty or too long.

    Raises:
        Problem: 422.
    """
    if not text.strip():
        raise invalid(name, "is empty")
    if len(text) > limits.text_chars:
        raise invalid(name, f"has {len(text):,} characters, at most {limits.text_chars:,}")


def check_k(k: int, limits: Limits) -> None:
    """Reject a ``k`` above the maximum results per page.

    Raises:
        Problem: 422.
    """
    if k > limits.k_max:
        raise invalid("k", f"must be at most {limits.k_max}; cursors lead to more")


def check_filter(condition: Filter) -> None:
    """Reject filters with too long values or impossible years.

    Raises:
        Problem: 422.
    """
    for name, values in vars(condition).items():
        if name == "year":
            continue
        if any(len(value) > MAX_FILTER_CHARS for value in values):
            raise invalid("filter", f"a {name} has more than {MAX_FILTER_CHARS} characters")
    if condition.year is None:
        return
    for year in (condition.year.gte, condition.year.lte):
        if year is not None and not 0 <= year <= _LAST_YEAR:
            raise invalid("filter", f"a year is between 0 and {_LAST_YEAR}")


def unit_vector(values: Sequence[float], dim: int) -> np.ndarray:
    """Return a client's embedding normalized to unit length, float32, shape [D].

    Raises:
        Problem: 422 if its dimension is wrong, or it is zero or not finite.
    """
    if len(values) != dim:
        raise invalid("embedding", f"has {len(values):,} numbers, the model's have {dim}")
    vector_D = np.array(values, np.float64)
    largest = float(np.abs(vector_D).max())
    if not math.isfinite(largest) or largest == 0:
        raise invalid("embedding", "has no direction: all are zero, or one is not finite")
    # Scale first: squares of very large or small numbers overflow or underflow.
    vector_D /= largest
    return np.asarray(vector_D / np.linalg.norm(vector_D), np.float32)


@dataclass(frozen=True, kw_only=True)
class QueryParts:
    """The parts of a query, before they are embedded."""

    text: str | None = None
    image: bytes | None = None
    figure_id: str | None = None
    embedding_D: np.ndarray | None = None
    weights: Weights = field(default_factory=Weights)

    @property
    def kind(self) -> Kind | None:
        """Modality of the query; None for several parts, an external vector, or one that repels."""
        parts = {
            "text": self.text,
            "image": self.image,
            "figure_id": self.figure_id,
            "embedding": self.embedding_D,
        }
        given = [name for name, part in parts.items() if part is not None]
        if len(given) != 1 or given == ["embedding"] or getattr(self.weights, given[0]) < 0:
            return None
        return "text" if given == ["text"] else "image"


@dataclass(frozen=True)
class QueryResult:
    """Search results, with the model version and whether the query text was truncated."""

    results: Results
    truncated: bool
    model_version: str | None
    """Version of the model that embedded the query, or of the index; None if unknown."""


async def retry_if_stale(once: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``once``; call it again if the model was replaced during the call.

    Raises:
        Problem: 409 after ``ATTEMPTS`` attempts; other problems immediately.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await once()
        except Problem as problem:
            if problem.slug != "stale-model":
                raise
    return await once()


def one_version(*embedded: EmbeddedVectors | None) -> str | None:
    """Return the common model version of all embeddings; None if there are none.

    Raises:
        Problem: 409 if they are of several versions.
    """
    versions = {one.model_version for one in embedded if one is not None}
    if len(versions) > 1:
        raise Problem(409, "stale-model", "the model is being replaced; send the request again")
    return versions.pop() if versions else None


async def embed_and_search(
    context: Context, exchange: Exchange, parts: QueryParts, query: Query
) -> QueryResult:
    """Embed the parts of a query and search the index.

    Args:
        context: Objects that all endpoints share.
        exchange: Context of the request, to which timings are added.
        parts: Image, text or vectors to search with; they replace those of ``query``.
        query: Filters, weights and number of results.

    Raises:
        Problem: A problem of the engine; 409 if the model is replaced repeatedly.
    """
    engine = context.engine
    images = [parts.image] if parts.image is not None else []
    texts = [parts.text] if parts.text is not None else []
    exchange.inputs = len(images) + len(texts)

    async def once() -> QueryResult:
        pixels = await prepare_images(engine, context.pixels, exchange, images)
        with exchange.stage("encode"):
            # Sequential, because queries with both are rare.
            image = await engine.embed_images(pixels) if images else None
            text = await engine.embed_texts(texts) if texts else None
        version = one_version(image, text)
        whole = replace(query, parts=_parts(parts, image, text))
        with exchange.stage("search"):
            results = await engine.search(whole, model_version=version)
        truncated = bool(text and any(text.truncated))
        return QueryResult(results, truncated, version or results.model_version)

    return await retry_if_stale(once)


def _parts(
    asked: QueryParts, image: EmbeddedVectors | None, text: EmbeddedVectors | None
) -> list[QueryPart]:
    weights = asked.weights
    parts = []
    if text is not None:
        parts.append(QueryPart(vector_D=text.rows_ND[0], kind="text", weight=weights.text))
    if image is not None:
        parts.append(QueryPart(vector_D=image.rows_ND[0], weight=weights.image))
    if asked.figure_id is not None:
        parts.append(QueryPart(figure_id=asked.figure_id, weight=weights.figure_id))
    if asked.embedding_D is not None:
        parts.append(QueryPart(vector_D=asked.embedding_D, weight=weights.embedding))
    return parts
