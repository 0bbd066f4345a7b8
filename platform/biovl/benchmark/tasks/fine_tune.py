"""Fine-tuning: accuracy of the image tower after training all of it, with few labels and with all.

Training images are drawn and results are evaluated as in ``linear_probe``; but instead of a
regression on embeddings, the tower and a new head are trained (``fine_tuning``). The learning rate
is selected on the split val, or, if there is none, on a fifth of the drawn images, after which the
model is trained on all of them. The last epoch is evaluated; the split test is never used for
selection.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 3 C and D, as in ELEVATER
    (arXiv:2204.08790), whose full fine-tuning reports the best epoch on test; AdamW, its weight
    decay and learning rates of about 3e-5 are those of WiSE-FT (arXiv:2109.01903).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from biovl.benchmark import bootstrap, few_shot, probe
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.few_shot import Draw, DrawResult
from biovl.benchmark.fine_tuning import TuningConfig
from biovl.benchmark.tasks import EmbeddedBenchmark, LearningRun, TaskOutcome
from biovl.core.plugins import Plugin

# Shapes: E readable images of test, C classes.


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of fine-tuning: data, numbers of labels, training."""

    data: str | Plugin
    """Images with classes and splits: a folder, or a dataset plug-in with its settings."""
    fractions: few_shot.Fractions = (1.0,)
    """Shares of the training images to draw per class, at least one image per class."""
    seeds: few_shot.Seeds = (0, 1, 2)
    """Seeds of the draws and of the order of images. With a share of 1 there is a single draw."""
    tuning: TuningConfig = field(default_factory=TuningConfig)
    """Settings of the training."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""


@dataclass(frozen=True)
class FineTuneRun:
    """One training run of a model."""

    draw: Draw
    """Training images: share and seed."""
    lr: float
    """Peak learning rate of the tower."""
    held_out: bool
    """Whether a fifth of the draw is held out for validation; such a run is not evaluated on
    test."""

    @property
    def name(self) -> str:
        """Name of the folder with the results of the run."""
        part = "-held-out" if self.held_out else ""
        return f"{self.draw.fraction:.6g}-{self.draw.seed}-{self.lr:g}{part}"


def build(config: Config) -> "FineTune":
    """Return the task for a configuration."""
    return FineTune(config)


class FineTune:
    """The benchmark task of fine-tuning; ``fine_tune_job.py`` trains the models."""

    needs_text = False
    needs_vectors = True

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> LabelledImages:
        """Return the labelled images of all splits.

        Raises:
            ArtifactError: If the split train or test has no images.
        """
        return few_shot.labelled(self.config.data, "fine-tuning")

    def learn(self, run: LearningRun, say: Callable[[str], None]) -> None:
        """Train the tower on every draw, and store its test logits in ``run.place``."""
        # Imported here: it imports this task.
        from biovl.benchmark import fine_tune_job

        fine_tune_job.train(self, run, say)

    def evaluate_learnt(
        self, data: LabelledImages, embedded: EmbeddedBenchmark | None, place: str
    ) -> TaskOutcome:
        """Return the metrics of the logits that ``learn`` stored in ``place``."""
        from biovl.benchmark import fine_tune_job

        assert embedded is not None
        return self.score(data, embedded, fine_tune_job.stored_results(self, data, embedded, place))

    def score(
        self, data: LabelledImages, embedded: EmbeddedBenchmark, learnt: Sequence[DrawResult]
    ) -> TaskOutcome:
        """Return the metrics of trained models from their predictions on test, one per draw."""
        rows = few_shot.readable_rows(data, np.asarray(embedded.image_ND))
        return few_shot.outcome(
            *(data, rows, learnt),
            resamples=self.config.resamples,
            validation="a fifth of the images drawn",
        )

    def draws(self) -> list[Draw]:
        """Return the draws of training images: shares and seeds."""
        return few_shot.draws(self.config.fractions, self.config.seeds)

    def tries(self, data: LabelledImages, rows: Mapping[str, np.ndarray]) -> list[FineTuneRun]:
        """Return the runs that are compared to select a learning rate; may be empty."""
        runs = []
        for draw in self.draws():
            for lr in self.config.tuning.lrs:
                training = FineTuneRun(draw, lr, held_out=not len(rows["val"]))
                if len(self.config.tuning.lrs) > 1 and len(self.parts(data, rows, training)[1]):
                    runs.append(training)
        return runs

    def chosen(
        self, tried: Mapping[FineTuneRun, tuple[float, float] | None]
    ) -> list[tuple[FineTuneRun, dict[str, float]]]:
        """Return the final run of each draw, and the validation accuracy of each learning rate.

        Args:
            tried: Validation accuracy and log-likelihood by run; None if the loss was NaN or Inf.
        """
        runs = []
        for draw in self.draws():
            by_rate = {
                one.lr: validated
                for one, validated in tried.items()
                if one.draw == draw and validated
            }
            rates = sorted(self.config.tuning.lrs)
            # Ties go to the higher log-likelihood, as for C of the probe; without validation, the
            # middle rate is used.
            lr = max(by_rate, key=lambda lr: by_rate[lr], default=rates[len(rates) // 2])
            accuracies = {f"{lr:g}": validated[0] for lr, validated in sorted(by_rate.items())}
            runs.append((FineTuneRun(draw, lr, held_out=False), accuracies))
        return runs

    def parts(
        self, data: LabelledImages, rows: Mapping[str, np.ndarray], training: FineTuneRun
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that a run trains on, and those it is validated on."""
        draw, train_N = training.draw, rows["train"]
        drawn_T = train_N[probe.draw_rows(data.labels[train_N], draw.fraction, seed=draw.seed)]
        if not training.held_out:
            return drawn_T, rows["val"]
        kept_T = probe.folds(data.labels[drawn_T], draw.seed) != 0
        return drawn_T[kept_T], drawn_T[~kept_T]
