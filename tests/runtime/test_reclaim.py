"""Machines that are taken away with a notice: by AWS's metadata service, or by SIGTERM."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from biovl.runtime.reclaim import METADATA_VARIABLE, SpotNotice, watch

ROOT = Path(__file__).parents[2]


NO_HTTP = b"neither status nor headers\n"


class Metadata(ThreadingHTTPServer):
    """The instance metadata service, version 2: who has no token is refused."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.tokens: list[str] = []
        self.action: bytes | None = None
        """Answer to spot/instance-action; None: there is no notice."""

    def interrupt(self, seconds: float = 120) -> None:
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        self.action = json.dumps(
            {"action": "terminate", "time": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
        ).encode()


class _Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.server.tokens.append(f"token-{len(self.server.tokens)}")
        self._send(200, self.server.tokens[-1].encode())

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] not in self.server.tokens[-1:]:
            self._send(401, b"")
        elif self.path != "/latest/meta-data/spot/instance-action" or self.server.action is None:
            self._send(404, b"")
        else:
            self._send(200, self.server.action)

    def _send(self, status: int, body: bytes) -> None:
        if body == NO_HTTP:
            self.wfile.write(body)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_notice_has_the_seconds_that_are_left(metadata: Metadata) -> None:
    notice = SpotNotice(metadata.address)
    assert notice.seconds_left() is None
    metadata.interrupt(120)
    left = notice.seconds_left()
    assert left is not None
    assert 60 < left <= 120
    metadata.interrupt(-5)
    assert notice.seconds_left() == 0


def test_the_service_is_not_asked_through_a_proxy(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    metadata.interrupt()
    assert SpotNotice(metadata.address).seconds_left() is not None


def test_a_token_that_is_no_longer_valid_is_replaced(metadata: Metadata) -> None:
    notice = SpotNotice(metadata.address)
    metadata.interrupt()
    assert notice.seconds_left() is not None
    metadata.tokens.append("another")
    assert notice.seconds_left() is None
    assert notice.seconds_left() is not None


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"time": "soon"}', b"<html>"])
def test_an_answer_that_cannot_be_read_is_no_notice(metadata: Metadata, answer: bytes) -> None:
    metadata.action = answer
    with pytest.raises(ValueError, match=r"time|Expecting|list"):
        SpotNotice(metadata.address).seconds_left()


def test_a_drain_that_fails_is_tried_again_and_a_silent_service_is_asked_more_rarely(
    metadata: Metadata,
) -> None:
    pauses, drained = list[float](), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        metadata.action = (b"<html>", NO_HTTP)[len(pauses) % 2] if len(pauses) < 6 else None
        if len(pauses) > 7:
            metadata.interrupt()

    def drain(seconds: float) -> None:
        drained.append(seconds)
        if len(drained) < 3:
            raise RuntimeError("the head does not answer")

    watch(SpotNotice(metadata.address), drain, every_s=5, sleep=sleep)
    assert pauses == [5, 10, 20, 30, 30, 30, 5, 5, 5, 5]
    assert len(drained) == 3


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without CPUs, and one machine that can be taken away."""
    # Ray writes down there which cluster is the newest, and whoever starts joins it. Paths of
    # sockets must be short.
    own = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    monkeypatch.setenv("RAY_TMPDIR", own)
    # Machines inherit it. ``connect_ray`` turned the watcher off for this process's own Ray.
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "1")
    monkeypatch.setenv("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", "0.5")
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "100")
    before = signal.getsignal(signal.SIGTERM)
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    found.add_node(num_cpus=2)
    yield found
    found.shutdown()
    # Ray's nodes in this process take its SIGTERM for theirs.
    signal.signal(signal.SIGTERM, before)
    shutil.rmtree(own, ignore_errors=True)


@pytest.mark.ray
def test_training_saves_before_its_machine_is_taken_away_and_resumes_on_another(
    cluster: Cluster, metadata: Metadata, sample_corpus: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "RAY_ADDRESS": cluster.address,
        METADATA_VARIABLE: metadata.address,
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}:{os.environ['PYTHONPATH']}",
    }
    settings = {
        "corpus": sample_corpus,
        "out": tmp_path / "model",
        "epochs": 2_000,
        "workers.count": 1,
    }
    changes = {**settings, "save.every_steps": 10_000_000, "validation.every_epochs": 2_000}
    pretrain = [sys.executable, "-m", "biovl", "pretrain", "tiny"]
    for name, value in changes.items():
        pretrain += ["--set", f"{name}={value}"]

    with ExitStack() as stack:

        def start(command: Sequence[str]) -> subprocess.Popen[str]:
            started = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(started.wait)
            stack.callback(started.kill)
            return started

        lines = _Lines(start(pretrain))
        (node,) = cluster.worker_nodes
        agent = [sys.executable, "-m", "biovl.runtime.reclaim", "--every", "0.2"]
        watching = start([*agent, "--node-id", node.node_id])
        lines.wait_for(" loss ")
        metadata.interrupt()
        assert watching.wait() == 0
        lines.wait_for("a node is about to be preempted")

        # The next machine has its notice by SIGTERM, as a container of Kubernetes.
        cluster.remove_node(node, allow_graceful=False)
        options = ("--address", cluster.address, "--num-cpus", "2", "--block")
        machine = start([str(Path(sys.executable).with_name("ray")), "start", *options])
        lines.wait_for("resumes from step")
        lines.wait_for(" loss ")
        machine.terminate()
        lines.wait_for("a node is about to be preempted")


class _Lines:
    """The output of a process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._seen = process, list[str]()

    def wait_for(self, text: str) -> None:
        """Read up to a line with this text."""
        assert self._process.stdout is not None
        limit = threading.Timer(300, self._process.kill)
        limit.start()
        try:
            for line in self._process.stdout:
                self._seen.append(line)
                if text in line:
                    return
        finally:
            limit.cancel()
        raise AssertionError(f"{text!r} was not said:\n{''.join(self._seen)}")
