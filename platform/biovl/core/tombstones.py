"""What of earlier harvests no longer holds: ``tombstones.parquet`` in a harvest of what changed.

    rows(first) - those whose source_uri has a tombstone + rows(increment) = rows(second, in full)

A tombstone is about folders that were harvested before the one it stands in, never about that one:
an article that changed has a tombstone for its old rows and new rows under the same ``source_uri``.
Where folders come in order, each with its tombstones, a row holds if no later folder names it.
"""

from typing import Literal

import pyarrow as pa

FILE = "tombstones.parquet"
"""Stands beside ``manifest.json``, in increments only; with no rows where nothing ended."""

Reason = Literal["gone", "replaced", "retracted", "license"]
"""Why rows no longer hold:

gone        the source has no such article any more, or it is not asked for any more
replaced    there is a newer version, or the same was changed: its rows are in the increment
retracted   the article was, and the harvest leaves such articles out
license     its licence is another, which the harvest leaves out
"""

SCHEMA = pa.schema(
    [
        pa.field("article_id", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("source_uri", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        # ISO date of the listing in which it no longer was as before.
        pa.field("snapshot", pa.string(), nullable=False),
    ]
)
