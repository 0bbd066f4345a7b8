import asyncio

import pytest

from serve import app as application
from serve.http.draining import Draining
from serve.search.api import http_api
from serve.search.settings import Settings
from tests.serve.search.tiny_service import Asking, Facets, TinyEngine


def test_a_replica_that_is_to_stop_answers_what_it_has_begun_and_refuses_the_rest() -> None:
    async def test() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def waiting() -> Facets:
            begun.set()
            await may_end.wait()
            return {"kind": {"figure": 3}}

        draining = Draining()
        app = http_api(Settings(model="tiny"), TinyEngine(waiting), draining=draining)  # type: ignore[arg-type]
        ask = Asking(app)
        early = asyncio.create_task(ask.one("GET", "/v1/facets"))
        await begun.wait()
        drained = asyncio.create_task(draining.drain())
        while not draining.has_begun:
            await asyncio.sleep(0)
        for path in ("/v1/facets", "/readyz", "/"):
            late = await ask.one("GET", path)
            assert late.status_code == 503, path
            assert late.json()["type"] == "urn:biovl:problem:stopping"
            assert late.headers["Retry-After"] == "5"
        assert (await ask.one("GET", "/healthz")).status_code == 200
        assert not drained.done()
        may_end.set()
        answer = await early
        assert answer.status_code == 200
        assert answer.json() == {"kind": {"figure": 3}}
        await drained

    asyncio.run(test())


def test_a_replica_that_is_replaced_has_time_for_a_slow_upload_and_its_answer() -> None:
    limits = {"body_s": 100, "timeout_s": 40}
    settings = Settings.model_validate({"model": "tiny", "limits": limits})
    http = application._http(settings, application.Service, 1, 1, 0)
    assert http._deployment_config.graceful_shutdown_timeout_s == 145


@pytest.mark.parametrize("path", ["/v1/facets", "/nothing"])
def test_a_request_that_fails_is_not_waited_for(path: str) -> None:
    async def test() -> None:
        async def failing() -> Facets:
            raise RuntimeError

        draining = Draining()
        app = http_api(Settings(model="tiny"), TinyEngine(failing), draining=draining)  # type: ignore[arg-type]
        assert (await Asking(app).one("GET", path)).status_code in (404, 500)
        await draining.drain()

    asyncio.run(test())
