"""Harvesting the open-data bucket: by its limits, through faults, interrupted, by increments."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from biovl.core import config as configs
from biovl.core.errors import ArtifactError, StorageError
from biovl.harvest import pmc_job
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from biovl.sample.packages import PackageFiles
from tests.harvest.pmc.bucket import FIRST_DAY, Bucket, Fault, Server, sample, serving
from tests.runtime.folders import content
from tests.runtime.interrupting import interrupted

RATE, CONCURRENT = 60, 4
IMAGE = "jsm-9990000001-g001.jpg"
"""Of the first of the sample; a thumbnail lies beside it."""

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def articles() -> list[PackageFiles]:
    return sample(6)


@pytest.fixture
def server(articles: list[PackageFiles]) -> Iterator[Server]:
    """Six articles on the first day; each test has its own."""
    bucket = Bucket()
    for number, package in enumerate(articles):
        bucket.put_article(package, license_code=("CC BY", "CC BY-NC", "CC0")[number % 3])
    bucket.put_inventory("2026-10-01")
    with serving(bucket) as server:
        yield server


def config(server: Server, out: Path, **source: object) -> HarvestConfig:
    settings = {
        "name": "pmc_open_data", "endpoint": server.url, "requests_per_s": 1000, "concurrent": 8,
        "first_wait_s": 0.05, "read_s": 2, **source,
    }  # fmt: skip
    values = {"source": settings, "out": str(out), "packages_per_unit": 2}
    return configs.build(HarvestConfig, values)


def rows(out: Path, table: str) -> list[dict]:
    parts = sorted((out / table).glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def plain(row: dict) -> str:
    """Return a row as one that can stand in a set, its image by its hash."""
    image = row.get("image")
    digest = hashlib.sha256(image).hexdigest() if image is not None else None
    return json.dumps({**row, "image": digest}, sort_keys=True, default=str)


def test_what_is_chosen_comes_with_its_licence_and_only_its_figures_media_are_fetched(
    ray_session: None, server: Server, articles: list[PackageFiles], tmp_path: Path
) -> None:
    bucket, first, second, third = server.bucket, *articles[:3]
    # A manuscript and a version without media do not take the place of the published one.
    bucket.put_article(first, 2, is_manuscript=True, with_media=False, license_code="TDM")
    bucket.put_article(first, 10, with_media=False)
    # A later version that is retracted leaves the article out, an earlier one is not taken for it.
    bucket.put_article(second, 2, is_retracted=True)
    bucket.put_article(third, 3, is_pmc_openaccess=False)
    bucket.put_inventory("2026-10-02", extra=(f'"{bucket.name}","metadata/x.json","?","e"',))
    manifest = harvest(config(server, tmp_path / "out", requests_per_s=RATE, concurrent=CONCURRENT))
    found = {row["article_id"]: row for row in rows(tmp_path / "out", "articles")}
    assert set(found) == {p.pmcid for p in articles} - {second.pmcid}
    assert found[first.pmcid]["version"] == "1"
    assert (
        found[first.pmcid]["source_uri"]
        == f"s3://{bucket.name}/{first.pmcid}.1/{first.pmcid}.1.xml"
    )
    assert (found[first.pmcid]["license_code"], found[first.pmcid]["redistributable"]) == (
        "CC BY",
        True,
    )
    assert found[first.pmcid]["snapshot"] == "2026-09-01"
    # Not open access: what its XML says of a licence counts for nothing.
    uncleared = found[third.pmcid]
    assert (uncleared["version"], uncleared["license_group"]) == ("3", "other")
    assert (uncleared["redistributable"], uncleared["derivatives_allowed"]) == (False, False)
    assert manifest.counts["versions"] == {
        "listed": 10, "harvested": 5, "refused": {"key is no record of an article version": 1},
        "left_out": {"another version is taken": 2, "author manuscript": 1, "no media": 1, "retracted": 1},
    }  # fmt: skip
    figures = rows(tmp_path / "out", "figures")
    assert {f["license_group"] for f in figures if f["article_id"] == third.pmcid} == {"other"}
    for figure in figures:
        if figure["image"] is not None:
            name = f"{figure['article_id']}.{figure['version']}/{figure['image_name']}"
            assert figure["image"] == bucket.objects[name][0]
    got = server.got()
    assert max(got.values()) == 1 or [k for k, n in got.items() if n > 1] == ["?inventory-reports/"]
    assert not [key for key in got if key.endswith((".pdf", ".mp4", ".txt", "e001.gif"))]
    assert not [key for key in got if key.startswith(second.pmcid)]
    assert server.most_in_a_second() <= RATE
    assert max(asked.open for asked in server.asked) <= CONCURRENT


def test_articles_of_a_list_are_looked_up_one_by_one_and_absent_ones_are_named(
    ray_session: None, server: Server, articles: list[PackageFiles], tmp_path: Path
) -> None:
    wanted = [articles[0].pmcid, articles[2].pmcid]
    (tmp_path / "ids.txt").write_text("\n".join([*wanted, "PMC1", "PMC999"]))
    given_ids = {"ids": str(tmp_path / "ids.txt")}
    manifest = harvest(config(server, tmp_path / "out", **given_ids))
    assert {row["article_id"] for row in rows(tmp_path / "out", "articles")} == set(wanted)
    (warning,) = manifest.warnings
    assert warning.startswith("2 of 4 requested articles are not in")
    assert ": PMC1, PMC999;" in warning
    assert not [key for key in server.got() if key.endswith(".csv.gz")]
    # Unchanged articles are not read again, and are not absent.
    again = config(server, tmp_path / "next", since=str(tmp_path / "out"), **given_ids)
    lines = dict(line.split(maxsplit=1) for line in pmc_job.estimate(again).splitlines())
    assert lines["listed"] == "2 versions, 0 articles to read"
    assert lines["warning:"] == warning


def test_faults_are_waited_for_or_told_and_harm_nothing_else(
    ray_session: None, server: Server, tmp_path: Path
) -> None:
    springer = "PMC9990000004.1/SMC_9990000004_Fig{}_HTML.{}"
    images = [springer.format(n, "png" if n == 5 else "jpg") for n in range(1, 6)]
    images.append("PMC9990000005.1/rem-9990000005-gf01.jpg")
    assert set(images) <= set(server.bucket.objects)
    slow, cut, wrong, gone, shut, broken = images
    record = sorted(k for k in server.bucket.objects if k.startswith("metadata/"))[1]
    xml = "PMC9990000003.1/PMC9990000003.1.xml"
    server.faults = {
        slow: Fault("slowdown", 2), cut: Fault("truncated", 1), wrong: Fault("wrong"),
        gone: Fault("missing"), shut: Fault("forbidden"), broken: Fault("error"),
        record: Fault("reset", 1), xml: Fault("redirect", to="http://169.254.169.254/latest"),
    }  # fmt: skip
    del server.bucket.objects[gone]
    harvest(config(server, tmp_path / "out", tries=4))
    figures = {
        f"{f['article_id']}.{f['version']}/{f['image_name']}": f
        for f in rows(tmp_path / "out", "figures")
    }
    assert [figures[key]["defect"] for key in (slow, cut)] == [None, None]
    assert figures[wrong]["defect"] == "object differs from its checksum"
    assert figures[shut]["defect"] == "object is refused"
    assert figures[gone]["defect"] == "object is missing"
    assert figures[broken]["defect"] == "object cannot be fetched"
    tries = {key: sum(a.key == key for a in server.asked) for key in server.faults}
    assert tries[slow] == 3
    assert tries[cut] == 2
    assert tries[broken] == 4
    assert (tries[gone], tries[shut], tries[xml]) == (1, 1, 1)
    (article,) = [
        a for a in rows(tmp_path / "out", "articles") if a["article_id"] == "PMC9990000003"
    ]
    assert article["defect"] == "xml: object is refused"
    assert "redirect" in article["defect_detail"]
    others = [a for a in rows(tmp_path / "out", "articles") if a is not article]
    assert not [a for a in others if a["defect"] and a["article_id"] != "PMC9990000003"]


def test_a_service_that_is_gone_ends_the_job_which_goes_on_when_it_is_back(
    ray_session: None, server: Server, tmp_path: Path
) -> None:
    how = "forbidden"
    wanted = config(server, tmp_path / "out", tries=2)
    stopped = Fault(how)
    for key in server.bucket.objects:
        if not key.startswith(("inventory-reports", "metadata/")):
            server.faults[key] = stopped
    # The records were there a moment ago, and are not now.
    for key in list(server.bucket.objects):
        if key.startswith("metadata/"):
            server.faults[key] = Fault("after_first", to=how)
    with pytest.raises(StorageError):
        harvest(wanted)
    assert not (tmp_path / "out" / "manifest.json").exists()
    server.faults = {}
    server.forget()
    manifest = harvest(wanted)
    assert manifest.counts["articles"] == {"seen": 6, "usable": 6, "defective": 0, "defects": {}}
    assert not [key for key in server.got() if key.startswith(("metadata/", "?", "inventory"))]


def test_interrupted_during_a_fetch_it_goes_on_and_fetches_nothing_twice(
    ray_session: None, server: Server, tmp_path: Path
) -> None:
    wanted = config(server, tmp_path / "out", concurrent=3)
    server.latency_s = 0.05
    with interrupted("unit"):
        harvest(wanted)
    wait_for_silence(server)
    before = server.got()
    assert not (tmp_path / "out" / "manifest.json").exists()
    server.latency_s = 0.0
    server.forget()
    harvest(wanted)
    repeated = {key for key in server.got() if before[key]}
    # Those that were on their way when it ended, at most, and its probing of the endpoint.
    assert len(repeated) <= 3
    whole = config(server, tmp_path / "whole")
    harvest(whole)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert not (tmp_path / "out" / ".draft").exists()


def wait_for_silence(server: Server) -> None:
    """Wait until workers have noticed that their job ended."""
    asked = -1
    while asked != len(server.asked):
        asked = len(server.asked)
        time.sleep(0.5)


def test_an_increment_and_what_it_ends_make_the_second_harvest(
    ray_session: None, server: Server, articles: list[PackageFiles], tmp_path: Path
) -> None:
    bucket = server.bucket
    kept, revised, withdrawn, newer, rewritten, relicensed = articles
    wanted = {"licenses": ["commercial", "noncommercial"], "cache": str(tmp_path / "cache")}
    late = {"modified": FIRST_DAY + timedelta(days=40)}
    bucket.drop(f"{newer.pmcid}.1")
    bucket.drop(f"metadata/{newer.pmcid}.1")
    # What fails on the first day alone: an image, beside which another is taken, and two records.
    hurt, garbled, lagging = (replace(kept, pmcid=f"PMC{n}") for n in (81, 82, 83))
    # Equal bytes are stored once: those of the other article would be taken, if they came first.
    hurt = replace(hurt, files={**hurt.files, IMAGE: hurt.files[IMAGE] + b"\n"})
    for package in (hurt, garbled, lagging):
        bucket.put_article(package)
    bucket.put_inventory("2026-10-01")
    server.faults = {
        f"PMC81.1/{IMAGE}": Fault("error"),
        "metadata/PMC82.1.json": Fault("wrong"),
        "metadata/PMC83.1.json": Fault("gone"),
    }
    harvest(config(server, tmp_path / "first", tries=2, **wanted))
    (lost,) = pq.read_table(tmp_path / "first" / "unfetched.parquet").to_pylist()
    assert (lost["key"], lost["defect"]) == (f"PMC81.1/{IMAGE}", "object cannot be fetched")
    server.faults = {}
    # A record alone is changed, an article is retracted, one comes, a figure changes, one goes out
    # of reach of its licence, and there is a new version of another.
    bucket.put_article(revised, pmid=5, license_code="CC BY-NC", **late)
    bucket.put_article(withdrawn, is_retracted=True, **late)
    bucket.put_article(newer, license_code="CC BY", **late)
    image = next(name for name in rewritten.files if name.endswith(".jpg"))
    other = next(data for name, data in kept.files.items() if name.endswith(".jpg"))
    changed = PackageFiles(
        rewritten.pmcid, rewritten.xml_name, {**rewritten.files, image: other}, ()
    )
    bucket.put_article(changed, 2, license_code="CC BY-NC", **late)
    bucket.put_article(relicensed, license_code=None, is_pmc_openaccess=False, **late)
    bucket.put_inventory("2026-11-01")
    server.forget()
    first = tmp_path / "first"
    increment = harvest(config(server, tmp_path / "increment", since=str(first), **wanted))
    assert not [key for key in server.got() if kept.pmcid in key]
    second = harvest(config(server, tmp_path / "second", **wanted))
    tombs = pq.read_table(tmp_path / "increment" / "tombstones.parquet").to_pylist()
    assert {t["article_id"]: t["reason"] for t in tombs} == {
        revised.pmcid: "replaced", withdrawn.pmcid: "retracted", rewritten.pmcid: "replaced",
        relicensed.pmcid: "license", hurt.pmcid: "replaced",
    }  # fmt: skip
    ended = {tomb["source_uri"] for tomb in tombs}
    for table in ("articles", "figures"):
        before = [row for row in rows(first, table) if row["source_uri"] not in ended]
        merged = [plain(row) for row in before + rows(tmp_path / "increment", table)]
        assert sorted(merged) == sorted(plain(row) for row in rows(tmp_path / "second", table))
    assert rows(tmp_path / "increment", "catalogue") == rows(tmp_path / "second", "catalogue")
    assert increment.counts["versions"]["difference"] == {
        "new": 2, "changed": 3, "same": 5, "gone": 0,
    }  # fmt: skip
    assert second.counts["versions"]["harvested"] == 7
    # One goes on from the other; nothing has changed since.
    none = harvest(config(server, tmp_path / "none", since=str(tmp_path / "increment"), **wanted))
    assert none.counts["articles"]["seen"] == 0
    assert pq.read_table(tmp_path / "none" / "tombstones.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "none" / "figures").num_rows == 0
    with pytest.raises(ArtifactError, match="licenses"):
        harvest(config(server, tmp_path / "other", since=str(first)))
    shutil.rmtree(tmp_path / "cache")
