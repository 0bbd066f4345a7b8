"""Benchmark tasks: evaluations of a model on a dataset. Each file is a plug-in.

A file has a ``Config``, the settings of the task, and ``build(config)``, which returns a ``Task``.
A task does not decode images: they are embedded before, once for all tasks, and texts on demand. A
task that trains models before their evaluation (``vqa``, ``fine_tune``) implements ``TrainsFirst``,
one whose data a model selects (``proxy``) ``SelectsFirst``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap
from biovl.benchmark.bootstrap import Statistic
from biovl.benchmark.datasets import Images, LabelledImages, Pairs, Questions
from biovl.core.plugins import Plugin
from biovl.core.workers import Precision

if TYPE_CHECKING:
    from biovl.benchmark.config import BenchmarkWorkers
    from biovl.benchmark.embedding import EmbeddingTask, Texts
    from biovl.benchmark.encoders import ModelDescription
    from biovl.benchmark.labellers import LabelledTexts

# Shapes: N images, M texts, D embedding.


@dataclass(frozen=True, kw_only=True)
class EmbeddedBenchmark:
    """Image embeddings of one benchmark by one model, and access to the model's text tower."""

    image_ND: np.ndarray
    """L2-normalised image embeddings, float32, memory-mapped; rows of unreadable images are NaN."""
    unreadable: Mapping[int, str]
    """Reason for each unreadable image, by row."""
    text: Callable[[Sequence[str]], np.ndarray]
    """Embeds texts: returns L2-normalised rows, float32, [M, D], which are cached for later runs.
    Raises BiovlError if the model has no text tower."""
    logit_scale: float
    """Factor on similarities, 1 / temperature, not its logarithm; 1 without a text tower."""
    model: str
    """Name of the model in the report."""
    has_text: bool
    """Whether the model has a text tower."""
    context: int = 0
    """Context length of the text tower in tokens; 0 if unknown."""
    truncated: Callable[[Sequence[str]], np.ndarray] | None = None
    """Returns which texts exceed the context length; bool, [M]. None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Value of a metric with its 95 % confidence interval."""

    name: str
    """Name such as ``accuracy`` or ``image_to_text_recall_at_1``; for a subset of the data,
    followed by a slash and the name of the subset."""
    value: float
    """Value of the metric."""
    low: float
    """Lower bound of the interval."""
    high: float
    """Upper bound of the interval."""
    count: int
    """Number of examples that the metric is computed from."""
    note: str = ""
    """Remark for the report."""

    @classmethod
    def estimated(
        cls,
        name: str,
        values: np.ndarray,
        statistic: Statistic = bootstrap.mean,
        *,
        resamples: int,
        seed: int = 0,
        note: str = "",
    ) -> "Score":
        """Return a metric of examples with its interval; arguments as of ``bootstrap.estimate``."""
        found = bootstrap.estimate(values, statistic, resamples=resamples, seed=seed)
        return cls(name=name, **vars(found), count=len(values), note=note)


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """Results of a task for one model."""

    scores: tuple[Score, ...]
    """Metrics; the first one is shown in the summary table."""
    predictions: pa.Table
    """One row per example, in the order of the data: ``id``, and the columns from which every
    metric can be computed again. A column named after a metric has its value per example (null if
    the example does not count); the metric is the mean of the column. Models are compared on such
    columns with paired tests."""
    plots: Mapping[str, bytes] = field(default_factory=dict)
    """PNG files by name, without extension."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON-serialisable details of the evaluation for the report."""


class Task(Protocol):
    """A benchmark task, returned by a plug-in's ``build(config)``; workers receive its settings."""

    needs_text: bool
    """Whether the task embeds texts: models without a text tower are rejected before any work."""

    def data(self) -> LabelledImages | Pairs | Questions:
        """Return the dataset; opens files, but decodes no image."""
        ...

    def evaluate(self, data: Any, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Return a model's results, from its embeddings of the dataset that ``data()`` returns.

        A task that ``TrainsFirst`` has ``evaluate_learnt`` instead.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LearningRun:
    """A model to be trained on a task, with the folder for its results."""

    data: Any
    """Result of ``Task.data``."""
    model: "ModelDescription"
    images: "Sequence[EmbeddingTask]"
    """Tasks that embedded the images; empty without ``TrainsFirst.needs_vectors``."""
    workers: "BenchmarkWorkers"
    precision: Precision
    place: str
    """A folder for this model and task only, local or ``s3://``: checkpoints and results."""


@runtime_checkable
class TrainsFirst(Protocol):
    """A task whose models are trained before they are scored."""

    needs_vectors: bool
    """Whether the images are embedded before training."""

    def learn(self, run: LearningRun, say: Callable[[str], None]) -> None:
        """Train a model, and store the results in ``run.place``, from which it resumes.

        Runs on the driver, connected to Ray; ``say`` logs a line about progress. An ArtifactError
        or ConfigError skips the task.
        """
        ...

    def evaluate_learnt(
        self, data: Any, embedded: EmbeddedBenchmark | None, place: str
    ) -> TaskOutcome:
        """Return the metrics of a trained model, from the results of ``learn`` in ``place``.

        Runs on a worker with the embeddings of the images. Without ``needs_vectors`` it runs on the
        driver, ``embedded`` is None, and ``notes["unreadable_images"]`` of the outcome must state
        why each unreadable image could not be read.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class SelectionRun:
    """Models and functions that the job provides to a task that selects its data."""

    models: "Mapping[str, ModelDescription]"
    """Models of the run by name."""
    embed: "Callable[[ModelDescription, Images | Texts], np.ndarray]"
    """Embeds images or texts with a model on the workers: returns unit rows from the cache, NaN for
    unreadable images, memory-mapped where possible."""
    label: "Callable[[str | Plugin, Sequence[str]], LabelledTexts]"
    """Extracts findings from texts with a labeller on the workers."""
    publish: Callable[[pa.Table], None]
    """Writes a table about the selection into the report."""


@runtime_checkable
class SelectsFirst(Protocol):
    """A task whose data is selected by a model before it is embedded for all models."""

    def select(self, data: Any, run: SelectionRun) -> Any:
        """Return the dataset to evaluate, selected from the result of ``data()``.

        Runs on the driver, connected to Ray. An ArtifactError or ConfigError ends the run.
        """
        ...
