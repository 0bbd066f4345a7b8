"""Shared objects that are passed to the endpoints' ``router(context)``."""

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, Request

from serve.auth import SCOPES, Keys, check_scope
from serve.http.coordinator import Coordinator
from serve.http.metrics import Metrics
from serve.http.pixels import PixelBudget
from serve.http.strict_json import StrictRoute
from serve.search.cursors import Cursors
from serve.search.description_cache import DescriptionCache
from serve.search.engine import Engine
from serve.search.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Context:
    """Shared objects of the service: settings, engine, authentication, metrics."""

    settings: Settings
    engine: Engine
    served: DescriptionCache
    keys: Keys
    metrics: Metrics
    cursors: Cursors
    coordinator: Coordinator
    pixels: PixelBudget

    def router(self, **options: Any) -> APIRouter:
        """Return a router that parses JSON strictly; all endpoints are created with it."""
        return APIRouter(route_class=StrictRoute, **options)

    def needs(self, scope: str) -> Any:
        """Return a route dependency that requires a scope of the API key.

        ``@router.post("/v1/search", dependencies=[context.needs("search")])``. The API key itself
        is already checked for every path below ``/v1/`` by ``serve.http.middleware``.
        """
        if scope not in SCOPES:
            raise ValueError(f"there is no scope {scope!r}; choose from {', '.join(SCOPES)}")

        async def allowed(request: Request) -> None:
            check_scope(request, scope)

        return Depends(allowed)
