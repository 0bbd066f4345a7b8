"""Votes that were acknowledged are there: after a kill, with many reviewers, with two processes."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from biovl.core.errors import ConfigError
from serve.review import tables
from serve.review.tables import Database
from tests.serve.review.small_review import an_answer, publish_concepts

SERVER = """
import sys, uvicorn
from pathlib import Path
from tests.serve.review.small_review import review
folder, database, port = sys.argv[1:]
uvicorn.run(review(Path(folder), database=database), port=int(port), log_level="critical")
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def concepts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_concepts(tmp_path_factory.mktemp("clusters") / "concepts", side=24)


@contextmanager
def serving(concepts: Path, database: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a review in a process of its own; give it and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(concepts), database, str(port)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait(url: str) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        try:
            httpx.get(f"{url}/readyz").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise AssertionError("the review did not start")


def reviewed(url: str, name: str, acknowledged: list[tuple[int, str]], most: int = 10_000) -> None:
    """Answer clusters until nothing is left, noting what was acknowledged."""
    with httpx.Client(base_url=url, headers={"X-Reviewer": name}, timeout=600) as client:
        for _ in range(most):
            try:
                sheet = client.post("/v1/next", json={}).raise_for_status().json()["cluster"]
                if sheet is None:
                    return
                client.post("/v1/votes", json=an_answer(sheet)).raise_for_status()
            except httpx.TransportError:
                return
            acknowledged.append((sheet["cluster_id"], name))


def votes_in(path: Path) -> list[tuple[int, str]]:
    with sqlite3.connect(path) as connection:
        return list(connection.execute("SELECT cluster_id, reviewer FROM votes"))


def test_kill_and_many_reviewers_over_two_processes_lose_no_vote(
    concepts: Path, tmp_path: Path
) -> None:
    path = tmp_path / "review.db"
    database = f"sqlite:///{path}"
    acknowledged: list[tuple[int, str]] = []
    with serving(concepts, database) as (first, one), serving(concepts, database) as (_, other):
        wait(one)
        wait(other)
        threads = [
            threading.Thread(target=reviewed, args=(url, f"{who}-{number}", acknowledged))
            for number, url in enumerate((one, other))
            for who in ("ann", "ben", "cat")
        ]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 20 and any(thread.is_alive() for thread in threads):
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        kept = votes_in(path)
        assert set(acknowledged) <= set(kept)
        # The process that was killed had clusters open: their places are kept, then free again.
        with serving(concepts, database) as (_, again):
            wait(again)
            with sqlite3.connect(path) as connection:
                connection.execute("DELETE FROM reservations")
            for name in ("dan", "eva", "fay"):
                reviewed(again, name, acknowledged)
    kept = votes_in(path)
    assert set(acknowledged) <= set(kept)
    # Three for every cluster, and never a fourth.
    assert set(Counter(cluster for cluster, _ in kept).values()) == {3}


def test_a_vote_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'review.db'}")
    with database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        # 2 is FULL: the log is synchronised at every commit.
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_write_that_fails_leaves_nothing_half_done(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'review.db'}")
    with pytest.raises(ZeroDivisionError), database.writing() as connection:
        connection.execute(tables.about.insert().values(name="half", value="done"))
        _ = 1 / 0
    with database.reading() as connection:
        assert connection.execute(tables.about.select()).all() == [("version", "1")]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "database"),
        ("sqlite://", "memory"),
        ("sqlite:////nowhere/at/all.db", "/nowhere/at/all.db"),
        ("nosuch://user:secret@host/db", "nosuch"),
    ],
)
def test_a_database_that_cannot_be_is_told_without_its_password(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        Database(url)
    assert "secret" not in str(error.value)


def test_a_database_of_another_version_is_left_alone(tmp_path: Path) -> None:
    url: Any = f"sqlite:///{tmp_path / 'review.db'}"
    Database(url).close()
    with sqlite3.connect(tmp_path / "review.db") as connection:
        connection.execute("UPDATE about SET value = '7'")
    with pytest.raises(ConfigError, match=r"review\.db .* 7, expected 1"):
        Database(url)
