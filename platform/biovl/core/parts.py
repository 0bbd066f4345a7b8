"""Tables written as Parquet parts of bounded size, from single rows."""

import contextlib
import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core import records
from biovl.core.folders import Folder

RowT = TypeVar("RowT")
ROW_GROUP_BYTES = 16_000_000
"""Uncompressed bytes per row group: bounds the memory of a writer and of a reader."""


def part_name(table: str, unit: int, number: int) -> str:
    """Return the name of a part; sorted by name, parts are in source order."""
    return f"{table}/part-{unit:06d}-{number:03d}.parquet"


@dataclass(frozen=True, kw_only=True)
class PartFormat(Generic[RowT]):
    """Names and maximum sizes of the parts of a table."""

    name: Callable[[int], str]
    """Returns the file name of a part by its number, from 0."""
    schema: pa.Schema
    """Columns. Images, in ``image``, have no statistics: they would only add cost."""
    table: Callable[[Sequence[RowT]], pa.Table]
    """Returns the table of some rows, with ``schema``."""
    weight: Callable[[RowT], int]
    """Returns the approximate memory of a row in bytes."""
    part_bytes: int
    """A part is closed when the weight of its rows reaches this."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of ``pq.ParquetWriter``."""


class RowWriter(Generic[RowT]):
    """Writes rows as Parquet parts; starts a new part when one is full.

    Each part appears atomically when it is full or at the end.
    """

    def __init__(self, folder: Folder, form: PartFormat[RowT], *, at_least_one: bool) -> None:
        """Write rows as parts.

        Args:
            folder: The folder that contains the parts.
            form: Names, columns and size of the parts.
            at_least_one: Whether a part is also written if there are no rows.
        """
        self._folder, self._form, self._at_least_one = folder, form, at_least_one
        self._rows: list[RowT] = []
        self._held_bytes = self._written_bytes = self._part_rows = 0
        self._open: contextlib.ExitStack | None = None
        self._writer: pq.ParquetWriter | None = None
        self._stream: _Hashed | None = None
        self.files: dict[str, dict[str, Any]] = {}
        """Rows, size and SHA-256 of each finished part, by file name. Without the hash, a table
        with other values of equal length could not be told from this one."""

    def add(self, row: RowT) -> None:
        """Add a row; a full part is written."""
        self._rows.append(row)
        self._held_bytes += self._form.weight(row)
        if self._held_bytes >= min(ROW_GROUP_BYTES, self._form.part_bytes):
            self._flush()
        if self._written_bytes >= self._form.part_bytes:
            self._finish_part()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self._abandon(*error)
            return
        try:
            if self._rows or (self._at_least_one and not self.files):
                self._flush()
            self._finish_part()
        except BaseException:
            # Also if the disk is full: delete the unfinished part to free its space.
            self._abandon(*sys.exc_info())
            raise

    def _abandon(self, *error: Any) -> None:
        if self._open is not None:
            self._open.__exit__(*error)

    def _flush(self) -> None:
        if self._writer is None:
            self._open = contextlib.ExitStack()
            stream = self._open.enter_context(self._folder.writer(self._next_name()))
            self._stream = _Hashed(stream)
            self._writer = self._open.enter_context(_parquet_writer(self._stream, self._form))
        self._writer.write_table(self._form.table(self._rows))
        self._part_rows += len(self._rows)
        self._written_bytes += self._held_bytes
        self._rows, self._held_bytes = [], 0

    def _next_name(self) -> str:
        return self._form.name(len(self.files))

    def _finish_part(self) -> None:
        if self._open is None or self._stream is None:
            return
        name = self._next_name()
        self._open.close()
        size = self._folder.filesystem.get_file_info(self._folder.at(name)).size
        self.files[name] = {
            "rows": self._part_rows,
            "size_bytes": size,
            "sha256": self._stream.sha256.hexdigest(),
        }
        self._open = self._writer = self._stream = None
        self._written_bytes = self._part_rows = 0


class _Hashed:
    """A stream that hashes what is written to it."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _parquet_writer(stream: _Hashed, form: PartFormat[Any]) -> Iterator[pq.ParquetWriter]:
    # Images are compressed already and unique: dictionaries and statistics would only add cost.
    plain = [name for name in form.schema.names if name != "image"]
    options = {
        "compression": "zstd",
        "use_dictionary": plain,
        "write_statistics": plain,
        # zstd stores images as they are: a flipped bit would be published under a wrong SHA-256.
        "write_page_checksum": True,
    }
    with pq.ParquetWriter(stream, form.schema, **{**options, **form.options}) as writer:
        yield writer


class PartWriter(RowWriter[Any]):
    """Writes the records of one unit as parts of a table.

    At least one part is written, so that a table without rows can be read like any other.
    """

    def __init__(
        self,
        folder: Folder,
        table: str,
        unit: int,
        record: type,
        part_bytes: int,
        *,
        first: int = 0,
        extra: Sequence[str] = (),
    ) -> None:
        """Write rows of a record as parts of a table.

        Args:
            folder: The folder that contains the table.
            table: Name of the table, which is the folder of its parts.
            unit: Number of the unit, part of the file names.
            record: A class of ``records``.
            part_bytes: A part is closed when its rows reach this size.
            first: The number of the first part in its name.
            extra: Names of ``extra_columns`` of the rows that are written.
        """
        form = PartFormat[Any](
            name=lambda number: part_name(table, unit, first + number),
            schema=records.schema_with(record, extra),
            table=lambda rows: records.table(record, rows, extra),
            weight=_weight,
            part_bytes=part_bytes,
        )
        super().__init__(folder, form, at_least_one=True)


def _weight(row: Any) -> int:
    """Return the approximate memory of a row's long fields in bytes."""
    weight = 1_000
    for item in dataclasses.fields(row):
        value = getattr(row, item.name)
        if isinstance(value, str | bytes):
            weight += len(value)
        elif isinstance(value, list):
            weight += sum(
                len(part.text) + 50 * len(part.superscripts)
                if isinstance(part, records.Mention)
                else 50
                for part in value
            )
    return weight
