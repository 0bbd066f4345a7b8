"""Agreement of predicted findings with those of reports: recall, precision and F1, by finding.

A finding that no report has is undefined: it is left out of means, and never counts as 0.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import hypergeom

# Shapes: P images, L findings, G groups of images, K groups that differ, R resamples.


def counts(has_PL: np.ndarray, predicted_PL: np.ndarray, group_P: np.ndarray) -> np.ndarray:
    """Return true positives, positives and predicted positives of each group. int64, [G, 3L].

    Scores are functions of these sums, so whole groups of images, such as those of a patient, can
    be resampled.

    Args:
        has_PL: Findings of the reports. bool.
        predicted_PL: Predicted findings. bool.
        group_P: Group of each image, 0 … G - 1, each at least once. int64.
    """
    each_P3L = np.concatenate([has_PL & predicted_PL, has_PL, predicted_PL], axis=1)
    sums_G3L = np.zeros((int(group_P.max()) + 1, each_P3L.shape[1]), np.int64)
    np.add.at(sums_G3L, group_P, each_P3L)
    return sums_G3L


def f1(counts_K3L: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro F1 per resample, NaN if undefined. Shape [R].

    Args:
        counts_K3L: Result of ``counts``, distinct rows.
        weights_RK: Number of times that each row is in each resample.
    """
    hit_RL, has_RL, predicted_RL = _sums(counts_K3L, weights_RK)
    return _macro(2 * hit_RL, np.where(has_RL > 0, has_RL + predicted_RL, 0))


def recall(counts_K3L: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro recall per resample; arguments as in ``f1``."""
    hit_RL, has_RL, _ = _sums(counts_K3L, weights_RK)
    return _macro(hit_RL, has_RL)


def precision(counts_K3L: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro precision per resample; a finding that occurs but is never predicted has 0."""
    hit_RL, has_RL, predicted_RL = _sums(counts_K3L, weights_RK)
    return _macro(hit_RL, np.where(has_RL > 0, np.maximum(predicted_RL, 1), 0))


METRICS = {"f1": f1, "recall": recall, "precision": precision}
"""Macro metrics by name."""


def by_chance(has_PL: np.ndarray, public_QL: np.ndarray, neighbours: int) -> dict[str, np.ndarray]:
    """Return the scores of predictions from random public images, by metric. float64, [L].

    Recall is the probability that at least half of ``neighbours`` public images, drawn without
    repetition, have the finding: for one neighbour, its share of the public images. Precision is
    its share of the private ones, and F1 their harmonic mean.
    """
    share_L = has_PL.mean(0)
    public, positive_L = len(public_QL), public_QL.sum(0)
    least = -(-neighbours // 2)
    recall_L = hypergeom.sf(least - 1, public, positive_L, neighbours)
    precision_L = np.where(recall_L > 0, share_L, 0.0)
    whole_L = precision_L + recall_L
    f1_L = np.divide(
        2 * precision_L * recall_L, whole_L, out=np.zeros_like(whole_L), where=whole_L > 0
    )
    return {"f1": f1_L, "recall": recall_L, "precision": precision_L}


def _sums(
    counts_K3L: np.ndarray, weights_RK: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hit_RL, has_RL, predicted_RL = np.split(weights_RK @ counts_K3L.astype(np.float64), 3, axis=1)
    return hit_RL, has_RL, predicted_RL


def _macro(part_RL: Sequence[float] | np.ndarray, whole_RL: np.ndarray) -> np.ndarray:
    """Return the mean of the quotients with a positive denominator; NaN if there is none."""
    share_RL = np.divide(part_RL, whole_RL, out=np.zeros_like(whole_RL), where=whole_RL > 0)
    counted_R = (whole_RL > 0).sum(1)
    mean_R: np.ndarray = np.divide(
        share_RL.sum(1), counted_R, out=np.full(len(counted_R), np.nan), where=counted_R > 0
    )
    return mean_R
