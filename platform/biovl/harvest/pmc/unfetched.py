"""Files that could not be had: ``unfetched.parquet`` in a harvest, of what may be had another day.

What failed then is a defect of a row, or the reason why a smaller image was taken in its place. The
next increment asks for these articles again, so that it ends where a full harvest would.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import Folder
from biovl.harvest.pmc.catalogue import Range
from biovl.harvest.pmc.records import Record
from biovl.harvest.pmc.service import DAMAGED, FAILING, MISSING, REFUSED
from biovl.harvest.sources import FileError

FILE = "unfetched.parquet"
"""Stands beside ``manifest.json``, only where something could not be had."""

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("defect", pa.string(), nullable=False),
    ]
)

# A file that is too large, or has an unsafe name, is so tomorrow as well.
_MAY_PASS = (MISSING, REFUSED, FAILING, DAMAGED)


class Unfetched:
    """What could not be had of some articles."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, object]] = {}

    def add(self, record: Record, key: str, error: FileError) -> None:
        """Note a file of an article; one that is noted already stays once."""
        if error.defect in _MAY_PASS:
            self._rows[key] = {
                **{"number": record.number, "version": record.version},
                **{"key": key, "defect": error.defect},
            }

    def table(self) -> pa.Table:
        """Return what was noted, as ``SCHEMA``."""
        return pa.Table.from_pylist([self._rows[key] for key in sorted(self._rows)], SCHEMA)


def numbers_before(since: str, range_: Range) -> pa.Array:
    """Return the articles of a range of which an earlier harvest could not have a file."""
    folder = Folder(since) if since else None
    if folder is None or not folder.exists(FILE):
        return pa.array([], pa.int64())
    found = pq.read_table(
        folder.at(FILE), filesystem=folder.filesystem, filters=range_.filters(), schema=SCHEMA
    )
    return found["number"].unique()
