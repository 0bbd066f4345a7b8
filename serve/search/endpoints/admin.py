"""POST /v1/admin/reload: load another model and index without downtime."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from serve.search.context import Context
from serve.search.messages import Message


class ReloadRequest(Message):
    """Folders of the next model and index; the default is those that are served."""

    model: str | None = Field(default=None, min_length=1, max_length=1_024)
    index: str | None = Field(default=None, min_length=1, max_length=1_024)


def router(context: Context) -> APIRouter:
    """Return the routes that require the scope ``admin``."""
    routes = context.router(tags=["admin"])

    @routes.post("/v1/admin/reload", dependencies=[context.needs("admin")])
    async def reload(request: ReloadRequest | None = None) -> dict[str, Any]:
        """Reload the model and index, or load others, and return their description.

        Requests are served meanwhile. If the new model or index cannot be served, the response is
        422 with the reason, and the previous ones remain in service.
        """
        folders = request or ReloadRequest()
        about = await context.engine.reload(model=folders.model, index=folders.index)
        context.metrics.describe(about)
        return dict(about)

    return routes
