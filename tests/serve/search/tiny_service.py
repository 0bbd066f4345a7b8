"""A service without models: an engine that says little, for tests of what surrounds endpoints."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from serve.search.api import http_api
from serve.search.settings import Settings

Facets = Mapping[str, Mapping[str, int]]


async def some_facets() -> Facets:
    return {"kind": {"figure": 3}}


class TinyEngine:
    """Answers what the infrastructure asks; ``facets`` is what a test wants to happen."""

    def __init__(self, facets: Callable[[], Awaitable[Facets]] = some_facets) -> None:
        self.facets = facets
        self.reloaded: list[tuple[str | None, str | None]] = []
        self.reasons: list[str] = []

    async def about(self) -> Mapping[str, Any]:
        return {
            "model": {"name": "tiny", "version": "aaaaaaaaaaaa", "dim": 4},
            "index": {
                "version": "bbbbbbbbbbbb",
                "figures": 7,
                "recall": {"images": {"text": 0.97, "image": 0.99}},
            },
            "ready": not self.reasons,
            "reasons": self.reasons,
        }

    async def reload(self, *, model: str | None = None, index: str | None = None) -> Any:
        self.reloaded.append((model, index))
        return await self.about()


def service(engine: TinyEngine | None = None, **settings: Any) -> FastAPI:
    return http_api(Settings(model="tiny", **settings), engine or TinyEngine())  # type: ignore[arg-type]


class Asking:
    """Sends requests as from the own machine and returns answers, one event loop each."""

    def __init__(self, app: FastAPI, *, address: str = "127.0.0.1") -> None:
        self.app = app
        self.address = address

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self.one(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self("GET", path, **options)

    def json(self, path: str, body: bytes) -> httpx.Response:
        return self("POST", path, content=body, headers={"Content-Type": "application/json"})

    async def one(self, method: str, path: str, **options: Any) -> httpx.Response:
        async with self.client() as client:
            return await client.request(method, path, **options)

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=(self.address, 50_000))
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """Run a real server on loopback while the block runs; gives its port."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        threading.Event().wait(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(600)
