"""Queries and results of an index, as plain values that can be sent between processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Over = Literal["images", "captions"]
"""Which vectors are searched."""

Kind = Literal["image", "text"]
"""Modality of a query. Text-to-image search needs a higher ``nprobe`` for the same recall."""


@dataclass(frozen=True, kw_only=True)
class Years:
    """A range of years of publication, both ends included."""

    gte: int | None = None
    lte: int | None = None


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Filter of figures: fields are combined by AND, the values of a field by OR.

    A figure with a null field does not match a condition on it.
    """

    license_group: tuple[str, ...] = ()
    """Licence groups: commercial, noncommercial or other."""
    license: tuple[str, ...] = ()
    """SPDX identifiers of licences."""
    concept: tuple[str, ...] = ()
    image_type: tuple[str, ...] = ()
    panel_type: tuple[str, ...] = ()
    """Panel types, single or multiple, for figures labelled by resolve."""
    panel_subtype: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    """Kinds of figures: figure, supplement, scheme …"""
    journal: tuple[str, ...] = ()
    article_id: tuple[str, ...] = ()
    mesh_term: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    """Values of a private table's columns: ``finding=nodule``. Values of one column are combined by
    OR, columns by AND."""
    split: tuple[str, ...] = ()
    year: Years | None = None


@dataclass(frozen=True, kw_only=True)
class QueryPart:
    """A part of a query: a vector, or a figure of the index whose image is the query."""

    vector_D: np.ndarray | None = None
    """Query vector of unit length, float32, shape [D]."""
    figure_id: str | None = None
    kind: Kind = "image"
    weight: float = 1.0
    """Factor of the part in the sum; a negative one moves results away from the part."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query: the normalized weighted sum of its parts.

    With ``words``, the BM25 ranking of captions is merged with the vector ranking by reciprocal
    rank fusion; without parts only the BM25 ranking is used.
    """

    parts: Sequence[QueryPart] = ()
    words: str | None = None
    over: tuple[Over, ...] = ("images",)
    """Vectors to search; with both, the two rankings are merged by reciprocal rank fusion."""
    k: int = 20
    offset: int = 0
    filter: Filter = Filter()
    exact: bool = False
    """Whether to compare with all vectors that match the filter, instead of using the index."""
    settings: Mapping[str, int] = field(default_factory=dict)
    """Values of ``nprobe`` and ``k_factor`` that override those chosen when the index was built."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A search result: a figure with its metadata."""

    figure_id: str
    rank: int
    """Rank from 1, counted over all pages."""
    score: float
    """Cosine similarity; sum of reciprocal ranks for merged rankings; BM25 for words alone.

    From codes (SQ8, PQ, RaBitQ) it is an estimate: a filter that few figures match compares the
    vectors themselves, and gives the same figure another score.
    """
    matched: tuple[str, ...]
    """The rankings that contain the figure: images, captions, words."""
    about: Mapping[str, Any]
    """Columns of the metadata table: caption, title, journal, license, url …"""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of a query: hits, and how they were found."""

    hits: Sequence[Hit]
    matching: int
    """Number of figures that match the filter."""
    plan: str
    """Search method: ``ivf nprobe=64``, ``exact over 812 rows``, ``codes of 812 rows`` …"""
    index_version: str
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    model_version: str | None = None
    """Version of the index's model, if known."""
