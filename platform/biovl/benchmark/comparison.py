"""Pairwise comparison of models on the examples that both predicted."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import agreement, bootstrap, classification

# Shapes: N images in common, C classes, S seeds, L findings, G groups of images.

_Pair = tuple[np.ndarray, np.ndarray, bootstrap.Statistic]


def differences(
    one: pa.Table, other: pa.Table, *, resamples: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return the difference of each metric, ``other`` minus ``one``, on their common examples.

    Metrics with a column of their name are compared, without those of subsets; for classification
    also balanced accuracy, macro-F1 and, if the predictions have scores, AUROC; for findings also
    macro recall, precision and F1.
    """
    right = pa.array(other["id"])
    at = pc.index_in(one["id"], right)
    common = at.is_valid()
    mine, theirs = one.filter(common), other.take(at.drop_null())
    pairs: dict[str, _Pair] = {}
    for name in one.column_names:
        is_score = pa.types.is_floating(one.schema.field(name).type) and "/" not in name
        if not is_score or name not in other.column_names:
            continue
        both = pc.and_(mine[name].is_valid(), theirs[name].is_valid())
        ours, their = mine[name].filter(both).to_numpy(), theirs[name].filter(both).to_numpy()
        if len(ours):
            pairs[name] = their, ours, bootstrap.mean
    if {"label", "predicted"} <= set(one.column_names) & set(other.column_names):
        both = pc.and_(mine["predicted"].is_valid(), theirs["predicted"].is_valid())
        answers = (_answers(theirs, both), _answers(mine, both))
        if len(answers[0]):
            pairs["balanced_accuracy"] = (*answers, classification.balanced_accuracy)
            pairs["macro_f1"] = (*answers, classification.macro_f1)
    if "findings" in one.column_names and "findings" in other.column_names and len(mine):
        counts = (_agreements(theirs), _agreements(mine))
        # Without a finding there is nothing to compare.
        if counts[0].size:
            pairs |= {name: (*counts, measure) for name, measure in agreement.METRICS.items()}
    areas = _areas(mine, theirs)
    if areas is not None:
        pairs["auroc"] = areas
    by_metric = {}
    for name, (their, ours, statistic) in pairs.items():
        ahead = bootstrap.paired_difference(their, ours, statistic, resamples=resamples, seed=seed)
        by_metric[name] = {**asdict(ahead), "count": len(ours)}
    return by_metric


def compare_models(
    tables: Mapping[str, Mapping[str, pa.Table]], *, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Return the differences of every pair of models, by task.

    Args:
        tables: Predictions by task and model; models in their order.
        resamples: Bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        ``task``, ``model``, ``ahead_of`` (the earlier model), ``score``, and the entries of
        ``differences``: those of ``model`` minus ``ahead_of``.
    """
    return [
        {"task": task, "model": other, "ahead_of": one, "score": name, **values}
        for task, by_model in tables.items()
        for one, other in combinations(by_model, 2)
        for name, values in differences(
            by_model[one], by_model[other], resamples=resamples, seed=seed
        ).items()
    ]


def _answers(table: pa.Table, which: pa.ChunkedArray) -> np.ndarray:
    label, predicted = table["label"].filter(which), table["predicted"].filter(which)
    return classification.answers(label.to_numpy(), predicted.to_numpy())


def _agreements(table: pa.Table) -> np.ndarray:
    """Return counts of findings that are in a report, by patient if there are patients. [G, 3L]."""
    rows_of = [table[column].to_pylist() for column in ("findings", "predicted")]
    names = sorted({name for row in rows_of[0] for name in row})
    has_NL, predicted_NL = (
        np.array([[name in row for name in names] for row in rows], bool) for rows in rows_of
    )
    has_patients = "patient" in table.column_names
    group_N = table["patient"].to_numpy() if has_patients else np.arange(len(table))
    _, number_N = np.unique(group_N, return_inverse=True)
    return agreement.counts(has_NL, predicted_NL, number_N)


def _areas(mine: pa.Table, theirs: pa.Table) -> _Pair | None:
    """Return the data for the AUROCs of two models; None if there is no AUROC."""
    if "label" not in mine.column_names:
        return None
    ours_NS, their_NS = _scores(mine), _scores(theirs)
    if ours_NS is None or their_NS is None or ours_NS.shape != their_NS.shape:
        return None
    label_N = mine["label"].to_numpy().astype(np.float64)
    both_N = np.isfinite(ours_NS).all(1) & np.isfinite(their_NS).all(1)
    if len(np.unique(label_N[both_N])) < 2:
        return None
    is_of_classes = "similarity" in mine.column_names and ours_NS.shape[1] > 1
    statistic = classification.macro_auroc if is_of_classes else classification.mean_auroc
    with_label = [
        np.concatenate([label_N[both_N, None], scored_NS[both_N]], axis=1)
        for scored_NS in (their_NS, ours_NS)
    ]
    return with_label[0], with_label[1], statistic


def _scores(table: pa.Table) -> np.ndarray | None:
    """Return a model's class scores; NaN for unreadable images.

    They are those that the task computes AUROC from: for two classes the difference of
    similarities, for more the probability of each, [N, C]; for probes the probability of class 1 by
    each seed, trained on the most images, [N, S].
    """
    if {"similarity", "probability"} <= set(table.column_names):
        similarity_NC = _lists(table["similarity"])
        if similarity_NC.shape[1] == 2:
            ahead_N1: np.ndarray = similarity_NC[:, 1:] - similarity_NC[:, :1]
            return ahead_N1
        return _lists(table["probability"])
    scored = [name.split("/") for name in table.column_names if name.startswith("score/")]
    if not scored:
        return None
    most = max((share for _, share, _ in scored), key=float)
    names = sorted("/".join(parts) for parts in scored if parts[1] == most)
    return np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)


def _lists(column: pa.ChunkedArray) -> np.ndarray:
    rows = column.to_pylist()
    width = max((len(row) for row in rows if row is not None), default=0)
    return np.array([row or [np.nan] * width for row in rows], np.float64).reshape(-1, width)
