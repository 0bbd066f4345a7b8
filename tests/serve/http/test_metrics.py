import asyncio
from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from serve.http.coordinator import LocalCoordinator
from serve.http.metrics import (
    Metrics,
    keep_described,
    merged_text,
    prometheus_text,
    send_snapshot,
)
from serve.http.problems import Problem
from tests.serve.search.tiny_service import Asking, TinyEngine, service


def value(text: str, name: str, /, **labels: str) -> float | None:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_requests_are_counted_by_template_and_status() -> None:
    ask = Asking(service())
    for path in ("/v1/info", "/v1/info", "/v1/nothing", "/v1/nothing-else"):
        ask.get(path)
    text = ask.get("/metrics").text
    of_info = {"route": "/v1/info", "method": "GET", "status": "200"}
    assert value(text, "biovl_requests_total", **of_info) == 2
    # Paths that lead nowhere are one series, however many a scanner tries.
    assert value(text, "biovl_requests_total", route="none", status="404") == 2
    assert value(text, "biovl_request_seconds_count", route="/v1/info") == 2
    assert value(text, "biovl_rejected_total", reason="not-found") == 2


def test_model_index_and_recall_are_gauges() -> None:
    text = Asking(service()).get("/metrics").text
    assert value(text, "biovl_model_info", name="tiny", version="aaaaaaaaaaaa") == 1
    assert value(text, "biovl_index_figures", version="bbbbbbbbbbbb") == 7
    assert value(text, "biovl_index_recall_at_10", over="images", query="text") == 0.97


def test_replicas_are_joined_with_each_family_once() -> None:
    shared = LocalCoordinator()
    one, two = Metrics("one"), Metrics("two")
    one.answered("/v1/search", "POST", 200, 0.004)
    two.answered("/v1/search", "POST", 200, 0.3)
    two.answered("/v1/search", "POST", 200, 0.3)
    two.batch("images", 8)

    async def joined() -> str:
        await send_snapshot(one, shared)
        await send_snapshot(two, shared)
        # What one counts after it left its snapshot is in its own answer.
        one.answered("/v1/search", "POST", 200, 0.004)
        one.answered("/v1/search", "POST", 200, 0.004)
        return (await merged_text(one, shared)).decode()

    text = asyncio.run(joined())
    assert value(text, "biovl_requests_total", replica="one") == 3
    assert value(text, "biovl_requests_total", replica="two") == 2
    assert value(text, "biovl_request_seconds_bucket", replica="two", le="0.25") == 0
    assert value(text, "biovl_request_seconds_bucket", replica="two", le="0.5") == 2
    assert value(text, "biovl_batch_size_sum", replica="two", kind="images") == 8
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_without_the_coordinator_a_replica_tells_its_own() -> None:
    class Gone(LocalCoordinator):
        async def get_all(self, kind: str) -> dict[str, object]:
            raise ConnectionError

    metrics = Metrics("one")
    metrics.answered("/v1/search", "POST", 200, 0.1)
    text = asyncio.run(merged_text(metrics, Gone())).decode()
    assert value(text, "biovl_requests_total", replica="one") == 1


def test_two_applications_in_one_process_count_apart() -> None:
    one, two = Asking(service()), Asking(service())
    one.get("/v1/info")
    assert value(two.get("/metrics").text, "biovl_requests_total", route="/v1/info") is None


def test_stages_of_requests_are_measured() -> None:
    metrics = Metrics("one")
    metrics.stage("encode", 0.02)
    metrics.waited("texts", 0.001)
    text = prometheus_text([metrics.snapshot()]).decode()
    assert value(text, "biovl_stage_seconds_sum", stage="encode") == 0.02
    assert value(text, "biovl_queue_seconds_count", kind="texts") == 1


def test_a_service_that_is_not_ready_says_so() -> None:
    engine = TinyEngine()
    engine.reasons = ["the index is being loaded"]
    ask = Asking(service(engine))
    ready = ask.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["ready"] is False
    assert ready.json()["reasons"] == ["the index is being loaded"]
    assert value(ask.get("/metrics").text, "biovl_ready") == 0
    assert ask.get("/healthz").status_code == 200


def test_replicas_that_do_not_know_whether_the_service_is_ready_say_nothing() -> None:
    shared = LocalCoordinator()
    gateway, encoder = Metrics("gateway"), Metrics("encoder")
    gateway.describe({"ready": True})

    async def joined() -> str:
        await send_snapshot(encoder, shared)
        return (await merged_text(gateway, shared)).decode()

    text = asyncio.run(joined())
    assert value(text, "biovl_ready", replica="gateway") == 1
    assert value(text, "biovl_ready", replica="encoder") is None


def test_a_replica_that_nobody_probes_knows_what_is_served() -> None:
    metrics = Metrics("second")
    served: list[Mapping[str, Any] | Problem] = [
        {"ready": True, "index": {"version": "old", "figures": 7}},
        {"ready": True, "index": {"version": "new", "figures": 8}},
        Problem(503, "overloaded", "no replica is available"),
    ]

    async def about() -> Mapping[str, Any]:
        if isinstance(served[0], Problem):
            raise served[0]
        return served[0]

    async def exported() -> str:
        described = asyncio.create_task(keep_described(metrics, about))
        await asyncio.sleep(0)
        described.cancel()
        return prometheus_text([metrics.snapshot()]).decode()

    assert value(asyncio.run(exported()), "biovl_index_figures", version="old") == 7
    served.pop(0)
    text = asyncio.run(exported())
    assert value(text, "biovl_index_figures", version="old") is None
    assert value(text, "biovl_index_figures", version="new") == 8
    served.pop(0)
    assert value(asyncio.run(exported()), "biovl_ready") == 0
