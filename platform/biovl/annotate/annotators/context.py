"""What the article says of a figure: its caption, the sentences that cite it, and acronyms.

Needs no model. For captions of several hundred tokens, as BMC-LongCLIP is trained on.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from biovl.annotate.annotators import NO_TEXT, Precision
from biovl.annotate.longcap.context import CAPTION, acronyms_in, context_of, joined
from biovl.annotate.longcap.expansion import expanded, used

# Shapes: K rows of a batch.

SAYS = ("caption", "caption_superscripts", "mentions", "article.abstract", "article.full_text")
"""What the context of a figure is made from, as ``context_of`` takes it."""

DEFINES = ("article.abstract", "article.full_text", "caption", "article.abbreviations")
"""What its acronyms are taken from, as ``acronyms_in`` takes it."""

READS = tuple(dict.fromkeys((*SAYS, *DEFINES)))

ACRONYMS = pa.list_(pa.struct([("short", pa.string()), ("long", pa.string())]))
SOURCES = pa.list_(
    pa.struct([("source", pa.string()), ("text", pa.string()), ("published", pa.string())])
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How context captions are written."""

    acronyms: Literal["as published", "spelled out"] = "as published"
    """Whether the context caption has its acronyms spelled out, as ``expanded_caption`` has."""

    @property
    def column(self) -> str:
        """What the column is called."""
        return "context_caption"


def build(config: Config) -> "Context":
    """Return the annotator."""
    return Context(config)


class Context:
    """Captions to what the article says besides."""

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
        """Return what the article says, as JSON."""
        return as_json(row, READS) or NO_TEXT

    def load(self, device: str, precision: Precision) -> "Context":
        """Return itself: there is no model."""
        return self

    def __call__(self, prepared: np.ndarray) -> dict[str, list[Any]]:
        """Return the columns, K values each."""
        rows = [self._row(json.loads(data)) for data in prepared]
        return {name: [row[name] for row in rows] for name in self.writes.names}

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        pieces = context_of(*(row[name] for name in SAYS))
        known = acronyms_in(*(row[name] for name in DEFINES))
        text = joined(pieces)
        spelled = self._config.acronyms == "spelled out"
        own = pieces[0].text if pieces and pieces[0].source == CAPTION else ""
        return {
            "context_caption": expanded(text, known) if spelled else text,
            "expanded_caption": expanded(own, known),
            "context_sources": [asdict(piece) for piece in pieces],
            "acronyms": [asdict(acronym) for acronym in used(text, known)],
        }


def as_json(row: Mapping[str, Any], names: tuple[str, ...]) -> bytes | None:
    """Return the texts of a row as ``context_of`` wants them; None if nothing is said in it."""
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
