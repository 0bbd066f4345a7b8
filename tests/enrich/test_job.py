"""The job against a service on loopback: its limits, its faults, and being killed."""

import io
import itertools
import json
import multiprocessing
import random
import runpy
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import BiovlError
from biovl.core.folders import Folder
from biovl.core.parts import PartWriter
from biovl.core.records import Article, Figure
from biovl.enrich.client import ServiceError
from biovl.enrich.config import EnrichConfig
from biovl.enrich.job import enrich
from tests.enrich.eutils import (
    Answer,
    Eutils,
    and_also,
    article,
    billion_laughs,
    book,
    half_an_xml,
    slow,
    too_many,
    unavailable,
    with_body,
)
from tests.runtime.folders import content


@pytest.fixture
def service() -> Iterator[Eutils]:
    with Eutils() as running:
        yield running


def row(number: int, pmid: str | None, doi: str | None = None) -> Article:
    return Article(
        article_id=f"PMC{number}", version=None, pmid=pmid, doi=doi, title=None, abstract=None,
        journal=None, published=None, article_type=None, language=None, license=None,
        license_url=None, license_group="commercial", citation=None, full_text=None,
        figure_count=0, source_uri=f"file:///PMC{number}", xml_sha256=None, defect=None,
        defect_detail=None,
    )  # fmt: skip


def harvest_of(folder: Path, *parts: Sequence[Article]) -> str:
    """Publish articles as harvest does."""
    draft = Draft.begin(str(folder), "figures", {})
    files = {}
    for unit, rows in enumerate(parts):
        with (
            PartWriter(Folder(str(folder)), "articles", unit, Article, 10**8) as articles,
            PartWriter(Folder(str(folder)), "figures", unit, Figure, 10**8) as figures,
        ):
            for one in rows:
                articles.add(one)
        files |= {**articles.files, **figures.files}
    draft.publish(Manifest(kind="figures", config={}, counts={}, files=files))
    return str(folder)


def config_of(service: Eutils, articles: str, **settings: Any) -> EnrichConfig:
    asked = {"url": service.url, "requests_per_s": 1000, "backoff_s": 0.001, "email": "a@b.org"}
    values = {f"entrez.{name}": value for name, value in asked.items()}
    return configs.build(EnrichConfig, {"articles": articles, **values, **settings})


def run(service: Eutils, articles: str, **settings: Any) -> Manifest:
    return enrich(config_of(service, articles, **settings), progress=io.StringIO())


def rows_of(folder: str | Path) -> list[dict[str, Any]]:
    parts = sorted(Path(folder).glob("part-*.parquet"))
    return [found for part in parts for found in pq.read_table(part).to_pylist()]


def test_columns_stand_beside_articles_row_for_row_and_are_joined_by_pmid(service, tmp_path):
    service.add(
        article(11, mesh=[("Humans", "D006801", "N")], keywords=["one"], electronic="<Year>2003</Year><Month>10</Month><Day>12</Day>"),
        article(12, mesh=[("Lung", "D008168", "Y")], types=["Review", "Retracted Publication"]),
        book(14, keywords=["chapters"]),
    )  # fmt: skip
    service.cited_by = {11: [30, 20], 14: [40]}
    # 13 is unknown, and answers come in another order than rows.
    first = [row(1, "12"), row(2, None), row(3, "11"), row(4, "13")]
    articles = harvest_of(tmp_path / "figures", first, [row(5, "PMC5"), row(6, "14"), row(7, "12")])
    manifest = run(service, articles)

    out = tmp_path / "figures" / "columns" / "entrez"
    assert [p.name for p in sorted(out.glob("*.parquet"))] == ["part-000000-000.parquet", "part-000001-000.parquet"]  # fmt: skip
    found = rows_of(out)
    assert [r["entrez_status"] for r in found] == ["ok", "no pmid", "ok", "missing", "not a pmid", "book", "ok"]  # fmt: skip
    assert [r["entrez_pmid"] for r in found] == ["12", None, "11", None, None, "14", "12"]
    assert [r["cited_by_pmids"] for r in found] == [[], None, ["20", "30"], None, None, ["40"], []]
    assert found[0]["mesh_terms"] == [{"descriptor": "Lung", "ui": "D008168", "major": True, "qualifiers": []}]  # fmt: skip
    assert [r["retracted_in_pubmed"] for r in found] == [True, None, False, None, None, False, True]
    assert (found[2]["pubmed_published"], found[2]["pubmed_published_from"]) == ("2003-10-12", "ArticleDate")  # fmt: skip
    assert found[2]["pubmed_keywords"] == ["one"]
    assert found[0]["publication_types"] == ["Review", "Retracted Publication"]
    assert found[0]["cited_by_date"] == time.strftime("%Y-%m-%d", time.gmtime())
    assert manifest.counts["status"] == {"book": 1, "missing": 1, "no pmid": 1, "not a pmid": 1, "ok": 3}  # fmt: skip
    assert manifest.counts["retracted"] == 2
    assert not (out / ".draft").exists()


