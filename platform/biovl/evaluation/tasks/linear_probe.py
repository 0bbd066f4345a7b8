"""How much a linear layer reads off a model's image vectors, with few labels and with all.

Of the training images 1 %, 10 % and 100 % of each class are drawn, for several seeds; a logistic
regression is fitted on their vectors (``probe``) and judged on test. C is chosen on the split val,
or where there is none, within the images that were drawn; test decides nothing. Scores are means
over the seeds; their intervals are of the test images, and the spread over seeds stands beside.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 3 C and D, which leaves the fit to
    ELEVATER: that reports the best epoch on test, which this does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from biovl.errors import ArtifactError
from biovl.evaluation import bootstrap, classification, probe
from biovl.evaluation.bootstrap import Statistic
from biovl.evaluation.datasets import Labelled
from biovl.evaluation.opening import labelled
from biovl.evaluation.tasks import Embedded, Outcome, Score
from biovl.plugins import Plugin

# Shapes: N images, E images of test, D features, S seeds.

_MEASURES: Mapping[str, Statistic] = {
    "accuracy": classification.accuracy,
    "balanced_accuracy": classification.balanced_accuracy,
    "macro_f1": classification.macro_f1,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which images, and how many of their labels."""

    data: str | Plugin
    """Images with classes and splits: where they are, or their description."""
    fractions: tuple[float, ...] = (0.01, 0.1, 1.0)
    """Shares of the training images of each class, at least one image of each."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the draws. All training images are one draw."""
    strengths: tuple[float, ...] = probe.STRENGTHS
    """Values of C to choose from; features are scaled, ``probe.Scaling``."""
    resamples: int = bootstrap.RESAMPLES
    """Of the intervals."""

    def __post_init__(self) -> None:
        if not self.fractions or not all(0 < fraction <= 1 for fraction in self.fractions):
            raise ValueError(f"fractions are in (0, 1], got {self.fractions}")
        if not self.seeds or not self.strengths or min(self.strengths) <= 0:
            raise ValueError("there is at least one seed and one value of C, all of them positive")


def build(config: Config) -> "LinearProbe":
    """Return the task."""
    return LinearProbe(config)


class LinearProbe:
    """A task."""

    needs_text = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> Labelled:
        """Return the images of all splits.

        Raises:
            ArtifactError: If there is nothing to train on or to judge by.
        """
        found = labelled(self.config.data)
        for split in ("train", "test"):
            if split not in found.splits:
                raise ArtifactError(
                    f"{found.name} has no images of the split {split}: a linear probe trains on "
                    f"train and is judged on test, found {sorted(set(found.splits.tolist()))}"
                )
        return found

    def evaluate(self, data: Labelled, embedded: Embedded) -> Outcome:
        """Fit and judge a probe for every share and seed."""
        feature_ND = np.asarray(embedded.image_ND, np.float32)
        readable_N = np.isfinite(feature_ND.sum(axis=1))
        rows = {
            split: np.flatnonzero((data.splits == split) & readable_N)
            for split in ("train", "val", "test")
        }
        for split in ("train", "test"):
            if not len(rows[split]):
                raise ArtifactError(f"no image of the split {split} of {data.name} is readable")
        test_N = np.flatnonzero(data.splits == "test")
        asked_E = readable_N[test_N]
        table = pa.table(
            {
                "id": pa.array([data.ids[row] for row in test_N], pa.string()),
                "label": pa.array(data.labels[test_N], pa.int64()),
            }
        )
        scores: list[Score] = []
        fits: list[dict[str, Any]] = []
        # All labels first: that is the score of the summary.
        for fraction in sorted(self.config.fractions, reverse=True):
            part = "" if fraction == max(self.config.fractions) else f"/{fraction:.6g}"
            given_SE = []
            for seed in self.config.seeds if fraction < 1 else self.config.seeds[:1]:
                share_EC, fitted = self._probed(data, feature_ND, rows, fraction, seed)
                fits.append({"fraction": fraction, "seed": seed, **fitted})
                given_SE.append(share_EC)
                table = _with_predictions(table, share_EC, asked_E, f"{fraction:.6g}/{seed}")
            label_E = data.labels[rows["test"]].astype(np.int64)
            found, right_E = _scores(label_E, given_SE, part, self.config.resamples)
            scores += found
            table = table.append_column(f"accuracy{part}", _column(right_E, asked_E))
        return Outcome(
            scores=tuple(scores),
            predictions=table,
            notes={
                "fits": fits,
                "validation": "split val"
                if len(rows["val"])
                else "parts of the images drawn, held out in turn",
                "left_out": {
                    **data.left_out,
                    **({"the image is unreadable": n} if (n := int((~readable_N).sum())) else {}),
                },
                "classes": list(data.classes),
            },
        )

    def _probed(
        self,
        data: Labelled,
        feature_ND: np.ndarray,
        rows: Mapping[str, np.ndarray],
        fraction: float,
        seed: int,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return what a probe says of test, [E, C], and how it was fitted."""
        train_N = rows["train"]
        drawn_T = train_N[probe.drawn(data.labels[train_N], fraction, seed=seed)]
        scaled = probe.Scaling.of(feature_ND[drawn_T])
        classes = len(data.classes)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        train = scaled(feature_ND[drawn_T]), data.labels[drawn_T].astype(np.int64)
        if len(rows["val"]):
            val = scaled(feature_ND[rows["val"]]), data.labels[rows["val"]].astype(np.int64)
            strengths = self.config.strengths
            fitted = probe.chosen(train, val, classes, strengths=strengths, device=device)
        else:
            fitted = probe.chosen_within(
                train, classes, seed=seed, strengths=self.config.strengths, device=device
            )
        share_EC = fitted.probabilities(scaled(feature_ND[rows["test"]]))
        return share_EC, {"images": len(drawn_T), "c": fitted.strength}


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
