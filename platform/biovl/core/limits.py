"""How many requests a service gets, from all workers together, whatever they are for.

Whoever makes a request asks first. In one process a ``LocalLimiter`` answers; the workers of a job
share one (``runtime/limiter.py``).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

HEADROOM = 0.9
"""Of the rate that is allowed, what is used: requests that were spaced evenly are delayed on their
way, and must not arrive as more than that in any second."""

LATE_S = 0.1
"""Whoever notices a turn later than that lets it pass and waits for another: on a busy machine a
worker may rest for a while, and would then send all that it was allowed meanwhile at once. So much,
and no more, is made up for by the headroom."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service may be asked, by all together."""

    requests_per_s: float
    concurrent: int

    @property
    def gap_s(self) -> float:
        """Seconds between the beginnings of two requests."""
        return 1 / (HEADROOM * self.requests_per_s)


class Limiter(Protocol):
    """Where requests wait for their turn."""

    def request(self) -> AbstractContextManager[Callable[[], None]]:
        """Wait until one more request may be made; it counts for as long as the block lasts.

        Yields what must be called now and then while a long answer is read: who is not heard of
        for a minute counts as dead.
        """


class LocalLimiter:
    """Holds the requests of one process to its limits."""

    def __init__(self, limits: Limits) -> None:
        self._free = threading.BoundedSemaphore(limits.concurrent)
        self._gap_s, self._lock, self._next = limits.gap_s, threading.Lock(), 0.0

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """Wait for a turn."""
        with self._free:
            is_late = True
            while is_late:
                with self._lock:
                    begin = max(self._next, time.monotonic())
                    self._next = begin + self._gap_s
                time.sleep(max(0.0, begin - time.monotonic()))
                is_late = time.monotonic() - begin > LATE_S
            yield lambda: None
