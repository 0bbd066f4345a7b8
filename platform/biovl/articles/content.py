"""What one article says, as read from its XML or a table, before its images are looked at."""

from dataclasses import dataclass, field

from biovl.core.records import LicenseGroup, Mention, Span


@dataclass(frozen=True, slots=True)
class License:
    """A licence, by its SPDX identifier and by PMC's grouping of what it allows."""

    spdx: str | None = None
    url: str | None = None
    group: LicenseGroup = "other"


@dataclass(frozen=True, slots=True)
class Graphic:
    """One published image of a figure, by the hrefs that may stand for it."""

    hrefs: list[str]
    lesser: list[str] = field(default_factory=list)
    """Thumbnails and versions for print: taken only if no other can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureContent:
    """One ``<fig>``; ``graphics`` gives one row of ``figures/`` each."""

    key: str
    """Unique within the article and stable: the ``id`` or the place in document order."""
    xml_id: str | None = None
    kind: str = "figure"
    parent_key: str | None = None
    label: str | None = None
    caption: str = ""
    caption_bold: list[Span] = field(default_factory=list)
    caption_superscripts: list[Span] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    alt_text: str | None = None
    credit: str | None = None
    """Attribution and permissions that stand inside the figure."""
    section: str | None = None
    license: License | None = None
    """Only where the figure states one of its own."""
    graphics: list[Graphic] = field(default_factory=list)
    """One for each published image, in order."""
    has_video: bool = False
    group_id: str | None = None
    """What must stay in one split, where the source says so: a patient, a study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleContent:
    """Everything one pass over an article's XML gives."""

    pmcid: str | None = None
    version: str | None = None
    pmid: str | None = None
    doi: str | None = None
    title: str | None = None
    abstract: str | None = None
    keywords: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    journal: str | None = None
    published: str | None = None
    article_type: str | None = None
    language: str | None = None
    license: License = field(default_factory=License)
    citation: str | None = None
    reference_pmids: list[str] = field(default_factory=list)
    full_text: str | None = None
    abbreviations: str | None = None
    """As listed beside the text, ``MRI: magnetic resonance imaging`` to a line."""
    retracted: bool | None = None
    """True where the article itself says so, else None: most that were do not."""
    figures: list[FigureContent] = field(default_factory=list)
