"""Messages of the review. Their fields carry what they allow."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """Names that are not expected are refused."""

    model_config = ConfigDict(extra="forbid")


class Place(Message):
    """A cluster as a reviewer saw it."""

    cluster_id: int = Field(ge=0, le=2**31 - 1)
    key: str = Field(min_length=1, max_length=64)
    """Of the cluster; it has another once its members change."""
    practice: bool = False


class NextRequest(Message):
    """Asks for a cluster."""

    skip: Place | None = None
    """The one to pass over; it comes again when nothing else is left."""


class Answers(Message):
    """The three answers about a cluster."""

    panel_type: str = Field(min_length=1, max_length=200)
    panel_subtype: str | None = Field(default=None, max_length=200)
    global_concepts: list[str] = Field(max_length=50)
    local_concepts: list[str] = Field(default=[], max_length=100)


class VoteRequest(Place, Answers):
    """What a reviewer says of a cluster."""


class Own(BaseModel):
    """How far a reviewer is."""

    practised: int
    practice: int
    """Clusters for practice, not counted."""
    votes: int
    most: int | None
    """How many clusters one reviewer is asked for; null: no limit."""


class Overall(BaseModel):
    """How far all are."""

    clusters: int
    complete: int
    """Clusters with all votes that are wanted."""
    votes: int
    wanted: int
    """Votes, not counting those for ties."""
    ties: int
    """Clusters whose votes tie."""


class Progress(BaseModel):
    """How far the review is."""

    own: Own
    overall: Overall


class Panel(BaseModel):
    """An answer to the first question."""

    panel_type: str
    panel_subtype: str | None
    question: str


class Recent(BaseModel):
    """A vote of this reviewer, to go back to."""

    cluster_id: int
    key: str
    practice: bool


class Review(BaseModel):
    """What a page needs to begin."""

    reviewer: str
    concepts: str
    """First 12 digits of the folder's fingerprint."""
    panels: list[Panel]
    concepts_by_global: dict[str, list[str]]
    aliases: dict[str, str]
    """Other names, without case, spaces and dashes, and what each means."""
    votes_per_cluster: int
    reservation_s: float
    progress: Progress
    recent: list[Recent]
    """The latest first."""


class MemberAnswer(BaseModel):
    """An image of a cluster."""

    rank: int
    row_id: str
    caption: str
    distance: float | None
    width_px: int | None
    height_px: int | None
    thumbnail: str | None
    """A ``data:`` URL of a JPEG; null where the image could not be read."""


class Sheet(BaseModel):
    """A cluster with its images, and what this reviewer said of it."""

    cluster_id: int
    key: str
    kind: Literal["practice", "vote", "again"]
    """practice: not counted; again: its votes tie."""
    ties: list[str]
    """Fields on which they tie."""
    size: int
    cohesion: float | None
    answers: Answers | None
    members: list[MemberAnswer]


class NextAnswer(BaseModel):
    """A cluster, or none if nothing is left."""

    cluster: Sheet | None
    progress: Progress


class VoteAnswer(BaseModel):
    """A vote is in the database."""

    created: str
    progress: Progress


class RefusedRow(BaseModel):
    """A row that was not taken."""

    line: int | None = None
    """Of the file; null where the row is a vote that does not fit this review."""
    cluster_id: int | None = None
    reviewer: str | None = None
    reason: str


class ImportAnswer(BaseModel):
    """What became of a file of votes."""

    saved: int
    unchanged: int
    """The database has them already, or a later one of the same reviewer stands."""
    refused: list[RefusedRow]
    """The first of them."""
    refused_total: int
