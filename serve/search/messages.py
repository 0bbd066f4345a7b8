"""What comes in and goes out over HTTP: one class per message. OpenAPI is made from these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from biovl.index.query import Filter

# Filter and Years are plain dataclasses of the library; here unknown fields of theirs are refused.


_MANY = 4_096
"""Of a list. Settings allow fewer; this keeps what nobody means from being validated at all."""

MAX_FILTER_VALUES = 1_000
"""Of one field."""


def _few(given: Any) -> Any:
    """Refuse long lists before each of their values is looked at."""
    for name, values in given.items() if isinstance(given, dict) else ():
        if isinstance(values, list) and len(values) > MAX_FILTER_VALUES:
            raise ValueError(f"{name} has {len(values):,} values, at most {MAX_FILTER_VALUES:,}")
    return given


BoundedFilter = Annotated[Filter, BeforeValidator(_few)]


class Message(BaseModel):
    """Refuses what it does not know: a misspelt option must not be ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Weights(Message):
    """How much each part of a query counts; negative: away from it."""

    text: float = Field(default=1, ge=-10, le=10)
    image: float = Field(default=1, ge=-10, le=10)
    figure_id: float = Field(default=1, ge=-10, le=10)
    embedding: float = Field(default=1, ge=-10, le=10)


class SearchRequest(Message):
    """At least one of text, image, figure_id and embedding; several are added by weight."""

    text: str | None = Field(default=None, examples=["chest radiograph with pleural effusion"])
    image: str | None = Field(default=None, description="data:image/…;base64,… or base64")
    figure_id: str | None = None
    embedding: list[float] | None = Field(default=None, max_length=16_384)
    weights: Weights = Weights()
    over: list[Literal["images", "captions"]] = Field(
        default=["images"], min_length=1, max_length=2
    )
    words: bool = Field(
        default=False, description="also find captions that hold the words of text (BM25)"
    )
    k: int = Field(default=20, ge=1)
    min_score: float | None = Field(
        default=None, description="no figure below it; scores are what answers say"
    )
    cursor: str | None = Field(default=None, description="next_cursor of the page before")
    filter: BoundedFilter = Filter()
    exact: bool = Field(default=False, description="compare with every figure that fits")
    nprobe: int | None = Field(default=None, ge=1, le=65_536)
    k_factor: int | None = Field(default=None, ge=1, le=1_000)


class FigureAbout(BaseModel):
    """A published figure: what to judge, cite and reuse it by."""

    figure_id: str
    article_id: str
    figure_label: str | None
    caption: str
    title: str | None
    journal: str | None
    year: int | None
    published: str | None
    license: str | None = Field(
        description="SPDX identifier; null where none is known to hold for this figure"
    )
    license_group: str
    stated_license: str | None = Field(
        description="as published; it does not bind a third party whom the figure credits"
    )
    credit: str | None = Field(description="what the figure says of its origin or terms")
    third_party: bool = Field(description="the figure credits somebody else")
    retracted: bool | None = Field(description="the article was retracted; null: not known")
    license_url: str | None
    citation: str | None
    doi: str | None
    pmid: str | None
    kind: str
    image_type: str | None
    concepts: list[str]
    mesh_terms: list[str]
    width_px: int | None
    height_px: int | None
    split: str
    url: str | None = Field(description="the article, at PMC or its DOI")
    image_url: str | None = Field(description="null where the image is not sent")
    thumbnail_url: str | None
    withheld: str | None = Field(description="why the image is not sent")


class SearchHit(FigureAbout):
    """A figure found."""

    rank: int
    score: float
    matched: list[str]


class Answer(BaseModel):
    """What every answer carries."""

    request_id: str
    model: str = Field(description="name@version")
    index: str | None = Field(default=None, description="version of the index")
    timings_ms: dict[str, float] = {}


class SearchAnswer(Answer):
    """A page of hits."""

    results: list[SearchHit]
    matching: int = Field(description="figures that fit the filter")
    next_cursor: str | None
    plan: str = Field(description="how the index was searched")
    recall_at_10: float | None = Field(
        description="measured when the index was built, for such queries with these settings"
    )
    truncated: bool = Field(description="the text was longer than the model reads")


class ClassifyRequest(Message):
    """One image or several, and classes: given, or those of a named benchmark."""

    image: str | None = None
    images: list[str] | None = Field(default=None, max_length=_MANY)
    classes: list[str] | None = Field(
        default=None, max_length=_MANY, examples=[["chest X-ray", "brain MRI"]]
    )
    benchmark: str | None = Field(default=None, description="see GET /v1/classify/benchmarks")
    templates: list[str] | None = Field(
        default=None, max_length=_MANY, examples=[["a photo of {}", "this is an image of {}"]]
    )
    logit_scale: float | None = Field(default=None, gt=0, le=1_000)


class ClassScore(BaseModel):
    """A class and how well it fits."""

    name: str
    probability: float
    similarity: float = Field(description="cosine with the mean of the class's prompts")


class Classified(BaseModel):
    """One image: classes from the most to the least probable."""

    classes: list[ClassScore]


class ClassifyAnswer(Answer):
    """One result per image, in order."""

    results: list[Classified]
    templates: list[str]


class ProxyRequest(Message):
    """A private image, and what its public neighbours vote on."""

    image: str
    k: int = Field(default=10, ge=1)
    classes: dict[str, list[str]] | list[str] | None = Field(
        default=None,
        description="names, each with the words that stand for it in captions; without: concepts",
    )
    filter: BoundedFilter = Filter()


class Vote(BaseModel):
    """One label and its support among the neighbours."""

    name: str
    share: float = Field(description="of the similarity-weighted votes, 0 to 1")
    figures: list[str] = Field(description="ids of the public figures that voted for it")


class ProxyAnswer(Answer):
    """Labels and the public figures that they come from. Nothing of the image is in it."""

    votes: list[Vote]
    evidence: list[SearchHit]
    disclosure: str = Field(description="what left the process: nothing")
