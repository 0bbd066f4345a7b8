"""Context captions: caption, citing sentences, a sentence of the abstract, acronyms.

Needs no model. For captions of several hundred tokens, as in BMC-LongCLIP.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from biovl.annotate.annotators import NO_TEXT, Precision
from biovl.annotate.longcap.context import CAPTION, acronyms_in, context_caption, context_of
from biovl.annotate.longcap.expansion import acronyms_used, expand_acronyms

# Shapes: K rows of a batch.

SAYS = ("caption", "caption_superscripts", "mentions", "article.abstract", "article.full_text")
"""Columns for ``context_of``."""

DEFINES = ("article.abstract", "article.full_text", "caption", "article.abbreviations")
"""Columns for ``acronyms_in``."""

READS = tuple(dict.fromkeys((*SAYS, *DEFINES)))

ACRONYMS = pa.list_(pa.struct([("short", pa.string()), ("long", pa.string())]))
SOURCES = pa.list_(
    pa.struct([("source", pa.string()), ("text", pa.string()), ("published", pa.string())])
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of context captions."""

    acronyms: Literal["as published", "spelled out"] = "as published"
    """Whether acronyms are spelled out in the context caption, as in ``expanded_caption``."""

    @property
    def column(self) -> str:
        """Name of the main column."""
        return "context_caption"


def build(config: Config) -> "ContextModel":
    """Return the annotator for a configuration."""
    return ContextModel(config)


class ContextModel:
    """Annotator that builds context captions from an article's texts; also its own model."""

    reads = READS
    writes = pa.schema(
        [
            pa.field("context_caption", pa.string()),
            pa.field("expanded_caption", pa.string()),
            pa.field("context_sources", SOURCES),
            pa.field("acronyms", ACRONYMS),
        ]
    )
    counted = ()

    def __init__(self, config: Config) -> None:
        self._config = config
        self.name = config.column
        self.notes: dict[str, Any] = {
            "context_caption": "caption, citing sentences, the abstract's nearest sentence",
            "acronyms": "those of the article that the context caption uses",
        }

    def prepare(self, row: Mapping[str, Any]) -> bytes | str:
        """Return the article's texts about the figure, as JSON."""
        return texts_as_json(row, READS) or NO_TEXT

    def load(self, device: str, precision: Precision) -> "ContextModel":
        """Return this annotator, which computes the columns without a model."""
        return self

    def __call__(self, prepared: np.ndarray) -> dict[str, list[Any]]:
        """Return the columns by name, each a list of K values."""
        rows = [self._row(json.loads(data)) for data in prepared]
        return {name: [row[name] for row in rows] for name in self.writes.names}

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        pieces = context_of(*(row[name] for name in SAYS))
        known = acronyms_in(*(row[name] for name in DEFINES))
        text = context_caption(pieces)
        spelled = self._config.acronyms == "spelled out"
        own = pieces[0].text if pieces and pieces[0].source == CAPTION else ""
        return {
            "context_caption": expand_acronyms(text, known) if spelled else text,
            "expanded_caption": expand_acronyms(own, known),
            "context_sources": [asdict(piece) for piece in pieces],
            "acronyms": [asdict(acronym) for acronym in acronyms_used(text, known)],
        }


def texts_as_json(row: Mapping[str, Any], names: tuple[str, ...]) -> bytes | None:
    """Return a row's texts as input for ``context_of``; None if all are empty."""
    values = {name: row[name] for name in names}
    for name, value in values.items():
        if name in ("mentions", "caption_superscripts"):
            listed = value if isinstance(value, list) else []
            values[name] = [item for item in listed if isinstance(item, Mapping)]
        elif not isinstance(value, str):
            values[name] = "" if name == "caption" else None
    if not values["caption"].strip() and not values["mentions"]:
        return None
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass")
