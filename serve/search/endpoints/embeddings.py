"""POST /v1/embeddings: embeddings of texts and images, compatible with OpenAI's API."""

import base64
import itertools
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body, Request, Response
from pydantic import BaseModel, Field

from serve.http.problems import Problem
from serve.http.request_context import Exchange, exchange_in
from serve.http.settings import Limits
from serve.search.answers import NO_STORE, json_answer, nine_digits, refusals
from serve.search.context import Context
from serve.search.messages import Message
from serve.search.preprocessing import prepare_images
from serve.search.queries import check_text, invalid, one_version, retry_if_stale
from serve.search.uploads import image_of

_DATA_IMAGE = re.compile(r"data:image/", re.IGNORECASE)


class TextPart(Message):
    """A text as part of the input."""

    type: Literal["text"]
    text: str


class ImageUrl(Message):
    """Data URL of an image."""

    url: str = Field(description="data:image/…;base64,…; other addresses are not fetched")
    detail: Literal["auto", "low", "high"] | None = Field(
        default=None, description="accepted for compatibility with OpenAI's API; ignored"
    )


class ImagePart(Message):
    """An image as part of the input."""

    type: Literal["image_url"]
    image_url: ImageUrl


InputPart = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class EmbeddingsRequest(Message):
    """Request as in OpenAI's API; inputs may also be images."""

    model: str | None = Field(
        default=None, description="name of the model; by default the one served"
    )
    input: str | Annotated[list[str | InputPart], Field(max_length=4_096)] = Field(
        description="texts, parts, or data:image/…;base64,… (which is an image)",
        examples=["chest radiograph with pleural effusion"],
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: little-endian float32"
    )
    dimensions: int | None = Field(default=None, description="must equal the model's dimension")
    user: str | None = Field(default=None, description="accepted for compatibility; ignored")


class Embedding(BaseModel):
    """Embedding of one input, of unit length."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Number of tokens in the inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """Response in the format of OpenAI's API."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: list[int] = Field(
        description="indexes of texts that exceeded the context length, not of OpenAI's API"
    )
    request_id: str


def router(context: Context) -> APIRouter:
    """Return the routes for embeddings."""
    routes = context.router(tags=["embeddings"], dependencies=[context.needs("embed")])

    served = context.served

    @routes.post(
        "/v1/embeddings",
        summary="Embed texts and images (compatible with OpenAI's API)",
        response_model=EmbeddingsAnswer,
        responses=refusals(404, 409),
    )
    async def embeddings(
        request: Request, message: Annotated[EmbeddingsRequest, Body()]
    ) -> Response:
        exchange = exchange_in(request.scope)
        _check_model(message, await served.model())
        texts, images = _inputs(message, context.settings.limits)
        exchange.inputs = len(texts) + len(images)

        async def once() -> _Embedded:
            return await _embedded(context, exchange, texts, images)

        embedded = await retry_if_stale(once)
        as_text = message.encoding_format == "base64"
        data = [
            {"object": "embedding", "index": number, "embedding": _written(row, as_text)}
            for number, row in sorted(embedded.rows.items())
        ]
        return json_answer(
            {
                "object": "list",
                "data": data,
                "model": await served.versioned_name(embedded.version),
                "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
                "truncated": embedded.truncated,
                "request_id": exchange.request_id,
            },
            headers=NO_STORE,
        )

    return routes


def _check_model(message: EmbeddingsRequest, about: Any) -> None:
    """Reject requests for a model that is not served; names are case-insensitive."""
    served = {about["name"], about["version"], f"{about['name']}@{about['version']}"}
    requested = message.model
    if requested is not None and requested.strip().lower() not in {name.lower() for name in served}:
        errors = [{"loc": ["body", "model"], "msg": "is not served here"}]
        detail = f"that model is not served here; {about['name']} is, see /v1/models"
        raise Problem(404, "unknown-model", detail, errors=errors)
    if message.dimensions is not None and message.dimensions != about["dim"]:
        raise invalid("dimensions", f"the model's vectors have {about['dim']}, and are not cut")


def _inputs(message: EmbeddingsRequest, limits: Limits) -> tuple[dict[int, str], dict[int, bytes]]:
    """Return texts and images by their position in the input."""
    inputs = [message.input] if isinstance(message.input, str) else message.input
    if not 1 <= len(inputs) <= limits.inputs_max:
        raise invalid("input", f"has {len(inputs):,}, expected 1 to {limits.inputs_max}")
    texts: dict[int, str] = {}
    images: dict[int, bytes] = {}
    for number, one in enumerate(inputs):
        place = ("body", "input", number)
        match one:
            case ImagePart():
                images[number] = image_of(one.image_url.url, limits, (*place, "image_url"))
            case str() if _DATA_IMAGE.match(one):
                images[number] = image_of(one, limits, place)
            case _:
                text = one if isinstance(one, str) else one.text
                check_text(f"input.{number}", text, limits)
                texts[number] = text
    return texts, images


@dataclass(frozen=True)
class _Embedded:
    rows: dict[int, np.ndarray]
    """Embeddings by input position, float32, shape [D] each."""
    version: str | None
    tokens: int
    truncated: list[int]
    """Input positions of the texts that exceeded the context length."""


async def _embedded(
    context: Context, exchange: Exchange, texts: dict[int, str], images: dict[int, bytes]
) -> _Embedded:
    engine = context.engine
    rows: dict[int, np.ndarray] = {}
    of_texts = of_images = None
    pixels = await prepare_images(engine, context.pixels, exchange, list(images.values()))
    with exchange.stage("encode"):
        if texts:
            of_texts = await engine.embed_texts(list(texts.values()))
            rows |= zip(texts, of_texts.rows_ND, strict=True)
        if images:
            of_images = await engine.embed_images(pixels)
            rows |= zip(images, of_images.rows_ND, strict=True)
    return _Embedded(
        rows,
        one_version(of_texts, of_images),
        tokens=sum(of_texts.tokens) if of_texts else 0,
        truncated=list(itertools.compress(texts, of_texts.truncated)) if of_texts else [],
    )


def _written(row_D: np.ndarray, as_text: bool) -> list[float] | str:
    if as_text:
        return base64.b64encode(row_D.astype("<f4").tobytes()).decode()
    return nine_digits(row_D)
