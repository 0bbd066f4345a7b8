"""Harvest as a whole: on good, damaged and hostile packages, killed and run again."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError, SourceError
from biovl.core.plugins import Plugin
from biovl.core.records import Article, Figure, schema
from biovl.harvest import job
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import estimate, harvest, plan_units, read_unit
from biovl.harvest.sources.table import TableSource
from tests.runtime.folders import content, nothing_done_to
from tests.runtime.interrupting import counted, killing, process_of
from tests.runtime.typed import with_this_ray

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def run(source: Path, out: Path, **settings: object) -> HarvestConfig:
    values = {"source": {"name": "packages", "path": str(source)}, "out": str(out), **settings}
    config = configs.build(HarvestConfig, values)
    harvest(config)
    return config


@pytest.fixture(scope="module")
def harvested(
    sample_packages: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("harvest") / "figures"
    run(sample_packages, out, packages_per_unit=3)
    return out


def rows(out: Path, table: str) -> list[dict]:
    parts = sorted((out / table).glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def test_every_package_is_one_row_and_the_manifest_adds_up(
    harvested: Path, sample_packages: Path
) -> None:
    articles, figures = rows(harvested, "articles"), rows(harvested, "figures")
    counts = json.loads((harvested / "manifest.json").read_text())["counts"]
    assert len(articles) == len(list(sample_packages.iterdir()))
    for table, found in (("articles", articles), ("figures", figures)):
        defects = [row["defect"] for row in found if row["defect"]]
        assert counts[table]["seen"] == len(found)
        assert counts[table]["defective"] == len(defects)
        assert counts[table]["usable"] == len(found) - len(defects)
        assert counts[table]["defects"] == {d: defects.count(d) for d in sorted(set(defects))}
    assert counts["articles"]["usable"] >= 7
    assert counts["articles"]["defective"] >= 5
    assert "reader failed" not in counts["articles"]["defects"]


def test_tables_have_the_schema_and_ids_are_unique(harvested: Path) -> None:
    for table, record in (("articles", Article), ("figures", Figure)):
        for part in (harvested / table).glob("*.parquet"):
            assert pq.read_schema(part).equals(schema(record))
    figures = rows(harvested, "figures")
    ids = [row["figure_id"] for row in figures]
    assert len(set(ids)) == len(ids)
    articles = {row["source_uri"]: row for row in rows(harvested, "articles")}
    per_article: dict[str, int] = {}
    for row in figures:
        assert row["article_id"] == articles[row["source_uri"]]["article_id"]
        per_article[row["source_uri"]] = per_article.get(row["source_uri"], 0) + 1
    assert all(row["figure_count"] == per_article.get(uri, 0) for uri, row in articles.items())


def test_a_finished_job_does_nothing_and_another_configuration_is_refused(
    harvested: Path, sample_packages: Path
) -> None:
    with nothing_done_to(harvested):
        config = run(sample_packages, harvested, packages_per_unit=3)
    with pytest.raises(ArtifactError, match="packages_per_unit: 3 -> 5"):
        harvest(configs.override(config, {"packages_per_unit": 5}))


def _pack(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "a.nxml").write_text("<article/>")


def test_a_harvest_warns_that_its_source_has_changed(tmp_path: Path, ray_session: None) -> None:
    source, out = tmp_path / "packages", tmp_path / "out"
    _pack(source, "PMC1", "PMC2", "PMC3")
    config = run(source, out, may_be_empty=True)
    before = content(out)
    published = harvest(config)
    assert published.warnings == []
    _pack(source, "PMC4", "PMC5")
    shutil.rmtree(source / "PMC1")
    (source / "PMC2" / "a.nxml").write_text("<article></article>")
    told = io.StringIO()
    again = harvest(config, progress=told)
    (warning,) = again.warnings
    for count in ("2 added (PMC4/a.nxml …)", "1 removed (PMC1/a.nxml)", "1 with another size"):
        assert count in warning
    assert warning in told.getvalue()
    assert (again.counts, content(out)) == (published.counts, before)
    # Packages that were deleted to save space, all of them, are no other packages.
    shutil.rmtree(source)
    assert harvest(config) == published


def test_a_resumed_harvest_warns_of_packages_that_its_plan_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    source, out = tmp_path / "packages", tmp_path / "out"
    _pack(source, "PMC1", "PMC2")
    values = {"source": {"name": "packages", "path": str(source)}, "out": str(out)}
    config = configs.build(HarvestConfig, {**values, "may_be_empty": True})
    interrupt(config, monkeypatch)
    _pack(source, "PMC3")
    resumed = harvest(config)
    assert resumed.counts["articles"]["seen"] == 2
    assert [warning for warning in resumed.warnings if "1 added (PMC3/a.nxml)" in warning]


def test_a_harvest_of_an_earlier_version_is_compared_with_nothing(
    tmp_path: Path, ray_session: None
) -> None:
    source, out = tmp_path / "packages", tmp_path / "out"
    _pack(source, "PMC1")
    config = run(source, out, may_be_empty=True)
    values = json.loads((out / "manifest.json").read_text())
    del values["files"]["listing.parquet"]
    (out / "manifest.json").write_text(json.dumps(values))
    (out / "listing.parquet").unlink()
    _pack(source, "PMC2")
    assert harvest(config).warnings == []


def test_a_folder_with_other_things_in_it_is_refused(sample_packages: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ArtifactError, match=r"thesis\.tex"):
        run(sample_packages, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def start(source: Path, out: Path) -> subprocess.Popen:
    """Start the script as a user would, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "pipelines/harvest.py", "packages", "--set", f"source.path={source}",
         "--set", f"out={out}", "--set", "packages_per_unit=3"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=with_this_ray(),
    )  # fmt: skip


