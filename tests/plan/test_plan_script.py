"""What pipelines/plan.py prints, and that it stays near what the papers report."""

import json
import runpy
import shlex
import sys

import numpy as np
import pytest

from biovl.plan import config as plan_config
from biovl.plan import papers, report
from biovl.plan.pretraining import lengths
from biovl.plan.tables import prices
from biovl.pretrain import hardware
from tests.docs.pages import blocks


def run(capsys, monkeypatch, *arguments) -> tuple[str, dict]:
    monkeypatch.setattr(sys, "argv", ["plan.py", *arguments])
    runpy.run_path("pipelines/plan.py", run_name="__main__")
    text = capsys.readouterr().out
    return text, json.loads(text.splitlines()[-1])


@pytest.mark.parametrize("preset", plan_config.RECIPES)
def test_a_preset_is_a_table_and_json(preset, capsys, monkeypatch) -> None:
    _, found = run(capsys, monkeypatch, preset)
    assert set(found["jobs"]) == {"harvest", "annotate", "assemble", "pretrain", "index", "serve"}
    assert all(job["hours"] > 0 for job in found["jobs"].values())
    dollars = sum(job["dollars"] for job in found["jobs"].values()) + found["storage_dollars"]
    assert found["total"]["dollars"] == pytest.approx(dollars)
    assert (found["total"]["dollars"] == 0) == (preset == "laptop")


@pytest.mark.parametrize(
    "command", [c for block in blocks("docs/plan.md") for c in block.commands()]
)
def test_the_commands_of_its_page_run(command, capsys, monkeypatch) -> None:
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("biovl", "plan")
    _, found = run(capsys, monkeypatch, *arguments)
    assert len(found["papers"]) == (4 if "--compare" in arguments else len(found["papers"]))


def test_at_half_the_utilisation_training_takes_twice_as_long(capsys, monkeypatch) -> None:
    _, before = run(capsys, monkeypatch, "one_gpu")
    _, after = run(capsys, monkeypatch, "one_gpu", "--set", "assume.utilisation=0.5")
    low, high = before["jobs"]["pretrain"]["gpu_hours"], after["jobs"]["pretrain"]["gpu_hours"]
    assert high == pytest.approx(2 * low)


def test_all_of_pmc_has_the_figures_it_is_said_to_have() -> None:
    plan = report.reckon(plan_config.whole_pmc())
    assert plan.sizes.articles == 9_129_850
    assert plan.sizes.figures == pytest.approx(24e6, rel=0.01)


@pytest.fixture(scope="module")
def rows():
    return {(name, row.what): row for name in papers.names() for row in papers.compare(name)[1]}


@pytest.mark.parametrize(
    ("paper", "what", "low", "high"),
    [
        # Reckoned without a number of the paper's: operations, and a law of lengths by its mean.
        ("biomedclip", "training time at 384 px for that at 224 px", 0.95, 1.05),
        ("biomedclip", "captions within 256 tokens", 0.95, 1.05),
        ("bmc_longclip", "tokens lost beyond 77", 0.95, 1.05),
        ("bmc_longclip", "tokens lost beyond 512", 0.7, 1.3),
        ("bmca_clip", "captions, upper less lower quartile", 0.9, 1.1),
        ("bmca_clip", "pairs a GPU at a time", 1, 1),
        ("bmc_longclip", "pairs a GPU at a time", 1, 1),
    ],
)
def test_a_plan_stays_near_what_a_paper_reports(rows, paper, what, low, high) -> None:
    assert low <= rows[paper, what].ratio <= high


def test_what_stock_open_clip_took_lies_between_our_best_and_our_worst(rows) -> None:
    stock = [row for (paper, _), row in rows.items() if paper == "stock"]
    assert len(stock) == 2
    for row in stock:
        best, worst = row.between
        assert best < row.reported < worst


def test_where_a_paper_reports_no_hours_none_are_made_up(rows) -> None:
    silent = [row for (_, what), row in rows.items() if what.startswith("hours of training")]
    assert len(silent) == 3
    for row in silent:
        assert row.reported is None
        assert row.ratio is None
        assert row.where.startswith("not in the paper")


def test_every_accelerator_for_rent_is_one_we_know() -> None:
    known = {each.name for each in hardware.KNOWN}
    rented = {each.accelerator for each in prices().instances.values() if each.accelerator}
    assert {"A100-40", "A100-80", "H100", "H200"} <= rented <= known
    assert all(each.source for each in prices().instances.values())


def test_captions_have_the_mean_asked_for_and_start_and_end() -> None:
    found = lengths(118, 100_000)
    assert found.mean() == pytest.approx(120, rel=0.01)
    assert found.min() == 3
    # An exponential law: half are shorter than ln 2 of the mean.
    assert np.median(found) == pytest.approx(2 + 118 * np.log(2), rel=0.01)
