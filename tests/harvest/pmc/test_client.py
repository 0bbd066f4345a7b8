"""One object at a time: what is waited for, what is told, and what is never done."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from biovl.core.errors import SourceError, StorageError
from biovl.core.limits import LocalLimiter, RequestLimits
from biovl.harvest.pmc.client import BucketClient, Patience
from biovl.harvest.pmc.endpoint import bucket_url
from biovl.harvest.sources import FileError
from tests.harvest.pmc.bucket import Bucket, Fault, Server, md5, serving

DATA = bytes(range(256)) * 100


@pytest.fixture
def server() -> Iterator[Server]:
    bucket = Bucket()
    for key in ("PMC1.1/a.jpg", "known"):
        bucket.put(key, DATA)
    with serving(bucket) as server:
        yield server


@pytest.fixture
def service(server: Server) -> Iterator[BucketClient]:
    limiter = LocalLimiter(RequestLimits(requests_per_s=10_000, concurrent=8))
    with BucketClient(
        server.url, limiter, Patience(tries=4, first_wait_s=0.02, read_s=600)
    ) as service:
        service.known = "known"
        yield service


def get(service: BucketClient, key: str = "PMC1.1/a.jpg", *, max_bytes: int = 10**6) -> bytes:
    return service.get(key, max_bytes=max_bytes, md5=md5(DATA))


@pytest.mark.parametrize("kind", ["slowdown", "error", "truncated", "reset", "wrong"])
def test_what_may_pass_is_asked_for_again(server: Server, service: BucketClient, kind: str) -> None:
    server.faults["PMC1.1/a.jpg"] = Fault(kind, 2)
    assert get(service) == DATA
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("fault", "defect", "requests"),
    [
        (Fault("forbidden"), "object is refused", 1),
        (Fault("redirect", to="http://127.0.0.1:1/"), "object is refused", 1),
        (Fault("wrong"), "object differs from its checksum", 3),
        (Fault("error"), "object cannot be fetched", 4),
    ],
)
def test_what_does_not_pass_is_told(
    server: Server, service: BucketClient, fault: Fault, defect: str, requests: int
) -> None:
    server.faults["PMC1.1/a.jpg"] = fault
    with pytest.raises(FileError) as told:
        get(service)
    assert told.value.defect == defect
    assert sum(asked.key == "PMC1.1/a.jpg" for asked in server.asked) == requests


def test_an_object_that_is_not_there_is_asked_for_once(
    server: Server, service: BucketClient
) -> None:
    with pytest.raises(FileError, match="404"):
        get(service, "PMC1.1/b.jpg")
    assert len(server.asked) == 1


def test_an_answer_that_dawdles_is_broken_off(server: Server) -> None:
    server.faults["PMC1.1/a.jpg"] = Fault("held", 1)
    limiter = LocalLimiter(RequestLimits(requests_per_s=10_000, concurrent=8))
    # A busy machine may be late with the others as well.
    patience = Patience(tries=100, first_wait_s=0.02, read_s=0.3)
    with BucketClient(server.url, limiter, patience) as service:
        assert get(service) == DATA
    first, *others = server.asked
    # The first was still held back when a later one had been answered.
    assert first.status == 0
    assert 200 in {asked.status for asked in others}


def test_who_asks_for_time_is_given_it(server: Server, service: BucketClient) -> None:
    server.faults["PMC1.1/a.jpg"] = Fault("retry_after", 1, seconds=1)
    begun = time.monotonic()
    assert get(service) == DATA
    assert time.monotonic() - begun >= 1


def test_more_than_is_believed_is_not_read(server: Server, service: BucketClient) -> None:
    with pytest.raises(FileError, match=r"25600 .*25599"):
        get(service, max_bytes=25_599)


@pytest.mark.parametrize("key", ["../x", "a/../b", "/a", "a//b", "a\nb", "http://x/y", "a\\b", ""])
def test_a_key_that_leads_elsewhere_is_not_asked_for(
    server: Server, service: BucketClient, key: str
) -> None:
    with pytest.raises(FileError):
        get(service, key)
    assert server.asked == []


@pytest.mark.parametrize("how", ["error", "forbidden", "reset"])
def test_a_service_that_is_gone_is_no_defect_of_objects(
    server: Server, service: BucketClient, how: str
) -> None:
    server.is_down = how
    told = []
    for _ in range(6):
        try:
            get(service)
        except FileError:
            continue
        except StorageError as error:
            told.append(error)
    assert told
    with pytest.raises(StorageError):
        get(service)


def test_no_server_at_all(server: Server, service: BucketClient) -> None:
    server.close()
    with pytest.raises(StorageError):
        get(service)


def test_a_listing_goes_over_all_its_pages(server: Server, service: BucketClient) -> None:
    for number in range(2_100):
        server.bucket.put(f"metadata/PMC{number}.1.json", b"")
    assert len(list(service.listed("metadata/"))) == 2_100
    assert [item.key for item in service.listed("metadata/PMC20.")] == ["metadata/PMC20.1.json"]
    assert service.folders("") == ["PMC1.1/", "metadata/"]


@pytest.mark.parametrize("below", ["", "/pmc-oa-opendata"])
def test_the_bucket_is_found_at_an_endpoint_or_below_it(server: Server, below: str) -> None:
    limiter = LocalLimiter(RequestLimits(requests_per_s=1_000, concurrent=1))
    patience = Patience(tries=2, first_wait_s=0.01)
    assert (
        bucket_url(server.url + below, "pmc-oa-opendata", limiter, patience) == server.url + below
    )
    with pytest.raises(SourceError, match=r"/other/.*source\.endpoint"):
        bucket_url(f"{server.url}/other", "pmc-oa-opendata", limiter, patience)


def test_no_second_has_more_requests_than_allowed_nor_any_moment(server: Server) -> None:
    limiter = LocalLimiter(RequestLimits(requests_per_s=40, concurrent=3))
    server.latency_s = 0.03
    server.faults["PMC1.1/a.jpg"] = Fault("error", 20)
    patience = Patience(tries=30, first_wait_s=0.001)
    with BucketClient(server.url, limiter, patience) as service, ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: get(service), range(40)))
    assert len(server.asked) == 60
    assert server.most_in_a_second() <= 40
    assert max(asked.open for asked in server.asked) <= 3


def test_threads_that_wait_hear_at_once_that_the_service_is_gone(
    server: Server, service: BucketClient
) -> None:
    server.is_down = "error"
    told: list[Exception] = []

    def ask() -> None:
        try:
            get(service)
        except (FileError, StorageError) as error:
            told.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert [type(error) for error in told] == [StorageError] * 8


ASKING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from biovl.core.limits import LocalLimiter, RequestLimits
from biovl.harvest.pmc.client import BucketClient
limiter = LocalLimiter(RequestLimits(requests_per_s=30, concurrent=20))
with BucketClient(sys.argv[1], limiter) as service, ThreadPoolExecutor(20) as pool:
    list(pool.map(lambda _: service.get("PMC1.1/a.jpg", max_bytes=10**6), range(60)))
"""


def test_a_process_that_rested_does_not_send_at_once_what_it_missed(server: Server) -> None:
    job = subprocess.Popen([sys.executable, "-c", ASKING, server.url])
    for _ in range(2):
        seen = len(server.asked)
        while len(server.asked) < seen + 5:
            assert job.poll() is None, "it ended before anything was seen"
            time.sleep(0.01)
        job.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        job.send_signal(signal.SIGCONT)
    assert job.wait(600) == 0
    assert len(server.asked) == 60
    assert server.most_in_a_second() <= 30
