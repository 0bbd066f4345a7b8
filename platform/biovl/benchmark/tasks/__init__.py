"""Tasks: what is asked of a model, and how the answer is judged. Each file is a plug-in.

``Config`` of a file says which data and how; ``build(config)`` returns a ``Task``. A task never
sees a pixel: images are embedded before, once for all tasks, and texts on demand. Of two, models
learn before they are judged: ``vqa`` and ``fine_tune``, by jobs of their names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from biovl.benchmark.datasets import LabelledImages, Pairs, Questions

# Shapes: N images, M texts, D embedding.


@dataclass(frozen=True, kw_only=True)
class EmbeddedBenchmark:
    """A benchmark's images as a model sees them, and the model's texts."""

    image_ND: np.ndarray
    """Unit rows, float32, memory-mapped; rows of NaN where an image is unreadable."""
    unreadable: Mapping[int, str]
    """Why, by row."""
    text: Callable[[Sequence[str]], np.ndarray]
    """Unit rows of texts, float32, [M, D]; kept for later runs.

    Raises BiovlError, naming the model, if it has no text tower."""
    logit_scale: float
    """The factor on similarities; not its logarithm. 1 for a model without texts."""
    model: str
    """What the table calls it."""
    has_text: bool
    context: int = 0
    """Tokens of a text that the model sees; 0 where that is not known."""
    truncated: Callable[[Sequence[str]], np.ndarray] | None = None
    """Which texts are longer; bool, [M]."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number and its 95 % interval."""

    name: str
    """``accuracy``, ``image_to_text_recall_at_1``; a breakdown adds its part after a slash."""
    value: float
    low: float
    high: float
    count: int
    """Of the examples it is computed from."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """What came of a task for one model."""

    scores: tuple[Score, ...]
    """The first is the one in the summary table."""
    predictions: pa.Table
    """A row per example, in the order of the data: ``id`` and enough to compute every score again.

    A column with the name of a score holds that score's value for each example (null where it has
    none), so that the score is the mean: two models are compared by such columns, pairwise."""
    plots: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by file name without its ending."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready: what a reader of the scores must know."""


class Task(Protocol):
    """Made by ``build(config)`` of a plug-in; travels as its description, not as itself."""

    needs_text: bool
    """Whether texts are embedded: a model without a text tower is refused before any work."""

    def data(self) -> LabelledImages | Pairs | Questions:
        """Return what is asked about; opens files, decodes no image."""
        ...

    def evaluate(self, data: Any, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Judge a model by its vectors; ``data`` is what ``data()`` returns."""
        ...
