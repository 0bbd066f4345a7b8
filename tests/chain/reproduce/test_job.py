"""Tables made to their end on synthetic data: shared steps, again, refused, failed, interrupted."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from biovl.chain.links import StepFailed
from biovl.chain.reproduce import report
from biovl.chain.reproduce.cells import Cell, cells
from biovl.chain.reproduce.command import main
from biovl.chain.reproduce.graph import Graph, build, read_settings
from biovl.chain.reproduce.job import Outcome, run_graph, survey
from biovl.chain.reproduce.papers import choose, read_papers
from tests.runtime.folders import content, nothing_done_to
from tests.runtime.interrupting import interrupted

pytestmark = pytest.mark.ray

PAPERS = read_papers()
TABLES = "biomedclip_s3,biomedclip_s6,biomedica_6"


def graph_of(folder: Path, tables: str = TABLES, **changes: Any) -> Graph:
    values = {
        **{"folder": str(folder), "size": "small", "stand_ins.articles": 10},
        **{"stand_ins.images": 6, "pretrain.epochs": 1},
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return build(PAPERS, choose(PAPERS, tables).values(), read_settings(values, PAPERS))


def made(graph: Graph, tables: str = TABLES) -> tuple[Outcome, dict[str, list[Cell]]]:
    outcome = run_graph(graph, progress=io.StringIO())
    return outcome, {
        name: cells(table, graph, outcome) for name, table in choose(PAPERS, tables).items()
    }


@pytest.fixture(scope="module")
def folder(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reproduced")
    graph = graph_of(path)
    outcome, found = made(graph)
    assert not outcome.failed
    for name, table in choose(PAPERS, TABLES).items():
        report.write(name, table, PAPERS, found[name], graph)
    return path


def test_every_number_has_one_of_ours_and_recalls_their_intervals(folder: Path) -> None:
    _, found = made(graph_of(folder))
    for name in ("biomedclip_s3", "biomedclip_s6"):
        for cell in found[name]:
            assert cell.ours is not None, cell
            assert cell.column == "loss" or cell.low <= cell.ours <= cell.high
    # The same model and report in both tables.
    shared = {
        name: [c.ours for c in found[name] if c.row == row and c.column != "loss"]
        for name, row in (
            ("biomedclip_s3", "pretrained on ImageNet"),
            ("biomedclip_s6", "4k"),
        )
    }
    assert shared["biomedclip_s3"] == shared["biomedclip_s6"]
    sizes = {cell.row: cell for cell in found["biomedica_6"]}
    stats = json.loads((folder / "biomedica_24m" / "stats.json").read_text())
    assert sizes["images"].ours == stats["corpus"]["images"]
    assert sizes["clinical annotators"].missing == "people"


def test_nothing_of_it_can_be_taken_for_a_result(folder: Path) -> None:
    results = folder / "results"
    for name in choose(PAPERS, TABLES):
        whole = json.loads((results / f"{name}.json").read_text())
        assert whole["synthetic"]
        assert {cell["equal"] for cell in whole["cells"]} == {"no"}
        for ending in ("txt", "md"):
            assert "SYNTHETIC" in (results / f"{name}.{ending}").read_text()


def test_the_second_time_nothing_is_done(folder: Path) -> None:
    with nothing_done_to(folder):
        outcome, _ = made(graph_of(folder))
    assert not outcome.failed


def test_another_table_makes_only_what_is_missing(folder: Path, tmp_path: Path) -> None:
    links = {found.step.name: found.state for found in graph_of(folder, "biomedclip_s8").links()}
    published = {name for name, state in links.items() if state == "published"}
    assert {"figures", "pmc_15m", "biomedclip", "pmc_15m_val-biomedclip"} <= published
    assert links["biomedclip_rn50"] == "to do"


def test_other_settings_are_refused_before_anything_runs(folder: Path) -> None:
    before = content(folder)
    with pytest.raises(StepFailed, match=r"biomedclip_2k: [\s\S]*batch") as refused:
        survey(graph_of(folder, biomedclip_2k__batch__pairs=5))
    assert f"rm -r {folder}/biomedclip_2k" in str(refused.value)
    assert "reports/biomedclip_2k" in str(refused.value)
    assert content(folder) == before


def test_a_failed_step_is_named_and_the_other_rows_go_on(folder: Path, tmp_path: Path) -> None:
    corpus = str(folder / "pmc_15m")
    graph = graph_of(
        tmp_path, "biomedclip_s6", use__pmc_15m=corpus, biomedclip_2k__batch__pairs=100_000
    )
    outcome, found = made(graph, "biomedclip_s6")
    assert list(outcome.failed) == ["biomedclip_2k"]
    by_row = {cell.row: cell for cell in found["biomedclip_s6"]}
    assert by_row["2k"].missing.startswith("biomedclip_2k failed: ")
    assert by_row["4k"].ours is not None


def test_an_interrupted_table_resumes(folder: Path, tmp_path: Path) -> None:
    with interrupted("scoring", 0):
        made(graph_of(tmp_path, "biomedclip_s6", use__pmc_15m=str(folder / "pmc_15m")))
    graph = graph_of(tmp_path, "biomedclip_s6", use__pmc_15m=str(folder / "pmc_15m"))
    states = {found.step.name: found.state for found in graph.links()}
    assert states["biomedclip_2k"] == "published"
    outcome, found = made(graph, "biomedclip_s6")
    assert not outcome.failed
    assert all(cell.ours is not None for cell in found["biomedclip_s6"])


def test_a_table_without_its_data_has_the_papers_numbers_and_what_is_missing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(folder / "biomedclip")
    given = ["--set", f"use.biomedclip={model}", "--set", f"use.biomedclip_384={model}"]
    main(["biomedclip_s5", "--set", f"folder={tmp_path}", *given])
    *text, last = capsys.readouterr().out.splitlines()
    summary = json.loads(last)
    assert summary["tables"]["biomedclip_s5"] == {"cells": 12, "ours": 0}
    assert not summary["synthetic"]
    assert any("73.41" in line and "no number" in line for line in text)
    assert any("biovl prepare pcam" in line for line in text)
