"""The whole chain on a small sample: once, again, with other settings, and interrupted."""

import contextlib
import html
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biovl import __main__ as program
from biovl.benchmark.job import benchmark
from biovl.chain import job as chain_job
from biovl.chain import recipes as chain_recipes
from biovl.chain import reports
from biovl.chain.job import run_chain
from biovl.chain.links import Link, Step, StepFailed, links, read_chain
from biovl.chain.steps import STEPS
from biovl.core.artifacts import Manifest
from biovl.core.errors import BiovlError
from biovl.runtime.job import Job
from tests.docs.checking import check
from tests.docs.pages import words
from tests.runtime.folders import content, nothing_done_to
from tests.runtime.interrupting import counted, interrupted
from tests.runtime.typed import run_command

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def values(packages: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        **chain_recipes.demo(),
        "harvest.packages_per_unit": 3,
        "pretrain.epochs": 1,
        "pretrain.batch.pairs": 8,
        "source.path": str(packages),
        "folder": str(folder),
        **{name.replace("__", "."): value for name, value in changes.items()},
    }


def run(given: dict[str, Any]) -> tuple[list[Link], str]:
    """Run a chain as the script does; return what is published, and the page."""
    chain = read_chain(STEPS, "demo", given)
    done = run_chain(
        chain, progress=io.StringIO(), after=lambda at, took: reports.note(chain, at, took)
    )
    return done, reports.note(chain, done, {})


