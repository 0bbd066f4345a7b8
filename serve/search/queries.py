"""From a message to a query of the index: what it asks for is checked, embedded, and searched."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from biovl.index.query import Filter, Kind, Part, Query, Results
from serve.http.exchanges import Exchange
from serve.http.problems import Problem
from serve.http.settings import Limits
from serve.search.context import Context
from serve.search.engine import Embedded
from serve.search.messages import Weights
from serve.search.preparing import prepare_images

T = TypeVar("T")

ATTEMPTS = 3
"""Of embedding and searching, while a model is exchanged for another between the two."""

MAX_FILTER_CHARS = 300
MAX_ID_CHARS = 300
_LAST_YEAR = 9_999


def invalid(name: str, reason: str) -> Problem:
    """Return the problem of a field of the body."""
    errors = [{"loc": ["body", name], "msg": reason}]
    return Problem(422, "invalid-request", f"{name}: {reason}", errors=errors)


def check_text(name: str, text: str, limits: Limits) -> None:
    """Refuse a text that is empty or too long.

    Raises:
        Problem: 422.
    """
    if not text.strip():
        raise invalid(name, "is empty")
    if len(text) > limits.text_chars:
        raise invalid(name, f"has {len(text):,} characters, at most {limits.text_chars:,}")


def check_k(k: int, limits: Limits) -> None:
    """Refuse more results than are given at once.

    Raises:
        Problem: 422.
    """
    if k > limits.k_max:
        raise invalid("k", f"must be at most {limits.k_max}; cursors lead to more")


def check_filter(wanted: Filter) -> None:
    """Refuse a filter that would cost more than it can find.

    Raises:
        Problem: 422.
    """
    for name, values in vars(wanted).items():
        if name == "year":
            continue
        if any(len(value) > MAX_FILTER_CHARS for value in values):
            raise invalid("filter", f"a {name} has more than {MAX_FILTER_CHARS} characters")
    if wanted.year is None:
        return
    for year in (wanted.year.gte, wanted.year.lte):
        if year is not None and not 0 <= year <= _LAST_YEAR:
            raise invalid("filter", f"a year is between 0 and {_LAST_YEAR}")


def unit_vector(values: Sequence[float], dim: int) -> np.ndarray:
    """Return an embedding that a client sent with unit length, float32, shape [D].

    Raises:
        Problem: 422 if it has another length, is zero, or holds what is no number.
    """
    if len(values) != dim:
        raise invalid("embedding", f"has {len(values):,} numbers, the model's have {dim}")
    vector_D = np.array(values, np.float64)
    largest = float(np.abs(vector_D).max())
    if not math.isfinite(largest) or largest == 0:
        raise invalid("embedding", "has no direction: all are zero, or one is not finite")
    # Squares of very large and very small numbers are infinite and zero.
    vector_D /= largest
    return np.asarray(vector_D / np.linalg.norm(vector_D), np.float32)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The parts of a query before the model has seen them."""

    text: str | None = None
    image: bytes | None = None
    figure_id: str | None = None
    embedding_D: np.ndarray | None = None
    weights: Weights = field(default_factory=Weights)

    @property
    def kind(self) -> Kind | None:
        """What the query is made from; None for several parts, or a vector from elsewhere."""
        parts = (self.text, self.image, self.figure_id, self.embedding_D)
        if sum(part is not None for part in parts) != 1 or self.embedding_D is not None:
            return None
        return "text" if self.text is not None else "image"


@dataclass(frozen=True)
class Found:
    """What a query found, and what is to be said of its text."""

    results: Results
    truncated: bool
    model_version: str | None
    """Of the model that embedded, or that the index is of; None if neither is told."""


async def again_if_stale(once: Callable[[], Awaitable[T]]) -> T:
    """Return what ``once`` returns, trying again where the model was exchanged in its midst.

    Raises:
        Problem: 409 if models go on changing; any other at once.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await once()
        except Problem as problem:
            if problem.slug != "stale-model":
                raise
    return await once()


def one_version(*embedded: Embedded | None) -> str | None:
    """Return the version of the model that all vectors are of; None if there are none.

    Raises:
        Problem: 409 if they are of several.
    """
    versions = {one.model_version for one in embedded if one is not None}
    if len(versions) > 1:
        raise Problem(409, "stale-model", "the model is being exchanged for another; ask again")
    return versions.pop() if versions else None


async def find(context: Context, exchange: Exchange, asked: Asked, query: Query) -> Found:
    """Embed what was asked and search for it; the parts of ``query`` become those of ``asked``.

    Raises:
        Problem: Of the engine; 409 if models go on changing.
    """
    engine = context.engine
    images = [asked.image] if asked.image is not None else []
    texts = [asked.text] if asked.text is not None else []
    exchange.inputs = len(images) + len(texts)

    async def once() -> Found:
        pixels = await prepare_images(engine, context.pixels, exchange, images)
        with exchange.stage("encode"):
            # One after the other: both are needed, and a person seldom sends both.
            image = await engine.embed_images(pixels) if images else None
            text = await engine.embed_texts(texts) if texts else None
        version = one_version(image, text)
        whole = replace(query, parts=_parts(asked, image, text))
        with exchange.stage("search"):
            results = await engine.search(whole, model_version=version)
        truncated = bool(text and any(text.truncated))
        return Found(results, truncated, version or results.model_version)

    return await again_if_stale(once)


def _parts(asked: Asked, image: Embedded | None, text: Embedded | None) -> list[Part]:
    weights = asked.weights
    parts = []
    if text is not None:
        parts.append(Part(vector_D=text.rows_ND[0], kind="text", weight=weights.text))
    if image is not None:
        parts.append(Part(vector_D=image.rows_ND[0], weight=weights.image))
    if asked.figure_id is not None:
        parts.append(Part(figure_id=asked.figure_id, weight=weights.figure_id))
    if asked.embedding_D is not None:
        parts.append(Part(vector_D=asked.embedding_D, weight=weights.embedding))
    return parts
