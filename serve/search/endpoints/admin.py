"""What whoever runs the service may ask of it."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from serve.search.context import Context
from serve.search.messages import Message


class ReloadRequest(Message):
    """Where the next model and index are; without, those of the settings as they are now."""

    model: str | None = Field(default=None, min_length=1, max_length=1_024)
    index: str | None = Field(default=None, min_length=1, max_length=1_024)


def router(context: Context) -> APIRouter:
    """Return the routes of the scope ``admin``."""
    routes = context.router(tags=["admin"])

    @routes.post("/v1/admin/reload", dependencies=[context.needs("admin")])
    async def reload(request: ReloadRequest | None = None) -> dict[str, Any]:
        """Serve another model and index, or those published since; return what is served then.

        No request fails meanwhile. If what is there cannot be served, the answer is 422 with the
        reason, and what was served goes on.
        """
        wanted = request or ReloadRequest()
        about = await context.engine.reload(model=wanted.model, index=wanted.index)
        context.metrics.describe(about)
        return dict(about)

    return routes