def test_requests_say_who_asks_and_ask_for_200_ids_in_a_post(service, tmp_path, monkeypatch):
    monkeypatch.setenv("NCBI_API_KEY", "secret0123")
    numbers = range(1, 451)
    service.add(*(article(pmid) for pmid in numbers))
    articles = harvest_of(tmp_path / "figures", [row(pmid, str(pmid)) for pmid in numbers])
    run(service, articles)
    assert sorted(len(asked.ids) for asked in service.asked("efetch")) == [50, 200, 200]
    assert sorted(len(asked.parameters["id"]) for asked in service.asked("elink")) == [50, 200, 200]
    for asked in service.requests:
        assert (asked.method, asked.query) == ("POST", "")
        assert asked.parameters["tool"] == ["biovl"]
        assert asked.parameters["email"] == ["a@b.org"]
        assert asked.parameters["api_key"] == ["secret0123"]
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret0123" not in written
    assert b"a@b.org" not in written


def test_what_went_wrong_on_the_way_is_counted(service, tmp_path):
    service.add(
        article(11, mesh=[("Lung", "D008168", "Y")]), article(12, mesh=[("Eye", "D1", "N")])
    )
    articles = harvest_of(tmp_path / "figures", [row(1, "12"), row(2, "11")])
    service.next_answers(too_many("0"), half_an_xml, billion_laughs)
    manifest = run(service, articles, citations=False)
    found = rows_of(tmp_path / "figures/columns/entrez")
    assert [r["mesh_terms"][0]["descriptor"] for r in found] == ["Eye", "Lung"]
    troubles = {"XML that declares entities": 1, "malformed XML": 1, "too many requests": 1}
    assert manifest.counts["troubles"] == troubles
    assert len(service.requests) == 4


def test_records_that_nobody_asked_for_are_in_no_row(service, tmp_path):
    service.add(*(article(pmid, mesh=[(f"Term {pmid}", "D1", "N")]) for pmid in (11, 12)))
    articles = harvest_of(tmp_path / "figures", [row(1, "11"), row(2, "12")])
    service.next_answers(and_also(article(77, mesh=[("Of another", "D2", "N")])))
    manifest = run(service, articles, citations=False)
    found = rows_of(tmp_path / "figures/columns/entrez")
    assert [r["mesh_terms"][0]["descriptor"] for r in found] == ["Term 11", "Term 12"]
    assert manifest.counts["troubles"] == {"answers about ids not asked for": 1}


