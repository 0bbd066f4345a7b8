"""Load for a service, from a process of its own: requests over kept connections, and their times.

    python serve_load.py '{"port": 8000, "concurrency": 8, "seconds": 5, …}'

Closed loop: each connection sends when it has its answer. Open loop (``rate``): requests are due at
fixed times and their times count from when they were due, so that one which had to wait for a
connection is as late as its user saw. Every query is another text. The only output is JSON.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

_CONNECTIONS = 1_024
"""Of the open loop: more than a service lets in."""


def new_text(chance: random.Random, words: Sequence[str]) -> str:
    """Return a text that has not been asked for."""
    return f"{' '.join(chance.choices(words, k=8))} {chance.randrange(10**6)}"


class _Connection(asyncio.Protocol):
    """Sends one request at a time and reads its answer; HTTP/1.1 with lengths or in chunks."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, int]] | None = None
        self._transport: Any = None
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((0, 0))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0 or self._answer is None or self._answer.done():
            return
        about = bytes(self._buffer[:head]).lower()
        place = about.find(b"content-length:")
        if place >= 0:
            length = int(about[place + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < head + 4 + length:
                return
        elif not self._buffer.endswith(b"0\r\n\r\n"):
            return
        size, status = len(self._buffer), int(about[9:12])
        self._buffer.clear()
        if b"connection: close" in about:
            self.closed = True
            self._transport.close()
        self._answer.set_result((status, size))

    def send(self, request: bytes) -> "asyncio.Future[tuple[int, int]]":
        """Return the status (0 if the connection broke) and the bytes of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer


class _Load:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.random = random.Random(asked.get("seed"))
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.bytes = 0
        self.counts_from = 0.0
        self.until = 0.0
        self.answered = self.in_time = 0

    def request(self) -> bytes:
        text = new_text(self.random, self.asked["words"])
        body = json.dumps({**self.asked["body"], "text": text}).encode()
        head = (
            f"POST {self.asked['path']} HTTP/1.1\r\nHost: 127.0.0.1:{self.asked['port']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def one(self, connection: _Connection | None, due: float) -> _Connection:
        if connection is None or connection.closed:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(
                _Connection, "127.0.0.1", self.asked["port"]
            )
        status, size = await connection.send(self.request())
        self.answered += 1
        self.in_time += self.counts_from <= time.perf_counter() < self.until and status == 200
        if due >= self.counts_from:
            self.statuses[status] += 1
            self.bytes += size
            if status == 200:
                self.times.append(time.perf_counter() - due)
        return connection

    async def closed_loop(self, until: float) -> None:
        connection = None
        while (now := time.perf_counter()) < until:
            connection = await self.one(connection, now)

    async def open_loop(self, rate: float, until: float) -> None:
        free: list[_Connection] = []
        room = asyncio.Semaphore(_CONNECTIONS)
        pending: set[asyncio.Task[None]] = set()

        async def send(due: float) -> None:
            async with room:
                free.append(await self.one(free.pop() if free else None, due))

        due = time.perf_counter()
        while due < until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(send(due))
            pending.add(task)
            task.add_done_callback(pending.discard)
            due += 1 / rate
        await asyncio.gather(*pending)


async def _run(asked: dict[str, Any]) -> dict[str, Any]:
    load = _Load(asked)
    begun = time.perf_counter()
    load.counts_from = begun + asked.get("warm_s", 0)
    load.until = until = load.counts_from + asked["seconds"]
    if asked.get("rate"):
        await load.open_loop(asked["rate"], until)
    else:
        await asyncio.gather(*(load.closed_loop(until) for _ in range(asked["concurrency"])))
    times = sorted(load.times) or [float("nan")]
    counted = sum(load.statuses.values())
    return {
        "per_s": load.in_time / asked["seconds"],
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3,
        "statuses": dict(load.statuses),
        "answer_bytes": load.bytes / max(counted, 1),
        "answered": load.answered,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(json.loads(sys.argv[1])))))
