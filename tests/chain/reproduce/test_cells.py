"""Our numbers are those of the reports: scores, averages over what is there, places in a file."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biovl.benchmark import benchmarks
from biovl.benchmark.config import BenchmarkConfig
from biovl.chain.links import Link
from biovl.chain.reproduce import report
from biovl.chain.reproduce.cells import Cell, _at, cells
from biovl.chain.reproduce.graph import Graph, build, read_settings
from biovl.chain.reproduce.job import Outcome
from biovl.chain.reproduce.papers import choose, read_papers
from biovl.chain.reproduce.stand_ins import StandInsConfig, draw
from biovl.core import plugins

PAPERS = read_papers()
TABLE = PAPERS.tables["biomedclip_s5"]
NAMES = ("pcam", "lc25000_lung", "lc25000_colon", "tcga_til", "rsna")
METRICS = dict.fromkeys(NAMES, "accuracy") | {"tcga_til": "auroc"}


def graph_of(folder: Path) -> Graph:
    values = {"folder": str(folder), "use.biomedclip": "model", "use.biomedclip_384": "model"}
    settings = read_settings(values, PAPERS)
    return build(PAPERS, choose(PAPERS, "biomedclip_s5").values(), settings)


def with_reports(folder: Path, scores: dict[str, float]) -> tuple[Graph, Outcome]:
    """Return the graph, with a report of the row 224px for each score."""
    graph = graph_of(folder)
    published = {}
    for own in graph.reports["biomedclip", "zero_shot"]:
        (name,) = own.benchmarks
        if name not in scores:
            continue
        out = folder / own.step
        out.mkdir()
        value = scores[name]
        score = {"model": "m", "task": name, "name": METRICS[name], "value": value}
        other = {**score, "name": "other", "value": 0.0}
        note = {"model": "m", "task": name, "protocol": [f"of {name}"]}
        ends = {"low": value - 0.01, "high": value + 0.01, "count": 9}
        listed = [{**score, **ends}, {**other, **ends}]
        if name == "tcga_til":
            listed.reverse()
        whole = {"scores": listed, "notes": [note], "skipped": []}
        (out / "scores.json").write_text(json.dumps(whole))
        step = next(step for step in graph.steps if step.name == own.step)
        published[own.step] = Link(step, SimpleNamespace(out=str(out)), "published")
    return graph, Outcome(published, dict(graph.missing), {})


def row(found: list[Cell], name: str) -> dict[str, Cell]:
    return {cell.column: cell for cell in found if cell.row == name}


def test_the_papers_own_scores_have_the_papers_average(tmp_path: Path) -> None:
    paper = TABLE.rows[0].paper
    scores = {name: value / 100 for name, value in zip(NAMES, paper[:-1], strict=True) if value}
    found = row(cells(TABLE, *with_reports(tmp_path, scores)), "224px")
    for cell in found.values():
        assert cell.ours == pytest.approx(cell.paper, abs=0.005)
        assert cell.equal == "partly"
    assert found["PCam"].low == pytest.approx(72.41)
    assert found["PCam"].protocol == ("of pcam",)
    assert found["mean"].low is None


def test_an_average_over_fewer_says_so_and_is_not_equal(tmp_path: Path) -> None:
    found = row(cells(TABLE, *with_reports(tmp_path, {"pcam": 0.5, "tcga_til": 0.7})), "224px")
    assert found["mean"].ours == pytest.approx(60)
    assert (found["mean"].of, found["mean"].equal) == ("2 of 5", "no")
    assert "biovl prepare rsna" in found["RSNA"].missing


def test_text_and_markdown_have_every_row_and_what_is_missing(tmp_path: Path) -> None:
    graph, outcome = with_reports(tmp_path, {"pcam": 0.5})
    found = cells(TABLE, graph, outcome)
    for written in (
        report.as_text(TABLE, PAPERS, found, is_small=False),
        report.as_markdown(TABLE, PAPERS, found, is_small=False),
    ):
        assert "49.00–51.00" in written
        assert written.count("no number") >= 10
        assert "SYNTHETIC" not in written
        assert "docs/differences.md" in written


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("lengths.min", 3),
        ("licenses.license~CC-BY.articles", 5),
        ("licenses.license=CC-BY-ND.articles", None),
        ("licenses.license~CC-BY-NC.articles", 7),
        ("licenses.license~CC0.articles", 0),
        ("groups.*", 9),
        ("lengths.nothing.min", None),
    ],
)
def test_places_in_a_file(place: str, value: Any) -> None:
    file = {
        "lengths": {"min": 3},
        "licenses": [
            {"license": "CC-BY-4.0", "articles": 4},
            {"license": "CC-BY-3.0-IGO", "articles": 1},
            {"license": "CC-BY-NC-4.0", "articles": 7},
        ],
        "groups": {"other": 2, "commercial": 7},
    }
    assert _at(file, place) == value


def test_every_benchmark_has_a_stand_in_that_its_task_can_read(tmp_path: Path) -> None:
    draw(StandInsConfig(out=str(tmp_path / "drawn"), articles=2, images=4))
    suites = ("biomedica", "biomedclip", "mimic_cxr")
    for suite in suites:
        how = "zero_shot" if suite == "biomedclip" else "closed_vqa"
        config = BenchmarkConfig(
            out="none",
            model="none",
            benchmarks=(suite,),
            benchmarks_as=how,
            data_root=str(tmp_path / "drawn"),
        )
        tasks, skipped = benchmarks.resolve_tasks(config)
        assert not skipped
        for plugin in tasks.values():
            plugins.make(benchmarks.TASKS, plugin).data()


def test_results_name_the_settings_that_the_command_changed(tmp_path: Path) -> None:
    values = {"folder": str(tmp_path), "pretrain.epochs": 1, "pretrain.workers.count": 2}
    settings = read_settings({**values, "use.pmc_15m": "corpus"}, PAPERS)
    graph = build(PAPERS, choose(PAPERS, "biomedclip_s5").values(), settings)
    found = cells(TABLE, graph, Outcome({}, {}, {}))
    line = "Made with settings of yours: pretrain.epochs=1, use.pmc_15m=corpus."
    assert {cell.equal for cell in found} == {"no"}
    assert line in report.write("biomedclip_s5", TABLE, PAPERS, found, graph)
    for ending in ("md", "json"):
        assert line in (tmp_path / f"results/biomedclip_s5.{ending}").read_text()


@pytest.mark.parametrize(
    ("setting", "rows"),
    [
        ("biomedclip_384.epochs", {"384px"}),
        ("pmc_15m.seed", {"224px", "384px"}),
        ("zero_shot.seed", {"224px", "384px"}),
        ("pretrain.step.loss=siglip", {"224px", "384px"}),
        ("pretrain.step.distill.weight=0.5", {"224px", "384px"}),
        ('pretrain.step={"loss": "siglip"}', {"224px", "384px"}),
        ("pretrain.batch.later={}", {"224px", "384px"}),
        ("pretrain.step.micro_batch", set()),
        ("pretrain.save.every_steps", set()),
        ("pretrain.validation.gpus", set()),
        ('pretrain.workers={"count": 2}', set()),
        ("benchmark.workers.gpus", set()),
        ("benchmark.per_unit", set()),
        ("harvest.packages_per_unit", set()),
    ],
)
def test_numbers_after_a_changed_setting_are_not_equal(
    setting: str, rows: set[str], tmp_path: Path
) -> None:
    name, _, text = setting.partition("=")
    value = json.loads(text) if text.startswith("{") else text or 1
    settings = read_settings({"folder": str(tmp_path), name: value}, PAPERS)
    graph = build(PAPERS, choose(PAPERS, "biomedclip_s5").values(), settings)
    found = cells(TABLE, graph, Outcome({}, {}, {}))
    assert {cell.row for cell in found if cell.equal == "no"} == rows


def test_time_of_training_is_relative_to_the_first_row(tmp_path: Path) -> None:
    table = PAPERS.tables["biomedclip_s4"]
    settings = read_settings({"folder": str(tmp_path)}, PAPERS)
    graph = build(PAPERS, {"biomedclip_s4": table}.values(), settings)
    published = {}
    for each, seconds in zip(table.rows, ([2.0, 2.0], [5.0, 1.0]), strict=True):
        out = tmp_path / each.model
        out.mkdir()
        (out / "metrics.jsonl").write_text(
            "".join(json.dumps({"step": n, "step_s": s}) + "\n" for n, s in enumerate(seconds))
        )
        step = next(step for step in graph.steps if step.name == each.model)
        published[each.model] = Link(step, SimpleNamespace(out=str(out)), "published")
    found = cells(table, graph, Outcome(published, {}, {}))
    times = [cell for cell in found if cell.column == "training time"]
    assert [cell.ours for cell in times] == [1.0, 1.5]
    # Of a model that was not trained here nothing is known.
    del published[table.rows[0].model]
    lacking = cells(table, graph, Outcome(published, {table.rows[0].model: "stopped"}, {}))
    assert {cell.missing for cell in lacking if cell.column == "training time"} == {"stopped"}


def test_the_list_says_what_each_table_needs(tmp_path: Path) -> None:
    names = ("biomedclip_s5", "biomedica_8")
    few = replace(PAPERS, tables={name: PAPERS.tables[name] for name in names})
    settings = read_settings({"folder": str(tmp_path)}, few)
    graphs = {name: build(few, [table], settings) for name, table in few.tables.items()}
    text = report.listing(few, graphs)
    with_data, without = (text.partition(f"  {name}: ")[2].split("\n\n")[0] for name in names)
    assert f"needs data: {', '.join(NAMES)} (biovl prepare --list)" in with_data
    assert "1 x harvest" in with_data
    assert "no steps" in without
    assert "needs" not in without
