"""Settings of index."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.core.config import REQUIRED, Recipe, Share
from biovl.core.workers import WorkerConfig
from biovl.index.query import Over
from biovl.index.vectors import Profile


@dataclass(frozen=True, kw_only=True)
class IndexWorkers(WorkerConfig):
    """Actors that embed, each with a copy of the model. Their number affects speed, not results."""

    count: PositiveInt = 1
    """Number of actors that embed. On a single machine without GPUs, 1 is the job's own process."""


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Target and minimum recall@10, relative to an exact search, by modality of the query.

    Search parameters are chosen on half of the queries: the cheapest that reach the targets, or the
    best if none do. Recall is measured on the other half.
    """

    text: Share = 0.95
    """Target for text queries."""
    image: Share = 0.98
    """Target for image queries."""
    floor: Share = 0.90
    """Minimum recall; an index below it is not published."""
    queries: PositiveInt = 2_000
    """Queries per modality: half of them to choose parameters, half to measure recall."""

    def __post_init__(self) -> None:
        if self.floor > min(self.text, self.image):
            raise ValueError(f"floor must not be above text and image, got {self.floor}")


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """Settings of index: model, corpus, and properties of the index."""

    model: str
    """The model to embed with: a published folder, local or ``s3://``."""
    corpus: str
    """The corpus whose pairs are indexed, local or ``s3://``."""
    out: str
    """The folder to publish, local or ``s3://``."""
    previous: str | None = None
    """An index made with the same model; embeddings of unchanged pairs are copied from it. None:
    embed everything."""

    updates: tuple[str, ...] = ()
    """Later incremental harvests. Figures listed in their ``tombstones.parquet`` (withdrawn,
    retracted or changed) are left out, without assembling the corpus again."""

    over: tuple[Over, ...] = ("images", "captions")
    """Which embeddings can be searched: ``images``, ``captions`` or both."""
    splits: tuple[str, ...] = ()
    """Splits of the corpus to index; empty: all."""
    concept_columns: tuple[str, ...] | None = None
    """Columns of the corpus with concepts to filter by; a missing one is an error. None: those that
    exist of ``global_concepts`` and ``local_concepts``, published by resolve, and ``concepts``."""
    image_type_column: str | None = None
    """Column of the corpus with image types to filter by; an error if it is missing. None:
    ``image_type``, published by annotate, if it exists."""

    label_columns: tuple[str, ...] = ()
    """Columns of the corpus to filter by as labels (``finding=nodule``), such as those that harvest
    kept of a table with ``source.keep``. The service sends them with every figure."""

    factory: str = ""
    """A faiss factory string, such as ``IVF1024,SQ8``; empty: chosen by the number of pairs and
    ``profile``."""
    profile: Profile = "default"
    """``default``, or ``low_memory``: less memory, more CPU per query."""
    recall: Recall = field(default_factory=Recall)
    """Target and minimum recall of the index."""

    thumbnail_px: Annotated[int, Field(ge=0, le=2_048)] = 256
    """Longer side of the thumbnails in pixels; 0: no thumbnails."""
    batch: PositiveInt = 64
    """Images, or texts, per forward pass of the model."""
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Precision of the model: ``float32``, ``bfloat16``, or ``auto``: bfloat16 on GPUs that support
    it, otherwise float32."""
    seed: NonNegativeInt = 0
    """Seed of the training vectors of the index, and of the queries that recall is measured
    with."""

    workers: IndexWorkers = field(default_factory=IndexWorkers)
    """Number and resources of the actors that embed."""
    pairs_per_unit: PositiveInt = 8_192
    """Pairs per embedding task. A task that has finished is not repeated after an interruption."""
    rows_per_part: PositiveInt = 262_144
    """Vectors sorted and encoded per task; the default takes half a gigabyte at 512 dimensions."""

    def __post_init__(self) -> None:
        if not self.over or len(set(self.over)) != len(self.over):
            raise ValueError("over must name images, captions or both, each once")


def every_figure() -> IndexConfig:
    """Images and captions of all splits; index type by their count (needs model, corpus, out)."""
    return IndexConfig(model=REQUIRED, corpus=REQUIRED, out=REQUIRED)


def low_memory() -> IndexConfig:
    """Default with at most 100 bytes of RAM per vector, the rest on disk (from 1 M vectors)."""
    return replace(every_figure(), profile="low_memory")


def on_gpus() -> IndexConfig:
    """The default, embedded on a GPU with 8 cores; set workers.count to the number of GPUs."""
    return replace(every_figure(), workers=IndexWorkers(count=1, gpus=1, cpus=8), batch=256)


RECIPES: dict[str, Recipe[IndexConfig]] = {
    "default": every_figure,
    "low_memory": low_memory,
    "on_gpus": on_gpus,
}
