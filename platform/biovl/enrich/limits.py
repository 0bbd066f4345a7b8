"""How fast may be asked: one limit for all threads of a process."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_MARGIN = 1.1
"""Between two requests there is a tenth more than the limit asks for: of those that leave evenly,
one that is held up on its way arrives closer to the next."""


class Limiter:
    """Lets one after another send, evenly: never more than the limit in any second."""

    def __init__(
        self,
        per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing was sent yet.

        Args:
            per_second: The limit.
            clock: Seconds, growing.
            sleep: Waits for seconds.
        """
        self._spacing_s = _MARGIN / per_second
        self._clock, self._sleep = clock, sleep
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._next = 0.0

    @contextlib.contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Enter the block when a request may be sent; the next may be some time after it was.

        Yields:
            To be called once the request is on its way: connecting may take long, and on a busy
            machine a thread may rest before it begins. At the end of the block it is called anyway.
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
        """Let nobody send for so long, also those who wait already."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)
