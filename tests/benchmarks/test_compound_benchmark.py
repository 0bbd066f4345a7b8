"""The benchmark of compound figures scores predictions as defined, and reads what it writes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

# Last: benchmarks/serve.py must not hide the package serve.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import compound
import compound_cases
import compound_methods
import compound_scores

from biovl.images.boxes import Box
from biovl.sample.compound import metrics


@pytest.fixture(scope="module")
def cases():
    return [*compound_cases.drawn("plain", 2), *compound_cases.drawn("single", 1)]


def predicted(case, **changes):
    panels = [
        compound_methods.FoundPanel(panel.label, panel.box, 0.9 - 0.1 * number)
        for number, panel in enumerate(case.panels)
    ]
    texts = {panel.label: panel.text for panel in case.panels if panel.label}
    return compound_methods.Prediction(**{"panels": panels, "texts": texts, **changes})


def test_the_truth_is_all_right_and_a_neighbours_words_are_not(cases):
    case = cases[0]
    assert compound_scores.scored(case, predicted(case)).wrong == ""
    whole = dict.fromkeys(case.labels, case.row.caption)
    assert compound_scores.scored(case, predicted(case, texts=whole)).wrong == "words"
    assert compound_scores.scored(case, predicted(case, confidence=0.0)).wrong == "stays whole"
    fewer = predicted(case).panels[:2]
    assert compound_scores.scored(case, predicted(case, panels=fewer)).wrong == "too few"
    two = predicted(case).panels[:2]
    assert compound_scores.scored(cases[2], predicted(case, panels=two)).wrong == "cut single"


def test_average_precision_is_that_of_the_generator(cases):
    rng, figures, others = np.random.default_rng(0), [], []
    for case in cases[:2]:
        panels = [
            compound_methods.FoundPanel(None, panel.box.moved(*shift), float(score))
            for panel in case.panels
            for score, shift in zip(rng.uniform(size=2), rng.integers(0, 60, (2, 2)), strict=True)
        ]
        figures.append(compound_scores.scored(case, predicted(case, panels=panels)))
        found = sorted(panels, key=lambda one: -one.confidence)
        others.append(
            (
                [metrics.Scored(one.box, one.confidence) for one in found],
                [panel.box for panel in case.panels],
            )
        )
    metric = compound_scores.PANELS["mAP@.5"]
    expected = metrics.average_precision(others)
    assert 0 < expected < 1
    assert metric(figures, np.ones((1, 2)))[0] == pytest.approx(expected)
    # A figure that was drawn twice counts as two.
    twice = metric([figures[0], *figures], np.ones((1, 3)))
    assert metric(figures, np.array([[2.0, 1.0]])) == pytest.approx(twice)


def test_another_method_is_scored_from_its_file(cases, tmp_path, capsys, monkeypatch):
    assert compound_cases.write(cases, tmp_path) == 3
    lines = []
    for case in cases:
        panels = [
            {"label": p.label, "box": [p.box.x0, p.box.y0, p.box.x1, p.box.y1], "caption": p.text}
            for p in case.panels
            if len(case.panels) > 1
        ]
        lines.append(json.dumps({"article": case.article, "panels": panels}))
    predictions = tmp_path / "theirs.jsonl"
    predictions.write_text("\n".join(lines))
    folder = ["score", str(tmp_path), str(predictions)]
    monkeypatch.setattr(sys, "argv", ["compound.py", "--resamples", "0", *folder])
    compound.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    row = next(row for row in rows if row[0] == "| plain" and row[1] == "theirs")
    assert row[2:12] == ["2", *["1.000"] * 9]


def test_a_plain_cut_follows_white_gaps():
    light = np.ones((100, 210), bool)
    light[10:90, 10:100] = light[10:90, 110:200] = False
    boxes = list(compound_methods._cut(light, 0, 0))
    assert boxes == [Box(10, 10, 100, 90), Box(110, 10, 200, 90)]


def test_lists_to_learn_from_are_of_no_held_out_article() -> None:
    gold = Path(compound_cases.__file__).with_name("gold")
    lists = [json.loads(line) for line in (gold / "lists.jsonl").read_text().splitlines()]
    held_out = {
        json.loads(line)["article"]
        for path in gold.glob("*held_out/*.jsonl")
        for line in path.read_text().splitlines()
    }
    assert len(held_out) > 50
    assert held_out.isdisjoint(line["article"] for line in lists)
    for line in lists:
        (start, stop), labels = line["span"], line["labels"]
        assert start <= line["cut"] <= stop
        assert labels == sorted(labels)


@pytest.mark.shared
def test_real_captions_are_split_better_than_left_whole(shared_data: Path) -> None:
    folder = shared_data / "cases"
    cases = [
        *compound_cases.read_captions(folder, compound_cases.Articles(None)),
        *compound_cases.read_zou(folder),
    ]
    for name in ("cases", "zou"):
        ours, whole = (
            [
                compound_scores.caption_values(case, *method(case))
                for case in cases
                if case.set == name
            ]
            for method in (compound_methods.our_caption, compound_methods.whole_caption)
        )
        assert np.mean([row["exact"] for row in ours]) >= 0.9, name
        assert np.mean([row["f1"] for row in ours]) >= 0.85, name
        assert np.mean([row["f1"] for row in ours]) > np.mean([row["f1"] for row in whole]) + 0.1


@pytest.mark.shared
def test_the_captions_of_the_gold_are_those_of_the_articles(shared_data: Path) -> None:
    gold, articles = Path(compound_cases.__file__).parent, compound_cases.Articles(shared_data)
    lines = [
        json.loads(line)
        for path in gold.glob("gold/**/*.jsonl")
        if path.stem in ("captions", "lists", "panels")
        for line in path.read_text().splitlines()
    ]
    present = [line for line in lines if articles.figures(line.get("article", ""))[1]]
    assert len(present) > 1_000
    lost = [line for line in present if not articles.figure(line)]
    assert not [(line["article"], line["figure"]) for line in lost]


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["gold", "gold/held_out"])
def test_the_paragraphs_of_the_gold_are_those_of_the_articles(
    folder: str, shared_data: Path
) -> None:
    # A change of an article's text would silently take its sentences out of the benchmark.
    gold = Path(compound_cases.__file__).parent / folder
    found = list(compound_cases.read_citances(gold, compound_cases.Articles(shared_data)))
    assert len(found) == len((gold / "citances.jsonl").read_text().splitlines())


def test_a_caption_is_right_if_each_panel_has_its_words_and_no_neighbours():
    own = {"A": "Axial view of the liver of a rat", "B": "Coronal view of both kidneys of a mouse"}
    closing = "Bars show means and errors of nine runs at noon."
    texts = {label: f"{text} {closing}" for label, text in own.items()}
    case = compound_cases.CaptionCase("own", "1", "", "1", "", texts, own)
    right = compound_scores.words_are_right
    assert right(case, texts)
    # What is in front of all parts, or a word, may be missing; case does not count.
    assert right(case, {"a": texts["A"].upper(), "B": texts["B"].removeprefix("Coronal ")})
    assert not right(case, {**texts, "C": closing})
    assert not right(case, {"A": texts["A"]})
    assert not right(case, {"A": f"Axial view {closing}", "B": texts["B"]})
    assert not right(case, {"A": f"{texts['A']} both kidneys mouse", "B": texts["B"]})
    # A sentence that is about all was given to one panel only.
    assert not right(case, {"A": own["A"], "B": texts["B"]})


LEFT, RIGHT = Box(0, 0, 10, 10), Box(10, 0, 20, 10)
BOTH = Box(0, 0, 20, 10)


def test_imageclef_divides_by_the_candidates_area_so_tiny_boxes_win() -> None:
    tiny = [Box(4, 4, 6, 6), Box(14, 4, 16, 6)]
    assert compound_scores.imageclef_accuracy(tiny, [LEFT, RIGHT]) == 1.0
    assert metrics.box_counts(tiny, [LEFT, RIGHT]).hits == 0


@pytest.mark.parametrize(
    ("found", "true", "accuracy"),
    [
        ([LEFT, RIGHT], [LEFT, RIGHT], 1.0),
        # Half of the candidate lies in either panel: less than two thirds.
        ([BOTH], [LEFT, RIGHT], 0.0),
        # One of two candidates matches the only panel.
        ([LEFT, RIGHT], [LEFT], 0.5),
        # 7 of 10 columns of the candidate lie in the left panel.
        ([Box(3, 0, 13, 10)], [LEFT, RIGHT], 0.5),
        ([], [LEFT], 0.0),
    ],
)
def test_imageclef_accuracy_of_a_figure(found: list[Box], true: list[Box], accuracy: float) -> None:
    assert compound_scores.imageclef_accuracy(found, true) == accuracy


def test_a_candidate_counts_once_in_imageclef() -> None:
    # Both true panels lie where the one candidate does.
    assert compound_scores.imageclef_accuracy([LEFT], [LEFT, Box(0, 0, 10, 9)]) == 0.5
