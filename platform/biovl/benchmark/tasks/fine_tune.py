"""What a model's image tower learns of classes when all of it is trained, with few labels and all.

The same draws as those of ``linear_probe``, judged in the same way; instead of a regression on
vectors, the tower and a new head are trained (``tuning``). The rate is chosen on the split val, or
where there is none, on a fifth of the images that were drawn, after which all of these are trained
on. The last epoch is judged; test decides nothing.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 3 C and D, by ELEVATER
    (arXiv:2204.08790), whose full fine-tuning reports the best epoch on test; AdamW, its decay and
    rates about 3e-5 are those of WiSE-FT (arXiv:2109.01903).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from biovl.benchmark import bootstrap, few_shot, probe
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.few_shot import Draw, Learnt
from biovl.benchmark.fine_tuning import TuningConfig
from biovl.benchmark.tasks import EmbeddedBenchmark, TaskOutcome
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin

# Shapes: E readable images of test, C classes.


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which images, how many of their labels, and the training."""

    data: str | Plugin
    """Images with classes and splits: where they are, or their description."""
    fractions: tuple[float, ...] = (1.0,)
    """Shares of the training images of each class, at least one image of each."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the draws and of the order of images. All training images are one draw."""
    tuning: TuningConfig = field(default_factory=TuningConfig)
    resamples: int = bootstrap.RESAMPLES
    """Of the intervals."""

    def __post_init__(self) -> None:
        few_shot.check(self.fractions, self.seeds)


@dataclass(frozen=True)
class FineTuneRun:
    """One training of a model."""

    draw: Draw
    lr: float
    held_out: bool
    """Whether a fifth of the draw is kept to judge by; then test is not asked."""

    @property
    def name(self) -> str:
        """What its results are kept under."""
        part = "-held-out" if self.held_out else ""
        return f"{self.draw.fraction:.6g}-{self.draw.seed}-{self.lr:g}{part}"


def build(config: Config) -> "FineTune":
    """Return the task."""
    return FineTune(config)


class FineTune:
    """A task whose models are trained first: ``fine_tune_job.py`` does, and calls ``judge``."""

    needs_text = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> LabelledImages:
        """Return the images of all splits.

        Raises:
            ArtifactError: If there is nothing to train on or to judge by.
        """
        return few_shot.labelled(self.config.data, "fine-tuning")

    def evaluate(self, data: LabelledImages, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Refuse: vectors do not learn.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"fine_tune trains the image tower of {embedded.model}, and does not judge vectors: a "
            "task of this name is learnt first, by benchmark/fine_tune_job.py"
        )

    def judge(
        self, data: LabelledImages, embedded: EmbeddedBenchmark, learnt: Sequence[Learnt]
    ) -> TaskOutcome:
        """Score what trained models said of test, in the order of the draws."""
        rows = few_shot.readable_rows(data, np.asarray(embedded.image_ND))
        return few_shot.outcome(
            *(data, rows, learnt),
            resamples=self.config.resamples,
            validation="a fifth of the images drawn",
        )

    def draws(self) -> list[Draw]:
        """Return what is learnt from."""
        return few_shot.draws(self.config.fractions, self.config.seeds)

    def tries(self, data: LabelledImages, rows: Mapping[str, np.ndarray]) -> list[FineTuneRun]:
        """Return the trainings that choose a rate, where there is one to choose and by what."""
        found = []
        for draw in self.draws():
            for lr in self.config.tuning.lrs:
                training = FineTuneRun(draw, lr, held_out=not len(rows["val"]))
                if len(self.config.tuning.lrs) > 1 and len(self.parts(data, rows, training)[1]):
                    found.append(training)
        return found

    def chosen(
        self, tried: Mapping[FineTuneRun, tuple[float, float] | None]
    ) -> list[tuple[FineTuneRun, dict[str, float]]]:
        """Return the training of each draw that is judged, and the accuracies it was chosen by.

        Args:
            tried: Accuracy and log-likelihood of validation images; None if the loss was no number.
        """
        found = []
        for draw in self.draws():
            own = {one.lr: told for one, told in tried.items() if one.draw == draw and told}
            rates = sorted(self.config.tuning.lrs)
            # Of equally accurate ones the likeliest, as the probe's C; the middle of untried ones.
            lr = max(own, key=lambda lr: own[lr], default=rates[len(rates) // 2])
            accuracies = {f"{lr:g}": told[0] for lr, told in sorted(own.items())}
            found.append((FineTuneRun(draw, lr, held_out=False), accuracies))
        return found

    def parts(
        self, data: LabelledImages, rows: Mapping[str, np.ndarray], training: FineTuneRun
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that a training learns from, and those it is validated on."""
        draw, train_N = training.draw, rows["train"]
        drawn_T = train_N[probe.drawn(data.labels[train_N], draw.fraction, seed=draw.seed)]
        if not training.held_out:
            return drawn_T, rows["val"]
        kept_T = probe.folds(data.labels[drawn_T], draw.seed) != 0
        return drawn_T[kept_T], drawn_T[~kept_T]
