"""Measures of classification equal scikit-learn's, on the answers and on every resample of them."""

import warnings

import numpy as np
import pytest
import sklearn.metrics

from biovl.benchmark import classification
from biovl.benchmark.bootstrap import estimate, median, paired_difference

THEIRS = {
    "accuracy": sklearn.metrics.accuracy_score,
    "balanced_accuracy": sklearn.metrics.balanced_accuracy_score,
    "macro_f1": lambda labels, answers: sklearn.metrics.f1_score(labels, answers, average="macro"),
}


def drawn_answers(images=60, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, images, p=[0.5, 0.3, 0.15, 0.05, 0][:classes])
    return labels, np.where(rng.random(images) < 0.4, labels, rng.integers(0, classes, images))


def estimates(labels, predicted):
    answers = classification.answers(labels, predicted)
    return {name: estimate(answers, one) for name, one in classification.MEASURES.items()}


def auroc(labels, scores):
    return estimate(np.stack([labels, scores], 1), classification.auroc)


@pytest.mark.parametrize("name", THEIRS)
def test_each_measure_is_scikit_learns_on_every_resample(name: str) -> None:
    labels, predicted = drawn_answers()
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 60, (30, 60))
    weights = np.stack([np.bincount(row, minlength=60) for row in rows]).astype(float)
    ours = getattr(classification, name)(classification.answers(labels, predicted), weights)
    with warnings.catch_warnings():
        # A class that a resample answers and does not hold.
        warnings.simplefilter("ignore")
        theirs = [THEIRS[name](labels[row], predicted[row]) for row in rows]
        whole = THEIRS[name](labels, predicted)
    assert ours == pytest.approx(np.array(theirs))
    found = estimates(labels, predicted)[name]
    assert found.value == pytest.approx(whole)
    assert found.low < found.value < found.high


def test_auroc_is_scikit_learns_with_ties_on_every_resample() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 80), rng.integers(0, 6, 80) / 6
    rows = rng.integers(0, 80, (20, 80))
    weights = np.stack([np.bincount(row, minlength=80) for row in rows]).astype(float)
    ours = classification.auroc(np.stack([labels, scores], 1), weights)
    theirs = [sklearn.metrics.roc_auc_score(labels[row], scores[row]) for row in rows]
    assert ours == pytest.approx(np.array(theirs))
    found = auroc(labels, scores)
    assert found.value == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores))


def test_auroc_needs_both_classes() -> None:
    with pytest.raises(ValueError, match="no score"):
        auroc(np.ones(4), np.arange(4.0))
    # One image of class 1: many resamples have none, and do not count.
    found = auroc(np.array([0, 0, 0, 1]), np.array([1.0, 2, 4, 3]))
    assert found.value == pytest.approx(2 / 3)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_confusion_is_scikit_learns() -> None:
    labels, predicted = drawn_answers()
    ours = classification.confusion(labels, predicted, 5)
    theirs = sklearn.metrics.confusion_matrix(labels, predicted, labels=range(5))
    assert ours.tolist() == theirs.tolist()


def test_perfect_answers_score_one_without_doubt() -> None:
    labels, _ = drawn_answers()
    for found in estimates(labels, labels).values():
        assert (found.value, found.low, found.high) == (1, 1, 1)


def test_guessing_scores_chance_within_its_interval() -> None:
    rng = np.random.default_rng(0)
    found = estimates(rng.integers(0, 4, 800), rng.integers(0, 4, 800))
    for name in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert found[name].low < 0.25 < found[name].high
    area = auroc(rng.integers(0, 2, 400), rng.random(400))
    assert area.low < 0.5 < area.high


def test_classes_that_are_alike_are_guessed_and_others_are_not() -> None:
    alike = np.full((3_000, 3), 0.2, np.float32)
    alike[:, 1] += 1e-7
    guessed = classification.nearest_class(alike, np.random.default_rng(0))
    assert np.bincount(guessed) / 3_000 == pytest.approx(np.full(3, 1 / 3), abs=0.03)
    clear = np.array([[0.1, 0.3], [0.3, 0.1]])
    assert classification.nearest_class(clear, np.random.default_rng(0)).tolist() == [1, 0]


def test_two_models_compare_by_any_measure() -> None:
    labels, predicted = drawn_answers()
    found = paired_difference(
        classification.answers(labels, labels),
        classification.answers(labels, predicted),
        classification.macro_f1,
    )
    whole = estimates(labels, predicted)["macro_f1"]
    assert found.value == pytest.approx(1 - whole.value)
    assert (1 - found.high, 1 - found.low) == pytest.approx((whole.low, whole.high), abs=0.02)


def test_what_does_not_match_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        classification.answers(np.zeros(3, int), np.zeros(2, int))
    with pytest.raises(ValueError, match=r"0.*-1"):
        classification.answers(np.array([0, -1]), np.array([0, 0]))


def test_a_million_answers_take_no_longer_than_their_kinds() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1_000_000)
    found = estimates(labels, np.where(rng.random(len(labels)) < 0.9, labels, 0))
    assert found["accuracy"].high - found["accuracy"].low < 0.002
    assert median(labels, np.ones((1, len(labels))))[0] == 1
