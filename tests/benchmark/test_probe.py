"""The linear probe equals scikit-learn's, and chooses without seeing what it is judged on."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from biovl.benchmark import probe


def blobs(images=200, classes=4, dim=12, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dim))
    labels = rng.integers(0, classes, images)
    features = centres[labels] + spread * rng.normal(size=(images, dim))
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("strength", [0.01, 1.0, 300.0])
def test_a_fit_equals_scikit_learns(classes: int, strength: float) -> None:
    features, labels = blobs(classes=classes)
    ours = probe.fit(features, labels, classes, strength, tolerance=1e-9)
    theirs = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(features, labels)
    others, _ = blobs(classes=classes, seed=1)
    assert ours.probabilities(others) == pytest.approx(theirs.predict_proba(others), abs=1e-5)
    assert ours.weight_WD == pytest.approx(theirs.coef_, abs=1e-3)


@pytest.mark.parametrize("narrow", [1.0, 0.01])
def test_scaling_only_gives_c_another_unit(narrow: float) -> None:
    features, labels = blobs()
    features = 5 + narrow * features
    scaling = probe.Scaling.of(features)
    scaled = scaling(features)
    assert scaled.mean() == pytest.approx(0, abs=1e-9)
    assert (scaled**2).mean() == pytest.approx(1)
    ours = probe.fit(scaled, labels, 4, 2.0, tolerance=1e-9).logits(scaled).argmax(1)
    theirs = LogisticRegression(C=2.0 / scaling.deviation**2, max_iter=10_000, tol=1e-9)
    centred = features - features.mean(0)
    assert (ours == theirs.fit(centred, labels).predict(centred)).mean() > 0.99
    assert probe.Scaling.of(np.full((3, 2), 0.1, np.float32)).deviation == 1


def test_the_strength_is_the_one_that_gets_most_of_val_right() -> None:
    train, val = blobs(60), blobs(400, seed=1)
    kept = probe.fit_with_validation(train, val, 4)
    right = [
        (LogisticRegression(C=c, max_iter=5_000).fit(*train).score(*val), c)
        for c in probe.STRENGTHS
    ]
    assert dict(map(reversed, right))[kept.inverse_strength] == pytest.approx(
        max(right)[0], abs=0.003
    )


def test_the_largest_of_a_path_is_the_fit_of_its_own() -> None:
    train, val = blobs(60), blobs(50, seed=1)
    *_, last = probe._fitted(*train, 4, (0.01, 1.0, 100.0), "cpu", 1e-9)
    alone = probe.fit(*train, 4, 100.0, tolerance=1e-9)
    assert last.logits(val[0]) == pytest.approx(alone.logits(val[0]), abs=1e-3)


def test_a_share_of_every_class_is_drawn_and_larger_shares_hold_it() -> None:
    labels = np.repeat([0, 1, 2], [1_000, 100, 3])
    some, more, every = (probe.draw_rows(labels, f, seed=0) for f in (0.01, 0.1, 1.0))
    assert np.bincount(labels[some]).tolist() == [10, 1, 1]
    assert np.bincount(labels[more]).tolist() == [100, 10, 1]
    assert set(some) <= set(more)
    assert every.tolist() == list(range(1_103))
    assert some.tolist() == probe.draw_rows(labels, 0.01, seed=0).tolist()
    assert some.tolist() != probe.draw_rows(labels, 0.01, seed=1).tolist()
    with pytest.raises(ValueError, match="fraction"):
        probe.draw_rows(labels, 0, seed=0)


def test_without_val_images_parts_of_train_decide_and_all_of_train_is_fitted() -> None:
    train = blobs(80)
    kept = probe.fit_with_cross_validation(train, 4)
    again = probe.fit(*train, 4, kept.inverse_strength)
    assert kept.weight_WD == pytest.approx(again.weight_WD)
    one_each = np.eye(3), np.arange(3)
    assert probe.fit_with_cross_validation(one_each, 3).inverse_strength == 1


def test_each_image_is_held_out_once_and_the_best_strength_over_all_is_taken() -> None:
    features, labels = blobs(50, classes=2)
    folds = np.full(50, -1)
    for rows in probe._by_class(labels, 3):
        folds[rows] = np.arange(len(rows)) % 5
    right = []
    for strength in (0.01, 1.0, 100.0):
        theirs = LogisticRegression(C=strength, max_iter=5_000, tol=1e-8)
        parts = [folds == fold for fold in range(5)]
        fits = [theirs.fit(features[~p], labels[~p]).predict(features[p]) for p in parts]
        hits = [(fit == labels[p]).sum() for fit, p in zip(fits, parts, strict=True)]
        right.append((sum(hits), strength))
    kept = probe.fit_with_cross_validation(
        (features, labels), 2, seed=3, inverse_strengths=(0.01, 1.0, 100.0)
    )
    assert dict(map(reversed, right))[kept.inverse_strength] == max(right)[0]


def test_a_class_that_was_never_seen_is_never_found() -> None:
    features, labels = blobs(classes=3)
    kept = probe.fit(features[labels != 1], labels[labels != 1], 3, 10.0)
    assert 1 not in kept.logits(features).argmax(1)


def test_labels_must_be_classes() -> None:
    with pytest.raises(ValueError, match=r"0 to 1, .*2$"):
        probe.fit(np.eye(3), np.arange(3), 2)
    with pytest.raises(ValueError, match="training"):
        probe.fit(np.zeros((0, 3)), np.zeros(0, int), 2)
