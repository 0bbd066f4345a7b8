"""The settings of annotate."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from biovl.annotate import weights
from biovl.annotate.annotators import Annotator, Precision, file_bytes
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Input
from biovl.core.config import REQUIRED, Recipe
from biovl.core.plugins import Plugin
from biovl.core.tables import COLUMNS


@dataclass(frozen=True, kw_only=True)
class AnnotateWorkers:
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
    workers: AnnotateWorkers = field(default_factory=AnnotateWorkers)

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    def __post_init__(self) -> None:
        if min(self.batch, self.rows_per_task) < 1:
            raise ValueError("batch and rows_per_task must be positive")
        if configs.is_unfinished(self):
            return
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


def dinov2() -> AnnotateConfig:
    """DINOv2 ViT-L/14 distilled, as in BIOMEDICA; weights by name or folder (needs table)."""
    return AnnotateConfig(
        table=REQUIRED, annotator=Plugin("dinov2"), weights="facebook/dinov2-large"
    )


def dinov2_small() -> AnnotateConfig:
    """DINOv2 ViT-S/14: 384 numbers for 1,024, a fourteenth of the work (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-small")


def dinov2_base() -> AnnotateConfig:
    """DINOv2 ViT-B/14: 768 numbers (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-base")


def dinov2_giant() -> AnnotateConfig:
    """DINOv2 ViT-g/14: 1,536 numbers (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-giant")


def clip() -> AnnotateConfig:
    """Images by a model of ours, or captions with annotator.of=text (needs table, weights)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("clip"))


def image_type() -> AnnotateConfig:
    """The nearest keyword of a taxonomy, by a model of ours, and a chart (needs table, weights)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("image_type"))


def context() -> AnnotateConfig:
    """Caption, citing sentences and the abstract's, and acronyms: no model (needs table)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("context"))


# The model and its endpoint: annotator.endpoint.url, with a key in OPENAI_API_KEY if it wants one.
def longcap() -> AnnotateConfig:
    """LongCAP as in the paper, Qwen2-VL-72B (needs table, annotator.endpoint.url, …cache)."""
    # Batches are asked for at once: of so many figures the last ones are few.
    return AnnotateConfig(
        table=REQUIRED, annotator=_longcap("Qwen/Qwen2-VL-72B-Instruct"), batch=256
    )


def longcap_on_gpus() -> AnnotateConfig:
    """The same on four GPUs of the cluster by vLLM (needs table, annotator.cache; ray[llm])."""
    engine = {"copies": 1, "gpus": 4}
    annotator = _longcap("Qwen/Qwen2-VL-72B-Instruct", engine=engine)
    return replace(longcap(), annotator=annotator)


def longcap_small() -> AnnotateConfig:
    """The same by a model for one GPU, Qwen2.5-VL-7B (needs what longcap needs)."""
    return replace(longcap(), annotator=_longcap("Qwen/Qwen2.5-VL-7B-Instruct"))


def _longcap(model: str, **settings: Any) -> Plugin:
    return Plugin("longcap", {"model": model, **settings})


RECIPES: dict[str, Recipe[AnnotateConfig]] = {
    "dinov2": dinov2,
    "dinov2_small": dinov2_small,
    "dinov2_base": dinov2_base,
    "dinov2_giant": dinov2_giant,
    "clip": clip,
    "image_type": image_type,
    "context": context,
    "longcap": longcap,
    "longcap_on_gpus": longcap_on_gpus,
    "longcap_small": longcap_small,
}
