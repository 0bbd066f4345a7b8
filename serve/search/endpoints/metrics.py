"""Metrics of all replicas, for Prometheus."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from serve.http.metrics import merged_text
from serve.search.context import Context


def router(context: Context) -> APIRouter:
    """Return the route for metrics.

    Without API keys only this machine has access. With keys the scope ``metrics`` is required,
    because counts by route and time reveal user behaviour.
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
        """Return the metrics of all replicas in Prometheus format, with the label ``replica``."""
        context.metrics.describe(await context.engine.about())
        text = await merged_text(context.metrics, context.coordinator)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes
