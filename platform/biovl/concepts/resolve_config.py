"""The settings of resolve."""

from dataclasses import dataclass

from biovl.core.config import REQUIRED, Recipe


@dataclass(frozen=True, kw_only=True)
class ResolveConfig:
    """What becomes of votes about clusters."""

    concepts: str
    """The clusters, as the cluster job publishes them."""

    votes: str
    """A CSV file, local or ``s3://``, as the review page exports it."""

    out: str
    """The folder to publish, local or ``s3://``."""

    taxonomy: str | None = None
    """A YAML file with the names that votes may use; None: BIOMEDICA's."""

    table: str | None = None
    """Label the images of another table, without clustering them: each as the labelled cluster
    whose centroid is nearest. None: the table that was clustered."""

    embedding: str | None = None
    """The columns with that table's embedding, by the annotator that the clusters were made with;
    None is ``<table>/columns/dinov2``."""

    reach: float = 1.5
    """How far from a centroid an image of another table may be, as a multiple of the distance
    within which 95 % of the cluster are. Farther ones stay without labels."""

    max_distance: float | None = None
    """In place of ``reach``: one distance for all clusters, among principal components."""

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    def __post_init__(self) -> None:
        for name in ("reach", "max_distance"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if self.embedding is not None and self.table is None:
            raise ValueError("embedding is that of another table: set table as well")


def default() -> ResolveConfig:
    """Labels by most of the votes, names as in BIOMEDICA (needs concepts, votes, out)."""
    return ResolveConfig(concepts=REQUIRED, votes=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[ResolveConfig]] = {"default": default}
