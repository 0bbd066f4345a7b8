"""Models against models, on the examples that both answered."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from biovl.benchmark import comparison


def answered(right: list[float | None], ids: str = "abcdef") -> pa.Table:
    return pa.table({"id": list(ids[: len(right)]), "accuracy": pa.array(right, pa.float64())})


def test_models_are_compared_on_the_examples_both_answered() -> None:
    one, other = answered([1, 0, None, 0]), answered([1, 1, 1, 0, 1], "dbace")
    found = comparison.differences(one, other, resamples=200, seed=0)["accuracy"]
    # In common and answered: a (1 and 1), b (0 and 1), d (0 and 1).
    assert found["count"] == 3
    assert found["value"] == pytest.approx(2 / 3)


def test_differences_agree_with_scipys_paired_bootstrap() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = (rng.random(200) < 0.5).astype(float), (rng.random(200) < 0.7).astype(float)
    ids = [str(n) for n in range(200)]
    one, other = pa.table({"id": ids, "accuracy": ours}), pa.table({"id": ids, "accuracy": theirs})
    found = comparison.differences(one, other, resamples=2_000, seed=0)["accuracy"]
    expected = stats.bootstrap((theirs - ours,), np.mean, n_resamples=2_000, rng=1)
    assert found["low"] == pytest.approx(expected.confidence_interval.low, abs=0.02)
    assert found["high"] == pytest.approx(expected.confidence_interval.high, abs=0.02)


def test_of_classes_balanced_accuracy_and_f1_are_compared_too() -> None:
    label = [0, 0, 0, 1]
    one = pa.table({"id": list("abcd"), "label": label, "predicted": [0, 0, 0, 0]})
    other = pa.table({"id": list("abcd"), "label": label, "predicted": [0, 0, 1, 1]})
    found = comparison.differences(one, other, resamples=50, seed=0)
    assert found["balanced_accuracy"]["value"] == pytest.approx((2 / 3 + 1) / 2 - 0.5)
    assert found.keys() == {"balanced_accuracy", "macro_f1"}


def test_every_two_models_are_compared() -> None:
    tables = {"t": {name: answered([1, 0]) for name in "abc"}}
    found = comparison.compare_models(tables, resamples=10, seed=0)
    pairs = [(row["ahead_of"], row["model"]) for row in found]
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]


def delong(label, one, other):
    """The variance of the difference of two AUROCs on the same images, by placements."""
    areas, placed = [], []
    for score in (one, other):
        beats = (score[label == 1][:, None] > score[label == 0]) + 0.5 * (
            score[label == 1][:, None] == score[label == 0]
        )
        areas.append(beats.mean())
        placed.append((beats.mean(1), beats.mean(0)))
    variance = sum(
        np.var(theirs - ours, ddof=1) / len(ours)
        for ours, theirs in zip(placed[0], placed[1], strict=True)
    )
    return areas[1] - areas[0], np.sqrt(variance)


def test_areas_are_compared_as_delong_does() -> None:
    rng = np.random.default_rng(3)
    label = np.repeat([0, 1], [120, 80])
    shared = label + rng.normal(size=200)
    one, other = shared + 0.8 * rng.normal(size=200), shared + 0.2 * rng.normal(size=200)
    tables = [
        pa.table({"id": [str(n) for n in range(200)], "label": label, "score/1/0": score})
        for score in (one, other)
    ]
    found = comparison.differences(*tables, resamples=2_000, seed=0)["auroc"]
    value, deviation = delong(label, one, other)
    assert found["value"] == pytest.approx(value)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_of_more_classes_the_mean_area_is_compared_and_of_seeds_the_mean() -> None:
    label = [0, 1, 2, 0]
    perfect = np.eye(3)[label].tolist()
    blind: list[list[float] | None] = [[0.3, 0.4, 0.3]] * 3 + [None]
    one, other = (
        pa.table({"id": list("abcd"), "label": label, "similarity": p, "probability": p})
        for p in (blind, perfect)
    )
    found = comparison.differences(one, other, resamples=20, seed=0)["auroc"]
    assert (found["value"], found["count"]) == (0.5, 3)
    ids, two = list("abcd"), [0, 0, 1, 1]
    few = {"score/0.1/0": [1.0, 1, 0, 0]}
    one = pa.table({"id": ids, "label": two, "score/1/0": two, "score/1/1": [1, 1, 0, 0], **few})
    other = pa.table({"id": ids, "label": two, "score/1/0": two, "score/1/1": two, **few})
    assert comparison.differences(one, other, resamples=20, seed=0)["auroc"]["value"] == 0.5
