"""Metrics of all replicas, for Prometheus."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from serve.http.metrics import of_all
from serve.search.context import Context


def router(context: Context) -> APIRouter:
    """Return the route of metrics.

    Open to the own machine where there are no keys; with keys it needs one with ``metrics``:
    counts by route and time tell what people do.
    """
    routes = context.router(tags=["service"])

    @routes.get(
        "/metrics",
        dependencies=[context.needs("metrics")],
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    async def metrics() -> Response:
        """Return the metrics of all replicas as Prometheus text, told apart by ``replica``."""
        context.metrics.describe(await context.engine.about())
        text = await of_all(context.metrics, context.coordinator)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes
