"""Context of one request: its id, caller and timings, for the log line and the response.

Contains no request content: no texts, images, cursors or API keys.
"""

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The authenticated client of a request."""

    name: str
    """Name of the API key; ``local`` for a service without keys."""
    scopes: frozenset[str]
    bucket: str
    """Name of the token bucket: the API key's name, or without keys the client's address."""
    rate_per_s: float | None = None
    """Rate limit of this key, requests per second; overrides the settings."""


@dataclass(kw_only=True)
class Exchange:
    """Context of a request, which is filled in while the request is processed."""

    request_id: str
    prefix: str = ""
    """Path prefix of the service (``route_prefix``), without a trailing slash."""
    started: float = field(default_factory=time.perf_counter)
    """Start of the request, ``time.perf_counter``, in seconds."""
    caller: Caller | None = None
    """Authenticated caller; None on paths without authentication."""
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds by stage (decode, encode, search, metadata): for log, metrics and response."""
    inputs: int = 0
    """Number of texts and images to embed."""
    are_pixels_counted: bool = False
    """Whether the pixel budget was charged, which is done once per request."""
    problem: str | None = None
    """Slug of the problem in the response; None for a success."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the duration of a ``with`` block to a stage of ``stages``, in milliseconds."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed_ms = (time.perf_counter() - start) * 1000
            self.stages[name] = self.stages.get(name, 0.0) + elapsed_ms

    def timings_ms(self) -> dict[str, float]:
        """Return the duration of each stage and ``total``, in milliseconds, for the response."""
        total = (time.perf_counter() - self.started) * 1000
        return {name: round(ms, 3) for name, ms in {**self.stages, "total": total}.items()}


def exchange_in(scope: MutableMapping[str, Any]) -> Exchange:
    """Return the exchange that ``serve.http.middleware`` stored in an ASGI scope."""
    exchange: Exchange = scope["biovl.exchange"]
    return exchange
