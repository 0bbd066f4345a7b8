"""Settings of annotate."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.annotate import identity
from biovl.annotate.annotators import Annotator, Precision, file_bytes
from biovl.assemble.rules import make_rules, with_names
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Input
from biovl.core.config import REQUIRED, Recipe
from biovl.core.plugins import Plugin
from biovl.core.tables import columns_of
from biovl.core.workers import WorkerConfig


@dataclass(frozen=True, kw_only=True)
class AnnotateWorkers(WorkerConfig):
    """Number and resources of actors, each with a copy of the model. They do not affect results."""

    count: NonNegativeInt = 0
    """Maximum number of actors. 0: on CPUs, one per ``cpus`` cores of the cluster; with ``gpus``,
    as many as the cluster can provide."""
    least: PositiveInt = 1
    """Number of actors at the start; more are added up to ``count`` while batches wait."""

    def __post_init__(self) -> None:
        if 0 < self.count < self.least:
            raise ValueError(f"least ({self.least}) must not be more than count ({self.count})")


@dataclass(frozen=True, kw_only=True)
class SelectConfig:
    """Selection of rows to annotate; the other rows are marked as not selected in the output."""

    rules: tuple[Plugin, ...] = ()
    """Rules that rows must pass, as in assemble: ``select.rules+=years(2015)``. They read columns
    of the table, of its articles, and those in ``columns``."""

    columns: tuple[str, ...] = ()
    """Published folders of columns of the same table that rules read, such as labels of resolve."""

    rows: PositiveInt | None = None
    """Maximum number of rows: a random sample of those that pass the rules. A larger number selects
    the same rows, and others. None: all."""

    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the sample."""

    def __post_init__(self) -> None:
        named = tuple(with_names(rule) for rule in self.rules)
        make_rules(named)
        object.__setattr__(self, "rules", named)

    @property
    def is_set(self) -> bool:
        """Whether rows may be left out."""
        return bool(self.rules) or self.rows is not None


@dataclass(frozen=True, kw_only=True)
class AnnotateConfig:
    """Which columns to compute, for which table, and where to publish them."""

    table: str
    """The table of images: ``figures/``, or a folder of Parquet files with a column ``image``."""
    annotator: Plugin
    """The annotator that computes the columns: its name and its settings."""
    weights: str = ""
    """Weights of the annotator's model: a folder, local or ``s3://``, or, if the annotator accepts
    one, a model name on the Hugging Face hub, optionally with a revision (``OWNER/NAME@REVISION``).
    Empty for annotators without a model."""
    out: str = ""
    """The folder to publish, local or ``s3://``; empty: ``columns/NAME`` in the folder of the
    table."""

    select: SelectConfig = field(default_factory=SelectConfig)
    """Which rows to compute: all by default."""
    precision: Precision = "auto"
    """Precision of the model: ``float32``, ``bfloat16``, or ``auto``: bfloat16 on GPUs that support
    it, otherwise float32."""
    batch: PositiveInt = 64
    """Rows per forward pass of the model. Finished batches are not computed again after an
    interruption."""
    rows_per_task: PositiveInt = 1_024
    """Rows that one task reads and decodes, at least one row group of the table."""
    workers: AnnotateWorkers = field(default_factory=AnnotateWorkers)
    """Number and resources of the actors."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""

    def __post_init__(self) -> None:
        if configs.is_unfinished(self):
            return
        # Resolved here, so that unknown names and settings are reported with other invalid ones.
        settings = self._settings
        if not self.out:
            object.__setattr__(self, "out", columns_of(self.table, settings.column))

    @property
    def _plugin(self) -> Plugin:
        weights = {"weights": self.weights} if self.weights else {}
        return Plugin(self.annotator.name, {**self.annotator.settings, **weights})

    @property
    def _settings(self) -> Any:
        """The settings of the annotator, an object of its ``Config``."""
        return plugins.resolve("annotate.annotators", self._plugin)[1]

    @property
    def batches_at_once(self) -> int:
        """Concurrent batches per actor: more than one for annotators that wait for an endpoint."""
        return int(getattr(self._settings, "batches_at_once", 1))

    @property
    def has_weights(self) -> bool:
        """Whether the annotator has a PyTorch model; annotators that only read texts have none."""
        return bool(self._plugin.settings.get("weights"))

    def settings(self) -> Mapping[str, Any]:
        """Return the annotator's settings, including its defaults.

        Settings that do not change the columns are left out: ``weights``, which are recorded among
        the inputs, and the address and rate limit of an endpoint.
        """
        settings = self._settings
        plain = configs.to_plain(settings)
        for name in ("weights", *getattr(settings, "elsewhere", ())):
            plain.pop(name, None)
        return {"name": self.annotator.name, **plain}

    def defaults(self) -> configs.Defaults:
        """Return the defaults of the annotator's settings."""
        return configs.defaults(type(self._settings), "annotator")

    def inputs(self, pinned: str = "") -> list[Input]:
        """Return the inputs in addition to the table: weights, and files named in the settings.

        Args:
            pinned: Name of the weights on the hub with its commit, see ``hub.pinned``.

        Raises:
            ConfigError: If a file does not exist.
        """
        files = [
            Input(name=name, uri=uri, fingerprint=hashlib.sha256(file_bytes(name, uri)).hexdigest())
            for name, uri in getattr(self._settings, "files", {}).items()
        ]
        return [*identity.as_input(self.weights, self.out, pinned), *files]

    def make(self) -> Annotator:
        """Create the annotator from its name and settings.

        Raises:
            ArtifactError: If its weights are missing or are not those of its model.
        """
        annotator: Annotator = plugins.make("annotate.annotators", self._plugin)
        return annotator


