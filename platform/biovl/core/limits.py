"""Request rate and concurrency limits of a service, shared by all workers of a job.

Each request first waits for its turn. In one process a ``LocalLimiter`` grants turns; the workers
of a job share one limiter (``runtime/limiter.py``).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

HEADROOM = 0.9
"""Fraction of the allowed rate that is used: evenly spaced requests are delayed on their way, and
must not arrive faster than the limit in any second."""

LATE_S = 0.1
"""Seconds after which a granted turn expires and the caller waits for another one. On a busy
machine a worker may pause, and would then send all its granted requests at once. Delays up to this
value are covered by ``HEADROOM``."""


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Rate and concurrency limits of a service, for all workers together."""

    requests_per_s: float
    concurrent: int

    @property
    def gap_s(self) -> float:
        """Seconds between the starts of two requests."""
        return 1 / (HEADROOM * self.requests_per_s)


class Limiter(Protocol):
    """Rate and concurrency limiter of requests."""

    def request(self) -> AbstractContextManager[Callable[[], None]]:
        """Wait until one more request may be sent; it counts as open until the block ends.

        Yields a callback to call regularly while a long response is read: a request without a call
        for a minute counts as dead.
        """


class LocalLimiter:
    """Limiter of the requests of a single process."""

    def __init__(self, limits: RequestLimits) -> None:
        self._free = threading.BoundedSemaphore(limits.concurrent)
        self._gap_s, self._lock, self._next = limits.gap_s, threading.Lock(), 0.0

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """Wait until one more request may be sent; see ``Limiter``."""
        with self._free:
            is_late = True
            while is_late:
                with self._lock:
                    begin = max(self._next, time.monotonic())
                    self._next = begin + self._gap_s
                time.sleep(max(0.0, begin - time.monotonic()))
                is_late = time.monotonic() - begin > LATE_S
            yield lambda: None
