"""Which articles are asked for: by a list of ids, or by what a search finds; and what to expect."""

from pathlib import Path

import pytest

from biovl.core import config as configs
from biovl.core.errors import ConfigError, SourceError
from biovl.harvest.pmc.estimate import Extrapolated, estimate, format_estimate
from biovl.harvest.pmc.search import requested_articles
from biovl.harvest.pmc.settings import Config
from biovl.sample.packages import PackageFiles
from tests.enrich.eutils import Eutils, with_body
from tests.harvest.pmc.bucket import Bucket, serving

LINKED = b"""<eLinkResult>
    <LinkSet><LinkSetDb><Link><Id>21</Id></Link></LinkSetDb></LinkSet>
    <LinkSet></LinkSet>
    <LinkSet><LinkSetDb><Link><Id>7</Id></Link></LinkSetDb></LinkSet></eLinkResult>"""


def config(service: Eutils, **settings: object) -> Config:
    entrez = {"url": service.url, "requests_per_s": 1000, "backoff_s": 0.01}
    return configs.build(Config, {"entrez": entrez, **settings})


def numbers(wanted: Config) -> list[int]:
    found = requested_articles(wanted)
    assert found is not None
    return found.tolist()


def test_ids_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("PMC20\n\n3 # a note\npmc20.2\n")
    assert numbers(Config(ids=str(tmp_path / "ids.txt"))) == [3, 20]
    (tmp_path / "ids.txt").write_text("PMC20\n10.1371/journal\n")
    with pytest.raises(SourceError, match=r"line 2: .*PMCID"):
        requested_articles(Config(ids=str(tmp_path / "ids.txt")))
    with pytest.raises(SourceError, match=r"absent\.txt"):
        requested_articles(Config(ids=str(tmp_path / "absent.txt")))


def test_the_first_that_a_search_finds_in_one_request() -> None:
    with Eutils() as service:
        service.searches["pmc", "lung"] = list(range(25_000, 0, -1))
        service.searches["pmc", "cough"] = []
        found = numbers(config(service, search="lung", search_limit=3))
        assert found == [24_998, 24_999, 25_000]
        assert len(service.requests) == 1
        with pytest.raises(SourceError, match=r"source\.search: .*cough.*pmc"):
            requested_articles(config(service, search="cough"))


def test_what_pubmed_finds_is_looked_up_in_pmc_one_by_one() -> None:
    with Eutils() as service:
        service.searches["pubmed", "(lung) AND pubmed pmc[sb]"] = [1, 2, 3]
        service.next_answers(None, with_body(LINKED))
        wanted = config(service, search="lung", search_in="pubmed", search_limit=9)
        assert numbers(wanted) == [7, 21]
        assert service.requests[1].parameters["id"] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "settings",
    [
        {"requests_per_s": 0}, {"concurrent": 0}, {"modified_from": "May"}, {"snapshot": "newest"},
        {"ids": "a", "search": "b"}, {"bucket": "../etc"}, {"licenses": ["free"]}, {"read_s": 90},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings: dict) -> None:
    with pytest.raises(ConfigError):
        configs.build(Config, settings)


def test_an_estimate_counts_what_few_articles_have_and_extrapolates_from_a_sample() -> None:
    bucket = Bucket()
    for number in range(1, 251):
        # Every fifth has no images and is left out; those that have any have two, and a PDF.
        files = {"x.xml": b"<article/>"}
        if number % 5:
            files |= {"a.jpg": b"a" * 1000, "b.webp": b"b" * 1000, "c.pdf": b"c"}
        bucket.put_article(PackageFiles(f"PMC{number}", "x.xml", files, ()))
    bucket.put_inventory("2026-10-01")
    with serving(bucket) as server:
        found = estimate(Config(endpoint=server.url, requests_per_s=2_000))
        assert (found.listed, found.selected, found.sampled) == (250, 250, 200)
        assert found.articles.error > 0
        assert abs(found.articles.total - 200) < max(found.articles.error, 15)
        assert abs(found.figures.total - 400) < max(found.figures.error, 30)
        assert found.size_bytes.total == pytest.approx(found.articles.total * 2_010, rel=0.01)
        assert not [a for a in server.asked if a.method == "GET" and a.key.startswith("PMC")]
        # At 1,800 a second: all records, an XML and two images of each.
        assert found.seconds >= (250 + 3 * found.articles.total) / 1_800 * 0.99


def test_an_estimate_of_a_list_counts_the_articles_that_the_bucket_lacks(tmp_path: Path) -> None:
    bucket = Bucket()
    for number in (1, 2, 11):
        package = PackageFiles(f"PMC{number}", "x.xml", {"x.xml": b"<article/>", "a.jpg": b"a"}, ())
        bucket.put_article(package)
    (tmp_path / "ids.txt").write_text("PMC1\nPMC2\nPMC3\n")
    with serving(bucket) as server:
        text = format_estimate(Config(endpoint=server.url, ids=str(tmp_path / "ids.txt")))
        listed = {asked.key for asked in server.asked if asked.key.startswith("?metadata/")}
    assert listed == {"?metadata/PMC1.", "?metadata/PMC2.", "?metadata/PMC3."}
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows["listed"] == "2 versions, 2 articles to read"
    assert rows["warning:"].startswith("1 of 3 requested articles")
    assert "PMC3;" in rows["warning:"]
    assert rows["articles"] == "2"
    assert rows["figures"].startswith("2 ")
    assert rows["time"].startswith("0 s ")


def test_a_list_of_which_the_bucket_contains_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("PMC3\nPMC4\n")
    with serving(Bucket()) as server:
        wanted = Config(endpoint=server.url, ids=str(tmp_path / "ids.txt"))
        with pytest.raises(SourceError, match="none of the 2 requested articles"):
            estimate(wanted)


@pytest.mark.parametrize(
    ("total", "error", "text"),
    [(0, 0, "0"), (1_234_567, 0.2, "1,234,567"), (1_234_567, 8_910, "1,230,000 ± 8,910"),
     (12.34, 0.567, "12.3 ± 0.567")],
)  # fmt: skip
def test_a_total_is_rounded_to_three_digits_if_it_is_not_exact(
    total: float, error: float, text: str
) -> None:
    assert str(Extrapolated(total, error)) == text