def test_a_merged_article_has_the_values_of_the_other_where_it_is_the_same_article(
    service, tmp_path
):
    service.add(
        *(article(pmid) for pmid in range(1, 60)),
        article(500, mesh=[("Lung", "D1", "N")], doi="10.1/THE.SAME"),
        article(501, mesh=[("Eye", "D2", "N")], doi="10.1/another"),
        article(502, mesh=[("Ear", "D3", "N")]),
    )
    service.merged = {101: 500, 102: 501, 103: 502}
    service.cited_by = {500: [9]}
    rows = [
        *(row(pmid, str(pmid)) for pmid in range(1, 60)),
        row(101, "101", "https://doi.org/10.1/the.same"),
    ]
    rows += [row(102, "102", "10.1/mine"), row(103, "103"), row(104, "104")]
    articles = harvest_of(tmp_path / "figures", rows)
    manifest = run(service, articles)
    same, other, unsure, gone = rows_of(tmp_path / "figures/columns/entrez")[-4:]
    assert (same["entrez_status"], same["entrez_pmid"]) == ("merged into 500", "500")
    assert same["mesh_terms"][0]["descriptor"] == "Lung"
    assert same["cited_by_pmids"] == ["9"]
    assert (other["entrez_status"], other["mesh_terms"]) == ("missing", None)
    assert (unsure["entrez_status"], unsure["mesh_terms"]) == ("merged into 502", None)
    assert gone["entrez_status"] == "missing"
    assert manifest.counts["status"] == {"merged": 2, "missing": 2, "ok": 59}


def test_the_record_of_another_article_is_not_joined_by_a_wrong_pmid(service, tmp_path):
    service.add(
        article(1, mesh=[("Eye", "D1", "N")], doi="10.1/another", pmcid="PMC99"),
        article(2, mesh=[("Ear", "D2", "N")], doi="10.1/corrected", pmcid="PMC2"),
        article(3, mesh=[("Lung", "D3", "N")], doi="10.1/unlike"),
    )
    mine = [row(number, str(number), "10.1/mine") for number in (1, 2, 3)]
    run(service, harvest_of(tmp_path / "figures", mine), citations=False)
    wrong, same, unsure = rows_of(tmp_path / "figures/columns/entrez")
    assert (wrong["entrez_status"], wrong["mesh_terms"]) == ("another article", None)
    assert (same["entrez_status"], unsure["entrez_status"]) == ("ok", "ok")


def test_of_a_batch_that_keeps_failing_only_the_id_at_fault_is_lost(service, tmp_path):
    numbers = range(1, 201)
    service.add(*(article(pmid) for pmid in numbers))
    service.poisoned = {7: half_an_xml, 150: unavailable}
    articles = harvest_of(tmp_path / "figures", [row(pmid, str(pmid)) for pmid in numbers])
    manifest = run(service, articles, citations=False, **{"entrez.tries": 3})
    found = {
        r["entrez_pmid"]: r["entrez_status"] for r in rows_of(tmp_path / "figures/columns/entrez")
    }
    assert manifest.counts["status"] == {
        "failed: malformed XML": 1,
        "failed: status 502": 1,
        "ok": 198,
    }
    assert manifest.warnings[0].startswith("2 of 200 articles:")
    assert "7" not in found
    assert "150" not in found


def test_whatever_goes_wrong_every_row_has_its_own_values_or_a_status(service, tmp_path):
    numbers = list(range(1, 801))
    service.add(*(article(n, mesh=[(f"Term {n}", "D1", "N")]) for n in numbers if n % 17))
    service.cited_by = {n: [n + 1] for n in numbers if n % 2}
    wrong = [
        *(too_many("0"), too_many("0", status=200), unavailable, half_an_xml, billion_laughs),
        *(with_body(b""), with_body(b'{"error":"x"}'), and_also(article(9999, doi="10.1/x"))),
    ]
    rng, lock = random.Random(3), threading.Lock()

    def often(due: Answer) -> Answer:
        with lock:
            fault = rng.choice(wrong) if rng.random() < 0.4 else None
        return due if fault is None or b"<Pubmed" not in due.body else fault(due)

    service.always = often
    service.poisoned = {500: half_an_xml}
    rng.shuffle(numbers)
    articles = harvest_of(tmp_path / "figures", [row(n, str(n), f"10.1/{n}") for n in numbers])
    manifest = run(service, articles, **{"entrez.tries": 10})
    assert manifest.counts["status"] == {"failed: malformed XML": 1, "missing": 47, "ok": 752}
    for n, found in zip(numbers, rows_of(tmp_path / "figures/columns/entrez"), strict=True):
        if found["entrez_status"] == "ok":
            assert found["mesh_terms"][0]["descriptor"] == f"Term {n}"
            assert found["cited_by_pmids"] == ([str(n + 1)] if n % 2 else [])
        else:
            assert n == 500 or n % 17 == 0


