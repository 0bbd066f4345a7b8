"""The shipped ``serve/config.yaml``, deployed as it is but for the model and the index."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from serve.search.settings import Settings
from tests.serve.search.published import publish_index, publish_model

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "serve" / "config.yaml"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass(frozen=True)
class Deployed:
    """Addresses of what was deployed."""

    address: str
    ports: dict[str, int]
    """``http``, ``stats`` and ``metrics``."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("deployed")
    model = publish_model(folder / "model", seed=1)
    index = publish_index(folder / "index", model)
    http, stats, metrics = free_ports(3)
    config = yaml.safe_load(CONFIG.read_text())
    config["applications"][0]["args"] |= {"model": str(model), "index": str(index)}
    # The own machine may have others on the usual ports.
    config["http_options"]["port"] = http
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    # What the shipped cluster files set when Ray is started.
    lines = (ROOT / "cluster-local.yaml").read_text()
    shipped = dict(re.findall(r"(RAY_\w+)=(\"[^\"]*\"|\S+)", lines))
    set_there = {name: value.strip('"') for name, value in shipped.items() if "SERVE" in name}
    assert set_there["RAY_SERVE_HAPROXY_BINARY_PATH"].endswith("/biovl/serve/haproxy")
    with tempfile.TemporaryDirectory(prefix="haproxy-", dir="/tmp") as short:
        own = {
            "RAY_SERVE_HAPROXY_BINARY_PATH": str(ROOT / "serve" / "haproxy"),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(stats),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{short}/haproxy.cfg",
            "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{short}/admin.sock",
            "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{short}/metrics.sock",
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": short,
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{short}/server-state",
            "RAY_AUTH_MODE": "disabled",
            # How long a replica waits for what HAProxy may still send: at the end, nothing.
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}:{os.environ['PYTHONPATH']}",
        }
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(
                [
                    sys.executable,
                    ROOT / "tests/serve/search/deployed_config.py",
                    folder / "config.yaml",
                ],
                env={**os.environ, **set_there, **own},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            assert process.stdin is not None
            said = process.stdout.readline().strip()
            assert said == "running", said + (folder / "log").read_text()[-5_000:]
            yield Deployed(
                f"http://127.0.0.1:{http}", {"http": http, "stats": stats, "metrics": metrics}
            )
            process.stdin.close()
            process.wait(120)


@pytest.mark.ray
def test_the_shipped_file_starts_and_refuses_everybody_until_there_are_keys(
    deployed: Deployed,
) -> None:
    with httpx.Client(base_url=deployed.address, timeout=600) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 200, ready.text
        assert ready.json() == {"ready": True, "reasons": [], "warnings": []}
        for headers in ({}, {"Authorization": "Bearer biovl_guess"}):
            assert client.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.ray
def test_numbers_of_haproxy_are_for_its_own_machine(deployed: Deployed) -> None:
    for name in ("stats", "metrics"):
        listening = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                address, port = local.split(":")
                if state == "0A" and int(port, 16) == deployed.ports[name]:
                    listening.add(address)
        # 127.0.0.1, as the kernel writes it.
        assert listening == {"0100007F"}, name


@pytest.mark.ray
def test_a_client_that_never_ends_its_headers_is_let_go(deployed: Deployed) -> None:
    with socket.create_connection(("127.0.0.1", deployed.ports["http"])) as slow:
        slow.settimeout(120)
        slow.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        answer = slow.recv(65_536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


@pytest.mark.ray
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_to_upgrade_is_answered_as_any_other(deployed: Deployed, method: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = httpx.request(
        method, f"{deployed.address}/v1/search", headers=upgrade, content=b"{}", timeout=600
    )
    assert answer.status_code == 401, answer.text


def test_every_path_of_the_shipped_file_can_be_had_on_a_new_node() -> None:
    args = yaml.safe_load(CONFIG.read_text())["applications"][0]["args"]
    settings = Settings.model_validate(args)
    assert settings.auth.keys_file is None
    assert settings.auth.keys == ()
    # A folder of the user's own, whoever that is.
    assert settings.cache_folder is not None
    assert settings.cache_folder.startswith("~/")
    absolute = re.findall(r"\"(/[^\"]*)\"", json.dumps(args))
    assert absolute == []
