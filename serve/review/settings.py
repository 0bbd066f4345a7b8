"""Settings of the review. ``serve run serve.review:build concepts=DIR votes_per_cluster=3``."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from serve.http.settings import Auth, Limits, Rate


class ReviewSettings(BaseModel):
    """Settings of the review service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concepts: str
    """A published folder of clusters, local or ``s3://``."""
    database: str = "sqlite:///review.db"
    """Database of votes, any SQLAlchemy URL. An SQLite file must be on a local disk, not on a
    network disk."""
    reviewers_file: str | None = None
    """API keys with the scope ``review`` (and ``admin``), see ``serve.auth``; reviewers are
    identified by the names of their keys. Without the file only this machine has access, and
    reviewers enter any name."""
    taxonomy: str | None = None
    """YAML file of concepts; None: the taxonomy of the paper."""
    ties: str | None = None
    """CSV of clusters to review again (``cluster_id``, ``key``), as written by resolution."""
    votes_per_cluster: int = Field(default=3, ge=1)
    """Votes collected per cluster. In the paper: at most three."""
    clusters_per_reviewer: int | None = Field(default=None, ge=1)
    """Maximum clusters per reviewer; None: no limit. In the paper: 1,000 of 2,000."""
    practice: int = Field(default=20, ge=0)
    """Practice clusters at the start of each reviewer, not counted. The paper's number."""
    seed: int = 0
    """Seed of the cluster order and of the practice clusters."""
    reservation_s: float = Field(default=900, gt=0)
    """How long an opened cluster is reserved, in seconds. The page renews it while in use."""
    limits: Limits = Limits(body_mib=5)
    rate: Rate = Rate()
    """Rate limits, per replica."""
    replicas: int = Field(default=1, ge=1)
    """Number of replicas; more than one requires a database that all nodes can reach."""
    log_format: Literal["json", "text"] = "json"

    @property
    def auth(self) -> Auth:
        """Authentication settings."""
        return Auth(keys_file=self.reviewers_file)
