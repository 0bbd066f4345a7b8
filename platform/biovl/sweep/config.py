"""Settings of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import PositiveInt

COLUMNS: dict[str, tuple[str, float, int]] = {
    "loss": ("loss", 1, 4),
    "img2txt R@1": ("image_to_text_recall_at_1", 100, 2),
    "txt2img R@1": ("text_to_image_recall_at_1", 100, 2),
    "T2I R@1": ("text_to_image_recall_at_1", 100, 1),
    "T2I R@5": ("text_to_image_recall_at_5", 100, 1),
    "T2I R@10": ("text_to_image_recall_at_10", 100, 1),
    "I2T R@1": ("image_to_text_recall_at_1", 100, 1),
    "training time": ("relative_seconds", 1, 2),
}
"""Result columns by their name in the papers: our metric, the factor to the paper's unit, and the
number of decimals."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the results table: settings that its runs change in ``base``."""

    shown: Mapping[str, str | int | float] = field(default_factory=dict)
    """Values that identify the row, by the paper's column names."""

    recipe: str = ""
    """Recipe of pretrain for this row; empty: that of ``base``."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pretrain that replace those of ``base``."""

    paper: Mapping[str, float] = field(default_factory=dict)
    """Results published in the paper, by column name."""


@dataclass(frozen=True, kw_only=True)
class AshaConfig:
    """Asynchronous successive halving: stop trials early by their mean R@1 in both directions.

    Source:
        Li et al. 2020, arXiv:1810.05934.
    """

    reduction: PositiveInt = 1
    """Share of trials that continue at each rung, as one of so many; 1 never stops a trial."""

    first_epochs: PositiveInt = 1
    """Epochs at the first rung. Each further rung has ``reduction`` times as many. With
    ``equal=compute`` rungs are amounts of compute, in epochs of the first row: a trial is compared
    at its first validation that had as much."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Settings of a sweep: pretraining runs on one corpus, and their comparison."""

    corpus: str
    """A corpus published by assemble, local or ``s3://``."""

    out: str
    """The folder to publish, local or ``s3://``; an interrupted sweep resumes from it."""

    base: Mapping[str, Any]
    """Settings of pretrain shared by all trials: ``base.recipe`` is a recipe, ``base.NAME`` any
    setting."""

    settings: tuple[Setting, ...] = (Setting(),)
    """Rows of the results table."""

    grid: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pretrain with lists of values, ``grid.model.context_length=[77,256]``: each row
    runs with every combination of them."""

    seeds: PositiveInt = 1
    """Trials per row and grid point, with consecutive seeds starting at that of ``base``."""

    equal: Literal["epochs", "compute"] = "epochs"
    """Quantity that is equal for all trials: ``epochs``, or ``compute``, the training FLOPs of the
    first row, rounded to whole epochs."""

    asha: AshaConfig = field(default_factory=AshaConfig)
    """Early stopping of trials."""

    concurrent: PositiveInt | None = None
    """Maximum concurrent trials. None: as many as the cluster has resources for when the sweep
    starts; set a number for a cluster that autoscales. Trials beyond the cluster's final size wait
    indefinitely."""

    columns: tuple[str, ...] = ("loss", "img2txt R@1", "txt2img R@1")
    """Result columns of the table, by their name in the papers."""

    source: str = ""
    """Source of the paper's results, and remarks on how comparable they are."""

    def __post_init__(self) -> None:
        unknown = sorted({*self.columns} - {*COLUMNS})
        if unknown:
            raise ValueError(f"columns: choose from {', '.join(COLUMNS)}, got {unknown}")
        if not self.settings:
            raise ValueError("settings: a sweep needs at least one row")
