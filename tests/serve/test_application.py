"""The service on a real Ray Serve: it answers as the model in process, whatever dies or changes."""

import asyncio
import base64
import contextlib
import itertools
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from biovl import encoder, storage
from biovl.errors import ConfigError
from tests.serve.published import a_picture, publish_model

# What Ray itself warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")

TEXTS = [f"figure {number} shows a liver" for number in range(24)]


def version(model: Path) -> str:
    return storage.fingerprint(str(model))[:12]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [publish_model(folder / f"model-{seed}", seed=seed) for seed in (1, 2)]


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


def deploy(model: Path, **settings: Any) -> None:
    from ray import serve

    from serve.app import build

    small = {"replicas.http_cpus": 0.1, "replicas.encoder_cpus": 0.1, "poll_s": 0.2}
    app = build({"model": str(model), **small, **settings})
    serve.run(app, name="biovl", route_prefix="/")


@pytest.fixture(scope="module")
def split(address: str, models: list[Path]) -> str:
    """Two encoders behind one gateway."""
    deploy(models[0], layout="split", **{"replicas.encoder": 2})
    return address


def embedded(answer: httpx.Response) -> tuple[str, np.ndarray]:
    """Return the version of the model and the vectors."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    rows = [np.array(one["embedding"], np.float32) for one in body["data"]]
    return body["model"].rpartition("@")[2], np.stack(rows)


async def under_load(
    address: str, seconds: float, meanwhile: Callable[[httpx.AsyncClient], Awaitable[None]]
) -> list[tuple[str, httpx.Response]]:
    """Return (text, answer) of all requests made while something happens."""
    answers: list[tuple[str, httpx.Response]] = []
    # Each text once: none is remembered.
    numbers = itertools.count()
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        until = time.monotonic() + seconds
        happening = asyncio.create_task(meanwhile(client))

        async def ask() -> None:
            while time.monotonic() < until or not happening.done():
                text = f"a figure of number {next(numbers)}"
                answers.append((text, await client.post("/v1/embeddings", json={"input": text})))

        await asyncio.gather(*(ask() for _ in range(8)))
        await happening
    return answers


def check(answers: list[tuple[str, httpx.Response]], models: list[Path]) -> set[str]:
    """See that each was answered by one of the models alone; return which answered."""
    failed = [answer.text for _, answer in answers if answer.status_code != 200]
    assert not failed, failed[:3]
    texts = [text for text, _ in answers]
    expected = {version(path): encoder.load(str(path)).embed_texts(texts) for path in models}
    found = [embedded(answer) for _, answer in answers]
    for number, (by, rows_ND) in enumerate(found):
        np.testing.assert_allclose(rows_ND[0], expected[by][number], atol=1e-5)
    return {by for by, _ in found}


def processes(name: str) -> list[int]:
    """Return the processes of replicas."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(f"ray::ServeReplica:biovl:{name}".encode()):
                found.append(int(path.parent.name))
    return found


@pytest.mark.ray
def test_deployments_apart_answer_as_the_model_in_process(split: str, models: list[Path]) -> None:
    alone = encoder.load(str(models[0]))
    found = embedded(httpx.post(f"{split}/v1/embeddings", json={"input": TEXTS}, timeout=30))
    assert found[0] == version(models[0])
    np.testing.assert_allclose(found[1], alone.embed_texts(TEXTS), atol=1e-5)
    image = base64.b64encode(a_picture()).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    answer = httpx.post(f"{split}/v1/embeddings", json={"input": [part]}, timeout=30)
    np.testing.assert_allclose(embedded(answer)[1], alone.embed_images([a_picture()]), atol=1e-5)
    ready = httpx.get(f"{split}/readyz", timeout=30)
    assert ready.status_code == 200, ready.text


@pytest.mark.ray
def test_no_request_is_lost_when_an_encoder_is_killed(split: str, models: list[Path]) -> None:
    async def kill(_: httpx.AsyncClient) -> None:
        await asyncio.sleep(1)
        os.kill(processes("Encoder")[0], signal.SIGKILL)

    answers = asyncio.run(under_load(split, 4, kill))
    assert check(answers, models[:1]) == {version(models[0])}


@pytest.mark.ray
def test_no_request_fails_while_models_are_exchanged(split: str, models: list[Path]) -> None:
    async def exchange(client: httpx.AsyncClient) -> None:
        for path in (models[1], models[0], models[1]):
            await asyncio.sleep(0.5)
            answer = await client.post("/v1/admin/reload", json={"model": str(path)})
            assert answer.status_code == 200, answer.text
            assert answer.json()["model"]["version"] == version(path)

    answers = asyncio.run(under_load(split, 3, exchange))
    assert check(answers, models) == {version(path) for path in models}


@pytest.mark.ray
def test_what_cannot_be_served_is_refused_and_nothing_changes(
    split: str, models: list[Path]
) -> None:
    before = embedded(httpx.post(f"{split}/v1/embeddings", json={"input": "liver"}, timeout=30))[0]
    answer = httpx.post(f"{split}/v1/admin/reload", json={"model": "/nowhere"}, timeout=30)
    assert answer.status_code == 422
    assert "/nowhere has no manifest.json" in answer.json()["detail"]
    after = embedded(httpx.post(f"{split}/v1/embeddings", json={"input": "liver"}, timeout=30))[0]
    assert before == after


@pytest.mark.ray
def test_one_process_answers_as_the_model_in_process(address: str, models: list[Path]) -> None:
    deploy(models[0])
    alone = encoder.load(str(models[0]))
    by, rows_ND = embedded(
        httpx.post(f"{address}/v1/embeddings", json={"input": TEXTS}, timeout=30)
    )
    assert by == version(models[0])
    np.testing.assert_allclose(rows_ND, alone.embed_texts(TEXTS), atol=1e-5)


def test_settings_of_a_command_line_have_dots() -> None:
    from serve.app import settings_of

    settings = settings_of(
        {"model": "m", "limits.k_max": "500", "replicas.http": "[1, 4]", "proxy": "false"}
    )
    assert settings.limits.k_max == 500
    assert settings.replicas.http == (1, 4)
    assert settings.proxy is False


def test_every_wrong_setting_is_named() -> None:
    from serve.app import build

    with pytest.raises(ConfigError) as caught:
        build({"limits.k_max": "many", "limit.k_max": 5})
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "  model: Field required" in lines
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
    from serve.deployments import check_bound
    from serve.settings import Auth, Settings

    if is_allowed:
        check_bound(Settings(model="m"), host)
    else:
        with pytest.raises(ConfigError, match=rf"Serve listens on {host} and auth\.keys_file"):
            check_bound(Settings(model="m"), host)
    check_bound(Settings(model="m", auth=Auth(keys_file="keys.yaml")), host)
