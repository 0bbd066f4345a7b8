"""The service on a real Ray Serve: it answers as the model in process, whatever dies or changes."""

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from biovl.client import Client
from biovl.core import artifacts
from biovl.core.errors import ConfigError
from biovl.models import encoder
from serve.search.api import http_api
from serve.search.local import LocalEngine
from serve.search.settings import Settings
from tests.index.test_copies import flip_bit
from tests.serve.search.published import a_picture, publish_index, publish_model

# What Ray itself warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")

PICTURE = base64.b64encode(a_picture(3)).decode()


def version(folder: Path) -> str:
    return artifacts.fingerprint(str(folder))[:12]


@dataclass(frozen=True)
class Served:
    """A model and an index of it."""

    model: Path
    index: Path

    @property
    def named(self) -> str:
        return f"{self.model.name}@{version(self.model)}"

    def best_score(self, texts: list[str]) -> np.ndarray:
        """Return for each text the product with the nearest of all pictures. Shape [N]."""
        images_ND = np.load(self.index / "images.f16.npy").astype(np.float32)
        scores: np.ndarray = encoder.load(str(self.model)).embed_texts(texts) @ images_ND.T
        return scores.max(axis=1)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    """A model and its index, another index of the same model, and another model and its index."""
    folder = tmp_path_factory.mktemp("published")
    one, other = (publish_model(folder / f"model-{seed}", seed=seed) for seed in (1, 2))
    indexes = {"first": one, "second": one, "third": other}
    return [
        Served(model, publish_index(folder / name, model, figures=40 + 10 * number))
        for number, (name, model) in enumerate(indexes.items())
    ]


