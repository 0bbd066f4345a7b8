"""Row types. Arrow schemas are derived from these types and never inferred from values.

Offsets count Unicode code points of the text they belong to; ``end`` is exclusive.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

Batch = dict[str, np.ndarray]
"""Input columns of a function, all of equal length."""

LicenseGroup = Literal["commercial", "noncommercial", "other"]


def plain_doi(text: str) -> str:
    """Return a DOI without URL or ``doi:`` prefix: ``https://doi.org/10.1/a`` gives ``10.1/a``."""
    return re.sub(
        r"^(?:https?://(?:dx\.)?doi\.org/|doi:)\s*", "", text.strip(), flags=re.IGNORECASE
    )


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a text, in code points; ``end`` is exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference to the figure in a paragraph."""

    start: int
    end: int
    panels: list[str]
    """Panel letters in the reference or directly after it: ``Fig. 2A, c`` gives ``["A", "c"]``."""
    implied: bool
    """True for a figure inside a cited range: Figure 4 in ``Figs. 3–5``."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A paragraph of the article that cites the figure."""

    text: str
    refs: list[Reference]
    superscripts: list[Span]
    container: str
    """Part of the article: body, abstract, caption, table, footnote, box, back or response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure image. A figure with several graphics gives several rows."""

    figure_id: str
    """Unique and stable id of letters, digits, ``_`` and ``-`` only, so it can name a file."""
    article_id: str
    source_uri: str
    """The article's row in ``articles/``: unique, while ``article_id`` may have two versions."""
    xml_id: str | None
    """``id`` of the ``<fig>`` as published."""
    kind: str
    """Kind of figure: figure, supplement, author-response, translation, scheme, video …"""
    parent_figure_id: str | None
    """Id of the figure that this one supplements; None if it is not a supplement."""
    figure_label: str | None
    caption: str
    caption_bold: list[Span]
    """Bold ranges of the caption: the best cue for panel labels."""
    caption_superscripts: list[Span]
    """Superscript ranges of the caption, in which markup is not stored: ``10<sup>6</sup>`` is
    ``106``."""
    mentions: list[Mention]
    alt_text: str | None
    credit: str | None
    """Attribution or permissions of this figure: its licence may differ from the article's."""
    section: str | None
    """Titles of the sections around the figure, joined by ``" > "``."""
    graphic_href: str | None
    image_name: str | None
    """Name of the file chosen for the graphic, relative to its package."""
    image: bytes | None
    """The published bytes, never re-encoded; of a DICOM file a frame as PNG, without its header."""
    image_format: str | None
    """Detected from the content: jpeg, png, gif, tiff, webp, bmp, svg, eps, pdf, video …"""
    image_mode: str | None
    """Pillow's mode of the decoded image: RGB, L, CMYK, I;16, P …"""
    size_bytes: int | None
    width_px: int | None
    height_px: int | None
    image_sha256: str | None
    phash: str | None
    """64-bit perceptual hash, 16 hexadecimal digits."""
    license: str | None
    license_url: str | None = None
    """Where the terms are: as the figure states them, or else its article; None if unknown."""
    license_code: str | None = None
    """The article's licence code as its source states it, not as parsed: ``CC BY``, ``TDM``."""
    license_group: LicenseGroup
    redistributable: bool | None = None
    """Whether the licence permits redistribution of the image; None if no licence is stated."""
    derivatives_allowed: bool | None = None
    """Whether the licence permits derivatives; a cropped panel arguably is one."""
    third_party: bool = False
    """Whether the figure credits a third party, to which the article's licence may not apply."""
    version: str | None = None
    retracted: bool | None = None
    snapshot: str | None = None
    """ISO date at which the source last changed the article's record, see ``Article``."""
    group_id: str | None = None
    """Group whose rows must be in the same split, if it is not the article: a patient, a study."""
    defect: str | None
    defect_detail: str | None
    extra_columns: Mapping[str, str | None] = field(default_factory=dict)
    """Columns of a private table that a source was told to keep, such as a finding. Each is a
    column of the Parquet file, which ``schema`` does not include."""


