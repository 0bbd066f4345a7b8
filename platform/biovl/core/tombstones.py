"""Rows of earlier harvests that an incremental harvest invalidates: ``tombstones.parquet``.

    rows(first) - those whose source_uri has a tombstone + rows(increment) = rows(second, in full)

A tombstone refers to folders harvested before the folder that contains it, never to that folder:
an article that changed has a tombstone for its old rows, and new rows with the same ``source_uri``.
In an ordered list of harvests, a row is valid if no later harvest has a tombstone for it.
"""

from typing import Literal

import pyarrow as pa

FILE = "tombstones.parquet"
"""Next to ``manifest.json``, in incremental harvests only; without rows if nothing was removed."""

Reason = Literal["gone", "replaced", "retracted", "license"]
"""Why rows are no longer valid:

gone        the source no longer has the article, or the search no longer matches it
replaced    there is a newer version, or the same was changed: its rows are in the increment
retracted   the article was retracted, and the harvest excludes retracted articles
license     its licence changed to one that the harvest excludes
"""

SCHEMA = pa.schema(
    [
        pa.field("article_id", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("source_uri", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        # ISO date of the listing in which the article was first missing or changed.
        pa.field("snapshot", pa.string(), nullable=False),
    ]
)
