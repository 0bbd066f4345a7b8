"""What a review is told. ``serve run serve.review:build concepts=DIR votes_per_cluster=3``."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from serve.http.settings import Auth, Limits, Rate


class ReviewSettings(BaseModel):
    """The whole review."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concepts: str
    """A published folder of clusters, local or ``s3://``."""
    database: str = "sqlite:///review.db"
    """Where answers are kept: any URL of SQLAlchemy. SQLite's file is on a disk of the machine that
    serves, not on a network disk."""
    reviewers_file: str | None = None
    """Keys with the scope ``review`` (and ``admin``), see ``serve.auth``; a key's name is the
    reviewer's. Without one only the own machine is answered, and reviewers just give a name."""
    taxonomy: str | None = None
    """YAML of concepts; None: the paper's."""
    ties: str | None = None
    """CSV of clusters to be looked at again (``cluster_id``, ``key``), as resolution lists them."""
    votes_per_cluster: int = Field(default=3, ge=1)
    """The paper's labels come from at most three."""
    clusters_per_reviewer: int | None = Field(default=None, ge=1)
    """How many clusters one reviewer is asked for; the paper's were asked for 1,000 of 2,000."""
    practice: int = Field(default=20, ge=0)
    """Clusters that each reviewer begins with and that are not counted; the paper's number."""
    seed: int = 0
    """Of the order of clusters, and of which are for practice."""
    reservation_s: float = Field(default=900, gt=0)
    """How long a cluster is kept for who opened it. The page renews it while it is being used."""
    limits: Limits = Limits(body_mib=5)
    rate: Rate = Rate()
    """Of each replica."""
    replicas: int = Field(default=1, ge=1)
    """More need one database that all reach."""
    log_format: Literal["json", "text"] = "json"

    @property
    def auth(self) -> Auth:
        """Who may ask."""
        return Auth(keys_file=self.reviewers_file)
