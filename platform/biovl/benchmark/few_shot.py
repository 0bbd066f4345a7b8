"""Learning from few labels and from all: what is drawn, and how it is judged on test.

Shares of the training images of each class are drawn, for several seeds. Scores are means over the
seeds; their intervals are of the test images, and the spread over seeds stands beside. Test decides
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap, classification
from biovl.benchmark import data as opening
from biovl.benchmark.bootstrap import Statistic
from biovl.benchmark.datasets import SPLITS, LabelledImages
from biovl.benchmark.tasks import Score, TaskOutcome
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin

# Shapes: N images, E readable images of test, C classes, D features, S seeds.

_MEASURES: Mapping[str, Statistic] = {
    "accuracy": classification.accuracy,
    "balanced_accuracy": classification.balanced_accuracy,
    "macro_f1": classification.macro_f1,
}

HELD_OUT = "parts of the images drawn, held out in turn"


@dataclass(frozen=True)
class Draw:
    """A share of the training images of each class."""

    fraction: float
    seed: int


@dataclass(frozen=True)
class Learnt:
    """What a model says of test, having learnt from a draw."""

    draw: Draw
    share_EC: np.ndarray
    """The probability of each class."""
    facts: Mapping[str, Any]
    """How it came about, JSON-ready."""


def check(fractions: Sequence[float], seeds: Sequence[int]) -> None:
    """Say whether there is something to draw.

    Raises:
        ValueError: If not.
    """
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"fractions are in (0, 1], got {fractions}")
    if not seeds:
        raise ValueError("there is at least one seed")


def draws(fractions: Sequence[float], seeds: Sequence[int]) -> list[Draw]:
    """Return the draws, the most labels first: that is the score of the summary.

    All training images are one draw.
    """
    return [
        Draw(fraction, seed)
        for fraction in sorted(fractions, reverse=True)
        for seed in (seeds if fraction < 1 else seeds[:1])
    ]


def labelled(data: str | Plugin, what: str) -> LabelledImages:
    """Return images of classes with a split to learn from and one to be judged on.

    Args:
        data: Where they are, or their description.
        what: Who learns; for the error.

    Raises:
        ArtifactError: If a split is not there.
    """
    found = opening.labelled(data)
    for split in ("train", "test"):
        if split not in found.splits:
            raise ArtifactError(
                f"{found.name} has no images of the split {split}: {what} trains on train and is "
                f"judged on test, found {sorted(set(found.splits.tolist()))}"
            )
    return found


def readable_rows(data: LabelledImages, image_ND: np.ndarray) -> dict[str, np.ndarray]:
    """Return the readable images of each split; all others have a NaN in their vector.

    Raises:
        ArtifactError: If there are none to learn from or to be judged on.
    """
    readable_N = np.isfinite(image_ND.sum(axis=1))
    rows = {split: np.flatnonzero((data.splits == split) & readable_N) for split in SPLITS}
    for split in ("train", "test"):
        if not len(rows[split]):
            raise ArtifactError(f"no image of the split {split} of {data.name} is readable")
    return rows


def outcome(
    data: LabelledImages,
    rows: Mapping[str, np.ndarray],
    learnt: Sequence[Learnt],
    *,
    resamples: int,
    validation: str = HELD_OUT,
) -> TaskOutcome:
    """Return the scores of all draws, and what was said of every image of test.

    Args:
        data: The images.
        rows: Of ``readable_rows``.
        learnt: Of each draw, in the order of ``draws``.
        resamples: Of the intervals.
        validation: What settings were chosen on where there is no split val.
    """
    test_N = np.flatnonzero(data.splits == "test")
    asked_E = np.isin(test_N, rows["test"])
    label_E = data.labels[rows["test"]].astype(np.int64)
    table = pa.table(
        {
            "id": pa.array([data.ids[row] for row in test_N], pa.string()),
            "label": pa.array(data.labels[test_N], pa.int64()),
        }
    )
    scores: list[Score] = []
    fractions = list(dict.fromkeys(one.draw.fraction for one in learnt))
    for fraction in fractions:
        part = "" if fraction == fractions[0] else f"/{fraction:.6g}"
        of_fraction = [one for one in learnt if one.draw.fraction == fraction]
        for one in of_fraction:
            name = f"{fraction:.6g}/{one.draw.seed}"
            table = _with_predictions(table, one.share_EC, asked_E, name)
        given_SEC = [one.share_EC for one in of_fraction]
        found, right_E = _scores(label_E, given_SEC, part, resamples)
        scores += found
        table = table.append_column(f"accuracy{part}", _column(right_E, asked_E))
    unreadable = len(data.ids) - sum(len(own) for own in rows.values())
    return TaskOutcome(
        scores=tuple(scores),
        predictions=table,
        notes={
            "fits": [
                {"fraction": one.draw.fraction, "seed": one.draw.seed, **one.facts}
                for one in learnt
            ],
            "validation": "split val" if len(rows["val"]) else validation,
            "left_out": {
                **data.left_out,
                **({"the image is unreadable": unreadable} if unreadable else {}),
            },
            "classes": list(data.classes),
        },
    )


def _scores(
    label_E: np.ndarray, share_SEC: Sequence[np.ndarray], part: str, resamples: int
) -> tuple[list[Score], np.ndarray]:
    """Return the scores of a share, and how many of its seeds are right about each image."""
    predicted_ES = np.stack([share_EC.argmax(1) for share_EC in share_SEC], axis=1)
    told = np.concatenate([label_E[:, None], predicted_ES], axis=1)
    found = [_score(name + part, told, measure, resamples) for name, measure in _MEASURES.items()]
    if share_SEC[0].shape[1] == 2 and len(np.unique(label_E)) == 2:
        positive_ES = np.stack([share_EC[:, 1] for share_EC in share_SEC], axis=1)
        scored = np.concatenate([label_E[:, None], positive_ES], axis=1)
        found.append(_score(f"auroc{part}", scored, classification.auroc, resamples))
    return found, (predicted_ES == label_E[:, None]).mean(1)


def _score(name: str, told: np.ndarray, measure: Statistic, resamples: int) -> Score:
    """Return the mean of a measure over seeds: the first column is the label."""

    def of_seeds(rows_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
        each = [measure(rows_K[:, [0, s]], weights_RK) for s in range(1, rows_K.shape[1])]
        mean_R: np.ndarray = np.mean(each, axis=0)
        return mean_R

    found = bootstrap.estimate(told, of_seeds, resamples=resamples)
    seeds = told.shape[1] - 1
    once = np.ones((1, len(told)))
    each = [float(measure(told[:, [0, s]], once)[0]) for s in range(1, seeds + 1)]
    note = f"{seeds} seeds, deviation {np.std(each, ddof=1):.4f}" if seeds > 1 else ""
    return Score(
        name=name, value=found.value, low=found.low, high=found.high, count=len(told), note=note
    )


def _with_predictions(
    table: pa.Table, share_EC: np.ndarray, asked_E: np.ndarray, part: str
) -> pa.Table:
    table = table.append_column(f"predicted/{part}", _column(share_EC.argmax(1), asked_E))
    if share_EC.shape[1] == 2:
        table = table.append_column(f"score/{part}", _column(share_EC[:, 1], asked_E))
    return table


def _column(values: np.ndarray, asked_E: np.ndarray) -> pa.Array:
    """Return values of the images that are readable, null for the others."""
    all_E = np.zeros(len(asked_E), values.dtype)
    all_E[asked_E] = values
    return pa.array(all_E, mask=~asked_E)
