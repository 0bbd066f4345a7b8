"""Request and response messages of the review service, with validation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ReviewMessage(BaseModel):
    """Base class of messages that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Place(ReviewMessage):
    """Reference to a cluster as it was when the reviewer loaded it."""

    cluster_id: int = Field(ge=0, le=2**31 - 1)
    key: str = Field(min_length=1, max_length=64)
    """Key of the cluster; it changes with the members of the cluster."""
    practice: bool = False


class NextRequest(ReviewMessage):
    """Request for the next cluster."""

    skip: Place | None = None
    """Cluster to skip; it is assigned again when no other is left."""


class Answers(ReviewMessage):
    """A reviewer's answers to the three questions about a cluster."""

    panel_type: str = Field(min_length=1, max_length=200)
    panel_subtype: str | None = Field(default=None, max_length=200)
    global_concepts: list[str] = Field(max_length=50)
    local_concepts: list[str] = Field(default=[], max_length=100)


class VoteRequest(Place, Answers):
    """A reviewer's vote on a cluster."""


class ReviewerProgress(BaseModel):
    """Progress of a reviewer through the review."""

    practised: int
    practice: int
    """Number of answered practice clusters, which are not counted."""
    votes: int
    most: int | None
    """Maximum number of clusters per reviewer; null: no limit."""


class Overall(BaseModel):
    """Progress of all reviewers together."""

    clusters: int
    complete: int
    """Number of clusters with all required votes."""
    votes: int
    wanted: int
    """Number of required votes, without those because of ties."""
    ties: int
    """Number of clusters whose votes tie."""


class ReviewProgress(BaseModel):
    """Progress of a review: of this reviewer, and of all."""

    own: ReviewerProgress
    overall: Overall


class PanelAnswer(BaseModel):
    """A possible answer to the question about panels."""

    panel_type: str
    panel_subtype: str | None
    question: str


class Recent(BaseModel):
    """A recent vote of this reviewer, to which the page can go back."""

    cluster_id: int
    key: str
    practice: bool


class Review(BaseModel):
    """Data that the web page needs at the start."""

    reviewer: str
    concepts: str
    """Version of the clusters: first 12 digits of the folder's fingerprint."""
    panels: list[PanelAnswer]
    concepts_by_global: dict[str, list[str]]
    aliases: dict[str, str]
    """Concept of each synonym; synonyms are in lower case, without spaces and dashes."""
    votes_per_cluster: int
    reservation_s: float
    progress: ReviewProgress
    recent: list[Recent]
    """Latest votes of this reviewer, the latest first."""


class MemberAnswer(BaseModel):
    """An image of a cluster, shown to the reviewer."""

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
    """Reason of the assignment. practice: the vote is not counted; vote: regular; again: the votes
    tie."""
    ties: list[str]
    """Fields on which the votes tie."""
    size: int
    cohesion: float | None
    answers: Answers | None
    members: list[MemberAnswer]


class NextAnswer(BaseModel):
    """The next cluster, or null if no cluster is left."""

    cluster: Sheet | None
    progress: ReviewProgress


class VoteAnswer(BaseModel):
    """Confirmation that a vote is in the database."""

    created: str
    progress: ReviewProgress


class RefusedRow(BaseModel):
    """A row of an import that was rejected, with the reason."""

    line: int | None = None
    """Line number in the file; null if the row is a valid vote that this review rejects."""
    cluster_id: int | None = None
    reviewer: str | None = None
    reason: str


class ImportAnswer(BaseModel):
    """Result of an import of votes: counts, and rejected rows."""

    saved: int
    unchanged: int
    """Votes that are in the database already, or that a later vote of the reviewer replaces."""
    refused: list[RefusedRow]
    """The first of the rejected rows."""
    refused_total: int