def test_a_citing_list_that_is_lacking_is_no_zero(service, tmp_path):
    service.add(*(article(pmid) for pmid in (11, 12, 13)))
    service.cited_by = {11: [1]}
    service.poisoned = {12: slow(0)}
    articles = harvest_of(tmp_path / "figures", [row(pmid, str(pmid)) for pmid in (11, 12, 13)])

    def without_12(due: Answer) -> Answer:
        begin, _, rest = due.body.partition(b"<LinkSet><DbFrom>pubmed</DbFrom><IdList><Id>12</Id>")
        return Answer(begin + rest.partition(b"</LinkSet>")[2] if rest else due.body)

    service.poisoned = {12: without_12}
    manifest = run(service, articles)
    found = rows_of(tmp_path / "figures/columns/entrez")
    assert [r["cited_by_pmids"] for r in found] == [["1"], None, []]
    assert [r["cited_by_status"] for r in found] == ["ok", "missing", "ok"]
    assert manifest.counts["citations"] == {"missing": 1, "ok": 2}


@pytest.mark.parametrize("fault", [unavailable, too_many("0")])
def test_a_service_that_refuses_all_ends_the_job_which_goes_on_later(service, tmp_path, fault):
    numbers = range(1, 401)
    service.add(*(article(pmid) for pmid in numbers))
    articles = harvest_of(tmp_path / "figures", [row(pmid, str(pmid)) for pmid in numbers])
    settings = {"entrez.tries": 2, "entrez.connections": 1, "citations": False}
    service.next_answers(None, *[fault] * 100)
    with pytest.raises(ServiceError, match=r"PMID 1\b|2 times"):
        run(service, articles, **settings)
    assert len(service.requests) < 40
    service._next.clear()
    service.requests.clear()
    assert run(service, articles, **settings).counts["status"] == {"ok": 400}
    assert [len(asked.ids) for asked in service.requests] == [200]


def test_a_service_that_is_away_or_blocks_us_is_told_at_once(service, tmp_path):
    service.add(article(1))
    articles = harvest_of(tmp_path / "figures", [row(1, "1")])
    with pytest.raises(BiovlError, match=r"127.0.0.1:9"):
        run(service, articles, **{"entrez.url": "http://127.0.0.1:9", "entrez.tries": 2})
    service.next_answers(with_body(b"blocked", 403))
    with pytest.raises(BiovlError, match="status 403"):
        run(service, articles)
    key = with_body(b'{"error":"API key invalid","api-key":"secret0123","type":"api-key"}', 400)
    service.next_answers(key)
    with pytest.raises(BiovlError, match="api_key") as refused:
        run(service, articles, **{"entrez.api_key": "secret0123"})
    assert "secret" not in str(refused.value)


def test_no_second_has_more_requests_than_the_limit_whatever_fails(service, tmp_path):
    numbers = range(1, 1601)
    service.add(*(article(pmid) for pmid in numbers))
    articles = harvest_of(tmp_path / "figures", [row(pmid, str(pmid)) for pmid in numbers])
    service.next_answers(None, unavailable, None, too_many("1"), slow(0.3), half_an_xml)
    settings = {"entrez.requests_per_s": 10, "entrez.connections": 8, "citations": False}
    run(service, articles, **settings)
    times = [asked.at for asked in service.requests]
    assert len(times) == 11
    assert max(sum(t <= other < t + 1 for other in times) for t in times) <= 10
    # Nobody asks while the service wants to be left alone.
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) >= 1


