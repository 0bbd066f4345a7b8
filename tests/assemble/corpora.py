"""Rows of an index for tests of what is published beside the shards."""

from typing import Any

import pyarrow as pa

HARVESTED: dict[str, Any] = {
    "articles": {
        "seen": 20,
        "usable": 14,
        "defective": 6,
        "defects": {"XML is malformed": 2, "no figures": 4},
    },
    "figures": {"seen": 50, "usable": 43, "defective": 7, "defects": {"image missing": 7}},
    "mentions": 90,
}
"""The counts of a manifest of figures."""

_SCHEMA = pa.schema(
    [
        *(
            pa.field(name, pa.string())
            for name in (
                "article_id split license license_group kind image_format published language "
                "article_type journal"
            ).split()
        ),
        *(
            pa.field(name, pa.int32())
            for name in (
                "mention_count mention_chars full_text_chars caption_tokens caption_chars "
                "text_tokens text_chars full_text_tokens"
            ).split()
        ),
        *(pa.field(name, pa.int64()) for name in ("size", "width_px", "height_px")),
        *(
            pa.field(name, pa.list_(pa.int32()))
            for name in ("mention_token_counts", "mention_char_counts")
        ),
        pa.field("mesh_terms", pa.list_(pa.string())),
        pa.field("cut_out", pa.bool_()),
    ]
)


def pair(article_id: str, **values: Any) -> dict[str, Any]:
    """Return a row of an index, ordinary but for the values given."""
    ordinary = {
        "article_id": article_id,
        "split": "train",
        "license": "CC-BY-4.0",
        "license_group": "commercial",
        "kind": "figure",
        "image_format": "jpeg",
        "published": "2020-03-01",
        "language": "en",
        "article_type": "research-article",
        "journal": "eLife",
        "mention_count": 1,
        "mention_chars": 300,
        "mention_char_counts": [300],
        "mention_token_counts": [70],
        "full_text_chars": 5000,
        "full_text_tokens": None,
        "caption_tokens": 60,
        "caption_chars": 240,
        "text_tokens": 60,
        "text_chars": 240,
        "size": 100_000,
        "width_px": 700,
        "height_px": 500,
        "mesh_terms": None,
        "cut_out": False,
    }
    return {**ordinary, **values}


def pairs(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table with the types of an index."""
    return pa.Table.from_pylist(rows, _SCHEMA)
