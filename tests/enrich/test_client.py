"""What is no answer is asked for again; what is none for anybody ends."""

import threading
from collections import Counter

import pytest

from biovl.enrich.answers import read_records
from biovl.enrich.client import EntrezClient, ServiceError, Unanswered
from biovl.enrich.config import EntrezSettings
from tests.enrich.eutils import (
    Eutils,
    article,
    billion_laughs,
    cut_short,
    error_text,
    external_entity,
    half_an_xml,
    held_until,
    too_many,
    unavailable,
    web_page,
    with_body,
)

ASKED = {"db": "pubmed", "retmode": "xml", "id": "11"}


def client_of(service: Eutils, **settings: object) -> EntrezClient:
    fast = {"url": service.url, "requests_per_s": 1000.0, "backoff_s": 0.01}
    return EntrezClient(EntrezSettings(**{**fast, **settings}))


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        (too_many("0"), "too many requests"),
        (too_many("0", status=200), "too many requests"),
        (too_many("Fri, 31 Dec 1999 23:59:59 GMT"), "too many requests"),
        (unavailable, "status 502"),
        (cut_short, "connection broken"),
        (half_an_xml, "malformed XML"),
        (web_page, "a web page"),
        (error_text("Unable to obtain query #1"), "error: Unable to obtain query #1"),
        (with_body(b'{"error":"something"}'), "error: something"),
        (with_body(b""), "empty answer"),
        (with_body(b"Error: timeout"), "text instead of XML"),
        (billion_laughs, "XML that declares entities"),
        (external_entity, "XML that declares entities"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_asked_for_again_and_counted(fault, trouble):
    troubles = Counter()
    with Eutils() as service, client_of(service) as client:
        service.add(article(11, mesh=[("Lung", "D008168", "Y")]))
        service.next_answers(fault)
        (record,) = client.request("efetch", ASKED, read_records, troubles=troubles).values()
        assert record.mesh_terms[0].descriptor == "Lung"
        assert troubles == {trouble: 1}
        assert len(service.requests) == 2


def test_an_answer_that_is_late_is_asked_for_again():
    is_over = threading.Event()
    # A busy machine may be late with the others as well.
    with Eutils() as service, client_of(service, timeout_s=0.2, tries=100) as client:
        service.add(article(11))
        service.next_answers(held_until(is_over))
        assert list(client.request("efetch", ASKED, read_records)) == [11]
        assert not is_over.is_set()
        assert len(service.requests) >= 2
        is_over.set()


def test_waits_between_tries_are_drawn_below_a_limit_that_doubles():
    waits: list[float] = []
    with Eutils() as service:
        service.always = unavailable
        settings = EntrezSettings(url=service.url, requests_per_s=1000, tries=8, backoff_s=1)
        with (
            EntrezClient(settings, sleep=waits.append) as client,
            pytest.raises(Unanswered, match="status 502"),
        ):
            client.request("efetch", ASKED, read_records)
    assert len(waits) == 7
    assert all(
        0 <= wait <= most for wait, most in zip(waits, (1, 2, 4, 8, 16, 30, 30), strict=True)
    )


def test_a_service_that_wants_to_be_left_alone_for_ever_is_left_alone():
    with Eutils() as service, client_of(service, tries=3) as client:
        service.always = too_many("0")
        with pytest.raises(ServiceError, match="3 times"):
            client.request("efetch", ASKED, read_records)


def test_without_a_setting_the_limit_is_that_of_an_address_or_of_a_key(monkeypatch):
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    assert EntrezSettings().rate() == 3
    assert EntrezSettings(api_key="k").rate() == 10
    monkeypatch.setenv("NCBI_API_KEY", "k")
    monkeypatch.setenv("NCBI_EMAIL", "a@b.org")
    assert EntrezSettings().rate() == 10
    assert EntrezSettings().credentials() == {"tool": "biovl", "email": "a@b.org", "api_key": "k"}
    assert "secret" not in repr(EntrezSettings(api_key="secret"))