def test_a_cache_answers_later_jobs_until_it_is_too_old(service, tmp_path):
    service.add(article(1), article(2), article(3))
    service.poisoned = {3: unavailable}
    articles = harvest_of(tmp_path / "figures", [row(n, str(n)) for n in (1, 2, 3)])
    settings = {"cache": str(tmp_path / "cache"), "entrez.tries": 1}
    warnings = run(service, articles, **settings).warnings
    assert [text.partition(":")[0] for text in warnings] == ["1 of 3 articles"]
    assert "another out" in warnings[0]
    # The same command repeats the warning, and nothing else.
    service.requests.clear()
    assert run(service, articles, **settings).warnings == warnings
    assert service.requests == []
    more = harvest_of(tmp_path / "more", [row(n, str(n)) for n in (2, 1)], [row(4, "4")])
    service.requests.clear()
    run(service, more, **settings)
    assert [asked.ids for asked in service.requests] == [[4]]
    # What failed before this second is asked for again; what was answered is not.
    time.sleep(1)
    service.poisoned.clear()
    service.requests.clear()
    again = run(service, articles, **settings, out=str(tmp_path / "again"))
    assert [asked.ids for asked in service.requests] == [[3], [3]]
    assert again.counts["status"] == {"ok": 3}
    assert again.warnings == []
    service.requests.clear()
    run(service, articles, **settings, out=str(tmp_path / "old"), max_age_days=0)
    assert {asked.utility for asked in service.requests} <= {"efetch", "elink"}


class AnsweredUpTo:
    """So many answers that contain a text are sent, and the next held back."""

    def __init__(self, count: int, text: bytes) -> None:
        self.is_held, self.is_over = threading.Semaphore(0), threading.Event()
        self._left, self._text, self._lock = count, text, threading.Lock()

    def __call__(self, due: Answer) -> Answer:
        if self._text not in due.body:
            return due
        with self._lock:
            self._left -= 1
            is_held = self._left < 0
        if is_held:
            self.is_held.release()
            self.is_over.wait(600)
        return due


def test_a_killed_job_asks_for_nothing_twice_and_ends_in_the_same_bytes(service, tmp_path):
    numbers = range(1, 1201)
    service.add(
        *(article(pmid, mesh=[("Lung", "D1", "N")], doi=f"10.1/{pmid}") for pmid in numbers)
    )
    service.merged = {3001: 7}
    service.cited_by = {pmid: [pmid + 1, 5] for pmid in numbers}
    rows = [row(pmid, str(pmid)) for pmid in [*numbers, 3001, 3002]]
    articles = harvest_of(tmp_path / "figures", rows[:400], rows[400:800], rows[800:])
    run(service, articles, out=str(tmp_path / "whole"))
    undisturbed = len(service.requests)
    service.requests.clear()
    out = tmp_path / "killed"
    killed = config_of(service, articles, out=str(out), **{"entrez.connections": 2})
    # Amid the records, then amid the citations: so early that each connection has one to ask for.
    for text in (b"<PubmedArticleSet>", b"<eLinkResult>"):
        held = service.always = AnsweredUpTo(3, text)
        # A fork, so that nothing is imported again.
        process = multiprocessing.get_context("fork").Process(
            target=enrich, args=(killed,), kwargs={"progress": io.StringIO()}
        )
        process.start()
        # Each connection asks again after it has kept what was answered.
        for _ in range(killed.entrez.connections):
            assert held.is_held.acquire(timeout=600)
        process.kill()
        process.join()
        held.is_over.set()
        assert not (out / "manifest.json").exists()
    service.always = None
    enrich(killed, progress=io.StringIO())
    assert content(out) == content(tmp_path / "whole")
    # At each kill no more than those under way are asked for again.
    assert len(service.requests) <= undisturbed + 4


def test_the_script_says_what_came_and_hides_the_key(service, tmp_path, monkeypatch, capsys):
    service.add(article(1))
    articles = harvest_of(tmp_path / "figures", [row(1, "1")])
    settings = [
        *(f"articles={articles}", f"entrez.url={service.url}", "entrez.api_key=secret0123"),
        "entrez.requests_per_s=100",
    ]
    given = [word for setting in settings for word in ("--set", setting)]

    def said(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["enrich.py", "entrez", *given, *more])
        runpy.run_path("pipelines/enrich.py", run_name="__main__")
        captured = capsys.readouterr()
        assert "secret0123" not in captured.out + captured.err
        return captured.out

    assert said("--dry-run").splitlines()[1] == "2 requests, at 100 a second 0.00 h or more"
    assert service.requests == []
    assert json.loads(said().splitlines()[-1])["status"] == {"ok": 1}
    assert service.requests[0].parameters["api_key"] == ["secret0123"]
