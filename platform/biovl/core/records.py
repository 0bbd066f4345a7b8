"""What a row is. Arrow schemas are derived from these types and never inferred from values.

Offsets count Unicode code points of the text they belong to; ``end`` is exclusive.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

Batch = dict[str, np.ndarray]
"""The columns a function declared it reads; all of equal length."""

LicenseGroup = Literal["commercial", "noncommercial", "other"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """One place in a paragraph that refers to the figure."""

    start: int
    end: int
    panels: list[str]
    """Panel letters in the reference or right after it: ``Fig. 2A, c`` gives ``["A", "c"]``."""
    implied: bool
    """True for a figure inside a cited range: Figure 4 in ``Figs. 3–5``."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A paragraph that cites the figure."""

    text: str
    refs: list[Reference]
    superscripts: list[Span]
    container: str
    """Where it stands: body, abstract, caption, table, footnote, box, back or response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure image. A figure with several graphics gives several rows."""

    figure_id: str
    """Unique and stable; letters, digits, ``_`` and ``-`` only, so it can name a file."""
    article_id: str
    source_uri: str
    """The article's row in ``articles/``: unique, where ``article_id`` may come in two versions."""
    xml_id: str | None
    """``id`` of the ``<fig>`` as published."""
    kind: str
    """figure, supplement, author-response, graphical-abstract, scheme, video …"""
    parent_figure_id: str | None
    """The figure that this one supplements."""
    figure_label: str | None
    caption: str
    caption_bold: list[Span]
    """Bold stretches: the best cue for panel labels."""
    caption_superscripts: list[Span]
    """``10<sup>6</sup>`` is stored as published, ``106``; the span keeps its reading."""
    mentions: list[Mention]
    alt_text: str | None
    credit: str | None
    """Attribution or permissions of this figure: it may not share the article's licence."""
    section: str | None
    """Titles of the sections around the figure, joined by ``" > "``."""
    graphic_href: str | None
    image_name: str | None
    """Name of the file chosen for the graphic, inside its package."""
    image: bytes | None
    """The published bytes, never re-encoded."""
    image_format: str | None
    """By content: jpeg, png, gif, tiff, webp, bmp, svg, eps, pdf, video …"""
    image_mode: str | None
    """Pillow's mode of the decoded file: RGB, L, CMYK, I;16, P …"""
    size_bytes: int | None
    width_px: int | None
    height_px: int | None
    image_sha256: str | None
    phash: str | None
    """64-bit perceptual hash, 16 hexadecimal digits."""
    license: str | None
    license_code: str | None = None
    """The article's licence as its source states it, not as we read it: ``CC BY``, ``TDM``."""
    license_group: LicenseGroup
    redistributable: bool | None = None
    """Whether the licence allows to pass the image on; None where none is stated."""
    derivatives_allowed: bool | None = None
    """Whether it allows to change it: a panel that is cut out arguably is a change."""
    third_party: bool = False
    """Credits inside the figure: it may be somebody else's, whom the article's licence does not
    bind."""
    version: str | None = None
    retracted: bool | None = None
    snapshot: str | None = None
    """As of the article."""
    group_id: str | None = None
    """What must stay in one split, where that is not the article: a patient, a study."""
    defect: str | None
    defect_detail: str | None