@dataclass(frozen=True, slots=True)
class PixelBox:
    """A rectangle in whole pixels from the top left corner of an image; the end is exclusive."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True, slots=True)
class PanelMention(Mention):
    """A sentence that cites the panel; for a figure that is not split, a paragraph."""

    figure_level: bool
    """Whether it cites the figure as a whole and not this panel."""
    statement: str | None
    """The part of the sentence about this panel; None if that is the whole sentence."""
    linked: bool
    """Whether the publisher linked the reference; otherwise it was recognized by its wording."""


@dataclass(frozen=True, slots=True)
class PanelProvenance:
    """Method by which each property of a panel was determined."""

    label: str
    """Rule that matched the printed label to the caption: ``exact``, in either case, looks alike;
    or order or place of the panels; none."""
    box: str
    """Basis of the box: labels, layout, or whole for a figure that is not split."""
    caption: str
    """Origin of the caption: ``own part`` and the style of the labels, or ``whole caption``."""
    pixels: str
    """Encoding of the image: ``as published``, ``png`` or ``jpeg quality …``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(Figure):
    """One panel of a figure, or a figure that is not split.

    The columns of ``Figure`` describe the panel, with two exceptions: ``parent_figure_id`` is the
    figure that it was cropped from, or itself; ``caption`` is the caption text about this panel:
    the preamble, its own part and the trailing text.
    """

    # A list type is invariant; rows are never modified.
    mentions: list[PanelMention]  # type: ignore[assignment]
    supplements_figure_id: str | None
    """Id of the figure that the parent supplements: ``parent_figure_id`` in ``figures/``."""
    panel_label: str | None
    """Panel label as in the caption; None if there is none."""
    box_px: PixelBox | None
    """Box in the published image as displayed; None for a figure that is not split."""
    label_box_px: PixelBox | None
    """Box of the printed label in the published image."""
    own_caption: str | None
    """The caption text about this panel alone; None if it has no part of its own."""
    preamble: str | None
    """Caption text about all panels, before the first part."""
    full_caption: str
    confidence: float
    """Probability, 0..1, that boxes, labels and captions of the figure are correct, or that it is a
    single image."""
    how: PanelProvenance
    whole_because: str | None
    """Reason why the figure is not split; None for a panel."""
    whole_detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One article of a source, readable or not."""

    article_id: str
    """PMCID, otherwise DOI in lower case, otherwise the name of the package."""
    version: str | None
    pmid: str | None
    doi: str | None
    title: str | None
    abstract: str | None
    keywords: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    journal: str | None
    published: str | None
    """ISO 8601 at the published precision: ``2011``, ``2011-07`` or ``2011-07-18``."""
    article_type: str | None
    language: str | None
    license: str | None
    """SPDX identifier of the licence; None if unknown."""
    license_code: str | None = None
    """Licence code in the source's metadata: ``CC BY``, ``TDM``."""
    license_url: str | None
    license_group: LicenseGroup
    redistributable: bool | None = None
    """Whether the licence permits redistribution of the article; None if no licence is stated."""
    derivatives_allowed: bool | None = None
    citation: str | None
    reference_pmids: list[str] = field(default_factory=list)
    full_text: str | None
    abbreviations: str | None = None
    """The article's list of abbreviations, ``MRI: magnetic resonance imaging`` per line."""
    figure_count: int
    """Number of the article's rows in ``figures/``."""
    source_uri: str
    xml_sha256: str | None
    mesh_terms: list[str] | None = None
    cited_by_pmids: list[str] | None = None
    retracted: bool | None = None
    """Whether the article is retracted; None if neither the source nor the article states it."""
    snapshot: str | None = None
    """ISO date at which the source last changed this article's record, not the date of the listing:
    an unchanged article has the same row in every snapshot."""
    defect: str | None
    defect_detail: str | None


_EXTRA = "extra_columns"
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
    hints = typing.get_type_hints(record)
    return pa.schema([_field(name, hint) for name, hint in hints.items() if name != _EXTRA])


def schema_with(record: type, extra: Iterable[str]) -> pa.Schema:
    """Return the schema of a record class with ``extra_columns`` of these names."""
    return pa.schema([*schema(record), *(pa.field(name, pa.string()) for name in extra)])


def extra_columns(columns: pa.Schema) -> list[str]:
    """Return the names of the ``extra_columns`` in the schema of figures or panels."""
    return [name for name in columns.names if name not in schema(Panel).names]


def table(record: type, rows: Sequence[Any], extra: Sequence[str] = ()) -> pa.Table:
    """Return records of one class as a table with its schema, and the named ``extra_columns``."""
    columns = schema(record)
    arrays = [
        pa.array([_plain(getattr(row, column.name)) for row in rows], column.type)
        for column in columns
    ]
    for name in extra:
        arrays.append(pa.array([row.extra_columns.get(name) for row in rows], pa.string()))
    return pa.Table.from_arrays(arrays, schema=schema_with(record, extra))


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
    """Return the column names of a record class, except for those in ``without``."""
    left_out = set(without)
    return [name for name in schema(record).names if name not in left_out]
