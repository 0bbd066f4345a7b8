"""What the benchmark of the service compares is what it says."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_made_up_vectors_have_unit_length_and_texts_are_further_away(tmp_path: Path) -> None:
    from index_vectors import made

    data = made(tmp_path, 5_000, dim=64, queries=50)
    vectors_ND = data.vectors_ND.astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors_ND, axis=1), 1, atol=2e-3)
    nearest = {kind: (q @ vectors_ND.T).max(axis=1).mean() for kind, q in data.queries.items()}
    assert nearest["image"] > nearest["text"] + 0.2
    again = made(tmp_path / "again", 5_000, dim=64, queries=50)
    np.testing.assert_array_equal(data.vectors_ND, again.vectors_ND)


def test_the_tenth_nearest_of_those_that_fit_is_found_by_sorting() -> None:
    from serve_filters import _tenth

    rng = np.random.default_rng(0)
    vectors_ND = rng.standard_normal((500, 8)).astype(np.float16)
    rows_M = np.flatnonzero(rng.random(500) < 0.2)
    query_QD = rng.standard_normal((4, 8)).astype(np.float32)
    scores_QM = query_QD @ vectors_ND[rows_M].astype(np.float32).T
    expected_Q = np.sort(scores_QM, axis=1)[:, -10]
    np.testing.assert_allclose(_tenth(vectors_ND, rows_M, query_QD), expected_Q, rtol=1e-6)


def test_cpu_of_a_service_includes_what_its_children_used() -> None:
    from serve_http import cpu_s

    busy = "import time\nwhile time.process_time() < 0.3: pass"
    before = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert cpu_s(os.getpid()) - before >= 0.28


def _answering(listener: socket.socket, wait_s: float) -> None:
    """Answer one connection, each request after a while."""
    connection, _ = listener.accept()
    with connection:
        while connection.recv(65_536):
            time.sleep(wait_s)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def _load(**how: object) -> dict[str, object]:
    from serve_load import _run

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answering, args=(listener, 0.05), daemon=True).start()
        asked = {
            "port": listener.getsockname()[1],
            "path": "/",
            "body": {},
            "words": ["word"],
            "seconds": 0.5,
            **how,
        }
        found: dict[str, object] = json.loads(json.dumps(asyncio.run(_run(asked))))
    return found


def test_a_closed_loop_waits_for_each_answer() -> None:
    found = _load(concurrency=1)
    assert 5 <= found["statuses"]["200"] <= 11
    assert 50 <= found["p50_ms"] < 150


def test_in_an_open_loop_time_counts_from_when_a_request_was_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import serve_load

    # One connection that answers 20 a second, and 40 are due: the last waits as long as the load.
    monkeypatch.setattr(serve_load, "_CONNECTIONS", 1)
    found = _load(rate=40)
    assert found["statuses"]["200"] == 20
    assert found["p99_ms"] > 400
