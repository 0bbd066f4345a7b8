"""What to index, and how well it must be found."""

from dataclasses import dataclass, field, replace
from typing import Literal

from biovl.core.config import REQUIRED, Recipe
from biovl.index.query import Over
from biovl.index.vectors import Profile


@dataclass(frozen=True, kw_only=True)
class IndexWorkers:
    """Those that embed, each with a copy of the model. More of them change nothing but the time."""

    count: int = 1
    gpus: float = 0
    """Of each; 0 embeds on the CPU."""
    cpus: int = 1
    """Of each: threads that decode images and, without a GPU, embed."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.cpus < 1 or self.gpus < 0:
            raise ValueError("count and cpus must be positive, gpus not negative")


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Recall@10 against comparing with every vector, by what a query is made from.

    The cheapest setting that reaches it with one half of the queries is the index's; if none does,
    the best. Recall is that of the other half; below the floor nothing is published.
    """

    text: float = 0.95
    image: float = 0.98
    floor: float = 0.90
    queries: int = 2_000
    """Of each kind: half of them to choose settings, half to measure recall."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= min(self.text, self.image) <= max(self.text, self.image) <= 1:
            raise ValueError(
                "floor must be in 0..1 and not above text and image, nor these above 1"
            )
        if self.queries < 1:
            raise ValueError(f"queries must be positive, got {self.queries}")


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """What to index and where to put it."""

    model: str
    """The model folder to embed with."""
    corpus: str
    """The corpus folder whose pairs are indexed."""
    out: str
    """The folder to publish, local or ``s3://``."""
    previous: str | None = None
    """An index folder made with the same model: what has not changed is not embedded again."""

    updates: tuple[str, ...] = ()
    """Harvests since the corpus was made: figures that their ``tombstones.parquet`` names, gone,
    retracted or changed, are left out without assembling anew."""

    over: tuple[Over, ...] = ("images", "captions")
    """Whose vectors can be searched."""
    splits: tuple[str, ...] = ()
    """Which splits of the corpus; all if none is named."""
    concept_columns: tuple[str, ...] | None = None
    """Columns of the corpus that name concepts to filter by, all of which it must have; None: those
    that resolve publishes, ``global_concepts`` and ``local_concepts``, and ``concepts``."""
    image_type_column: str | None = None
    """Of which the same holds; None: ``image_type``, which annotate publishes."""

    factory: str = ""
    """A faiss factory string (``IVF1024,SQ8``); empty: by the number of pairs and the profile."""
    profile: Profile = "default"
    """default, or low_memory: less in memory for more CPU a query."""
    recall: Recall = field(default_factory=Recall)

    thumbnail_px: int = 256
    """The longer side of thumbnails; 0 makes none."""
    batch: int = 64
    """Images, or texts, embedded at a time."""
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Of the model's arithmetic; auto is bfloat16 on GPUs that have it."""
    seed: int = 0
    """Draws the vectors that an index is trained on, and the queries recall is measured with."""

    workers: IndexWorkers = field(default_factory=IndexWorkers)
    pairs_per_unit: int = 8_192
    """Pairs embedded by one task: what a killed job keeps."""
    rows_per_part: int = 262_144
    """Rows that are put in order and encoded by one task; of 512 dimensions, half a gigabyte."""

    def __post_init__(self) -> None:
        if not self.over or len(set(self.over)) != len(self.over):
            raise ValueError("over must name images, captions or both, each once")
        if min(self.batch, self.pairs_per_unit, self.rows_per_part) < 1:
            raise ValueError("batch, pairs_per_unit and rows_per_part must be positive")
        if not 0 <= self.thumbnail_px <= 2_048:
            raise ValueError(f"thumbnail_px must be in 0..2048, got {self.thumbnail_px}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")


def every_figure() -> IndexConfig:
    """Images and captions of all splits, the index by their number (needs model, corpus, out)."""
    return IndexConfig(model=REQUIRED, corpus=REQUIRED, out=REQUIRED)


def low_memory() -> IndexConfig:
    """The same in at most 100 bytes of memory a vector, the rest on disk (from a million on)."""
    return replace(every_figure(), profile="low_memory")


def on_gpus() -> IndexConfig:
    """The default, embedded by a GPU with 8 cores; set workers.count to how many there are."""
    return replace(every_figure(), workers=IndexWorkers(count=1, gpus=1, cpus=8), batch=256)


RECIPES: dict[str, Recipe[IndexConfig]] = {
    "default": every_figure,
    "low_memory": low_memory,
    "on_gpus": on_gpus,
}
