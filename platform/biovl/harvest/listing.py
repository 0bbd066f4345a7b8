"""The files of a source as a harvest found them, to notice later what was added or removed.

A harvest reads what its source held when it began: a source that grows meanwhile, such as a mirror,
neither stops it nor the jobs that follow. So a changed source is a warning, not an error.
"""

from collections.abc import Mapping

import pyarrow as pa

from biovl.core.folders import Folder
from biovl.core.tables import read_table, write_table

FILE = "listing.parquet"
"""File of a published harvest: a row per file of the source."""

_SCHEMA = pa.schema([pa.field("path", pa.string()), pa.field("size_bytes", pa.int64())])


def write_listing(folder: Folder, sizes: Mapping[str, int]) -> None:
    """Write the sizes of the files of a source, by path relative to it."""
    columns = [list(sizes), list(sizes.values())]
    write_table(folder, FILE, pa.table(columns, schema=_SCHEMA))


def read_listing(folder: Folder) -> dict[str, int] | None:
    """Return the source's file sizes, by path; None for harvests of earlier biovl versions."""
    if not folder.exists(FILE):
        return None
    table = read_table(folder, FILE)
    return dict(zip(table["path"].to_pylist(), table["size_bytes"].to_pylist(), strict=True))


def changes(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return counts of added, removed and resized files as text, with examples; empty if none."""
    found = {
        "added": sorted(now.keys() - before.keys()),
        "removed": sorted(before.keys() - now.keys()),
        "with another size": sorted(
            path for path, size in now.items() if before.get(path, size) != size
        ),
    }
    return ", ".join(
        f"{len(paths):,} {how} ({paths[0] or 'source.path'}{' …' if len(paths) > 1 else ''})"
        for how, paths in found.items()
        if paths
    )