@pytest.fixture(scope="module")
def published(
    sample_packages: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    run(values(sample_packages, folder))
    return folder


def test_every_step_is_published_and_the_page_tells_it(
    published: Path, sample_packages: Path
) -> None:
    names = {path.name for path in published.iterdir()}
    steps = {"figures", "corpus", "model", "index", "report"}
    assert names == {*steps, ".benchmark-cache", "story.json", "summary.html"}
    assert all((published / name / "manifest.json").exists() for name in steps)
    page = (published / "summary.html").read_text()
    articles = len(list(sample_packages.iterdir()))
    assert f"of {articles} articles" in page
    assert "From articles to a search engine for figures" in page
    seconds = json.loads((published / "story.json").read_text())["seconds"]
    assert set(seconds) == {"harvest", "assemble", "pretrain", "index", "benchmark"}
    chain = read_chain(STEPS, "demo", values(sample_packages, published))
    told = reports.outcome(chain, links(STEPS, chain))
    assert f"{articles} articles" in told
    assert "image missing" in told
    summary = json.loads(reports.summary(chain, links(STEPS, chain), "p"))
    assert summary["steps"]["harvest"]["articles"]["seen"] == articles
    assert any(line.startswith("assemble: val has ") for line in summary["warnings"])
    assert "warning: assemble: val has " in told
    assert 'id="warnings"' in page


def test_the_page_calls_the_sample_synthetic_and_nobody_its_author(published: Path) -> None:
    page = (published / "summary.html").read_text()
    assert "are synthetic" in page
    assert "authors" not in page
    assert "All of it is synthetic" in (published / "corpus" / "README.md").read_text()


def test_every_command_on_the_page_can_be_typed(
    published: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (published / "summary.html").read_text()
    commands = [html.unescape(text) for text in re.findall("<pre><code>(.*?)</code>", page, re.S)]
    assert len(commands) == 4
    for command in commands:
        if command.startswith("from "):
            exec(compile(command, "summary.html", "exec"), {})
            continue
        check(words(command))
        if "--dry-run" in command:
            monkeypatch.setattr("sys.argv", words(command))
            program.main()
            assert "parameters" in capsys.readouterr().out


def test_the_second_time_nothing_is_done_nor_told_again(
    published: Path, sample_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = read_chain(STEPS, "demo", values(sample_packages, published))
    told = io.StringIO()
    monkeypatch.setitem(benchmark.__wrapped__.__kwdefaults__, "progress", told)
    with nothing_done_to(published):
        done = run_chain(chain, progress=io.StringIO())
    assert told.getvalue() == ""
    before = content(published)
    reports.note(chain, done, {})
    assert content(published) == before
    assert [Path(link.out).name for link in done] == [
        "figures",
        "corpus",
        "model",
        "index",
        "report",
    ]


@pytest.mark.parametrize(
    ("step", "file"),
    [
        ("harvest", "figures/figures/part-000000-000.parquet"),
        ("assemble", "corpus/train/00000.tar"),
        ("pretrain", "model/open_clip_config.json"),
        ("index", "index/images.faiss"),
        ("benchmark", "report/scores.json"),
    ],
)
@pytest.mark.parametrize("size", [None, 3])
def test_a_step_whose_files_are_gone_is_not_done(
    published: Path, sample_packages: Path, step: str, file: str, size: int | None
) -> None:
    lost, before = published / file, content(published)
    whole = lost.read_bytes()
    lost.unlink()
    if size is not None:
        lost.write_bytes(whole[:size])
    chain = read_chain(STEPS, "demo", values(sample_packages, published))
    try:
        states = {link.step.name: link.state for link in links(STEPS, chain)}
        for name in ("", "other"):
            with pytest.raises(StepFailed, match=step):
                run(values(sample_packages, published, name=name))
    finally:
        lost.write_bytes(whole)
    assert states[step] == "damaged"
    names = list(states)
    assert all(states[name] == "published" for name in names[: names.index(step)])
    assert all(link.state == "published" for link in links(STEPS, chain))
    assert content(published) == before


def test_packages_added_to_the_source_are_a_warning_of_a_finished_chain(
    published: Path, sample_packages: Path
) -> None:
    chain = read_chain(STEPS, "demo", values(sample_packages, published))
    before = json.loads(reports.summary(chain, links(STEPS, chain), "p"))["warnings"]
    added, told = sample_packages / "PMC1234567.tar.gz", io.StringIO()
    added.write_bytes(b"not read")
    try:
        done = run_chain(chain, progress=told)
        shown = reports.plan(chain, links(STEPS, chain))
    finally:
        added.unlink()
    (warning,) = set(json.loads(reports.summary(chain, done, "p"))["warnings"]) - set(before)
    assert warning.startswith("harvest: ")
    for text in (warning, told.getvalue(), shown):
        assert "1 added (PMC1234567.tar.gz)" in text
    assert [link.state for link in links(STEPS, chain)] == ["published"] * 5


def test_another_setting_overwrites_nothing_and_says_what_would_have_to_go(
    published: Path, sample_packages: Path
) -> None:
    before = content(published)
    with pytest.raises(StepFailed) as refused:
        run(values(sample_packages, published, pretrain__epochs=2))
    told = str(refused.value)
    assert told.startswith("pretrain: ")
    assert "epochs: 1 -> 2" in told
    steps = "\n  ".join(f"rm -r {published}/{name}" for name in ("model", "index", "report"))
    assert steps in told
    assert f"{published}/corpus" not in told
    assert content(published) == before


def test_a_late_setting_redoes_only_its_step_and_leaves_the_other_result(
    published: Path, sample_packages: Path
) -> None:
    before = content(published)
    written = {path: path.stat().st_mtime_ns for path in published.glob("*/manifest.json")}
    given = values(sample_packages, published, index__thumbnail_px=32, name="small")
    done, page = run(given)
    names = ["figures", "corpus", "model", "index-small", "report"]
    assert [Path(link.out).name for link in done] == names
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert page == f"{published}/summary-small.html"
    after = content(published)
    assert {name: after[name] for name in before} == before
    small = (published / "index-small" / "thumbnails.bin").stat().st_size
    assert small < (published / "index" / "thumbnails.bin").stat().st_size


def test_interrupted_within_a_step_and_between_steps_it_goes_on_to_the_same(
    published: Path, sample_packages: Path, tmp_path: Path
) -> None:
    left_out = dict.fromkeys(("pretrain__recipe", "index__recipe", "benchmark__recipe"))
    given = {
        name: value
        for name, value in values(sample_packages, tmp_path, **left_out).items()
        if not name.startswith("pretrain.") or name == "pretrain.recipe"
    }
    with interrupted("unit"):
        run(given)
    assert not (tmp_path / "figures" / "manifest.json").exists()
    with counted() as stages, interrupted("looking at part", 0):
        run(given)
    assert stages["unit"][0] >= 1
    assert not (tmp_path / "corpus" / "manifest.json").exists()
    harvested = (tmp_path / "figures" / "manifest.json").stat().st_mtime_ns
    # With a name, what was begun with other settings stays, and nothing else is done twice.
    for changed, folder in (({}, "corpus"), ({"assemble.image.short_side_px": 96}, "corpus-b")):
        chain = read_chain(STEPS, "demo", {**given, **changed, "name": "b"})
        assert [Path(link.out).name for link in links(STEPS, chain)] == ["figures", folder]
    last = run_command("pipelines/all.py", "demo", **given)
    assert last["steps"].keys() == {"harvest", "assemble"}
    assert (tmp_path / "summary.html").exists()
    assert (tmp_path / "figures" / "manifest.json").stat().st_mtime_ns == harvested
    for name in ("figures", "corpus"):
        expected, found = content(published / name), content(tmp_path / name)
        # It names the folder that was read, which is another.
        if name == "corpus":
            del expected["manifest.json"], found["manifest.json"]
        assert found == expected


def test_a_source_that_is_not_there_is_the_last_thing_said(
    ray_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command("pipelines/all.py", "demo", **values(tmp_path / "absent", tmp_path / "story"))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "harvest failed: " in said
    assert "absent" in said.splitlines()[-1]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    out: str = "?"


def test_the_time_of_a_step_is_that_of_all_its_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, attempts = [0.0], [3.0, 4.0]

    def work(config: Waiting, progress: Any = None) -> Manifest:
        job = Job.of(config, "x", output_format=1)
        published = job.find_published()
        if published is not None:
            return published
        with job.begin() as draft:
            clock[0] += attempts.pop(0)
            if attempts:
                raise BiovlError("a machine was lost")
            return draft.publish(job.manifest(counts={}))

    monkeypatch.setattr(chain_job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(chain_job, "connect_ray", contextlib.nullcontext)
    step = Step(name="harvest", folder="figures", recipes={"all": Waiting}, job=work)
    chain = read_chain((step,), "all", {"folder": str(tmp_path), "harvest.recipe": "all"})
    with pytest.raises(StepFailed):
        run_chain(chain, (step,), after=lambda at, took: reports.note(chain, at, took))
    assert json.loads((tmp_path / "story.json").read_text())["remaining"] == ["harvest"]
    run_chain(chain, (step,), after=lambda at, took: reports.note(chain, at, took))
    story = json.loads((tmp_path / "story.json").read_text())
    assert (story["seconds"], story["interrupted"]) == ({"harvest": 7.0}, {})
    assert story["remaining"] == []
