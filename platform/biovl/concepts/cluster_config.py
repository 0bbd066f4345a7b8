"""Settings of cluster."""

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.core.config import REQUIRED, Recipe


@dataclass(frozen=True, kw_only=True)
class ClusterWorkers:
    """Number of the k-means workers and size of their cache. They affect speed, not results."""

    count: PositiveInt | None = None
    """Number of workers, one CPU each; None: one for every CPU of the cluster."""

    cache_mb: NonNegativeInt = 1_000
    """Embeddings that a worker caches in memory, in MB; other embeddings are read again in every
    iteration."""


# Defaults are the paper's: BIOMEDICA, sections 3.2, 14.1 and 14.2.
@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Settings of the clustering of an embedding."""

    table: str
    """The table of images: ``figures/``, or a folder of Parquet files with a column ``image``."""

    out: str
    """The folder to publish, local or ``s3://``."""

    embedding: str | None = None
    """A published folder of columns with an embedding; None: ``columns/dinov2`` in the table's
    folder."""

    components: int | float = 25
    """Number of principal components, or, below 1, the share of the variance that they explain."""

    clusters: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Number of clusters. Fewer result if there are fewer distinct embeddings."""

    iterations: PositiveInt = 25
    """Maximum iterations of k-means."""

    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-4
    """k-means stops when an iteration reduces the inertia by less than this share of it."""

    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Seed of the initial centroids, and of the choice of members shown to reviewers."""

    block_rows: PositiveInt = 65_536
    """Rows per block of work. The memory of a task is proportional to it."""

    workers: ClusterWorkers = field(default_factory=ClusterWorkers)
    """Number of workers and their cache."""

    def __post_init__(self) -> None:
        whole = float(self.components).is_integer()
        if self.components <= 0 or (self.components >= 1 and not whole):
            raise ValueError(
                "components must be a whole number from 1, or a share of the variance between 0 "
                f"and 1, got {self.components}"
            )


def default() -> ClusterConfig:
    """BIOMEDICA: 25 principal components of DINOv2, 2,000 clusters (needs table, out)."""
    return ClusterConfig(table=REQUIRED, out=REQUIRED, components=25, clusters=2_000)


def by_variance() -> ClusterConfig:
    """Principal components that explain 99 % of the variance, 2,000 clusters (needs table, out)."""
    return replace(default(), components=0.99)


RECIPES: dict[str, Recipe[ClusterConfig]] = {"default": default, "by_variance": by_variance}
