"""Evaluation with few labels and with all: random draws of training images, metrics on test.

Shares of the training images of each class are drawn with several seeds. Metrics are means over the
seeds; confidence intervals are over the test images, and the spread over seeds is reported
separately. The split test is never used for selection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from biovl.benchmark import classification
from biovl.benchmark import data as opening
from biovl.benchmark.bootstrap import Statistic
from biovl.benchmark.datasets import SPLITS, LabelledImages
from biovl.benchmark.tasks import Score, TaskOutcome
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin

# Shapes: N images, E readable images of test, C classes, D features, S seeds.


def different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Raise a ValueError for equal values: their results would have the same column or file.

    Floats are equal if six digits are, which these names have.
    """
    names = {f"{value:.6g}" if isinstance(value, float) else str(value) for value in values}
    if len(names) < len(values):
        raise ValueError(f"expected different values, got {list(values)}")
    return values


Fractions = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1)], ...],
    Field(min_length=1),
    AfterValidator(different),
]
"""Setting of tasks: shares of the training images to draw per class."""

Seeds = Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(different)]
"""Setting of tasks: seeds of the draws."""

HELD_OUT = "parts of the images drawn, held out in turn"


@dataclass(frozen=True)
class Draw:
    """A random draw: a share of the training images of each class."""

    fraction: float
    """Share of each class, in (0, 1]."""
    seed: int
    """Seed of the draw."""


@dataclass(frozen=True)
class DrawResult:
    """Result of one draw: predictions on test of a model trained on it."""

    draw: Draw
    """The draw that the model was trained on."""
    share_EC: np.ndarray
    """Probability of each class for every test image. [E, C]."""
    facts: Mapping[str, Any]
    """Details of the training, JSON-serialisable."""


def draws(fractions: Sequence[float], seeds: Sequence[int]) -> list[Draw]:
    """Return the draws, the largest share first: its score is the one in the summary.

    With a share of 1 there is a single draw.
    """
    return [
        Draw(fraction, seed)
        for fraction in sorted(fractions, reverse=True)
        for seed in (seeds if fraction < 1 else seeds[:1])
    ]


def labelled(data: str | Plugin, what: str) -> LabelledImages:
    """Return labelled images with the splits train and test.

    Args:
        data: A folder, or a dataset plug-in with its settings.
        what: Name of the task, for the error message.

    Raises:
        ArtifactError: If a split has no images.
    """
    found = opening.open_labelled(data)
    for split in ("train", "test"):
        if split not in found.splits:
            raise ArtifactError(
                f"{found.name} has no images of the split {split}: {what} trains on train and is "
                f"evaluated on test, found {sorted(set(found.splits.tolist()))}"
            )
    return found


def readable_rows(data: LabelledImages, image_ND: np.ndarray) -> dict[str, np.ndarray]:
    """Return the rows of readable images by split; embeddings of others contain NaN.

    Raises:
        ArtifactError: If train or test has no readable image.
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
    learnt: Sequence[DrawResult],
    *,
    resamples: int,
    validation: str = HELD_OUT,
) -> TaskOutcome:
    """Return the metrics of all draws, and the predictions for every test image.

    Args:
        data: The images.
        rows: Result of ``readable_rows``.
        learnt: Predictions for each draw, in the order of ``draws``.
        resamples: Bootstrap resamples.
        validation: Description of the images that select hyperparameters if there is no split val.
    """
    test_N = np.flatnonzero(data.splits == "test")
    is_readable_E = np.isin(test_N, rows["test"])
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
            name, share_EC = f"{fraction:.6g}/{one.draw.seed}", one.share_EC
            predicted = _column(share_EC.argmax(1), is_readable_E)
            table = table.append_column(f"predicted/{name}", predicted)
            if share_EC.shape[1] == 2:
                table = table.append_column(f"score/{name}", _column(share_EC[:, 1], is_readable_E))
        share_SEC = [one.share_EC for one in of_fraction]
        metrics, right_E = _scores(label_E, share_SEC, part, resamples)
        scores += metrics
        table = table.append_column(f"accuracy{part}", _column(right_E, is_readable_E))
    # Scores of the largest share have names without it.
    few = f"trained on {100 * fractions[0]:.6g} % of the training images"
    return TaskOutcome(
        scores=tuple(scores),
        predictions=table,
        notes={
            **({"protocol": [few]} if fractions[0] < 1 else {}),
            "fits": [
                {"fraction": one.draw.fraction, "seed": one.draw.seed, **one.facts}
                for one in learnt
            ],
            "validation": "split val" if len(rows["val"]) else validation,
            # Unreadable images are counted by reason for every task.
            "left_out": dict(data.left_out),
            "classes": list(data.classes),
        },
    )


def _scores(
    label_E: np.ndarray, share_SEC: Sequence[np.ndarray], part: str, resamples: int
) -> tuple[list[Score], np.ndarray]:
    """Return the metrics of a share, and the share of seeds that predict each image rightly."""
    predicted_ES = np.stack([share_EC.argmax(1) for share_EC in share_SEC], axis=1)
    answers = np.concatenate([label_E[:, None], predicted_ES], axis=1)
    metrics = [
        _score(name + part, answers, measure, resamples)
        for name, measure in classification.MEASURES.items()
    ]
    if share_SEC[0].shape[1] == 2 and len(np.unique(label_E)) == 2:
        positive_ES = np.stack([share_EC[:, 1] for share_EC in share_SEC], axis=1)
        scored = np.concatenate([label_E[:, None], positive_ES], axis=1)
        metrics.append(_score(f"auroc{part}", scored, classification.auroc, resamples))
    return metrics, (predicted_ES == label_E[:, None]).mean(1)


def _score(name: str, answers: np.ndarray, measure: Statistic, resamples: int) -> Score:
    """Return the mean of a metric over seeds, with its interval; the first column is the label."""

    def of_seeds(rows_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
        each = [measure(rows_K[:, [0, s]], weights_RK) for s in range(1, rows_K.shape[1])]
        mean_R: np.ndarray = np.mean(each, axis=0)
        return mean_R

    seeds = answers.shape[1] - 1
    once = np.ones((1, len(answers)))
    each = [float(measure(answers[:, [0, s]], once)[0]) for s in range(1, seeds + 1)]
    note = f"{seeds} seeds, deviation {np.std(each, ddof=1):.4f}" if seeds > 1 else ""
    return Score.estimated(name, answers, of_seeds, resamples=resamples, note=note)


def _column(values: np.ndarray, is_readable_E: np.ndarray) -> pa.Array:
    """Return values of the readable images, null for the others."""
    all_E = np.zeros(len(is_readable_E), values.dtype)
    all_E[is_readable_E] = values
    return pa.array(all_E, mask=~is_readable_E)
