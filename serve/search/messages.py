"""Request and response messages of the search service, from which OpenAPI is generated."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from biovl.index.query import Filter

# Filter and Years are plain dataclasses of the library; unknown fields are rejected here.


_MANY = 4_096
"""Maximum length of a list. Settings allow fewer; this bounds the cost of validation."""

MAX_FILTER_VALUES = 1_000
"""Maximum values per filter field."""


def _few(fields: Any) -> Any:
    """Reject long lists before each of their values is validated."""
    for name, values in fields.items() if isinstance(fields, dict) else ():
        if isinstance(values, list) and len(values) > MAX_FILTER_VALUES:
            raise ValueError(f"{name} has {len(values):,} values, at most {MAX_FILTER_VALUES:,}")
    return fields


BoundedFilter = Annotated[Filter, BeforeValidator(_few)]


class Message(BaseModel):
    """Base class of requests; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Weights(Message):
    """Weights of the parts of a query; a part with a negative weight repels results."""

    text: float = Field(default=1, ge=-10, le=10)
    image: float = Field(default=1, ge=-10, le=10)
    figure_id: float = Field(default=1, ge=-10, le=10)
    embedding: float = Field(default=1, ge=-10, le=10)


class SearchRequest(Message):
    """A query by text, image, figure_id or embedding; several of them are combined by weight."""

    text: str | None = Field(default=None, examples=["chest radiograph with pleural effusion"])
    image: str | None = Field(default=None, description="data:image/…;base64,… or base64")
    figure_id: str | None = None
    embedding: list[float] | None = Field(default=None, max_length=16_384)
    weights: Weights = Weights()
    over: list[Literal["images", "captions"]] = Field(
        default=["images"], min_length=1, max_length=2
    )
    words: bool = Field(
        default=False, description="also match captions that contain the words of text (BM25)"
    )
    k: int = Field(default=20, ge=1)
    min_score: float | None = Field(
        default=None,
        description="minimum score of a hit, on the scale of the response; pages may then be"
        " shorter than k, or empty: continue while there is a next_cursor",
    )
    cursor: str | None = Field(default=None, description="next_cursor of the previous page")
    filter: BoundedFilter = Filter()
    exact: bool = Field(
        default=False, description="exhaustive search over all figures that match the filter"
    )
    nprobe: int | None = Field(default=None, ge=1, le=65_536)
    k_factor: int | None = Field(default=None, ge=1, le=1_000)


class FigureAbout(BaseModel):
    """Metadata of a published figure, including its citation and terms of reuse."""

    figure_id: str
    article_id: str
    figure_label: str | None
    caption: str
    title: str | None
    journal: str | None
    year: int | None
    published: str | None
    license: str | None = Field(
        description="SPDX identifier; null if no licence is known for this figure"
    )
    license_group: str
    stated_license: str | None = Field(
        description="licence stated by the article; it does not cover third-party material"
    )
    credit: str | None = Field(description="credit line or terms stated with the figure")
    third_party: bool = Field(description="whether the figure credits a third party")
    retracted: bool | None = Field(description="whether the article was retracted; null: unknown")
    license_url: str | None
    citation: str | None
    doi: str | None
    pmid: str | None
    kind: str
    image_type: str | None
    concepts: list[str]
    mesh_terms: list[str]
    labels: list[str] = Field(description="values of a private table's columns: finding=nodule")
    width_px: int | None
    height_px: int | None
    split: str
    url: str | None = Field(description="URL of the article at PMC, or its DOI")
    image_url: str | None = Field(description="null if the image is withheld")
    thumbnail_url: str | None
    withheld: str | None = Field(description="reason why the image is withheld")


class SearchHit(FigureAbout):
    """A figure in the results of a search."""

    rank: int
    score: float
    matched: list[str]


class Answer(BaseModel):
    """Base class of responses: common fields."""

    request_id: str
    model: str = Field(description="name@version")
    index: str | None = Field(default=None, description="version of the index")
    timings_ms: dict[str, float] = {}


class SearchAnswer(Answer):
    """A page of search results."""

    results: list[SearchHit]
    matching: int = Field(description="number of figures that match the filter")
    next_cursor: str | None
    plan: str = Field(description="how the index was searched")
    recall_at_10: float | None = Field(
        description="recall measured at build time for queries of this kind and settings; 1 if the "
        "search was exact"
    )
    truncated: bool = Field(description="whether the text exceeded the context length")


class ClassifyRequest(Message):
    """Images, and either class names or the name of a benchmark."""

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
    """A class with its probability, and its similarity to the image."""

    name: str
    probability: float
    similarity: float = Field(description="cosine with the mean of the class's prompts")
    truncated: bool = Field(description="whether a prompt of the class exceeded the context length")


class Classified(BaseModel):
    """Classes of an image, the most probable first."""

    classes: list[ClassScore]


class ClassifyAnswer(Answer):
    """Classes of each image, in the order of the request."""

    results: list[Classified]
    templates: list[str]


class ProxyRequest(Message):
    """A private image, and the classes that its indexed neighbours vote on."""

    image: str
    k: int = Field(default=10, ge=1)
    classes: dict[str, list[str]] | list[str] | None = Field(
        default=None,
        description="class names with their synonyms in captions; by default the figures' concepts",
    )
    filter: BoundedFilter = Filter()


class Vote(BaseModel):
    """A label, with its support among the neighbours."""

    name: str
    share: float = Field(description="share of the similarity-weighted votes, 0 to 1")
    figures: list[str] = Field(description="ids of the figures with this label")


class ProxyAnswer(Answer):
    """Labels of a private image, and the indexed figures they come from.

    Contains nothing of the private image.
    """

    votes: list[Vote]
    evidence: list[SearchHit]
    disclosure: str = Field(description="what becomes of the image: nothing leaves the service")
