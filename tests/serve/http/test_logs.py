import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from serve.http.logs import JsonLines
from serve.http.problems import Problem
from tests.serve.search.tiny_service import Asking, Facets, TinyEngine, service

CANARY = "canary7f3a"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """All that any logger of the service's process writes, in full."""
    text = io.StringIO()
    everything = logging.StreamHandler(text)
    everything.setFormatter(JsonLines())
    # The client of this test is in the same process.
    everything.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))
    root, ours = logging.getLogger(), logging.getLogger("serve.requests")
    level = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(everything)
    ours.addHandler(everything)
    yield text
    root.removeHandler(everything)
    ours.removeHandler(everything)
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_request_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    Asking(service()).get("/v1/facets", headers={"X-Request-ID": "mine-1"})
    (line,) = lines(capsys)
    assert line["request_id"] == "mine-1"
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/facets", 200)
    assert (line["key"], line["replica"], line["problem"]) == ("local", "0", None)
    assert 0 < line["ms"] < 10_000


def test_nothing_that_a_client_sends_is_logged(
    capsys: pytest.CaptureFixture[str], written: io.StringIO
) -> None:
    async def quoting() -> Facets:
        raise ValueError(f"cannot draw {CANARY}") from KeyError(CANARY)

    ask = Asking(service(TinyEngine(quoting)))
    image = f'{{"model": "data:image/png;base64,{CANARY}"}}'
    for path, options in [
        ("/v1/facets", {}),
        (f"/v1/facets?text={CANARY}", {}),
        (f"/{CANARY}", {}),
        (f"/v1/figures/{CANARY}/{CANARY}", {}),
        ("/v1/info", {"headers": {"Authorization": f"Bearer {CANARY}", "Cookie": CANARY}}),
        ("/v1/info", {"headers": {"X-Request-ID": f"{CANARY} not an id"}}),
        ("/v1/info", {"headers": {"Host": CANARY}}),
    ]:
        ask.get(path, **options)
    for body in (image, f'{{"model": 3, "{CANARY}": 1}}', f'["{CANARY}"]', f"{{{CANARY}"):
        ask.json("/v1/admin/reload", body.encode())
    found = capsys.readouterr().err + written.getvalue()
    assert found.count("request_id") > 10
    assert CANARY not in found


def test_an_error_that_nobody_foresaw_is_answered_without_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def failing() -> Facets:
        raise ValueError(CANARY)

    answer = Asking(service(TinyEngine(failing))).get("/v1/facets")
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert CANARY not in answer.text
    failure, request = lines(capsys)
    assert failure["error"] == "ValueError"
    assert any("failing" in place for place in failure["at"])
    assert failure["request_id"] == request["request_id"] == answer.json()["request_id"]
    assert (request["status"], request["problem"]) == (500, "internal-error")


def test_the_slug_of_a_problem_is_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def refusing() -> Facets:
        raise Problem(409, "stale-model", "embed again")

    Asking(service(TinyEngine(refusing))).get("/v1/facets")
    (line,) = lines(capsys)
    assert (line["status"], line["problem"]) == (409, "stale-model")


def test_lines_can_be_text(capsys: pytest.CaptureFixture[str]) -> None:
    Asking(service(log_format="text")).get("/healthz")
    assert "route=/healthz status=200" in capsys.readouterr().err


@pytest.mark.parametrize("sent", ["a b", "x" * 65, "a\tb", "é", "<script>", ""])
def test_an_id_that_is_none_is_replaced(sent: str) -> None:
    answer = Asking(service()).get("/healthz", headers={"X-Request-ID": sent.encode()})
    assert answer.headers["X-Request-ID"] != sent
    assert len(answer.headers["X-Request-ID"]) == 16
