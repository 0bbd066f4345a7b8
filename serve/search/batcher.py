"""Dynamic batching of concurrent requests, without idle time.

``@serve.batch`` assembles the next batch while one is computed: with a wait of zero its batches
have one or two items, otherwise every request waits, even without load. Here a batch is taken when
the executor becomes free, so the batch size follows the load.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

from serve.http.problems import Problem

Item = TypeVar("Item")
Result = TypeVar("Result")

Compute = Callable[[Sequence[Item]], Sequence[Result]]
"""Called in a separate thread with at least one item; returns results in order."""

Observe = Callable[[int, float], None]
"""Called for every batch with its size and the queue time of its first item, in seconds."""

_OVERHEAD = 64
"""Cost of an additional forward pass, in padding tokens. Measured: 1 ms, as much as 60 tokens."""


class Batcher(Generic[Item, Result]):
    """Queue of items for a function that is more efficient on batches."""

    def __init__(
        self,
        compute: Compute[Item, Result],
        *,
        name: str,
        batch_max: int,
        queue_max: int,
        wait_ms: float = 0,
        length: Callable[[Item], int] | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Create a batcher; its task starts with the first item.

        Args:
            compute: The function. If it raises for a batch, each item is computed separately, so
                that only the faulty item fails.
            name: Name of the items, for messages.
            batch_max: Maximum items per call of ``compute``, at least 1.
            queue_max: Maximum items in the queue; further ones are rejected.
            wait_ms: How long to wait for a full batch.
            length: Length of an item, if batches are padded to the longest item: items of very
                different length are then computed in separate batches.
            observe: Called for every batch.
        """
        self._compute = compute
        self._name = name
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._wait_s = wait_ms / 1000
        self._length = length
        self._observe = observe
        self._queue: deque[tuple[Item, asyncio.Future[Result], float]] = deque()
        self._room = asyncio.Condition()
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"batch-{name}")

    async def __call__(self, items: Sequence[Item]) -> list[Result]:
        """Return the results of items, in order.

        Large requests are queued in portions, so that they do not block small ones.

        Raises:
            Problem: 503 if the queue is full or the service is stopping.
            Exception: The exception of the first item that failed.
        """
        results: list[Result] = []
        portion = max(1, min(2 * self._batch_max, self._queue_max))
        for first in range(0, len(items), portion):
            some = items[first : first + portion]
            if first:
                # A partly computed request waits instead of being rejected.
                async with self._room:
                    await self._room.wait_for(partial(self._fits, len(some)))
            futures = self._queued(some)
            try:
                results += await asyncio.gather(*futures)
            finally:
                # After a failure, or when the client has disconnected.
                for future in futures:
                    future.cancel()
        return results

    @property
    def waiting(self) -> int:
        """Number of items waiting in the queue."""
        return len(self._queue)

    async def close(self) -> None:
        """Reject queued items, complete the current batch, and stop the thread."""
        self._closed = True
        while self._queue:
            _, future, _ = self._queue.popleft()
            if not future.done():
                future.set_exception(_stopping())
        async with self._room:
            self._room.notify_all()
        if self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown(wait=False)

    def _fits(self, count: int) -> bool:
        return self._closed or len(self._queue) + count <= self._queue_max

    def _queued(self, items: Sequence[Item]) -> list[asyncio.Future[Result]]:
        if self._closed:
            raise _stopping()
        if not self._fits(len(items)):
            raise Problem(
                503,
                "overloaded",
                f"{len(self._queue)} {self._name} are queued for embedding, at most "
                f"{self._queue_max} fit; try again later",
                headers={"Retry-After": "1"},
            )
        loop = asyncio.get_running_loop()
        now = time.perf_counter()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        self._queue.extend((item, future, now) for item, future in zip(items, futures, strict=True))
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run())
        return futures

    async def _run(self) -> None:
        """Process batches until the queue is empty."""
        while self._queue:
            if self._wait_s and len(self._queue) < self._batch_max:
                await asyncio.sleep(self._wait_s)
            taken: list[tuple[Item, asyncio.Future[Result]]] = []
            waited_s = 0.0
            while self._queue and len(taken) < self._batch_max:
                item, future, since = self._queue.popleft()
                if not future.done():
                    waited_s = waited_s or time.perf_counter() - since
                    taken.append((item, future))
            async with self._room:
                self._room.notify_all()
            for batch in groups(taken, self._length):
                if self._observe is not None:
                    self._observe(len(batch), waited_s)
                await self._answer(batch)

    async def _answer(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._compute, [item for item, _ in batch])
        await asyncio.wait([work])
        error = work.exception()
        if error is None:
            for (_, future), result in zip(batch, work.result(), strict=True):
                if not future.done():
                    future.set_result(result)
        elif len(batch) == 1:
            if not batch[0][1].done():
                batch[0][1].set_exception(error)
        else:
            for alone in batch:
                await self._answer([alone])


def groups(
    taken: Sequence[tuple[Item, asyncio.Future[Result]]],
    length: Callable[[Item], int] | None,
) -> list[list[tuple[Item, asyncio.Future[Result]]]]:
    """Return queued items in groups of similar length, the shortest first.

    A group ends where padding its items to the next length would cost more than a separate
    forward pass.
    """
    if not taken:
        return []
    if length is None:
        return [list(taken)]
    by_length = sorted(taken, key=lambda entry: length(entry[0]))
    found = [[by_length[0]]]
    for entry in by_length[1:]:
        group = found[-1]
        grows_by = length(entry[0]) - length(group[-1][0])
        if len(group) * grows_by > _OVERHEAD:
            found.append([entry])
        else:
            group.append(entry)
    return found


def _stopping() -> Problem:
    return Problem(
        503, "stopping", "this replica is shutting down; retry", headers={"Retry-After": "1"}
    )
