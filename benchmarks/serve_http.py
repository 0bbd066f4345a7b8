"""Requests a second: Ray Serve, plain uvicorn, in process, and clip-retrieval's back end.

Services are processes of their own, the load another; CPU is that of all processes below a service,
children included. All see the same texts over the same connections, in rounds one after the other,
and ratios are of one round: on a shared machine the next minute is another machine.
"""

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from pretrain_report import Table, median
from serve_index import goal
from serve_load import new_text
from serve_world import SETTINGS, WORDS, publish_index, publish_model

from biovl.index.query import Query, QueryPart
from biovl.index.search import Index
from biovl.models.encoder import load

HERE = Path(__file__).parent
K = 10
CONCURRENCIES = (1, 8, 32)
THREADS = 1
"""Of Torch in every process: that one of them has more is no merit of its server."""
_START_S = 180
_TICKS = os.sysconf("SC_CLK_TCK")
_OF_HITS = ("figure_id", "caption", "title", "journal", "license", "url", "article_id")
"""What clip-retrieval is to return of each result, beside its score."""


@dataclass
class Service:
    """A service that runs, and how it is asked."""

    name: str
    pid: int
    port: int
    path: str = "/v1/search"
    body: dict[str, Any] | None = None

    def load(self, seconds: float, seed: int, **how: Any) -> dict[str, Any]:
        """Return what one load found: requests a second, times, statuses and CPU a request.

        Another seed is other texts; what a service has seen it may remember.
        """
        asked = {
            "port": self.port,
            "path": self.path,
            "body": self.body or {"k": K},
            "words": WORDS,
            "seed": seed,
            "seconds": seconds,
            **how,
        }
        before = cpu_s(self.pid)
        done = subprocess.run(
            [sys.executable, str(HERE / "serve_load.py"), json.dumps(asked)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60 + 4 * seconds,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        # Of all, those before times count included.
        found["cpu_ms"] = (cpu_s(self.pid) - before) / max(1, found["answered"]) * 1e3
        return found


def http(
    quick: bool, cache: Path, rounds: int, clip_retrieval: str | None, only: str
) -> dict[str, Any]:
    """Measure text search over HTTP with a large model, a tiny one, and beside clip-retrieval."""
    count, seconds = (20_000, 2.0) if quick else (200_000, 5.0)
    cache = cache.resolve()
    found: dict[str, Any] = {}
    for size in ("large", "tiny"):
        if only and size not in only:
            continue
        model = publish_model(cache / f"model-{size}", size)
        index = publish_index(cache / f"published-{size}-{count}", model, count, cache)
        asked = {"model": str(model), "index": str(index)}
        measure = _large if size == "large" else _tiny
        found[size] = measure(asked, seconds, rounds, cache, clip_retrieval)
    return found


# --- the large model -----------------------------------------------------------------------------


def _large(
    asked: dict[str, Any], seconds: float, rounds: int, cache: Path, _: str | None
) -> dict[str, Any]:
    """Ray Serve beside the same encoder and index in a loop of this process."""
    table = Table("Text search, ViT-B/16 + BERT-base: Ray Serve (HAProxy) / in process", _COLUMNS)
    ratios, cpu_ratios, found = [], [], {"rounds": []}
    seconds *= 2
    with started("serve", asked | {"ha": True}) as service:
        warm(service)
        alone = InProcess(asked)
        for number in range(rounds):
            loop = alone.run(seconds, batch=32)
            for concurrency in CONCURRENCIES if number == 0 else CONCURRENCIES[-1:]:
                one = service.load(
                    seconds, seed=100 * number + concurrency, concurrency=concurrency, warm_s=3
                )
                _row(table, f"Ray Serve, {concurrency} at once", one)
            table.row(
                "in process, batches of 32", f"{loop['per_s']:.1f}", "", "", f"{loop['cpu_ms']:.2f}"
            )
            ratios.append(one["per_s"] / loop["per_s"])
            cpu_ratios.append(loop["cpu_ms"] / one["cpu_ms"])
            found["rounds"].append({"serve_32": one, "in_process": loop})
        rate = 0.5 * median([each["serve_32"]["per_s"] for each in found["rounds"]])
        _open(table, "Ray Serve", service, found, seconds, rate)
    goals = Table("Goals of HTTP, large model", ("goal", "bar", "measured", "verdict"))
    goal(goals, "Serve / in process, requests a second at 32", median(ratios), least=0.9)
    goals.row("in process / Serve, CPU of a request at 32", "", f"{median(cpu_ratios):.3f}")
    return {**found, "ratios": ratios, "cpu_ratios": cpu_ratios}


class InProcess:
    """The encoder and the index of a service, without any."""

    def __init__(self, asked: dict[str, Any]) -> None:
        torch.set_num_threads(THREADS)
        self._encoder = load(asked["model"])
        self._index = Index.open(asked["index"])
        self._random = random.Random(0)

    def run(self, seconds: float, batch: int) -> dict[str, float]:
        """Return requests a second of a loop: tokens and vectors by the batch, then searches."""
        begun, cpu, done = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begun < seconds:
            texts = [new_text(self._random, WORDS) for _ in range(batch)]
            for vector_D in self._encoder.embed_tokens(self._encoder.preparation.encode(texts)):
                query = Query(parts=(QueryPart(vector_D=vector_D, kind="text"),), k=K)
                self._index.search(query)
            done += batch
        return {
            "per_s": done / (time.perf_counter() - begun),
            "cpu_ms": (time.process_time() - cpu) / done * 1e3,
        }


# --- the tiny model ------------------------------------------------------------------------------


def _tiny(
    asked: dict[str, Any], seconds: float, rounds: int, cache: Path, clip_retrieval: str | None
) -> dict[str, Any]:
    """Ray Serve, the application under uvicorn and one written by hand; and clip-retrieval."""
    found: dict[str, Any] = {"rounds": []}
    with contextlib.ExitStack() as stack:
        services = {
            "Ray Serve": stack.enter_context(started("serve", asked | {"ha": True})),
            "uvicorn, our application": stack.enter_context(started("app", asked)),
            "uvicorn, by hand": stack.enter_context(started("plain", asked)),
        }
        if clip_retrieval:
            services["clip-retrieval"] = stack.enter_context(
                _clip_back(asked, cache, clip_retrieval)
            )
        for service in services.values():
            warm(service)
        table = Table(f"Text search, tiny model, k = {K}: in turn, {rounds} rounds", _COLUMNS)
        for number in range(rounds):
            results: dict[str, dict[str, Any]] = {}
            for concurrency in CONCURRENCIES:
                for name, service in services.items():
                    one = service.load(
                        seconds,
                        seed=100 * number + concurrency,
                        concurrency=concurrency,
                        warm_s=0.3,
                    )
                    results[f"{name} {concurrency}"] = one
                    _row(table, f"{name}, {concurrency} at once", one)
            found["rounds"].append(results)
        hand = [each["uvicorn, by hand 32"]["per_s"] for each in found["rounds"]]
        for name in ("Ray Serve", "uvicorn, by hand"):
            _open(table, name, services[name], found, seconds, 0.3 * median(hand))
        own = median([each["Ray Serve 32"]["per_s"] for each in found["rounds"]])
        _open(table, "Ray Serve", services["Ray Serve"], found, seconds, 3 * own)
        found["overload"] = found.pop(f"Ray Serve at {3 * own:.0f}")
        found["swaps"] = _swaps(table, services["Ray Serve"], asked["index"], 2 * seconds)
    _tiny_goals(found)
    return found


def _tiny_goals(found: dict[str, Any]) -> None:
    def over(one: str, other: str, value: str = "per_s") -> float:
        """Return the median ratio at 32."""
        return median(
            [each[f"{one} 32"][value] / each[f"{other} 32"][value] for each in found["rounds"]]
        )

    serve, own, hand = "Ray Serve", "uvicorn, our application", "uvicorn, by hand"
    goals = Table("Goals of HTTP, tiny model, 32 at once", ("goal", "bar", "measured", "verdict"))
    goal(goals, "Serve / uvicorn by hand, requests a second", over(serve, hand), least=0.6)
    goal(goals, "Serve / uvicorn by hand, CPU of a request", over(serve, hand, "cpu_ms"), most=2)
    found["serve_over_hand"] = over(serve, hand)
    found["own_over_hand"] = over(own, hand)
    found["serve_over_own"] = over(serve, own)
    goals.row("our application / by hand, under uvicorn", "", f"{found['own_over_hand']:.3f}")
    goals.row("Serve / uvicorn, our application", "", f"{found['serve_over_own']:.3f}")
    failed = sum(n for status, n in found["swaps"]["statuses"].items() if status != "200")
    goal(goals, "requests failed while indexes were exchanged", float(failed), most=0)
    calm = median([each[f"{serve} 8"]["p99_ms"] for each in found["rounds"]])
    goal(goals, "p99 while exchanged / before, 8 at once", found["swaps"]["p99_ms"] / calm, most=2)
    said = found["overload"]["statuses"].items()
    other = sum(n for status, n in said if status not in ("200", "429", "503"))
    goal(goals, "at 3 times the load, neither 200, 429 nor 503", float(other), most=0)
    peer = "clip-retrieval"
    if f"{peer} 32" in found["rounds"][0]:
        found["serve_over_clip_retrieval"] = over(serve, peer)
        goal(goals, "Serve / clip-retrieval, requests a second", over(serve, peer), least=2)
        goals.row(
            "clip-retrieval / Serve, CPU of a request", "", f"{over(peer, serve, 'cpu_ms'):.2f}"
        )


@contextlib.contextmanager
def _clip_back(asked: dict[str, Any], cache: Path, python: str) -> Iterator[Service]:
    own = {
        "folder": str(cache / f"clip-back-{Path(asked['index']).name}"),
        "nprobe": SETTINGS["nprobe"],
        "columns": list(_OF_HITS),
    }
    with started("clip_back", asked | own, python=python, ready="/indices-list") as service:
        service.path = "/knn-service"
        service.body = {"modality": "image", "num_images": K, "indice_name": "it"}
        yield service


# --- both ----------------------------------------------------------------------------------------

_COLUMNS = ("service and load", "req/s", "p50 ms", "p99 ms", "CPU ms/req", "kB", "not 200")


def _row(table: Table, name: str, one: dict[str, Any]) -> None:
    bad = {status: n for status, n in one["statuses"].items() if str(status) != "200"}
    table.row(
        name,
        f"{one['per_s']:.1f}",
        f"{one['p50_ms']:.1f}",
        f"{one['p99_ms']:.1f}",
        f"{one['cpu_ms']:.2f}",
        f"{one['answer_bytes'] / 1e3:.1f}",
        " ".join(f"{status}: {n}" for status, n in bad.items()),
    )


def _open(
    table: Table,
    name: str,
    service: Service,
    found: dict[str, Any],
    seconds: float,
    rate: float,
) -> None:
    """Load a service at a fixed rate."""
    one = service.load(seconds, seed=10**7 + round(rate), rate=rate, warm_s=0.3)
    found[f"{name} at {rate:.0f}"] = {**one, "rate": rate}
    _row(table, f"{name}, {rate:.0f} due a second", one)


def _swaps(table: Table, service: Service, index: str, seconds: float) -> dict[str, Any]:
    """Exchange the index for another of the same figures, and back, under load."""
    other = Path(f"{index}-again")
    if not other.exists():
        shutil.copytree(index, other, copy_function=os.link)
        manifest = json.loads((other / "manifest.json").read_bytes())
        (other / "manifest.json").unlink()
        (other / "manifest.json").write_text(json.dumps({**manifest, "config": {"again": True}}))
    found: dict[str, Any] = {}
    load = threading.Thread(
        target=lambda: found.update(service.load(seconds, seed=10**8, concurrency=8))
    )
    load.start()
    swaps = 0
    while load.is_alive():
        load.join(0.5)
        request = urllib.request.Request(
            f"http://127.0.0.1:{service.port}/v1/admin/reload",
            json.dumps({"index": [str(other), index][swaps % 2]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60):
            swaps += 1
    _row(table, f"Ray Serve, 8 at once, {swaps} indexes exchanged", found)
    return {**found, "swaps": swaps}


@contextlib.contextmanager
def started(
    kind: str, asked: dict[str, Any], *, python: str = sys.executable, ready: str = "/readyz"
) -> Iterator[Service]:
    """Start a service, wait until it answers, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    # Not a pipe: services write a line for each request, and nobody would read it.
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [python, str(HERE / "serve_servers.py"), kind, json.dumps({**asked, "port": port})],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
        ) as process,
    ):
        try:
            _await_ready(process, said, f"http://127.0.0.1:{port}{ready}")
            yield Service(name=kind, pid=process.pid, port=port)
        finally:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_ready(process: "subprocess.Popen[bytes]", said: IO[bytes], url: str) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            said.seek(0)
            text = said.read().decode(errors="replace")[-3_000:]
            raise RuntimeError(f"a service ended before it answered:\n{text}")
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(url, timeout=5),
        ):
            return
        time.sleep(0.5)
    raise RuntimeError(f"a service did not answer within {_START_S} s")


def warm(service: Service) -> None:
    """Ask a few things first."""
    first = service.load(1.0, seed=10**6, concurrency=8)
    if not first["statuses"].get("200"):
        raise RuntimeError(f"{service.name} answers {first['statuses']}")


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of all below it, those that ended included."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold spaces.
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.name))
                times[int(path.name)] = sum(map(int, fields[11:15])) / _TICKS
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        total += times.get(one, 0.0)
        waiting += children.get(one, [])
    return total