def receipts(out: Path) -> int:
    return len(list((out / ".draft" / "units").glob("*.json")))


def wait_for(condition: object, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_killed_at_any_time_and_run_again_gives_the_same_bytes(
    harvested: Path, sample_packages: Path, tmp_path: Path
) -> None:
    out = tmp_path / "figures"
    killed = start(sample_packages, out)
    wait_for(lambda: receipts(out) >= 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (out / "manifest.json").exists()
    kept = receipts(out)
    # What was being written when the driver died must not survive into the folder.
    (out / ".draft" / "unfinished").mkdir(exist_ok=True)
    (out / ".draft" / "unfinished" / "half").write_bytes(b"half a part")
    with counted() as stages:
        run(sample_packages, out, packages_per_unit=3)
    # Workers may have finished another unit before they noticed.
    assert stages["unit"][0] >= kept
    assert content(out) == content(harvested)


def test_a_killed_worker_does_not_stop_the_job(
    harvested: Path, sample_packages: Path, tmp_path: Path
) -> None:
    for attempt in range(20):
        out = tmp_path / f"figures-{attempt}"
        with killing(lambda: process_of("Map")) as killed:
            run(sample_packages, out, packages_per_unit=3)
        # The tasks may be over before one is seen.
        if killed:
            break
    assert killed
    assert content(out) == content(harvested)


@pytest.mark.parametrize("out", ["packages/figures", "packages", "packages/PMC1/out", "."])
def test_nothing_is_published_among_packages_or_above_them(out: str, tmp_path: Path) -> None:
    folder = tmp_path / "packages" / "PMC1"
    folder.mkdir(parents=True)
    (folder / "a.nxml").write_text("<article/>")
    before = content(tmp_path)
    source = {"name": "packages", "path": str(tmp_path / "packages")}
    values = {"source": source, "out": str(tmp_path / out)}
    for function in (harvest, estimate):
        with pytest.raises(ArtifactError, match=r"^out: "):
            function(configs.build(HarvestConfig, values))
    assert content(tmp_path) == before
    assert {path.name for path in tmp_path.rglob("*")} == {"packages", "PMC1", "a.nxml"}


@pytest.mark.parametrize("images", ["", "images"])
def test_nothing_is_published_among_the_images_of_a_table(images: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    path = "a.png" if images else "images/a.png"
    (tmp_path / "t.csv").write_text(f"image,caption\n{path},A caption\n")
    source = {"name": "table", "path": str(tmp_path / "t.csv")}
    if images:
        source["images"] = str(tmp_path / images)
    values = {"source": source, "out": str(tmp_path / "images" / "figures")}
    with pytest.raises(ArtifactError, match=r"^out: .*images"):
        harvest(configs.build(HarvestConfig, values))
    # Beside them is where people publish.
    assert estimate(configs.build(HarvestConfig, {**values, "out": str(tmp_path / "figures")}))


def test_the_articles_of_a_table_are_counted_before_they_are_read(tmp_path: Path) -> None:
    rows = [f"a{number}.png,A caption,A{number // 2}" for number in range(1_003)]
    (tmp_path / "t.csv").write_text("\n".join(["image,caption,article_id", *rows]))
    source = {"name": "table", "path": str(tmp_path / "t.csv")}
    values = {"source": source, "out": str(tmp_path / "figures")}
    told = estimate(configs.build(HarvestConfig, values))
    assert told.split()[:2] == ["articles", "502"]


def test_nothing_to_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = start(tmp_path / "empty", tmp_path / "out")
    _, stderr = done.communicate(timeout=600)
    assert done.returncode == 2
    assert "no packages" in stderr
    absent = start(tmp_path / "absent", tmp_path / "out2")
    _, stderr = absent.communicate(timeout=600)
    assert absent.returncode == 2
    assert "absent" in stderr.splitlines()[-1]


def test_parts_stay_small_and_order_does_not_depend_on_them(
    harvested: Path, sample_packages: Path, tmp_path: Path, ray_session: None
) -> None:
    out = tmp_path / "figures"
    run(sample_packages, out, packages_per_unit=1000, part_size_mb=1)
    assert len(list((out / "figures").glob("*.parquet"))) > 1
    assert rows(out, "figures") == rows(harvested, "figures")
    shutil.rmtree(out)


def test_one_process_without_ray_writes_the_same_parts(
    harvested: Path, sample_packages: Path, tmp_path: Path
) -> None:
    source = {"name": "packages", "path": str(sample_packages)}
    settings = {"source": source, "out": str(tmp_path / "out"), "packages_per_unit": 3}
    config = configs.build(HarvestConfig, settings)
    for number, unit in enumerate(plan_units(config)):
        read_unit(config, number, unit)
    for table in ("articles", "figures"):
        assert content(tmp_path / "out" / table) == content(harvested / table)


def test_a_table_of_private_images(tmp_path: Path, ray_session: None) -> None:
    Image.linear_gradient("L").save(tmp_path / "a.png")
    rows_ = "image,caption,article_id\na.png,A gradient,one\nabsent.png,Nothing,two\n"
    (tmp_path / "t.csv").write_text(rows_)
    out = tmp_path / "out"
    settings = {"source": {"name": "table", "path": str(tmp_path / "t.csv")}, "out": str(out)}
    counts = harvest(configs.build(HarvestConfig, settings)).counts
    assert counts["articles"]["seen"] == 2
    assert counts["figures"]["defects"] == {"image missing": 1}
    good, bad = rows(out, "figures")
    assert good["image"] == (tmp_path / "a.png").read_bytes()
    assert (good["caption"], good["width_px"], bad["image"]) == ("A gradient", 256, None)


def table_of(tmp_path: Path) -> HarvestConfig:
    """Return the harvest of a table in two units."""
    Image.linear_gradient("L").save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("image,caption\n" + "a.png,Old\n" * 65)
    source = {"name": "table", "path": str(tmp_path / "t.csv")}
    values = {"source": source, "out": str(tmp_path / "out"), "packages_per_unit": 1}
    return configs.build(HarvestConfig, values)


def test_a_table_that_changed_is_not_the_one_that_was_harvested(
    tmp_path: Path, ray_session: None
) -> None:
    config, table = table_of(tmp_path), tmp_path / "t.csv"
    old = table.read_bytes()
    published = harvest(config)
    assert [(item.name, item.uri) for item in published.inputs] == [("table", str(table))]
    table.write_bytes(old.replace(b"Old", b"New"))
    with pytest.raises(ArtifactError, match=r"inputs\.table .*t\.csv: '\w{64}' -> '\w{64}'"):
        harvest(config)
    # The old table in its place, or none: nothing else was harvested.
    table.write_bytes(old)
    assert harvest(config) == published
    table.unlink()
    assert harvest(config) == published


def test_an_interrupted_harvest_does_not_mix_rows_of_two_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    config, table = table_of(tmp_path), tmp_path / "t.csv"
    interrupt(config, monkeypatch)
    old = table.read_bytes()
    table.write_bytes(old.replace(b"Old", b"New"))
    with pytest.raises(ArtifactError, match=r"(?s)inputs\.table .*Choose another folder"):
        harvest(config)
    table.write_bytes(old)
    harvest(config)
    assert {row["caption"] for row in rows(tmp_path / "out", "figures")} == {"Old"}


def test_a_table_that_changes_while_it_is_harvested_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    config, table = table_of(tmp_path), tmp_path / "t.csv"
    read_units = job.read_units

    def read_and_change(*args: Any) -> None:
        read_units(*args)
        table.write_bytes(table.read_bytes().replace(b"Old", b"New"))

    monkeypatch.setattr(job, "read_units", read_and_change)
    with pytest.raises(SourceError, match=r"t\.csv changed while it was harvested"):
        harvest(config)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_harvests_of_earlier_versions_recorded_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    config, table = table_of(tmp_path), tmp_path / "t.csv"
    with monkeypatch.context() as earlier:
        earlier.setattr(TableSource, "inputs", lambda self: [])
        interrupt(config, earlier)
    table.write_bytes(table.read_bytes().replace(b"Old", b"New"))
    published = harvest(config)
    assert published.inputs == []
    assert harvest(config) == published


def interrupt(config: HarvestConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a harvest after its first unit."""

    def read_one(*args: Any) -> None:
        read_unit(config, 0, plan_units(config)[0])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(job, "read_units", read_one)
        harvest(config)


def test_a_missing_setting_of_a_source_is_named_as_it_is_set(tmp_path: Path) -> None:
    config = HarvestConfig(out=str(tmp_path / "out"), source=Plugin("table", {}))
    with pytest.raises(ConfigError, match=r"source\.NAME\)[^\n]*\n  path: "):
        job.check(config)
