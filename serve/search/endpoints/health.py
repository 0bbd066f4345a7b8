"""Liveness and readiness probes, without authentication."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from serve.search.context import Context


class Up(BaseModel):
    """Response of the liveness probe: the process runs."""

    status: str = "up"


class Readiness(BaseModel):
    """Response of the readiness probe: whether requests can be answered."""

    ready: bool
    reasons: Annotated[list[str], Field(description="reasons if not ready")]
    warnings: Annotated[
        list[str],
        Field(description="warnings for the operator that do not affect readiness"),
    ] = []


def router(context: Context) -> APIRouter:
    """Return the routes for liveness and readiness."""
    routes = context.router(tags=["service"])

    @routes.get("/healthz")
    async def healthz() -> Up:
        """Report that the process runs; does not check the model or the index."""
        return Up()

    @routes.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready."}})
    async def readyz(response: Response) -> Readiness:
        """Report whether keys can be checked, and model and index are loaded; otherwise 503."""
        context.keys.check_readable()
        about: Any = await context.engine.about()
        context.metrics.describe(about)
        if not about["ready"]:
            response.status_code = 503
            response.headers["Retry-After"] = "1"
        response.headers["Cache-Control"] = "no-store"
        return Readiness(
            ready=about["ready"],
            reasons=list(about.get("reasons", [])),
            warnings=[*about.get("warnings", []), *context.keys.warnings()],
        )

    return routes
