"""Draining of a replica: requests in flight are completed, new ones are rejected."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from serve.http.problems import Problem


class Draining:
    """Counts the requests in flight in a replica, and rejects new ones during shutdown."""

    def __init__(self) -> None:
        """Accept requests until ``drain`` is called."""
        self.has_begun = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request while the block runs.

        Raises:
            Problem: 503 with Retry-After if the replica is shutting down.
        """
        if self.has_begun:
            raise Problem(
                503,
                "stopping",
                "the service is shutting down; send the request again",
                # The next connection may reach another node, or the successor.
                headers={"Retry-After": "5", "Connection": "close"},
            )
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def drain(self) -> None:
        """Reject new requests from now on; return when those in flight are completed."""
        self.has_begun = True
        await self._idle.wait()
