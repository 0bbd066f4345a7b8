import asyncio
from contextlib import suppress

import pytest

from serve.http.problems import Problem
from serve.http.rate import Buckets, RateLimit
from serve.http.request_context import Caller
from serve.http.settings import Rate
from tests.serve.search.tiny_service import Asking, service

ANNA = Caller(name="anna", scopes=frozenset(), bucket="key:anna")
BERT = Caller(name="bert", scopes=frozenset(), bucket="key:bert", rate_per_s=100)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def passes(limit: RateLimit, caller: Caller, requests: int) -> int:
    """Return how many of so many requests are let through."""

    async def count() -> int:
        passed = 0
        for _ in range(requests):
            with suppress(Problem):
                await limit.take_token(caller)
                passed += 1
        return passed

    return asyncio.run(count())


def test_a_burst_passes_and_then_as_many_as_the_rate() -> None:
    clock = Clock()
    limit = RateLimit(Rate(per_s=5, burst=10), Buckets(clock=clock), clock=clock)
    assert passes(limit, ANNA, 50) == 10
    clock.now = 2
    assert passes(limit, ANNA, 50) == 10
    clock.now = 3
    assert passes(limit, ANNA, 50) == 5


def test_replicas_share_one_bucket() -> None:
    clock = Clock()
    shared = Buckets(clock=clock)
    replicas = [RateLimit(Rate(per_s=5, burst=40), shared, clock=clock) for _ in range(4)]
    assert sum(passes(replica, ANNA, 100) for replica in replicas) == 40


@pytest.mark.parametrize("per_s", [0.2, 3.0, 7.5])
def test_a_patient_client_gets_the_rate_whatever_it_is(per_s: float) -> None:
    clock = Clock()
    limit = RateLimit(Rate(per_s=per_s, burst=1), Buckets(clock=clock), clock=clock)
    passed = 0
    for tick in range(1000):
        clock.now = tick * 0.1
        passed += passes(limit, ANNA, 1)
    # 100 s and the one that the bucket began with; asking each 0.1 s misses less than one in ten.
    assert 0.75 * per_s * 100 <= passed <= per_s * 100 + 1


def test_keys_do_not_share_and_may_have_their_own_rate() -> None:
    clock = Clock()
    limit = RateLimit(Rate(per_s=1, burst=10), Buckets(clock=clock), clock=clock)
    assert passes(limit, ANNA, 20) == 10
    assert passes(limit, BERT, 20) == 10
    clock.now = 0.05
    assert passes(limit, ANNA, 20) == 0
    assert passes(limit, BERT, 20) == 5


def test_few_requests_ask_the_coordinator() -> None:
    clock = Clock()
    asked = []

    class Counting(Buckets):
        async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
            asked.append(count)
            return await super().lease(key, count, per_s, burst)

    limit = RateLimit(Rate(per_s=1000, burst=400), Counting(clock=clock), clock=clock)
    assert passes(limit, ANNA, 400) == 400
    assert len(asked) == 4


def test_without_the_coordinator_a_replica_counts_alone() -> None:
    clock = Clock()

    class Gone:
        async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
            raise ConnectionError

    assert passes(RateLimit(Rate(per_s=1, burst=10), Gone(), clock=clock), ANNA, 20) == 10


def test_without_a_rate_nothing_is_counted() -> None:
    assert passes(RateLimit(Rate(), Buckets()), ANNA, 1000) == 1000


def test_clients_are_told_how_much_is_left_and_how_long_to_wait() -> None:
    ask = Asking(service(rate={"per_s": 0.5, "burst": 2}))
    answers = [ask.get("/v1/info") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert answers[2].headers["RateLimit-Limit"] == "2"
    assert answers[2].headers["Retry-After"] == "2"
    assert answers[2].json()["title"] == "Rate limit"


def test_probes_and_the_page_are_not_counted() -> None:
    ask = Asking(service(rate={"per_s": 0.5, "burst": 1}))
    assert {ask.get("/healthz").status_code for _ in range(5)} == {200}


def test_another_address_in_a_header_is_not_another_client() -> None:
    ask = Asking(service(rate={"per_s": 0.5, "burst": 1}))
    spoofed = [
        ask.get("/v1/info", headers={"X-Forwarded-For": f"127.0.0.{n}"}).status_code
        for n in range(3)
    ]
    assert spoofed == [200, 429, 429]