def dinov2() -> AnnotateConfig:
    """DINOv2 ViT-L/14 distilled, as in BIOMEDICA; weights by name or folder (needs table)."""
    return AnnotateConfig(
        table=REQUIRED, annotator=Plugin("dinov2"), weights="facebook/dinov2-large"
    )


def dinov2_small() -> AnnotateConfig:
    """DINOv2 ViT-S/14: 384 dimensions instead of 1,024, 1/14 of the compute (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-small")


def dinov2_base() -> AnnotateConfig:
    """DINOv2 ViT-B/14: 768 dimensions (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-base")


def dinov2_giant() -> AnnotateConfig:
    """DINOv2 ViT-g/14: 1,536 dimensions (needs table)."""
    return replace(dinov2(), weights="facebook/dinov2-giant")


def clip() -> AnnotateConfig:
    """Embeddings by your model: images, or captions if annotator.of=text (needs table, weights)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("clip"))


def image_type() -> AnnotateConfig:
    """Type of each image by its nearest keyword, and a chart of types (needs table, weights)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("image_type"))


def context() -> AnnotateConfig:
    """Caption with citing sentences, abstract and expanded acronyms; no model (needs table)."""
    return AnnotateConfig(table=REQUIRED, annotator=Plugin("context"))


# The endpoint is annotator.endpoint.url; its API key, if any, is read from OPENAI_API_KEY.
def longcap() -> AnnotateConfig:
    """LongCAP as in the paper, Qwen2-VL-72B (needs table, annotator.endpoint.url, …cache)."""
    # Requests of a batch are concurrent: large batches keep the endpoint busy to their end.
    return AnnotateConfig(
        table=REQUIRED, annotator=_longcap("Qwen/Qwen2-VL-72B-Instruct"), batch=256
    )


def longcap_on_gpus() -> AnnotateConfig:
    """LongCAP with vLLM on four GPUs of the cluster (needs table, annotator.cache; ray[llm])."""
    engine = {"copies": 1, "gpus": 4}
    annotator = _longcap("Qwen/Qwen2-VL-72B-Instruct", engine=engine)
    return replace(longcap(), annotator=annotator)


def longcap_small() -> AnnotateConfig:
    """LongCAP with a model for one GPU, Qwen2.5-VL-7B (needs the same settings as longcap)."""
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
