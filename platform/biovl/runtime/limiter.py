"""One request limit for all workers of a job: an actor that grants permissions to send."""

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import ray

from biovl.core.limits import LATE_S, RequestLimits

SILENT_S = 60.0
"""Seconds without a renewal after which a request is attributed to a dead worker."""

_LATE_IN_A_ROW = 10
"""After so many expired turns in a row, the next is used even if late, so that slow workers
proceed."""


class RequestQueue:
    """Grants requests in the order in which they arrive; for use in one event loop."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._waiting: deque[asyncio.Future[tuple[int, float]]] = deque()
        self._open: dict[int, float] = {}
        self._numbers = itertools.count()
        # Requests may have been sent just before this limiter started.
        self._next = time.monotonic() + limits.gap_s
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> tuple[int, float]:
        """Wait until a request is granted; return its number, and the time of its start."""
        turn: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._advance()
        return await turn

    async def renew(self, number: int) -> None:
        """Report that a request is still in progress."""
        if number in self._open:
            self._open[number] = time.monotonic()

    async def end(self, number: int) -> None:
        """Report that a request is completed."""
        self._open.pop(number, None)
        self._advance()

    def _advance(self) -> None:
        while self._waiting:
            now = time.monotonic()
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            if len(self._open) >= self._limits.concurrent:
                silent = min(self._open, key=self._open.__getitem__)
                left_s = self._open[silent] + SILENT_S - now
                if left_s <= 0:
                    del self._open[silent]
                    continue
                self._later(left_s)
                return
            if self._next > now:
                self._later(self._next - now)
                return
            number = next(self._numbers)
            self._open[number] = now
            self._next = now + self._limits.gap_s
            self._waiting.popleft().set_result((number, now))

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._advance)


class SharedLimiter:
    """Limiter that all workers of a job share; it can be pickled."""

    def __init__(self, turns: Any) -> None:
        self._turns = turns
        self._least_s = math.inf

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """Wait until a request may be sent; see ``Limiter``."""
        number = self._in_time()
        try:
            yield lambda: self._turns.renew.remote(number)
        finally:
            self._turns.end.remote(number)

    def _in_time(self) -> int:
        """Return the number of a turn that was received soon after it was granted."""
        for _ in range(_LATE_IN_A_ROW):
            number, began = ray.get(self._turns.begin.remote())
            # Clocks of machines differ: compare with the smallest difference seen so far.
            delay_s = time.monotonic() - began
            self._least_s = min(self._least_s, delay_s)
            if delay_s - self._least_s <= LATE_S:
                break
            self._turns.end.remote(number)
        return int(number)


@contextlib.contextmanager
def shared_limiter(limits: RequestLimits) -> Iterator[SharedLimiter]:
    """Yield a limiter that all workers share during the block. Needs Ray."""
    # The actor needs next to no CPU, and must not wait for a free one.
    actor: Any = ray.remote(RequestQueue).options(num_cpus=0, max_concurrency=10_000).remote(limits)
    try:
        yield SharedLimiter(actor)
    finally:
        ray.kill(actor)
