"""The ASGI application of the review service: endpoints, middleware and the web page. No Ray.

Endpoints work in threads, whose work is completed even if the client disconnects: votes are saved
whole.
"""

import re
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from biovl import __version__
from biovl.core.errors import ConfigError
from serve.auth import Keys, check_scope
from serve.http.coordinator import LocalCoordinator
from serve.http.documentation import document
from serve.http.draining import Draining
from serve.http.logs import log_failure, write_lines
from serve.http.metrics import Metrics
from serve.http.middleware import LimitingMiddleware, LoggingMiddleware
from serve.http.pages import STYLE, add_page
from serve.http.problems import Problem, handle_problems, problem_answer, shortened
from serve.http.rate import RateLimit
from serve.http.request_context import exchange_in
from serve.http.strict_json import StrictRoute
from serve.review import messages
from serve.review.actions import Desk

PAGE = Path(__file__).parent / "page"
SHARED_PAGE = Path(__file__).parents[1] / "search" / "page"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_STORE = {"Cache-Control": "no-store"}
_CSV = "text/csv; charset=utf-8"


def review_api(desk: Desk, *, replica: str = "0", draining: Draining | None = None) -> FastAPI:
    """Return the review service as an ASGI application.

    Args:
        desk: Clusters, votes and assignment; closed with the application.
        replica: Name of this replica in logs.
        draining: Rejects requests during shutdown.

    Raises:
        ConfigError: If the reviewers file cannot be read.
    """
    settings = desk.settings
    write_lines(settings.log_format)
    keys = Keys(settings.auth, setting="reviewers_file", scopes="review")
    metrics = Metrics(replica)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.database.close()

    app = FastAPI(
        title="biovl review",
        version=__version__,
        description="Clusters of figures, named by people.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    handle_problems(app)
    _handle_database(app, replica)
    app.router.routes.extend(_routes(desk, keys).routes)
    document(app)
    add_page(app, PAGE, SHARED_PAGE, STYLE)
    app.add_middleware(
        LimitingMiddleware,
        limits=settings.limits,
        keys=keys,
        rate=RateLimit(settings.rate, LocalCoordinator()),
        metrics=metrics,
        draining=draining,
    )
    app.add_middleware(LoggingMiddleware, metrics=metrics)
    return app


def _routes(desk: Desk, keys: Keys) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    def reviewer(request: Request) -> str:
        caller = exchange_in(request.scope).caller
        check_scope(request, "review")
        name = request.headers.get("x-reviewer", "").strip()
        if caller is not None and keys.are_required:
            if name and name.lower() != caller.name.lower():
                raise Problem(
                    403,
                    "another-name",
                    f"this API key does not belong to {shortened(name, 64)!r}; sign in with the"
                    " name of the key",
                )
            return desk.known_name(caller.name)
        if not _NAME.fullmatch(name):
            raise Problem(
                401,
                "no-name",
                "X-Reviewer must be your name: 1 to 64 letters, digits, dots, - and _",
            )
        return desk.known_name(name)

    Reviewer = Annotated[str, Depends(reviewer)]

    @routes.get("/healthz", tags=["service"])
    async def healthz() -> dict[str, str]:
        """Report that the process runs."""
        return {"status": "up"}

    @routes.get("/readyz", tags=["service"])
    async def readyz() -> dict[str, bool]:
        """Report that keys can be checked and the database is available; otherwise 503."""
        keys.check_readable()
        await to_thread(_asked, desk)
        return {"ready": True}

    @routes.get("/v1/review", tags=["review"])
    async def begin(name: Reviewer, response: Response) -> messages.Review:
        """Return the questions, the taxonomy, and the progress of the review."""
        response.headers.update(_NO_STORE)
        return await to_thread(desk.begin, name)

    @routes.post("/v1/next", tags=["review"])
    async def following(
        name: Reviewer, wanted: messages.NextRequest, response: Response
    ) -> messages.NextAnswer:
        """Assign and reserve a cluster for the reviewer; the same one until it is labelled."""
        response.headers.update(_NO_STORE)
        return await to_thread(desk.next, name, wanted.skip)

    @routes.get("/v1/clusters/{cluster_id}", tags=["review"])
    async def look(
        name: Reviewer,
        cluster_id: int,
        # Not `key`: the service rejects query parameters that look like credentials.
        cluster_key: str,
        response: Response,
        practice: bool = False,
    ) -> messages.Sheet:
        """Return a cluster with its images and this reviewer's vote."""
        response.headers.update(_NO_STORE)
        place = messages.Place.model_construct(
            cluster_id=cluster_id, key=cluster_key, practice=practice
        )
        return await to_thread(desk.view, name, place)

    @routes.post("/v1/hold", tags=["review"])
    async def hold(name: Reviewer, place: messages.Place) -> dict[str, bool]:
        """Renew the reservation of a cluster; false if another reviewer has taken it."""
        return {"held": await to_thread(desk.hold, name, place)}

    @routes.post("/v1/votes", tags=["review"])
    async def vote(name: Reviewer, said: messages.VoteRequest) -> messages.VoteAnswer:
        """Save a vote; it is on disk when the response is sent."""
        return await to_thread(desk.vote, name, said)

    @routes.get("/v1/votes.csv", tags=["votes"], response_class=Response)
    async def export(request: Request) -> Response:
        """Return all current votes as CSV. Requires the scope ``admin``."""
        check_scope(request, "admin")
        data = await to_thread(desk.export_csv)
        named = {"Content-Disposition": 'attachment; filename="votes.csv"'}
        return Response(data, media_type=_CSV, headers={**_NO_STORE, **named})

    @routes.post("/v1/votes.csv", tags=["votes"])
    async def bring(request: Request) -> messages.ImportAnswer:
        """Import votes from CSV; return the reasons of rejected rows. Requires ``admin``."""
        check_scope(request, "admin")
        sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if sent != "text/csv":
            raise Problem(
                415, "unsupported-media-type", "send the file itself with Content-Type: text/csv"
            )
        data = await request.body()
        return await to_thread(_brought, desk, data)

    return routes


def _brought(desk: Desk, data: bytes) -> messages.ImportAnswer:
    try:
        return desk.import_csv(data)
    except ConfigError as error:
        raise Problem(422, "no-votes", str(error)) from None


def _asked(desk: Desk) -> None:
    with desk.database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")


def _handle_database(app: FastAPI, replica: str) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        exchange = exchange_in(request.scope)
        log_failure(error, request_id=exchange.request_id, replica=replica)
        problem = Problem(
            503,
            "database-unavailable",
            "the database does not answer, and nothing was saved; try again in a moment",
            headers={"Retry-After": "2"},
        )
        exchange.problem = problem.slug
        return problem_answer(problem, path=request.scope["path"], request_id=exchange.request_id)

    app.add_exception_handler(SQLAlchemyError, answer)
