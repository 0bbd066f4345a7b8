"""Classification metrics: accuracy, balanced accuracy, macro-F1, AUROC, confusion matrix.

Each metric is a statistic of ``bootstrap``: a function of the predictions and of how often each
counts, for many resamples at once. If every image counts once, it equals scikit-learn's.
"""

from collections.abc import Mapping

import numpy as np

from biovl.benchmark import bootstrap
from biovl.benchmark.bootstrap import Statistic
from biovl.benchmark.ranks import TIE

# Shapes: N images, C classes, K answers that differ, R resamples.


def answers(labels_N: np.ndarray, predicted_N: np.ndarray) -> np.ndarray:
    """Return labels and predictions in the format of the metrics: int64, shape [N, 2].

    Raises:
        ValueError: If their numbers differ, or a class is negative.
    """
    if labels_N.shape != predicted_N.shape or labels_N.ndim != 1:
        raise ValueError(f"labels {labels_N.shape} and predictions {predicted_N.shape} must match")
    stacked_N2 = np.stack([labels_N, predicted_N], axis=1).astype(np.int64)
    if len(stacked_N2) and stacked_N2.min() < 0:
        raise ValueError(f"classes are counted from 0, got {stacked_N2.min()}")
    return stacked_N2


def accuracy(answers_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the share of correct predictions. Shape [R]."""
    return bootstrap.mean(answers_K2[:, 0] == answers_K2[:, 1], weights_RK)


def balanced_accuracy(answers_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the mean recall over classes. Shape [R].

    Classes without images do not count. Guessing scores 1 / classes, whatever their sizes.
    """
    right_RC, of_label_RC, _ = _counts(answers_K2, weights_RK)
    recall_RC = right_RC / np.maximum(of_label_RC, 1)
    mean_R: np.ndarray = recall_RC.sum(1) / np.maximum((of_label_RC > 0).sum(1), 1)
    return mean_R


def macro_f1(answers_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the mean F1 over classes. Shape [R].

    Classes that are neither a label nor predicted do not count; a class that is never predicted
    correctly has F1 0.
    """
    right_RC, of_label_RC, of_answer_RC = _counts(answers_K2, weights_RK)
    either_RC = of_label_RC + of_answer_RC
    f1_RC = 2 * right_RC / np.maximum(either_RC, 1)
    mean_R: np.ndarray = f1_RC.sum(1) / np.maximum((either_RC > 0).sum(1), 1)
    return mean_R


MEASURES: Mapping[str, Statistic] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
}
"""Metrics of predictions by name."""


def auroc(scored_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve; ties count half. Shape [R], NaN for a single class.

    It is the probability that an image of class 1 scores higher than one of class 0.

    Args:
        scored_K2: The class, 0 or 1, and the score, higher for class 1. float64.
        weights_RK: Number of times that each image counts in each resample.

    Raises:
        ValueError: If a score is NaN.
    """
    if np.isnan(scored_K2).any():
        raise ValueError("a score is NaN: an AUROC needs scores that can be ordered")
    order = np.argsort(scored_K2[:, 1], kind="stable")
    label_K, score_K = scored_K2[order, 0], scored_K2[order, 1]
    weights_RK = weights_RK[:, order]
    starts = np.flatnonzero(np.concatenate([[True], score_K[1:] != score_K[:-1]]))
    positive_RS = np.add.reduceat(weights_RK * (label_K == 1), starts, axis=1)
    negative_RS = np.add.reduceat(weights_RK * (label_K == 0), starts, axis=1)
    below_RS = negative_RS.cumsum(1) - negative_RS / 2
    pairs_R = positive_RS.sum(1) * negative_RS.sum(1)
    beaten_R = (positive_RS * below_RS).sum(1)
    area_R: np.ndarray = np.divide(
        beaten_R, pairs_R, out=np.full(len(pairs_R), np.nan), where=pairs_R > 0
    )
    return area_R


def macro_auroc(scored_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the mean one-vs-rest AUROC over classes. Shape [R].

    Classes without images do not count. NaN for a resample that lacks all images of a class which
    has some.

    Args:
        scored_K: The class, and a score for each class. float64, [K, 1 + C].
        weights_RK: Number of times that each image counts in each resample.
    """
    label_K = scored_K[:, 0]
    areas_CR = [
        auroc(np.stack([label_K == label, scored_K[:, 1 + int(label)]], axis=1), weights_RK)
        for label in np.unique(label_K)
    ]
    mean_R: np.ndarray = np.mean(areas_CR, axis=0)
    return mean_R


def mean_auroc(scored_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the mean AUROC over several scores of the same images. Shape [R], NaN for one class.

    Args:
        scored_K: The class, 0 or 1, and the scores, higher for class 1. float64, [K, 1 + S].
        weights_RK: Number of times that each image counts in each resample.
    """
    areas_SR = [auroc(scored_K[:, [0, s]], weights_RK) for s in range(1, scored_K.shape[1])]
    mean_R: np.ndarray = np.mean(areas_SR, axis=0)
    return mean_R


def confusion(labels_N: np.ndarray, predicted_N: np.ndarray, classes: int) -> np.ndarray:
    """Return the confusion matrix: counts by class (row) and prediction (column). int64, [C, C]."""
    given_N2 = answers(labels_N, predicted_N)
    cells = given_N2[:, 0] * classes + given_N2[:, 1]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def nearest_class(similarity_NC: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the most similar class of each image; ties are broken at random. int64, shape [N].

    A model with constant embeddings therefore scores at chance level, and each prediction is still
    a single class.
    """
    best_N1 = similarity_NC.max(axis=1, keepdims=True)
    is_tied_NC = similarity_NC >= best_N1 - TIE
    draw_NC = np.where(is_tied_NC, rng.random(similarity_NC.shape), -1)
    nearest_N: np.ndarray = draw_NC.argmax(axis=1)
    return nearest_N


def _counts(
    answers_K2: np.ndarray, weights_RK: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts of right predictions, labels and predictions by class. [R, C] each."""
    label_K, answer_K = answers_K2.astype(np.int64).T
    named = np.unique(np.concatenate([label_K, answer_K]))
    label_KC = (label_K[:, None] == named).astype(np.float64)
    answer_KC = (answer_K[:, None] == named).astype(np.float64)
    return weights_RK @ (label_KC * answer_KC), weights_RK @ label_KC, weights_RK @ answer_KC
