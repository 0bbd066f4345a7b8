"""The settings of cluster."""

from dataclasses import dataclass, field, replace

from biovl.core.config import REQUIRED, Recipe


@dataclass(frozen=True, kw_only=True)
class ClusterWorkers:
    """Who clusters. Decides nothing about the result."""

    count: int | None = None
    """Workers that hold vectors, of one CPU each; None takes one for every CPU of the cluster."""

    cache_mb: int = 1_000
    """Vectors that a worker keeps in memory; what is beyond is read anew in every iteration."""

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"count must be positive, got {self.count}")
        if self.cache_mb < 0:
            raise ValueError(f"cache_mb must not be negative, got {self.cache_mb}")


# Defaults are the paper's: BIOMEDICA, sections 3.2, 14.1 and 14.2.
@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """How images are put into clusters."""

    table: str
    """A table of images: ``figures/``, or a folder of Parquet files with a column ``image``."""

    out: str
    """The folder to publish, local or ``s3://``."""

    embedding: str | None = None
    """A published folder of columns with an embedding; None is ``<table>/columns/dinov2``."""

    components: int | float = 25
    """Principal components: how many, or, below 1, the share of the variance that they keep."""

    clusters: int = 2_000
    """Clusters to make. Fewer come out where there are fewer different vectors."""

    iterations: int = 25
    """Of k-means, at most."""

    tolerance: float = 1e-4
    """It ends where inertia falls by less than this share in an iteration."""

    seed: int = 0
    """Decides the first centroids, and which members are shown."""

    block_rows: int = 65_536
    """Rows of the table that are worked on together. Memory of a task follows it."""

    workers: ClusterWorkers = field(default_factory=ClusterWorkers)

    def __post_init__(self) -> None:
        whole = float(self.components).is_integer()
        if self.components <= 0 or (self.components >= 1 and not whole):
            raise ValueError(
                "components must be a whole number from 1, or a share of the variance between 0 "
                f"and 1, got {self.components}"
            )
        for name in ("clusters", "iterations", "block_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.clusters > 100_000:
            raise ValueError(f"clusters must be at most 100,000, got {self.clusters:,}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must be in 0..1, got {self.tolerance}")
        if not 0 <= self.seed < 2**62:
            raise ValueError(f"seed must be in 0..2^62-1, got {self.seed}")


def default() -> ClusterConfig:
    """BIOMEDICA: 25 principal components of DINOv2, 2,000 clusters (needs table, out)."""
    return ClusterConfig(table=REQUIRED, out=REQUIRED, components=25, clusters=2_000)


def by_variance() -> ClusterConfig:
    """As many components as keep 99 % of the variance, 2,000 clusters (needs table, out)."""
    return replace(default(), components=0.99)


RECIPES: dict[str, Recipe[ClusterConfig]] = {"default": default, "by_variance": by_variance}
