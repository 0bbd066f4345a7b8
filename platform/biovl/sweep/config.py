"""The settings of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
"""Columns of the papers' tables: our score, the factor to the paper's unit, its decimals."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of a table: what is different in it."""

    shown: Mapping[str, str | int | float] = field(default_factory=dict)
    """The paper's columns that tell the row apart, and what stands in them."""

    recipe: str = ""
    """Of pretrain, where the row has one of its own; else that of ``base``."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pretrain, over those of ``base``."""

    paper: Mapping[str, float] = field(default_factory=dict)
    """What the paper has in its columns of results."""


@dataclass(frozen=True, kw_only=True)
class AshaConfig:
    """Stops trials that are behind, by the mean of both R@1 (asynchronous successive halving).

    Source:
        Li et al. 2020, arXiv:1810.05934.
    """

    reduction: int = 1
    """At each rung one of so many goes on; 1 stops nobody."""

    first_epochs: int = 1
    """The first rung; each is ``reduction`` times the one before."""

    def __post_init__(self) -> None:
        if min(self.reduction, self.first_epochs) < 1:
            raise ValueError("reduction and first_epochs must be positive")


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Runs of pretrain on one corpus, and what they are compared by."""

    corpus: str
    """The folder that assemble published, local or ``s3://``."""

    out: str
    """The folder to publish; also what a killed sweep goes on from."""

    base: Mapping[str, Any]
    """``base.recipe`` is one of pretrain's, and ``base.NAME`` any setting of it, for all trials."""

    settings: tuple[Setting, ...] = (Setting(),)
    """The rows of the table."""

    grid: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pretrain and the values each takes, all with all and with every row:
    ``grid.model.context_length=[77,256]``."""

    seeds: int = 1
    """Trials of each row and grid point, with seeds from that of ``base`` on."""

    equal: Literal["epochs", "compute"] = "epochs"
    """What trials have in common: the epochs, or the operations of the first row, to whole
    epochs."""

    asha: AshaConfig = field(default_factory=AshaConfig)

    concurrent: int | None = None
    """Trials at a time. None is what the cluster has room for when the sweep begins; give a number
    for a cluster that grows. More than there will be room for wait for each other for ever."""

    columns: tuple[str, ...] = ("loss", "img2txt R@1", "txt2img R@1")
    """Of the table's results, as a paper calls them."""

    source: str = ""
    """Where the paper's numbers stand, and what else must be known to compare."""

    def __post_init__(self) -> None:
        unknown = sorted({*self.columns} - {*COLUMNS})
        if unknown:
            raise ValueError(f"columns: choose from {', '.join(COLUMNS)}, got {unknown}")
        if self.seeds < 1 or (self.concurrent is not None and self.concurrent < 1):
            raise ValueError("seeds and concurrent must be positive")
        if not self.settings:
            raise ValueError("settings: a sweep needs at least one row")
