"""The content of an article, parsed from its XML or a table, before its images are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from biovl.core.records import LicenseGroup, Mention, Span


@dataclass(frozen=True, slots=True)
class License:
    """A licence: SPDX identifier and PMC licence group."""

    spdx: str | None = None
    url: str | None = None
    group: LicenseGroup = "other"


@dataclass(frozen=True, slots=True)
class Graphic:
    """One published image of a figure, with the hrefs of its alternatives."""

    hrefs: list[str]
    lesser: list[str] = field(default_factory=list)
    """Thumbnails and print versions: used only if no other file is available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureContent:
    """One ``<fig>``; each of ``graphics`` gives one row of ``figures/``."""

    key: str
    """Unique and stable key in the article: the ``id``, or the position in document order."""
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
    """Attribution and permissions inside the figure."""
    section: str | None = None
    license: License | None = None
    """Licence stated for this figure; None: that of the article applies."""
    graphics: list[Graphic] = field(default_factory=list)
    """Published images of the figure, in order."""
    has_video: bool = False
    group_id: str | None = None
    """Rows that must be in the same split, if the source defines them: a patient, a study."""
    extra_columns: Mapping[str, str | None] = field(default_factory=dict)
    """Other columns of the figure's rows, see ``records.Figure``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleContent:
    """The result of parsing an article's XML in one pass."""

    pmcid: str | None = None
    version: str | None = None
    pmid: str | None = None
    doi: str | None = None
    title: str | None = None
    abstract: str | None = None
    authors: list[str] = field(default_factory=list)
    """Their names, given names first."""
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
    """The article's list of abbreviations, ``MRI: magnetic resonance imaging`` per line."""
    retracted: bool | None = None
    """True if the article itself states it, else None: most retracted articles do not."""
    figures: list[FigureContent] = field(default_factory=list)
