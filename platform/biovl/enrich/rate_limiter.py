"""A rate limit for all threads of a process."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_MARGIN = 1.1
"""Factor on the interval between two requests: evenly sent requests arrive closer together if one
is delayed on its way."""


class RateLimiter:
    """Rate limiter that grants requests at even intervals, never above the limit in any second."""

    def __init__(
        self,
        per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Start without earlier requests.

        Args:
            per_second: The limit.
            clock: Returns monotonic seconds.
            sleep: Waits for seconds.
        """
        self._spacing_s = _MARGIN / per_second
        self._clock, self._sleep = clock, sleep
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._next = 0.0

    @contextlib.contextmanager
    def wait(self) -> Iterator[Callable[[], None]]:
        """Wait until a request may be sent; send it inside the ``with`` block.

        Yields:
            A callback to call once the request has been sent: it starts the interval to the next
            request. A slow connection or a busy machine may delay sending. It is also called at the
            end of the block.
        """
        self._turn.acquire()
        is_mine = True

        def sent() -> None:
            nonlocal is_mine
            if is_mine:
                is_mine = False
                self.pause(self._spacing_s)
                self._turn.release()

        try:
            while (left_s := self._next - self._clock()) > 0:
                self._sleep(left_s)
            yield sent
        finally:
            sent()

    def pause(self, seconds: float) -> None:
        """Block all requests for some seconds, including those already waiting."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)
