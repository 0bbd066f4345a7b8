"""Whether the process is up, and whether it can answer. Open to all: probes have no keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from serve.search.context import Context


class Up(BaseModel):
    """The process runs."""

    status: str = "up"


class Readiness(BaseModel):
    """Whether requests can be answered."""

    ready: bool
    reasons: Annotated[list[str], Field(description="why not")]
    warnings: Annotated[
        list[str],
        Field(description="what an operator should know although requests are answered"),
    ] = []


def router(context: Context) -> APIRouter:
    """Return the routes of probes."""
    routes = context.router(tags=["service"])

    @routes.get("/healthz")
    async def healthz() -> Up:
        """Say that the process runs; asks nothing of model or index."""
        return Up()

    @routes.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready."}})
    async def readyz(response: Response) -> Readiness:
        """Say whether a model and an index are loaded; 503 with the reasons while they are not."""
        about: Any = await context.engine.about()
        context.metrics.describe(about)
        if not about["ready"]:
            response.status_code = 503
            response.headers["Retry-After"] = "1"
        response.headers["Cache-Control"] = "no-store"
        return Readiness(
            ready=about["ready"],
            reasons=list(about.get("reasons", [])),
            warnings=list(about.get("warnings", [])),
        )

    return routes
