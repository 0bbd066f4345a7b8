"""The table ``unfetched.parquet`` of a harvest: files that failed to download.

Such a failure is the defect of a row, or the reason why a smaller image was used. The next
incremental harvest requests these articles again, so that its result equals a full harvest.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.folders import Folder
from biovl.harvest.pmc.catalogue import Range
from biovl.harvest.pmc.client import DAMAGED, FAILING, MISSING, REFUSED
from biovl.harvest.pmc.records import Record
from biovl.harvest.sources import FileError

FILE = "unfetched.parquet"
"""Next to ``manifest.json``, only if a download failed."""

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("defect", pa.string(), nullable=False),
    ]
)

# A file that is too large or has an unsafe name will fail again.
_MAY_PASS = (MISSING, REFUSED, FAILING, DAMAGED)


class Unfetched:
    """Table of the failed downloads of articles, in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, object]] = {}

    def add(self, record: Record, key: str, error: FileError) -> None:
        """Record that a file of an article failed to download; each file is recorded once."""
        if error.defect in _MAY_PASS:
            self._rows[key] = {
                **{"number": record.number, "version": record.version},
                **{"key": key, "defect": error.defect},
            }

    def table(self) -> pa.Table:
        """Return the failed downloads as a table with ``SCHEMA``."""
        return pa.Table.from_pylist([self._rows[key] for key in sorted(self._rows)], SCHEMA)


def numbers_before(since: str, range_: Range) -> pa.Array:
    """Return the articles of a range that have failed downloads in an earlier harvest."""
    folder = Folder(since) if since else None
    if folder is None or not folder.exists(FILE):
        return pa.array([], pa.int64())
    found = pq.read_table(
        folder.at(FILE), filesystem=folder.filesystem, filters=range_.filters(), schema=SCHEMA
    )
    return found["number"].unique()
