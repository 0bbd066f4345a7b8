import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from serve.http.problems import Problem
from tests.serve.search.tiny_service import (
    Asking,
    Facets,
    TinyEngine,
    listening,
    service,
    some_facets,
)

MIB = 1 << 20
RELOAD = "/v1/admin/reload"
JSON = {"Content-Type": "application/json"}


async def pieces(count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * size


def test_a_body_is_counted_and_not_believed() -> None:
    ask = Asking(service(limits={"body_mib": 1}))
    allowed = ask("POST", RELOAD, content=pieces(10, MIB // 16), headers=JSON)
    assert allowed.status_code == 400  # Spaces are no JSON, but may be sent.
    declared = ask("POST", RELOAD, content=b" " * (MIB + 1), headers=JSON)
    chunked = ask("POST", RELOAD, content=pieces(17, MIB // 16), headers=JSON)
    lying = ask("POST", RELOAD, content=pieces(17, MIB // 16), headers={"Content-Length": "5"})
    for answer in (declared, chunked, lying):
        assert answer.status_code == 413
        assert "1 MiB" in answer.json()["detail"]


@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 400, "x", ""])
def test_a_strange_length_is_no_failure(length: str) -> None:
    ask = Asking(service())
    assert (
        ask("POST", RELOAD, content=b"{}", headers={**JSON, "Content-Length": length}).status_code
        < 500
    )


def test_a_compressed_body_is_not_unpacked() -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    assert Asking(service())("POST", RELOAD, content=b"{}", headers=headers).status_code == 415


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    told: list[str] = []

    async def endless() -> Facets:
        told.append("asked")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        return {}

    ask = Asking(service(TinyEngine(endless), limits={"timeout_s": 0.05}))
    for _ in range(100):
        answer = ask.get("/v1/facets")
        assert (answer.status_code, answer.json()["title"]) == (504, "Timeout")
        # On a busy machine the time may be over before the engine is asked.
        if told:
            break
    assert told == ["asked", "cancelled"]


def test_a_timeout_within_the_engine_is_one_as_well() -> None:
    async def failing() -> Facets:
        raise TimeoutError

    assert Asking(service(TinyEngine(failing))).get("/v1/facets").status_code == 504


def test_more_at_once_than_there_are_places_are_refused_and_places_are_given_back() -> None:
    gate: asyncio.Event

    async def waiting() -> Facets:
        await gate.wait()
        return {}

    ask = Asking(service(TinyEngine(waiting), limits={"concurrent_requests": 3}))

    async def scene() -> tuple[list[httpx.Response], int, list[int]]:
        nonlocal gate
        gate = asyncio.Event()
        async with ask.client() as client:
            tasks = [asyncio.create_task(client.get("/v1/facets")) for _ in range(8)]
            while sum(task.done() for task in tasks) < 5:
                await asyncio.sleep(0)
            probe = (await client.get("/healthz")).status_code
            gate.set()
            answers = [await task for task in tasks]
            again = [(await client.get("/v1/facets")).status_code for _ in range(9)]
            return answers, probe, again

    answers, probe, again = asyncio.run(scene())
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 5
    assert all(a.headers["Retry-After"] == "1" for a in answers if a.status_code == 503)
    assert probe == 200
    assert again == [200] * 9


def test_places_are_given_back_by_requests_that_fail_or_are_cancelled() -> None:
    failures = [ValueError(), Problem(404, "not-found", "no"), TimeoutError()]

    async def failing() -> Facets:
        if failures:
            raise failures.pop()
        return await some_facets()

    ask = Asking(service(TinyEngine(failing), limits={"concurrent_requests": 1}))
    assert [ask.get("/v1/facets").status_code for _ in range(5)] == [504, 404, 500, 200, 200]

    async def cancelled() -> int:
        entered = asyncio.Event()

        async def waiting() -> Facets:
            entered.set()
            await asyncio.Event().wait()
            return {}

        engine = TinyEngine(waiting)
        own = Asking(service(engine, limits={"concurrent_requests": 1}))
        async with own.client() as client:
            task = asyncio.create_task(client.get("/v1/facets"))
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            engine.facets = some_facets
            return (await client.get("/v1/info")).status_code

    assert asyncio.run(cancelled()) == 200


async def begin_upload(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the head of a request and a byte of its body; return when the service reads the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {RELOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
    # The server says so when the application reads for the first time.
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert await reader.readline() == b"\r\n"
    writer.write(b"{")
    await writer.drain()
    return reader, writer


def test_a_hundred_slow_clients_do_not_stop_a_fast_one() -> None:
    # 5 places: a service that reads a body within a place has none left.
    app = service(limits={"concurrent_requests": 5, "body_s": 3600})

    async def scene(port: int) -> list[int]:
        uploads = [await begin_upload(port) for _ in range(100)]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            statuses = [(await client.post(RELOAD, json={})).status_code for _ in range(20)]
        for reader, writer in uploads:
            # Nothing was answered yet: all of them were under way.
            assert not reader._buffer  # type: ignore[attr-defined]
            assert not reader.at_eof()
            writer.close()
        return statuses

    with listening(app) as port:
        assert asyncio.run(scene(port)) == [200] * 20


def test_an_upload_that_takes_too_long_is_given_up_however_steadily_it_comes() -> None:
    async def slow(port: int) -> bytes:
        reader, writer = await begin_upload(port)
        status = asyncio.create_task(reader.readline())
        while not status.done():
            await asyncio.wait([status], timeout=0.05)
            if not status.done():
                writer.write(b" ")
        writer.close()
        return await status

    with listening(service(limits={"body_s": 0.5})) as port:
        status = asyncio.run(slow(port))
    assert status.split(b" ")[1] == b"408"


def test_a_client_of_a_real_server_is_told_that_its_body_is_too_large() -> None:
    with listening(service(limits={"body_mib": 1})) as port:
        url = f"http://127.0.0.1:{port}{RELOAD}"
        declared = httpx.post(url, content=b" " * (2 * MIB), headers=JSON)
        chunked = httpx.post(url, content=iter([b" " * MIB, b" " * MIB]), headers=JSON)
    assert (declared.status_code, chunked.status_code) == (413, 413)


def test_a_client_that_hangs_up_harms_nobody() -> None:
    with listening(service(limits={"concurrent_requests": 1})) as port:

        async def hang_up() -> None:
            for size in (0, 1, 500):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                head = f"POST {RELOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
                writer.write(head.encode() + b" " * size)
                await writer.drain()
                writer.close()

        asyncio.run(hang_up())
        assert httpx.get(f"http://127.0.0.1:{port}/v1/facets").status_code == 200
