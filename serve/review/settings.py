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
    """YAML file of API keys with the scope ``review`` (and ``admin``), see ``serve.auth``;
    reviewers are identified by the names of their keys. None: only this machine has access, and
    reviewers enter any name."""
    taxonomy: str | None = None
    """YAML file of concepts, local or ``s3://``; None: the taxonomy of the paper."""
    ties: str | None = None
    """CSV file of clusters to review again (``cluster_id``, ``key``), as resolve writes it; None:
    no such clusters."""
    votes_per_cluster: int = Field(default=3, ge=1)
    """Number of votes to collect per cluster; at most three in the paper."""
    clusters_per_reviewer: int | None = Field(default=None, ge=1)
    """Maximum number of clusters per reviewer; None: no limit. In the paper: 1,000 of 2,000."""
    practice: int = Field(default=20, ge=0)
    """Number of practice clusters for each reviewer at the start; their votes are not counted. 20
    in the paper. At most half of all clusters."""
    seed: int = 0
    """Seed of the cluster order and of the practice clusters."""
    reservation_s: float = Field(default=900, gt=0)
    """Duration of a reservation of an opened cluster, in seconds. The page renews it while in
    use."""
    limits: Limits = Limits(body_mib=5)
    """Limits of one request."""
    rate: Rate = Rate()
    """Rate limits of requests, per replica."""
    replicas: int = Field(default=1, ge=1)
    """Number of replicas; more than one requires a database that all nodes can reach."""
    log_format: Literal["json", "text"] = "json"
    """Format of the access log: ``json``, one object per line, or ``text``."""

    @property
    def auth(self) -> Auth:
        """Settings of authentication, from ``reviewers_file``."""
        return Auth(keys_file=self.reviewers_file)
