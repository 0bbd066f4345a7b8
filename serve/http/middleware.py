"""ASGI middleware around all endpoints.

From the outermost to the innermost:

LoggingMiddleware    request id, access log, metrics, common response headers
(CORS)               Starlette's, if origins are configured
LimitingMiddleware   authentication, rate and body limits, timeout; handles unexpected errors
"""

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.auth import Keys
from serve.http.draining import Draining
from serve.http.limits import Bodies, ClientGoneError, RequestSlots
from serve.http.logs import log_failure, request_line
from serve.http.metrics import Metrics
from serve.http.problems import problem_answer, problem_of, timed_out, too_much_work
from serve.http.rate import RateLimit
from serve.http.request_context import Exchange, exchange_in
from serve.http.settings import Limits

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
_CSP = b"content-security-policy"
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Methods whose body, if any, is announced by headers. Others may send one unannounced (HTTP/2).
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_READY = "/readyz"
_HEALTH = frozenset({"/healthz", _READY})
_METRICS = "/metrics"
_ADMIN = "/v1/admin/"
_TAKE_ANSWER_S = 600.0
"""How long a client may take to read the response, in seconds."""
_ADMIN_S = 1_800.0
"""How long copying and loading a model and its index may take, in seconds."""


class LoggingMiddleware:
    """Middleware that assigns request ids, and writes the access log and the metrics."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        """Wrap ``app``."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request: assign an id, and log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        prefix = scope.get("root_path", "").rstrip("/")
        exchange = Exchange(request_id=_request_id(scope), prefix=prefix)
        scope["biovl.exchange"] = exchange
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_ours(message.get("headers", ()), exchange.request_id)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientGoneError:
            status = 499
        except asyncio.CancelledError:
            # The proxy cancels a request when its client disconnects.
            status = status or 499
            raise
        finally:
            self._note(scope, exchange, status)

    def _note(self, scope: Scope, exchange: Exchange, status: int) -> None:
        elapsed_s = time.perf_counter() - exchange.started
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = route_of(scope)
        self._metrics.answered(route, method, status, elapsed_s)
        for name, stage_ms in exchange.stages.items():
            self._metrics.stage(name, stage_ms / 1000)
        if exchange.problem:
            self._metrics.rejected(exchange.problem)
        request_line(
            {
                "request_id": exchange.request_id,
                "method": method,
                "route": route,
                "status": status,
                "ms": round(elapsed_s * 1000, 2),
                "stages_ms": {name: round(ms, 2) for name, ms in exchange.stages.items()},
                "key": exchange.caller.name if exchange.caller else None,
                "problem": exchange.problem,
                "replica": self._metrics.replica,
            }
        )


class LimitingMiddleware:
    """Middleware that authenticates and limits requests, and answers exceptions with problems.

    The cheapest checks come first: API key, rate limit, then the body. A concurrency slot is
    acquired last, so that slow clients do not occupy one while they upload.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        keys: Keys,
        rate: RateLimit,
        metrics: Metrics,
        draining: Draining | None = None,
    ) -> None:
        """Wrap ``app``; ``draining`` rejects requests during shutdown."""
        self._app = app
        self._limits = limits
        self._keys = keys
        self._rate = rate
        self._metrics = metrics
        self._bodies = Bodies(limits)
        self._places = RequestSlots(limits)
        self._in_progress: Counter[str] = Counter()
        self._draining = draining or Draining()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request within all limits."""
        if scope["type"] != "http" or self._is_probe(path_in(scope)):
            await self._app(scope, receive, send)
            return
        exchange = exchange_in(scope)
        answer = _Answer(send)
        try:
            with self._draining.request():
                await self._guarded(scope, receive, answer, exchange)
        except ClientGoneError:
            raise
        # The only handler of unexpected exceptions.
        except Exception as error:
            problem = problem_of(error)
            exchange.problem = problem.slug
            if problem.status == 500:
                log_failure(error, request_id=exchange.request_id, replica=self._metrics.replica)
            if answer.has_started:
                # The server closes the connection; its log must not contain the error message.
                raise RuntimeError("a response was aborted") from None
            response = problem_answer(problem, path=scope["path"], request_id=exchange.request_id)
            await response(scope, receive, answer)

    def _is_probe(self, path: str) -> bool:
        # A replica that is shutting down is alive, but not ready.
        return path in _HEALTH and not (path == _READY and self._draining.has_begun)

    async def _guarded(
        self, scope: Scope, receive: Receive, answer: "_Answer", exchange: Exchange
    ) -> None:
        headers = Headers(scope=scope)
        path = path_in(scope)
        if path.startswith("/v1/") or path == _METRICS:
            exchange.caller = self._keys.caller(scope, headers)
            if path != _METRICS:
                answer.headers = await self._rate.take_token(exchange.caller)
        if scope["method"] in _WITHOUT_BODY and not _has_body(headers):
            await self._in_place(scope, receive, answer, needs_place=path != _METRICS)
            return
        body = await self._bodies.read_body(headers, receive)
        try:
            await self._in_place(scope, _replayed(body, receive), answer, needs_place=True)
        finally:
            self._bodies.free(len(body))

    async def _in_place(
        self, scope: Scope, receive: Receive, answer: "_Answer", *, needs_place: bool
    ) -> None:
        if needs_place:
            self._places.take()
            self._metrics.in_progress(1)
        is_admin = path_in(scope).startswith(_ADMIN)
        timeout = asyncio.timeout(_ADMIN_S if is_admin else self._limits.timeout_s)
        has_left = not needs_place

        def release() -> None:
            # Called once, when the response starts: the rest depends on the client's speed.
            nonlocal has_left
            if not has_left:
                has_left = True
                self._places.release()
                self._metrics.in_progress(-1)
            if not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time() + _TAKE_ANSWER_S)

        answer.begins = release
        exchange = exchange_in(scope)
        bucket = exchange.caller.bucket if exchange.caller else ""
        self._in_progress[bucket] += 1
        try:
            async with timeout:
                await self._app(scope, receive, answer)
        except TimeoutError:
            # No other client was active: the same request would time out again.
            if exchange.inputs > 1 and set(self._in_progress) <= {bucket}:
                raise too_much_work(exchange.inputs, self._limits.timeout_s) from None
            raise timed_out() from None
        finally:
            self._in_progress -= Counter({bucket: 1})
            answer.begins = None
            if not has_left:
                self._places.release()
                self._metrics.in_progress(-1)


class _Answer:
    """``send`` that records whether the response has started, and adds headers to it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False
        self.headers: Mapping[str, str] = {}
        self.begins: Any = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            if self.begins:
                self.begins()
            if self.headers:
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
        await self._send(message)


def _with_ours(
    headers: Iterable[tuple[bytes, bytes]], request_id: str
) -> list[tuple[bytes, bytes]]:
    """Return headers plus the common ones; a Content-Security-Policy of the page is preserved."""
    found = [*headers, (b"x-request-id", request_id.encode()), *_HEADERS]
    if not any(name.lower() == _CSP for name, _ in found):
        found.append((_CSP, CONTENT_SECURITY_POLICY.encode()))
    return found


def path_in(scope: Mapping[str, Any]) -> str:
    """Return the path of a request within this application, without the route prefix."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the template of the route that matched a request, or ``none``."""
    return str(getattr(scope.get("route"), "path", None) or "none")


def _request_id(scope: MutableMapping[str, Any]) -> str:
    sent = Headers(scope=scope).get("x-request-id", "")
    return sent if _REQUEST_ID.fullmatch(sent) else secrets.token_hex(8)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first yields the buffered body, then the client's messages."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return rest.pop() if rest else await receive()

    return replayed
