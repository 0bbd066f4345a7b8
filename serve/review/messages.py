"""Request and response messages of the review service, with validation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ReviewMessage(BaseModel):
    """Base class that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Place(ReviewMessage):
    """A cluster as a reviewer saw it."""

    cluster_id: int = Field(ge=0, le=2**31 - 1)
    key: str = Field(min_length=1, max_length=64)
    """Key of the cluster; it changes with the members of the cluster."""
    practice: bool = False


class NextRequest(ReviewMessage):
    """Request for the next cluster."""

    skip: Place | None = None
    """The cluster to skip; it is assigned again when no other is left."""


class Answers(ReviewMessage):
    """The three answers about a cluster."""

    panel_type: str = Field(min_length=1, max_length=200)
    panel_subtype: str | None = Field(default=None, max_length=200)
    global_concepts: list[str] = Field(max_length=50)
    local_concepts: list[str] = Field(default=[], max_length=100)


class VoteRequest(Place, Answers):
    """A reviewer's vote on a cluster."""


class ReviewerProgress(BaseModel):
    """Progress of a reviewer."""

    practised: int
    practice: int
    """Clusters for practice, not counted."""
    votes: int
    most: int | None
    """Maximum clusters per reviewer; null: no limit."""


class Overall(BaseModel):
    """Progress of all reviewers together."""

    clusters: int
    complete: int
    """Clusters that have all required votes."""
    votes: int
    wanted: int
    """Number of required votes, without those for ties."""
    ties: int
    """Clusters whose votes tie."""


class ReviewProgress(BaseModel):
    """Progress of the review."""

    own: ReviewerProgress
    overall: Overall


class PanelAnswer(BaseModel):
    """An answer to the first question."""

    panel_type: str
    panel_subtype: str | None
    question: str


class Recent(BaseModel):
    """A recent vote of this reviewer, for going back."""

    cluster_id: int
    key: str
    practice: bool


class Review(BaseModel):
    """Data that the page needs at start."""

    reviewer: str
    concepts: str
    """First 12 digits of the folder's fingerprint."""
    panels: list[PanelAnswer]
    concepts_by_global: dict[str, list[str]]
    aliases: dict[str, str]
    """Synonyms, in lower case without spaces and dashes, and the concept of each."""
    votes_per_cluster: int
    reservation_s: float
    progress: ReviewProgress
    recent: list[Recent]
    """This reviewer's latest votes, the latest first."""


class MemberAnswer(BaseModel):
    """An image of a cluster."""

    rank: int
    row_id: str
    caption: str
    distance: float | None
    width_px: int | None
    height_px: int | None
    thumbnail: str | None
    """A ``data:`` URL of a JPEG; null if the image could not be read."""


class Sheet(BaseModel):
    """A cluster with its images and this reviewer's vote."""

    cluster_id: int
    key: str
    kind: Literal["practice", "vote", "again"]
    """practice: not counted; again: its votes tie."""
    ties: list[str]
    """Tied fields."""
    size: int
    cohesion: float | None
    answers: Answers | None
    members: list[MemberAnswer]


class NextAnswer(BaseModel):
    """A cluster, or none if nothing is left."""

    cluster: Sheet | None
    progress: ReviewProgress


class VoteAnswer(BaseModel):
    """Confirmation that a vote is in the database."""

    created: str
    progress: ReviewProgress


class RefusedRow(BaseModel):
    """A rejected row of an import."""

    line: int | None = None
    """Line number in the file; null if the row is a valid vote that does not fit this review."""
    cluster_id: int | None = None
    reviewer: str | None = None
    reason: str


class ImportAnswer(BaseModel):
    """Result of an import of votes."""

    saved: int
    unchanged: int
    """Votes that the database already has, or has a later vote for by the same reviewer."""
    refused: list[RefusedRow]
    """The first rejected rows."""
    refused_total: int