@pytest.fixture(scope="module")
def address(ray_session: None) -> Iterator[str]:
    """Serve, bound to this machine."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


def deploy(served: Served, **settings: Any) -> None:
    from ray import serve

    from serve.app import build

    cpus = {f"replicas.{name}_cpus": 0.1 for name in ("http", "encoder", "search")}
    folders = {"model": str(served.model), "index": str(served.index)}
    app = build({**folders, **cpus, "poll_s": 0.2, "log_format": "text", **settings})
    serve.run(app, name="biovl", route_prefix="/")


@pytest.fixture(scope="module")
def split(address: str, published: list[Served]) -> str:
    """Two encoders and two indexes behind one gateway."""
    deploy(published[0], layout="split", **{"replicas.encoder": 2, "replicas.search": 2})
    return address


async def answers_of(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return what each endpoint answers, but what no two answers have in common."""
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    found: dict[str, Any] = {}
    for path, body in (
        ("/v1/search", {"text": "a liver", "k": 5}),
        ("/v1/search", {"text": "picture of number 7", "words": True, "over": ["captions"]}),
        ("/v1/search", {"image": PICTURE, "k": 5, "filter": {"license_group": ["commercial"]}}),
        ("/v1/search", {"figure_id": "first_3", "k": 50}),
        ("/v1/classify", {"image": PICTURE, "classes": ["a liver", "a bone", "a cell"]}),
        ("/v1/embeddings", {"input": [*(f"figure {n}" for n in range(24)), part]}),
        ("/v1/proxy", {"image": PICTURE, "classes": ["picture", "liver"]}),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        own = answer.json()
        found[f"{path} {sorted(body)}"] = own
        for name in ("request_id", "timings_ms"):
            own.pop(name, None)
        # Signed with the settings.
        own["next_cursor"] = own.get("next_cursor") is not None
    for path in ("first_5", "first_5/image", "first_5/thumbnail", "nobody"):
        answer = await client.get(f"/v1/figures/{path}")
        is_file = answer.headers["content-type"].startswith("image/")
        found[path] = answer.content if is_file else answer.json().get("figure", answer.status_code)
    facets = await client.get("/v1/facets")
    return {**found, "facets": facets.json()}


def in_process(served: Served) -> dict[str, Any]:
    """Return the same of one process without Ray."""

    async def ask() -> dict[str, Any]:
        settings = Settings(model=str(served.model), index=str(served.index))
        engine = LocalEngine(settings)
        await engine.start()
        local = httpx.ASGITransport(http_api(settings, engine), client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
            found = await answers_of(client)
        await engine.close()
        return found

    return asyncio.run(ask())


def over_http(address: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=address, timeout=600) as client:
            return await answers_of(client)

    return asyncio.run(ask())


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Compare answers; floats as near as another batch leaves them."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_same(found[name], value, f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, value in enumerate(expected):
            assert_same(found[number], value, f"{where}.{number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-5), where
    else:
        assert found == expected, where


Answers = list[tuple[str, httpx.Response | httpx.TransportError]]


async def under_load(
    address: str, meanwhile: Callable[[httpx.AsyncClient, Answers], Awaitable[None]]
) -> Answers:
    """Return (text, answer) of all searches made while something happens that sees them."""
    answers: Answers = []
    # Each text once: none is remembered.
    numbers = itertools.count()
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:
        happening = asyncio.create_task(meanwhile(client, answers))

        async def ask() -> None:
            while not happening.done():
                text = f"a figure of number {next(numbers)}"
                try:
                    answer = await client.post("/v1/search", json={"text": text, "k": 5})
                except httpx.TransportError as error:
                    answers.append((text, error))
                else:
                    answers.append((text, answer))

        await asyncio.gather(*(ask() for _ in range(8)))
        await happening
    return answers


async def answered_by(index: str, answers: Answers) -> None:
    """Return when a search has been answered from an index since this was called."""
    deadline, first = time.monotonic() + 600, len(answers)
    while not any(
        isinstance(answer, httpx.Response)
        and answer.status_code == 200
        and answer.json()["index"] == index
        for _, answer in answers[first:]
    ):
        assert time.monotonic() < deadline, failed(answers)[:3]
        await asyncio.sleep(0.05)


def failed(answers: list[tuple[str, Any]]) -> list[str]:
    return [
        f"{answer.status_code} {answer.text[:200]}" if hasattr(answer, "text") else repr(answer)
        for _, answer in answers
        if getattr(answer, "status_code", 0) != 200
    ]


def check(answers: list[tuple[str, Any]], among: list[Served]) -> list[str]:
    """See that each came of one model and its own index alone; return which indexes answered."""
    expected = {version(one.index): one for one in among}
    by_index: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for text, answer in answers:
        if getattr(answer, "status_code", 0) == 200:
            by_index.setdefault(answer.json()["index"], []).append((text, answer.json()))
    for index, found in by_index.items():
        own = expected[index]
        assert {body["model"] for _, body in found} == {own.named}
        for _, body in found:
            assert len(body["results"]) == 5
            assert all(hit["figure_id"].startswith(own.index.name) for hit in body["results"])
        scores = [body["results"][0]["score"] for _, body in found]
        np.testing.assert_allclose(scores, own.best_score([text for text, _ in found]), atol=2e-3)
    return sorted(expected[index].index.name for index in by_index)


def processes(name: str) -> list[int]:
    """Return the processes of replicas."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(f"ray::ServeReplica:biovl:{name}".encode()):
                found.append(int(path.parent.name))
    return found


def killing(*names: str) -> Callable[[httpx.AsyncClient, Answers], Awaitable[None]]:
    """Kill a replica of each, one after the other, while each asker is answered some times."""

    async def kill(_: httpx.AsyncClient, answers: Answers) -> None:
        async def more(count: int) -> None:
            until = len(answers) + count
            while len(answers) < until:
                await asyncio.sleep(0.05)

        await more(16)
        for name in names:
            os.kill(processes(name)[0], signal.SIGKILL)
            await more(64)

    return kill


def wait_for_two(*names: str) -> None:
    """Wait until there are two replicas of each."""
    deadline = time.monotonic() + 600
    while any(len(processes(name)) < 2 for name in names):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.ray
def test_deployments_apart_answer_as_one_process(split: str, published: list[Served]) -> None:
    assert_same(over_http(split), in_process(published[0]))
    ready = httpx.get(f"{split}/readyz", timeout=600)
    assert ready.status_code == 200, ready.text


@pytest.mark.ray
def test_no_request_is_lost_when_replicas_behind_are_killed(
    split: str, published: list[Served]
) -> None:
    wait_for_two("Encoder", "Search")
    answers = asyncio.run(under_load(split, killing("Encoder", "Search")))
    assert not failed(answers)
    assert check(answers, published[:1]) == ["first"]


@pytest.mark.ray
def test_no_request_fails_while_models_and_indexes_are_exchanged(
    split: str, published: list[Served]
) -> None:
    first, second, third = published

    async def exchange(client: httpx.AsyncClient, answers: Answers) -> None:
        await answered_by(version(first.index), answers)
        for one, wanted in (
            (second, {"index": str(second.index)}),
            (third, {"model": str(third.model), "index": str(third.index)}),
            (first, {"model": str(first.model), "index": str(first.index)}),
        ):
            answer = await client.post("/v1/admin/reload", json=wanted)
            assert answer.status_code == 200, answer.text
            assert answer.json()["index"]["version"] == version(one.index)
            assert answer.json()["model"]["version"] == version(one.model)
            await answered_by(version(one.index), answers)

    answers = asyncio.run(under_load(split, exchange))
    assert not failed(answers)
    assert check(answers, published) == ["first", "second", "third"]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"model": "/nowhere"}, "/nowhere has no manifest.json"),
        ({"index": "third"}, "is an index of the model"),
    ],
)
def test_what_cannot_be_served_is_refused_and_nothing_changes(
    split: str, published: list[Served], wanted: dict[str, str], reason: str
) -> None:
    if wanted.get("index"):
        wanted = {"index": str(published[2].index)}
    before = httpx.get(f"{split}/v1/models", timeout=600).json()
    answer = httpx.post(f"{split}/v1/admin/reload", json=wanted, timeout=600)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert httpx.get(f"{split}/v1/models", timeout=600).json() == before


def reload_after_a_failed_one(address: str, published: list[Served], folder: Path) -> None:
    """Request an index with one damaged bit, a good one, and the first again."""
    first, second, _ = published
    shutil.copytree(second.index, folder / "damaged")
    flip_bit(folder / "damaged" / "thumbnails.bin", 1_000)
    with httpx.Client(base_url=address, timeout=600) as client:

        def reload(index: Path) -> httpx.Response:
            return client.post("/v1/admin/reload", json={"index": str(index)})

        for _ in range(2):
            refused = reload(folder / "damaged")
            assert refused.status_code == 422, refused.text
            assert "thumbnails.bin is damaged" in refused.json()["detail"]
        # Replicas learn it when they ask next what is wanted.
        deadline = time.monotonic() + 600
        warnings: list[str] = []
        while not any("thumbnails.bin is damaged" in line for line in warnings):
            assert time.monotonic() < deadline, warnings
            ready = client.get("/readyz")
            assert ready.status_code == 200
            warnings = ready.json()["warnings"]
        for one in (second, first):
            answer = reload(one.index)
            assert answer.status_code == 200, answer.text
            assert answer.json()["index"]["version"] == version(one.index)
            found = client.post("/v1/search", json={"text": "a liver", "k": 1}).json()
            assert found["index"] == version(one.index)
        until = time.monotonic() + 600
        # Each replica learns of it within its poll.
        while client.get("/readyz").json()["warnings"]:
            assert time.monotonic() < until


@pytest.mark.ray
def test_after_a_failed_reload_the_next_is_served_where_deployments_are_apart(
    split: str, published: list[Served], tmp_path: Path
) -> None:
    reload_after_a_failed_one(split, published, tmp_path)


@pytest.fixture(scope="module")
def fused(address: str, published: list[Served]) -> str:
    """Two processes that do all."""
    deploy(published[0], **{"replicas.http": 2})
    return address


@pytest.mark.ray
def test_one_process_on_serve_answers_as_without(fused: str, published: list[Served]) -> None:
    assert_same(over_http(fused), in_process(published[0]))


@pytest.mark.ray
def test_both_processes_exchange_models_and_indexes_together(
    fused: str, published: list[Served]
) -> None:
    async def exchange(client: httpx.AsyncClient, answers: Answers) -> None:
        await answered_by(version(published[0].index), answers)
        for one in (published[2], published[0]):
            wanted = {"model": str(one.model), "index": str(one.index)}
            answer = await client.post("/v1/admin/reload", json=wanted)
            assert answer.status_code == 200, answer.text
            await answered_by(version(one.index), answers)

    answers = asyncio.run(under_load(fused, exchange))
    assert not failed(answers)
    assert check(answers, published) == ["first", "third"]


@pytest.mark.ray
def test_after_a_failed_reload_the_next_is_served_where_one_process_does_all(
    fused: str, published: list[Served], tmp_path: Path
) -> None:
    reload_after_a_failed_one(fused, published, tmp_path)


@pytest.mark.ray
def test_what_is_in_a_killed_ingress_is_lost_and_a_client_asks_again(
    fused: str, published: list[Served]
) -> None:
    found: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        with Client(fused) as client:
            while not stop.is_set():
                found.append(client.search("a liver", k=3)["results"][0]["figure_id"])

    with contextlib.ExitStack() as stack:
        from concurrent.futures import ThreadPoolExecutor

        threads = stack.enter_context(ThreadPoolExecutor(4))
        asking = [threads.submit(ask) for _ in range(4)]
        try:
            answers = asyncio.run(under_load(fused, killing("Service")))
        finally:
            stop.set()
        for one in asking:
            one.result()
    # Each of eight asks one at a time, and Serve may send a few more to what it does not know dead.
    assert len(failed(answers)) <= 16, failed(answers)[:3]
    assert all(getattr(answer, "status_code", 0) == 200 for _, answer in answers[-8:])
    assert check(answers, published[:1]) == ["first"]
    assert len(set(found)) == 1


@contextlib.contextmanager
def nginx(before: str, folder: Path, **changes: str) -> Iterator[str]:
    """Put nginx before a service, with the settings that we give; what it says is in ``said``."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx")
    settings = (Path(__file__).parents[3] / "serve" / "nginx.conf").read_text()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = settings.replace("127.0.0.1:8000", before.removeprefix("http://"))
    settings = settings.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    for name, value in changes.items():
        settings = re.sub(rf"\b{name} [^;]*;", f"{name} {value};", settings)
    (folder / "nginx.conf").write_text(settings)
    # As root it would give its work to a user who may not see this folder.
    command = [program, "-p", str(folder), "-c", "nginx.conf", "-g", "daemon off; user root;"]
    said = folder / "said"
    with said.open("w") as stream, subprocess.Popen(command, stderr=stream) as process:
        until = time.monotonic() + 600
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.ray
def test_behind_nginx_no_request_is_lost_when_an_ingress_is_killed(
    fused: str, published: list[Served], tmp_path: Path
) -> None:
    wait_for_two("Service")
    with nginx(fused, tmp_path) as front:
        answers = asyncio.run(under_load(front, killing("Service")))
    assert not failed(answers)
    assert check(answers, published[:1]) == ["first"]


@pytest.mark.ray
@pytest.mark.parametrize("changes", [{}, {"client_body_buffer_size": "1k"}])
def test_nginx_writes_no_private_image_to_disk(
    fused: str, tmp_path: Path, changes: dict[str, str]
) -> None:
    image = a_picture(3, size=(900, 900))
    assert len(image) > 2_000_000
    with nginx(fused, tmp_path, **changes) as front:
        answer = httpx.post(
            f"{front}/v1/proxy", content=image, headers={"Content-Type": "image/png"}, timeout=600
        )
    assert answer.status_code == 200, answer.text
    # With a small buffer it does, and says so.
    assert ("to a temporary file" in (tmp_path / "said").read_text()) == bool(changes)


def test_settings_of_a_command_line_have_dots() -> None:
    from serve.app import settings_of

    settings = settings_of(
        {"model": "m", "limits.k_max": "500", "replicas.http": "[1, 4]", "proxy": "false"}
    )
    assert settings.limits.k_max == 500
    assert settings.replicas.http == (1, 4)
    assert settings.proxy is False


def test_paths_mean_the_same_in_the_working_folder_of_a_replica(
    published: list[Served], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from serve.app import build

    own = published[0]
    key = f"{{name: alice, sha256: {'a' * 64}, scopes: [search]}}"
    (tmp_path / "keys.yaml").write_text(f"keys: [{key}]")
    monkeypatch.chdir(own.model.parent)
    paths = {"model": own.model.name, "index": own.index.name, "corpus": "first-corpus"}
    app = build({**paths, "auth.keys_file": os.path.relpath(tmp_path / "keys.yaml")})
    plain = app._bound_deployment.init_args[0]
    assert {name: plain[name] for name in paths} == {
        name: str(own.model.parent / path) for name, path in paths.items()
    }
    assert plain["auth"]["keys_file"] == str(tmp_path / "keys.yaml")
    assert plain["cache_folder"] is None


def test_every_wrong_setting_is_named() -> None:
    from serve.app import build

    with pytest.raises(ConfigError) as caught:
        build({"limits.k_max": "many", "limit.k_max": 5})
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert any(line.startswith("  model: ") for line in lines)
    assert any(line.startswith("  limits.k_max: ") and "'many'" in line for line in lines)
    assert any(line.startswith("  limit: Extra inputs") for line in lines)


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.7", False),
        ("example.org", False),
    ],
)
def test_without_keys_the_service_is_for_its_own_machine(host: str, is_allowed: bool) -> None:
    from serve.http.loopback import check_bound
    from serve.http.settings import Auth

    if is_allowed:
        check_bound(Auth(), host)
    else:
        with pytest.raises(ConfigError, match=rf" {host} .*auth\.keys_file"):
            check_bound(Auth(), host)
    check_bound(Auth(keys_file="keys.yaml"), host)
