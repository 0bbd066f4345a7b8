"""The ASGI application of the search service: endpoints, middleware and the web page. No Ray."""

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware

import serve.search.endpoints
from biovl import __version__
from serve.auth import Keys
from serve.http.coordinator import Coordinator, LocalCoordinator
from serve.http.documentation import document
from serve.http.draining import Draining
from serve.http.logs import write_lines
from serve.http.metrics import Metrics, keep_described, send_snapshots
from serve.http.middleware import LimitingMiddleware, LoggingMiddleware
from serve.http.pages import STYLE, add_page
from serve.http.pixels import PixelBudget
from serve.http.problems import handle_problems
from serve.http.rate import RateLimit
from serve.http.strict_json import StrictRoute
from serve.search.context import Context
from serve.search.cursors import Cursors
from serve.search.description_cache import DescriptionCache
from serve.search.engine import Engine
from serve.search.settings import Settings

PAGE = Path(__file__).parent / "page"
_EXPOSED = (
    "X-Request-ID",
    "Retry-After",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "ETag",
)

Hook = Callable[[], Awaitable[None]]


def http_api(
    settings: Settings,
    engine: Engine,
    *,
    coordinator: Coordinator | None = None,
    replica: str = "0",
    metrics: Metrics | None = None,
    draining: Draining | None = None,
    on_start: Hook | None = None,
    on_stop: Hook | None = None,
    page: Path = PAGE,
) -> FastAPI:
    """Return the search service as an ASGI application.

    Args:
        settings: Settings of the service.
        engine: The models and indexes behind the endpoints.
        coordinator: Shared state of the replicas; None for a single replica.
        replica: Name of this replica in metrics and logs.
        metrics: Metrics shared with the batchers of this process; new ones by default.
        draining: Rejects requests during shutdown.
        on_start: Called before the first request.
        on_stop: Called after the last request.
        page: Folder of the web page; ignored if it has no ``index.html``.

    Raises:
        ConfigError: If the key file cannot be read.
    """
    write_lines(settings.log_format)
    shared = coordinator or LocalCoordinator()
    counted = metrics or Metrics(replica)
    keys = Keys(settings.auth)
    context = Context(
        settings=settings,
        engine=engine,
        served=DescriptionCache(engine),
        keys=keys,
        metrics=counted,
        cursors=Cursors(partial(_secret, settings, keys)),
        coordinator=shared,
        pixels=PixelBudget(settings.limits, settings.rate, shared),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if on_start:
            await on_start()
        reporting = [
            asyncio.create_task(keep_described(counted, engine.about)),
            asyncio.create_task(send_snapshots(counted, shared)),
        ]
        try:
            yield
        finally:
            for task in reporting:
                task.cancel()
            await asyncio.wait(reporting)
            if on_stop:
                await on_stop()

    app = FastAPI(
        title="biovl",
        version=__version__,
        description="Search, classify and embed biomedical images and texts.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A redirect would not match the path rules of the middleware.
        redirect_slashes=False,
    )
    handle_problems(app)
    _add_endpoints(app, context)
    document(app)
    add_page(app, page, STYLE)
    # The last added is the outermost.
    app.add_middleware(
        LimitingMiddleware,
        limits=settings.limits,
        keys=keys,
        rate=RateLimit(settings.rate, shared),
        metrics=counted,
        draining=draining,
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("Authorization", "X-API-Key", "Content-Type", "X-Request-ID"),
            expose_headers=_EXPOSED,
            # API keys are sent by scripts, not as browser credentials.
            allow_credentials=False,
        )
    app.add_middleware(LoggingMiddleware, metrics=counted)
    return app


def _add_endpoints(app: FastAPI, context: Context) -> None:
    for found in sorted(
        pkgutil.iter_modules(serve.search.endpoints.__path__), key=lambda one: one.name
    ):
        module = importlib.import_module(f"serve.search.endpoints.{found.name}")
        router = module.router(context)
        for route in router.routes:
            if isinstance(route, APIRoute) and not isinstance(route, StrictRoute):
                raise TypeError(f"{found.name}: {route.path} must be made by context.router()")
        # Not include_router: FastAPI would then try each router on every request (measured: a
        # quarter of the overhead of an endpoint). The routes are complete without it.
        app.router.routes.extend(router.routes)


def _secret(settings: Settings, keys: Keys) -> bytes:
    return settings.model_dump_json().encode() + b"\0" + keys.digests()
