"""What is served: model and index with versions, recall and licences; limits; facets."""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from biovl import __version__
from serve.auth import SCOPES
from serve.search.context import Context


class Model(BaseModel):
    """A model, in the shape of OpenAI's list and with what we know besides."""

    id: str = Field(description="what /v1/embeddings takes and answers as model")
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "biovl"
    version: str
    about: dict[str, Any] = Field(description="dimensions, image size, context length, licences …")
    index: dict[str, Any] | None = Field(
        description="version, figures, measured recall, settings, licence groups"
    )


class Models(BaseModel):
    """All that is served: one."""

    object: Literal["list"] = "list"
    data: list[Model]


class Info(BaseModel):
    """What a client must know before it asks."""

    version: str
    name: str
    limits: dict[str, float] = Field(description="of one request; names carry their units")
    rate_per_s: float | None = Field(description="requests of one key; null: no limit")
    rate_burst: int
    keys_required: bool
    scopes: list[str]
    proxy: bool = Field(description="whether /v1/proxy answers")


def router(context: Context) -> APIRouter:
    """Return the routes that describe the service."""
    routes = context.router(tags=["service"])
    settings = context.settings
    info = Info(
        version=__version__,
        name=settings.name,
        limits=settings.limits.model_dump(),
        rate_per_s=settings.rate.per_s,
        rate_burst=settings.rate.burst,
        keys_required=context.keys.are_required,
        scopes=list(SCOPES),
        proxy=settings.proxy,
    )

    @routes.get("/v1/models")
    async def models() -> Models:
        """Return the model and its index. Recall is what was measured when the index was built."""
        about = await context.engine.about()
        context.metrics.describe(about)
        model = about.get("model")
        if not model:
            return Models(data=[])
        named = Model(
            id=str(model["name"]),
            version=str(model["version"]),
            about=dict(model),
            index=dict(about["index"]) if about.get("index") else None,
        )
        return Models(data=[named])

    @routes.get("/v1/info")
    async def information() -> Info:
        """Return the limits of requests."""
        return info

    @routes.get("/v1/facets", dependencies=[context.needs("search")])
    async def facets() -> dict[str, dict[str, int]]:
        """Return for each field of a filter its most frequent values, and how many figures."""
        found = await context.engine.facets()
        return {name: dict(values) for name, values in found.items()}

    return routes
