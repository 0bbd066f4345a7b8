"""Settings of resolve."""

from dataclasses import dataclass

from pydantic import PositiveFloat

from biovl.core.config import REQUIRED, Recipe


@dataclass(frozen=True, kw_only=True)
class ResolveConfig:
    """Settings of the labelling of images by reviewers' votes on clusters."""

    concepts: str
    """The folder of clusters published by cluster, local or ``s3://``."""

    votes: str
    """The votes, a CSV file as exported by the review service, local or ``s3://``."""

    out: str
    """The folder to publish, local or ``s3://``."""

    taxonomy: str | None = None
    """A YAML file of the concepts that votes may name; None: BIOMEDICA's taxonomy."""

    table: str | None = None
    """A table other than the clustered one, whose images are labelled without clustering: each gets
    the labels of the nearest centroid. None: label the clustered table."""

    embedding: str | None = None
    """Columns with the embedding of ``table``, by the annotator that the clusters were made with;
    None: ``columns/dinov2`` in the folder of ``table``."""

    reach: PositiveFloat = 1.5
    """Maximum distance of an image of ``table`` to its centroid, as a multiple of the distance
    within which 95 % of the cluster's own images are. Images beyond it get no labels."""

    max_distance: PositiveFloat | None = None
    """Instead of ``reach``: one maximum distance for all clusters, in the space of the principal
    components. None: use ``reach``."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""

    def __post_init__(self) -> None:
        if self.embedding is not None and self.table is None:
            raise ValueError("embedding is that of another table: set table as well")


def default() -> ResolveConfig:
    """Labels by majority vote, with BIOMEDICA's taxonomy (needs concepts, votes, out)."""
    return ResolveConfig(concepts=REQUIRED, votes=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[ResolveConfig]] = {"default": default}
