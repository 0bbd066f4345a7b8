"""``serve run`` as typed, on a Ray of its own, ended by a signal with requests in flight."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.search.published import a_picture, publish_index, publish_model

ROOT = Path(__file__).parents[3]
PORT = 8000
"""Of every ``serve run``; each test takes an address of the loopback network for itself."""

PLAIN: dict[str, Any] = {"timeout": 600, "verify": False}
"""Of requests that each have a connection of their own: it takes long to read certificates."""


def free_host() -> str:
    while True:
        host = f"127.{random.randrange(1, 255)}.{random.randrange(255)}.{random.randrange(1, 255)}"
        with socket.socket() as one:
            try:
                one.bind((host, PORT))
            except OSError:
                continue
            return host


@contextmanager
def serve_run(log: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run ``serve run serve.app:build`` until it is ready; give the process and its address."""
    host = free_host()
    environment = {
        **os.environ,
        "RAY_SERVE_DEFAULT_HTTP_HOST": host,
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}:{os.environ['PYTHONPATH']}",
    }
    serve = str(Path(sys.executable).parent / "serve")
    command = [serve, "run", "--address", "local", "serve.app:build", *arguments]
    address = f"http://{host}:{PORT}"
    with log.open("ab") as stream:
        for tries_left in reversed(range(5)):
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=stream, stderr=stream
            )
            try:
                # Serve gives its proxies 60 s to begin, whatever else the machine does.
                while not (ready := is_ready(address)) and process.poll() is None:
                    time.sleep(0.2)
                assert ready or tries_left, log.read_text()[-5_000:]
                if ready:
                    yield process, address
                    return
            finally:
                process.kill()
                process.wait()


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", **PLAIN).status_code == 200
    except httpx.TransportError:
        return False


def in_progress(address: str) -> int:
    text = httpx.get(f"{address}/metrics", **PLAIN).text
    return sum(
        int(float(value))
        for value in re.findall(r"^biovl_requests_in_progress\{.*\} (\S+)$", text, re.MULTILINE)
    )


class Upload:
    """A request whose second half is sent when the test says so."""

    def __init__(self, address: str, body: bytes) -> None:
        self._socket = socket.create_connection((address.split("/")[2].split(":")[0], PORT))
        self._socket.settimeout(600)
        half = len(body) // 2
        self._rest = body[half:]
        self._socket.sendall(
            b"POST /v1/proxy HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body[:half]
        )

    def finish(self) -> tuple[int, bytes]:
        """Return status and body."""
        from http.client import HTTPResponse

        with self._socket:
            self._socket.sendall(self._rest)
            answer = HTTPResponse(self._socket)
            answer.begin()
            return answer.status, answer.read()


@pytest.mark.ray
@pytest.mark.parametrize(
    ("number", "layout"), [(signal.SIGTERM, "fused"), (signal.SIGINT, "split")]
)
def test_every_request_in_flight_is_answered(
    tmp_path: Path, number: signal.Signals, layout: str
) -> None:
    model = publish_model(tmp_path / "model")
    index = publish_index(tmp_path / "index", model)
    small = [f"replicas.{name}_cpus=0.2" for name in ("http", "encoder", "search")]
    with (
        serve_run(
            tmp_path / "log",
            f"model={model}",
            f"index={index}",
            f"layout={layout}",
            "replicas.http=2",
            *small,
            # A search takes as long.
            "batch.wait_ms=2000",
            "limits.timeout_s=300",
            "limits.body_s=300",
        ) as (process, address),
        ThreadPoolExecutor(100) as pool,
    ):
        uploads = [Upload(address, a_picture(seed)) for seed in range(4)]
        searches: list[Future[httpx.Response]] = []

        def search() -> httpx.Response:
            asked = {"text": f"picture {len(searches)}", "k": 5}
            return httpx.post(f"{address}/v1/search", json=asked, **PLAIN)

        while in_progress(address) < 8:
            while sum(not one.done() for one in searches) < 8:
                searches.append(pool.submit(search))
            time.sleep(0.05)
        process.send_signal(number)
        # Until now nobody was refused.
        while is_ready(address):
            time.sleep(0.05)
        for status, body in pool.map(Upload.finish, uploads):
            assert status == 200, body
            assert b'"votes"' in body
        for one in searches:
            answer = one.result()
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["results"]) == 5
        assert process.wait(600) == 0, (tmp_path / "log").read_text()[-5_000:]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/healthz")
