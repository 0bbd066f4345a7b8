"""The report: models against models, the table, plots."""

import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from scipy import stats

from biovl.evaluation import report
from biovl.evaluation.report import Judged


def score(name: str, value: float, count: int = 10, **more: float) -> dict:
    ends = {"low": value - 0.05, "high": value + 0.05, **more}
    return {"name": name, "value": value, "count": count, "note": "", **ends}


def answered(right: list[float | None], ids: str = "abcdef") -> pa.Table:
    return pa.table({"id": list(ids[: len(right)]), "accuracy": pa.array(right, pa.float64())})


def test_models_are_compared_on_the_examples_both_answered() -> None:
    one, other = answered([1, 0, None, 0]), answered([1, 1, 1, 0, 1], "dbace")
    found = report.differences(one, other, resamples=200, seed=0)["accuracy"]
    # In common and answered: a (1 and 1), b (0 and 1), d (0 and 1).
    assert found["count"] == 3
    assert found["value"] == pytest.approx(2 / 3)


def test_differences_agree_with_scipys_paired_bootstrap() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = (rng.random(200) < 0.5).astype(float), (rng.random(200) < 0.7).astype(float)
    ids = [str(n) for n in range(200)]
    one, other = pa.table({"id": ids, "accuracy": ours}), pa.table({"id": ids, "accuracy": theirs})
    found = report.differences(one, other, resamples=2_000, seed=0)["accuracy"]
    expected = stats.bootstrap((theirs - ours,), np.mean, n_resamples=2_000, rng=1)
    assert found["low"] == pytest.approx(expected.confidence_interval.low, abs=0.02)
    assert found["high"] == pytest.approx(expected.confidence_interval.high, abs=0.02)


def test_of_classes_balanced_accuracy_and_f1_are_compared_too() -> None:
    label = [0, 0, 0, 1]
    one = pa.table({"id": list("abcd"), "label": label, "predicted": [0, 0, 0, 0]})
    other = pa.table({"id": list("abcd"), "label": label, "predicted": [0, 0, 1, 1]})
    found = report.differences(one, other, resamples=50, seed=0)
    assert found["balanced_accuracy"]["value"] == pytest.approx((2 / 3 + 1) / 2 - 0.5)
    assert found.keys() == {"balanced_accuracy", "macro_f1"}


def test_every_two_models_are_compared() -> None:
    tables = {"t": {name: answered([1, 0]) for name in "abc"}}
    found = report.compared(tables, resamples=10, seed=0)
    pairs = [(row["ahead_of"], row["model"]) for row in found]
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]


JUDGED = [
    Judged(
        model="ours",
        task="retrieval",
        scores=[
            score("image_to_text_recall_at_1", 0.25),
            score("image_to_text_median_rank", 12.5, low=10, high=15),
            score("image_to_text_recall_at_1/tokens 1-16", 0.5, 4),
            score("text_to_image_recall_at_1/tokens 1-16", 0.6, 4),
            score("text_to_image_recall_at_1/tokens 17-32", 0.4, 6),
        ],
        notes={"left_out": {"no text": 2}, "chance": 0.1},
        unreadable={"image is truncated": 3},
    ),
    Judged(model="clip", task="retrieval", scores=[score("image_to_text_recall_at_1", 0.125)]),
    Judged(model="dino", task="retrieval", skipped="dino has no text tower, which retrieval needs"),
    Judged(model="", task="rsna", skipped="not at data/rsna; sign it: Shih et al."),
]


def test_the_table_holds_scores_intervals_and_what_is_not_in_them() -> None:
    text = report.table(JUDGED, [])
    assert "25.00 (20.00–30.00) | 12.50 (7.50–17.50)" in text
    assert "12.5 (10–15)" in text
    assert "* retrieval, ours: 3 image is truncated, 2 no text" in text
    assert "* retrieval, dino: dino has no text tower, which retrieval needs" in text
    assert "* rsna: not at data/rsna; sign it: Shih et al." in text
    assert text.index("## Broken down") < text.index("tokens 1-16")


def test_plots_are_pictures_and_the_same_bytes_every_time() -> None:
    assert report.plot(JUDGED) == report.plot(JUDGED)
    drawn = report.breakdown_plot(JUDGED[0])
    assert drawn is not None
    assert Image.open(io.BytesIO(drawn)).width > 500
    assert report.breakdown_plot(JUDGED[1]) is None
