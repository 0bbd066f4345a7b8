"""What the page on differences says of settings and of the papers' numbers is true."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from biovl.benchmark import differences, report_files
from biovl.benchmark.benchmark_table import BENCHMARKS, SECTIONS, SUITES
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.differences import PARTS, Difference
from biovl.benchmark.report import TaskResult
from biovl.core import config as configs

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
ENTRIES = {one.title: one for part in PARTS.values() for one in part}
SETTINGS = [setting for one in ENTRIES.values() for setting in one.settings]


def live(at: str) -> Any:
    """Return the value of ``module:NAME.key…``; functions on the way are called."""
    module, _, path = at.partition(":")
    value: Any = importlib.import_module(module)
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value[name]
        elif isinstance(value, tuple | list):
            value = value[int(name)]
        else:
            value = getattr(value, name)
        if callable(value) and not isinstance(value, type):
            value = value()
    return value


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_has_the_value_that_the_page_states(setting: differences.LiveSetting) -> None:
    found = json.loads(json.dumps(live(setting.at)))
    assert found == json.loads(json.dumps(setting.value)), setting.at


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == differences.page()


def test_entries_are_about_benchmarks_and_notes_that_exist() -> None:
    for one in ENTRIES.values():
        assert set(one.benchmarks) <= BENCHMARKS.keys() | SECTIONS.keys(), one.title
        assert bool(one.note) == bool(one.benchmarks), one.title
        assert one.paper.endswith((".", ".)")), one.title
        assert one.here.endswith((".", ".)")), one.title


def test_the_filters_topics_have_more_images_than_the_paper_kept() -> None:
    # BIOMEDICA, table 16; the order is that of section 6.
    microscopy, clinical = 2_517_332, 1_928_158
    listed = [clinical, microscopy, 904_632, 2_919_995, 1_128_082, 324_265, 272_399, 457_141]
    others = [28_888, 35_353, 525_660, 639_029, 12_389_066]
    entry, total = ENTRIES["Concept filter"], sum(listed)
    assert f"{total:,}" in entry.paper
    biomedical = clinical + microscopy
    assert (round(100 * biomedical / total), round(100 * biomedical / 6_602_752)) == (43, 67)
    counts = ENTRIES["Counts that contradict each other"].paper
    assert f"{total + sum(others):,}" in counts
    assert round(100 * 12_389_066 / (total + sum(others))) == 51


def test_the_papers_test_set_of_rsna_is_no_rest_of_its_images() -> None:
    assert (int(0.7 * 26_684), round(0.15 * 26_684)) == (18_678, 4_003)
    assert 26_684 - 18_678 - 4_003 == 4_003
    assert -(-3 * 30_227 // 10) == 9_069


# Pathology: columns 3 to 5 of BIOMEDICA's table 3, and the mean of BMC-LongCLIP's table 2.
PATHOLOGY = {
    "PMC-CLIP": ((12.48, 29.86, 7.82), 19.11),
    "BiomedCLIP": ((17.03, 48.83, 42.39), 38.40),
    "BMC-CLIP": ((19.48, 55.81, 38.60), 41.21),
}


def test_pathology_has_five_neoplastic_tasks_in_the_second_paper() -> None:
    for columns, printed in PATHOLOGY.values():
        weighted = [value * tasks for value, tasks in zip(columns, (3, 5, 3), strict=True)]
        assert sum(weighted) / 11 == pytest.approx(printed, abs=0.006)
        stated = [value * tasks for value, tasks in zip(columns, (3, 4, 4), strict=True)]
        assert 0.5 < printed - sum(stated) / 11 <= 2.01


def test_means_that_do_not_add_up_are_those_of_their_columns() -> None:
    printed = ENTRIES["Rows whose mean is another"].paper
    for columns in (
        (24.63, 44.84, 20.24, 43.88, 36.81, 60.88, 68.27, 23.75, 20.37, 67.51),
        (23.58, 32.92, 36.27, 36.50, 38.33, 24.69, 30.45, 43.50, 10.15, 36.78),
        (49.67, 85.66, 46.77, 29.23),
        (47.29, 71.89, 39.27, 48.00),
        (34.95, 55.16, 53.37, 55.41, 42.87, 63.20),
        (34.34, 55.54, 37.30, 53.05, 47.65, 66.99),
    ):
        assert f"{mean(columns):.2f}" in printed, mean(columns)
    assert (round(55.81 - 48.83, 2), round(38.60 - 42.39, 2)) == (6.98, -3.79)


def judged(task: str, **notes: Any) -> TaskResult:
    score = {"name": "accuracy", "value": 0.5, "low": 0.4, "high": 0.6, "count": 9}
    return TaskResult(model="m", task=task, scores=[score], notes=notes)


def protocol(task: str, evaluated_as: str = "closed_vqa", **notes: Any) -> list[str]:
    config = configs.build(
        BenchmarkConfig,
        {"out": "o", "model": "m", "benchmarks": [task], "benchmarks_as": evaluated_as},
    )
    found = report_files._with_protocol(config, judged(task, **notes)).notes
    return list((found or {}).get("protocol", ()))


def test_a_score_has_the_notes_of_its_benchmark_and_task() -> None:
    assert any("unpublished split" in note for note in protocol("rsna", "zero_shot"))
    assert any("prints none" in note for note in protocol("rsna", captions="templates"))
    assert not any("prints none" in note for note in protocol("rsna", captions="of the data"))
    assert any("a photo of" in note for note in protocol("lc25000_lung", "zero_shot"))
    assert not any("a photo of" in note for note in protocol("lc25000_lung"))
    assert any("ten of eleven" in note for note in protocol("dresden_colon"))
    assert any("41.06" in note for note in protocol("vqa_rad"))
    assert len(protocol("vqa_rad", templated="none")) == len(protocol("vqa_rad")) + 1


@pytest.mark.parametrize(("classes", "notes"), [(4, []), (5, ["the data have 5 classes"])])
def test_another_number_of_classes_than_the_papers_is_noted(classes: int, notes: list) -> None:
    found = [note for note in protocol("deepdrid", chance=1 / classes) if "the data have" in note]
    assert [note.partition(",")[0] for note in found] == notes


def test_tasks_that_are_no_benchmark_have_no_notes() -> None:
    config = configs.build(
        BenchmarkConfig, {"out": "o", "model": "m", "tasks": {"rsna": {"name": "zero_shot"}}}
    )
    item = judged("rsna", chance=0.5)
    assert report_files._with_protocol(config, item) is item


def test_every_task_of_the_papers_says_what_is_not_published() -> None:
    silent = {"lc25000_colon"}  # As printed, and as re-run.
    for name in {name for suite in SUITES for name in SUITES[suite]} - silent:
        as_templates = protocol(name, captions="templates")
        assert as_templates or protocol(name, "zero_shot"), name


def test_a_difference_needs_its_condition() -> None:
    one = Difference(title="t", paper="p.", here="h.", benchmarks=("pcam",), result={"n": 1})
    assert one.applies("pcam", "zero_shot", {"n": 1})
    assert not one.applies("pcam", "zero_shot", {"n": 2})
    assert not one.applies("rsna", "zero_shot", {"n": 1})
