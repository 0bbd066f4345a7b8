"""What an index is asked, and what it answers. Plain values: they travel between processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Over = Literal["images", "captions"]
"""Whose vectors are searched."""

Kind = Literal["image", "text"]
"""What a query was made from. Texts among images need more probing for the same recall."""


@dataclass(frozen=True, kw_only=True)
class Years:
    """A range of years of publication, both ends included."""

    gte: int | None = None
    lte: int | None = None


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which figures may be found: all that fit every field given; of a field, any of its values.

    A figure of which a field is not known does not fit a condition on it.
    """

    license_group: tuple[str, ...] = ()
    """commercial, noncommercial or other."""
    license: tuple[str, ...] = ()
    """SPDX identifiers."""
    concept: tuple[str, ...] = ()
    image_type: tuple[str, ...] = ()
    panel_type: tuple[str, ...] = ()
    """single or multiple, of figures that resolve labelled."""
    panel_subtype: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    """figure, supplement, scheme …"""
    journal: tuple[str, ...] = ()
    article_id: tuple[str, ...] = ()
    mesh_term: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    year: Years | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a query: a vector, or a figure of the index whose image stands for itself."""

    vector_D: np.ndarray | None = None
    """Unit length, float32, shape [D]."""
    figure_id: str | None = None
    kind: Kind = "image"
    weight: float = 1.0
    """May be negative: away from it."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """What to look for. Parts are added by weight, and the sum brought to unit length.

    With ``words`` the figures whose captions hold them (BM25) are joined with those near the parts,
    by reciprocal rank; without parts the words alone rank.
    """

    parts: Sequence[Part] = ()
    words: str | None = None
    over: tuple[Over, ...] = ("images",)
    """With both, the two rankings are joined by reciprocal rank."""
    k: int = 20
    offset: int = 0
    filter: Filter = Filter()
    exact: bool = False
    """Compare with every vector that fits the filter."""
    settings: Mapping[str, int] = field(default_factory=dict)
    """``nprobe``, ``k_factor``: instead of those chosen when the index was built."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A figure found, with what a reader needs to judge, cite and reuse it."""

    figure_id: str
    rank: int
    """From 1, over all pages."""
    score: float
    """Cosine; of joined rankings the sum of reciprocal ranks; of words alone BM25."""
    matched: tuple[str, ...]
    """Of images, captions and words, what found it."""
    about: Mapping[str, Any]
    """Columns of the metadata table: caption, title, journal, license, url …"""


@dataclass(frozen=True, kw_only=True)
class Results:
    """An answer."""

    hits: Sequence[Hit]
    matching: int
    """Figures that fit the filter."""
    plan: str
    """How it was searched: ``ivf nprobe=64``, ``exact over 812 rows`` …"""
    index_version: str
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    model_version: str | None = None
    """Of the model that the index is of, where that is told."""
