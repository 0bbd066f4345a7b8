"""The settings of annotate."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from biovl.annotate import weights
from biovl.annotate.annotators import Annotator, Precision, file_bytes
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Input
from biovl.core.plugins import Plugin
from biovl.core.tables import COLUMNS


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Those that hold a copy of the model. More of them change nothing but the time."""

    count: int = 0
    """The most there are; 0: as many as there are cores, or with ``gpus`` as the cluster gives."""
    least: int = 1
    """How many there are from the beginning; the rest come when there is work for them."""
    gpus: float = 0
    """Of each; 0 computes on the CPU."""
    cpus: int = 1
    """Of each: the threads of its model. Decoding has cores of its own where the models have GPUs,
    and shares theirs where not."""

    def __post_init__(self) -> None:
        if self.count < 0 or self.least < 1 or self.cpus < 1 or self.gpus < 0:
            raise ValueError("least and cpus must be positive, count and gpus not negative")
        if 0 < self.count < self.least:
            raise ValueError(f"least ({self.least}) must not be more than count ({self.count})")


@dataclass(frozen=True, kw_only=True)
class AnnotateConfig:
    """What to compute, of which table, and where to put it."""

    table: str
    """The images: ``figures/``, or a folder of Parquet files with a column image."""
    annotator: Plugin
    """What is computed, by name, with its settings."""
    weights: str = ""
    """Of the annotator's model: a folder, local or ``s3://``, or where it takes one a name on the
    hub."""
    out: str = ""
    """The folder to publish; empty: ``columns/NAME`` in the table's."""

    precision: Precision = "auto"
    """Of the model's arithmetic: float32, bfloat16, or auto, which is bfloat16 on GPUs that have
    it."""
    batch: int = 64
    """Rows that go through the model at a time, and that a killed job keeps or does again."""
    rows_per_task: int = 1_024
    """Rows that a task prepares, at least one row group of the table."""
    workers: Workers = field(default_factory=Workers)

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    def __post_init__(self) -> None:
        if min(self.batch, self.rows_per_task) < 1:
            raise ValueError("batch and rows_per_task must be positive")
        # Here, so that a name or a setting that is not known is told as the others are.
        _, settings = plugins.resolve("annotate.annotators", self._plugin)
        if not self.out:
            out = f"{self.table.rstrip('/')}/{COLUMNS}/{settings.column}"
            object.__setattr__(self, "out", out)

    @property
    def _plugin(self) -> Plugin:
        given = {"weights": self.weights} if self.weights else {}
        return Plugin(self.annotator.name, {**self.annotator.settings, **given})

    @property
    def batches_at_once(self) -> int:
        """How many batches a copy takes: several where it waits for a server, alone."""
        _, settings = plugins.resolve("annotate.annotators", self._plugin)
        return int(getattr(settings, "batches_at_once", 1))

    @property
    def has_weights(self) -> bool:
        """Whether there is a model for PyTorch; annotators of texts have none."""
        return bool(self._plugin.settings.get("weights"))

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of the annotator, its defaults among them.

        Those that do not change the columns are left out: ``weights``, which stand among the
        inputs, and where and how fast an endpoint may be asked.
        """
        _, settings = plugins.resolve("annotate.annotators", self._plugin)
        plain = configs.to_plain(settings)
        for name in ("weights", *getattr(settings, "elsewhere", ())):
            plain.pop(name, None)
        return {"name": self.annotator.name, **plain}

    def defaults(self) -> configs.Defaults:
        """Return the defaults of the annotator's settings."""
        _, settings = plugins.resolve("annotate.annotators", self._plugin)
        return configs.defaults(type(settings), "annotator")

    def inputs(self) -> list[Input]:
        """Return what the annotator reads beside the table: weights, and files of its settings.

        Raises:
            ConfigError: If there is no such file.
        """
        _, settings = plugins.resolve("annotate.annotators", self._plugin)
        files = [
            Input(name=name, uri=uri, fingerprint=hashlib.sha256(file_bytes(name, uri)).hexdigest())
            for name, uri in getattr(settings, "files", {}).items()
        ]
        return [*weights.as_input(self.weights), *files]

    def make(self) -> Annotator:
        """Return the annotator.

        Raises:
            ArtifactError: If it has no weights, or not those it takes.
        """
        made: Annotator = plugins.make("annotate.annotators", self._plugin)
        return made
