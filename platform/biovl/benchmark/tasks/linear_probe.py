"""Linear probing: logistic regression on a model's image embeddings, with few labels and with all.

1 %, 10 % and 100 % of the training images of each class are drawn, with several seeds; a logistic
regression is fitted on their embeddings (``probe``) and evaluated on test (``few_shot``). C is
selected on the split val, or, if there is none, by cross-validation on the drawn images; the split
test is never used for selection. For training the whole image tower see ``fine_tune``.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 3 C and D, which follows ELEVATER.
    Unlike ELEVATER, this task does not report the best epoch on test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, PositiveFloat

from biovl.benchmark import bootstrap, few_shot, probe
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.few_shot import Draw, DrawResult
from biovl.benchmark.tasks import EmbeddedBenchmark, TaskOutcome
from biovl.core.plugins import Plugin

# Shapes: N images, D features.


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of linear probing: data, and numbers of labels."""

    data: str | Plugin
    """Images with classes and splits: a folder, or a dataset plug-in with its settings."""
    fractions: few_shot.Fractions = (0.01, 0.1, 1.0)
    """Shares of the training images to draw per class, at least one image per class."""
    seeds: few_shot.Seeds = (0, 1, 2)
    """Seeds of the draws. With a share of 1 there is a single draw."""
    strengths: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = probe.STRENGTHS
    """Candidate values of C, the inverse regularisation strength; features are scaled, see
    ``probe.Scaling``."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""


def build(config: Config) -> "LinearProbe":
    """Return the task for a configuration."""
    return LinearProbe(config)


class LinearProbe:
    """The benchmark task of linear probing."""

    needs_text = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> LabelledImages:
        """Return the labelled images of all splits.

        Raises:
            ArtifactError: If the split train or test has no images.
        """
        return few_shot.labelled(self.config.data, "a linear probe")

    def evaluate(self, data: LabelledImages, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Fit a probe per training fraction and seed, and return the metrics on the test split."""
        feature_ND = np.asarray(embedded.image_ND, np.float32)
        rows = few_shot.readable_rows(data, feature_ND)
        learnt = [
            self._probed(data, feature_ND, rows, draw)
            for draw in few_shot.draws(self.config.fractions, self.config.seeds)
        ]
        return few_shot.outcome(data, rows, learnt, resamples=self.config.resamples)

    def _probed(
        self,
        data: LabelledImages,
        feature_ND: np.ndarray,
        rows: Mapping[str, np.ndarray],
        draw: Draw,
    ) -> DrawResult:
        train_N = rows["train"]
        drawn_T = train_N[probe.draw_rows(data.labels[train_N], draw.fraction, seed=draw.seed)]
        scaled = probe.Scaling.of(feature_ND[drawn_T])
        classes = len(data.classes)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        train = scaled(feature_ND[drawn_T]), data.labels[drawn_T].astype(np.int64)
        strengths = self.config.strengths
        if len(rows["val"]):
            val = scaled(feature_ND[rows["val"]]), data.labels[rows["val"]].astype(np.int64)
            fitted = probe.fit_with_validation(
                train, val, classes, inverse_strengths=strengths, device=device
            )
        else:
            fitted = probe.fit_with_cross_validation(
                train, classes, seed=draw.seed, inverse_strengths=strengths, device=device
            )
        share_EC = fitted.probabilities(scaled(feature_ND[rows["test"]]))
        return DrawResult(draw, share_EC, {"images": len(drawn_T), "c": fitted.inverse_strength})
