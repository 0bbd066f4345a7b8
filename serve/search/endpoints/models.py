"""GET /v1/models, /v1/info and /v1/facets: versions, recall, licences, limits and facets."""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from biovl import __version__
from serve.auth import SCOPES
from serve.search.context import Context


class Model(BaseModel):
    """A model, in the schema of OpenAI's model list with additional fields."""

    id: str = Field(description="value of model in requests and responses of /v1/embeddings")
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "biovl"
    version: str
    about: dict[str, Any] = Field(description="dimensions, image size, context length, licences …")
    index: dict[str, Any] | None = Field(
        description="version, figures, measured recall, settings, licence groups"
    )


class Models(BaseModel):
    """List of the served models: one, or none if no model is loaded."""

    object: Literal["list"] = "list"
    data: list[Model]


class Info(BaseModel):
    """Limits and features of the service, with the versions served."""

    version: str
    name: str
    limits: dict[str, float] = Field(description="limits of one request; names contain the units")
    rate_per_s: float | None = Field(description="requests per second and API key; null: no limit")
    rate_burst: int
    keys_required: bool
    scopes: list[str]
    proxy: bool = Field(description="whether /v1/proxy is enabled")


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
        """Return the served model and index, with the recall measured when the index was built."""
        about = await context.engine.about()
        context.metrics.describe(about)
        model = about.get("model")
        if not model:
            return Models(data=[])
        name = Model(
            id=str(model["name"]),
            version=str(model["version"]),
            about=dict(model),
            index=dict(about["index"]) if about.get("index") else None,
        )
        return Models(data=[name])

    @routes.get("/v1/info")
    async def information() -> Info:
        """Return the limits of requests and the enabled features."""
        return info

    @routes.get("/v1/facets", dependencies=[context.needs("search")])
    async def facets() -> dict[str, dict[str, int]]:
        """Return the most frequent values of each filter field, with figure counts."""
        facets_by_field = await context.engine.facets()
        return {name: dict(values) for name, values in facets_by_field.items()}

    return routes