@dataclass(frozen=True, slots=True)
class PixelBox:
    """A rectangle in whole pixels from the upper left corner of an image; the end is exclusive."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True, slots=True)
class PanelMention(Mention):
    """A sentence that cites the panel; of a figure that is not cut, a paragraph that cites it."""

    figure_level: bool
    """It names the figure as a whole and not this panel."""
    statement: str | None
    """The part of the sentence that is about this panel, where that is not all of it."""
    linked: bool
    """The publisher linked it; else its wording alone tells what it cites."""


@dataclass(frozen=True, slots=True)
class How:
    """How the columns of a panel came about."""

    label: str
    """Which comparison found the printed label in the caption: exact, in either case, looks alike;
    or order or place of the panels; none."""
    box: str
    """What the box rests on: labels, layout, or whole for a figure that is not cut."""
    caption: str
    """``own part`` and the style of the labels, or ``whole caption``."""
    pixels: str
    """``as published``, ``png`` or ``jpeg quality …``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(Figure):
    """One panel of a figure, or a figure that is not cut.

    The columns of ``Figure`` are those of the panel, but for two: ``parent_figure_id`` names the
    figure that it is cut from, or is; ``caption`` is what the caption says of this panel: the
    preamble, its own part and the trailing text.
    """

    # Of a list only a list of the same is a subtype; nothing is ever added to a row's.
    mentions: list[PanelMention]  # type: ignore[assignment]
    supplements_figure_id: str | None
    """The figure that the parent supplements: ``parent_figure_id`` in ``figures/``."""
    panel_label: str | None
    """As the caption has it."""
    box_px: PixelBox | None
    """In the published image as it is displayed; None for a figure that is not cut."""
    label_box_px: PixelBox | None
    """Of the printed label, in the published image."""
    own_caption: str | None
    """What the caption says of this panel alone; None where no part is its own."""
    preamble: str | None
    """What it says of all panels before the first part."""
    full_caption: str
    confidence: float
    """0..1, that boxes, labels and captions of the figure are right; or that it is one image."""
    how: How
    whole_because: str | None
    """Why the figure is not cut; None for a panel."""
    whole_detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One article of a source, readable or not."""

    article_id: str
    """PMCID where there is one, else DOI, else the package's name."""
    version: str | None
    pmid: str | None
    doi: str | None
    title: str | None
    abstract: str | None
    keywords: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    journal: str | None
    published: str | None
    """ISO 8601 at the precision that was published: ``2011``, ``2011-07`` or ``2011-07-18``."""
    article_type: str | None
    language: str | None
    license: str | None
    """SPDX identifier."""
    license_code: str | None = None
    """As the source states it beside the article: ``CC BY``, ``TDM``."""
    license_url: str | None
    license_group: LicenseGroup
    redistributable: bool | None = None
    """Whether the licence allows to pass the article on; None where none is stated."""
    derivatives_allowed: bool | None = None
    citation: str | None
    reference_pmids: list[str] = field(default_factory=list)
    full_text: str | None
    abbreviations: str | None = None
    """As the article lists them beside its text, ``MRI: magnetic resonance imaging`` to a line."""
    figure_count: int
    """Rows of this article in ``figures/``."""
    source_uri: str
    xml_sha256: str | None
    mesh_terms: list[str] | None = None
    cited_by_pmids: list[str] | None = None
    retracted: bool | None = None
    """None where neither the source nor the article says so."""
    snapshot: str | None = None
    """ISO date at which the source last changed this article's record. Not that of the listing: an
    article that did not change is the same row in every snapshot."""
    defect: str | None
    defect_detail: str | None


_ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    bytes: pa.binary(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
}


@functools.cache
def schema(record: type) -> pa.Schema:
    """Return the Arrow schema of a record class; fields that may be ``None`` are nullable."""
    return pa.schema([_field(name, hint) for name, hint in typing.get_type_hints(record).items()])


def table(record: type, rows: Sequence[Any]) -> pa.Table:
    """Return rows of one record class as a table with its schema."""
    columns = schema(record)
    arrays = [
        pa.array([_plain(getattr(row, column.name)) for row in rows], column.type)
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def _field(name: str, hint: Any) -> pa.Field:
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    if optional:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return pa.field(name, _arrow(hint), nullable=optional)


def _arrow(hint: Any) -> pa.DataType:
    if typing.get_origin(hint) is Literal:
        return pa.string()
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return pa.list_(_arrow(item))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return pa.struct([_field(name, inner) for name, inner in hints.items()])
    return _ARROW[hint]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def column_names(record: type, *, without: Iterable[str] = ()) -> list[str]:
    """Return the columns of a record, less those named."""
    left_out = set(without)
    return [name for name in schema(record).names if name not in left_out]
