"""Batches of table rows, with bounds that depend only on the table and the settings.

A unit is a range of whole row groups of one part. A task reads it once, as a stream, with one image
and one batch in memory. A batch is a range of rows of a unit; its results are written immediately
as a piece, which is also its receipt.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.annotate.annotators import NOT_SELECTED, Annotator
from biovl.annotate.articles import PREFIX, articles_of
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import storage_problem
from biovl.core.folders import Folder
from biovl.core.tables import Table, TablePart, open_part

_PLANNERS = 16
"""Parquet footers read concurrently: in a bucket each takes a tenth of a second."""
_STREAMED = 32
"""Rows read at a time, with their images as published."""
_READ_BYTES = 1 << 22
"""Chunk size of column reads: a row group may be larger than memory."""
_BYTES = "bytes"
"""Stored in place of a dtype for variable-length values, which have no common shape."""

BATCH = pa.schema(
    [
        ("part", pa.int64()),
        ("first", pa.int64()),
        # The prepared usable rows, concatenated, with their common shape and dtype; for texts,
        # their lengths.
        ("prepared", pa.large_binary()),
        ("shape", pa.list_(pa.int64())),
        ("dtype", pa.string()),
        ("defects", pa.list_(pa.string())),
        ("failed", pa.binary()),
    ]
)
"""One row per batch, so that batches stay intact however Ray groups rows."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Range of row groups of a part that one task reads."""

    part: int
    first: int
    """First row, counted in the part."""
    rows: int
    groups: tuple[int, ...]

    def batches(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the first row, counted in the part, and the length of each batch."""
        end = self.first + self.rows
        for first in range(self.first, end, size):
            yield first, min(size, end - first)


def plan(table: Table, rows_per_unit: int) -> list[Unit]:
    """Return the units of a table, from the Parquet footers alone.

    Raises:
        ArtifactError: If a part differs from the table's description.
    """
    folder = Folder(table.uri)

    def group_rows(part: TablePart) -> list[int]:
        with folder.filesystem.open_input_file(folder.at(part.path)) as file:
            try:
                metadata = pq.read_metadata(file)
            except pa.ArrowInvalid as error:
                raise ArtifactError(f"{table.uri}/{part.path} is not Parquet: {error}") from error
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        if sum(counts) != part.rows:
            raise ArtifactError(
                f"{table.uri}/{part.path} has {sum(counts)} rows, expected {part.rows}"
            )
        return counts

    with ThreadPoolExecutor(_PLANNERS) as pool:
        counts = list(pool.map(group_rows, table.parts))
    return [
        unit for number, rows in enumerate(counts) for unit in _units(number, rows, rows_per_unit)
    ]


def _units(part: int, group_rows: Sequence[int], least: int) -> Iterator[Unit]:
    first, groups, rows = 0, list[int](), 0
    for number, count in enumerate(group_rows):
        groups.append(number)
        rows += count
        if rows >= least or (number + 1 == len(group_rows) and rows):
            yield Unit(part=part, first=first, rows=rows, groups=tuple(groups))
            first, groups, rows = first + rows, [], 0


def piece(part: int, first: int) -> str:
    """Return the path of a batch's computed columns in the output folder."""
    return f"{pieces_of(part)}/{first:012d}.parquet"


def pieces_of(part: int) -> str:
    """Return the path of a part's pieces in the output folder."""
    return f".draft/pieces/{part:06d}"


def finished_batches(out: str, part: int) -> set[int]:
    """Return the finished batches of a part, as the numbers of their first rows."""
    names = Draft(out).folder.names(pieces_of(part), ".parquet")
    return {int(name.removesuffix(".parquet")) for name in names}


def prepare(
    annotator: Annotator,
    table: Table,
    unit: Unit,
    size: int,
    skip: set[int],
    selected: np.ndarray | None = None,
) -> Iterator[pa.Table]:
    """Yield the batches of a unit, each as a table of one row (``BATCH``).

    Args:
        annotator: Prepares the rows; only the columns that it needs are read.
        table: The table.
        unit: Range of rows.
        size: Rows per batch.
        skip: First rows of batches to skip.
        selected: Which rows of the unit to prepare; None: all. Bool, shape [rows].
    """
    wanted = np.ones(unit.rows, bool) if selected is None else selected
    nothing: Iterator[dict[str, Any]] = itertools.repeat({})
    rows = rows_of(table, unit, annotator.reads, size) if wanted.any() else nothing
    for first, count in unit.batches(size):
        batch = [next(rows) for _ in range(count)]
        if first in skip:
            continue
        prepared, defects = list[np.ndarray | bytes](), list[str | None]()
        for number, row in enumerate(batch, first - unit.first):
            if not wanted[number]:
                defects.append(NOT_SELECTED)
                continue
            made = annotator.prepare({name: cell.as_py() for name, cell in row.items()})
            defects.append(made if isinstance(made, str) else None)
            if not isinstance(made, str):
                prepared.append(made)
        yield _as_row(unit.part, first, prepared, defects)


def rows_of(
    table: Table, unit: Unit, columns: Sequence[str], size: int
) -> Iterator[dict[str, Any]]:
    """Yield the cells of each row by column; cells are decoded on access.

    Args:
        table: The table.
        unit: Range of rows.
        columns: Columns of the table, or of the rows' articles.
        size: Maximum number of rows to read at a time.

    Raises:
        ArtifactError: If the part cannot be read.
    """
    folder = Folder(table.uri)
    path = table.parts[unit.part].path
    of_article = [name for name in columns if name.startswith(PREFIX)]
    columns = [name for name in columns if name not in of_article]
    with open_part(folder, path, buffer_size=_READ_BYTES, pre_buffer=False) as parquet:
        try:
            beside: Iterator[Mapping[str, Any]] = itertools.repeat({})
            if of_article:
                beside = _article_cells(table, unit, parquet, of_article)
            for batch in parquet.iter_batches(
                batch_size=min(size, _STREAMED),
                row_groups=list(unit.groups),
                columns=list(columns),
                use_threads=False,
            ):
                cells = {name: batch.column(name) for name in columns}
                for number in range(len(batch)):
                    own = {name: column[number] for name, column in cells.items()}
                    yield {**own, **next(beside)}
        except (OSError, pa.ArrowInvalid) as error:
            # Storage errors are reported as such.
            if isinstance(error, OSError) and storage_problem(error, table.uri):
                raise
            raise ArtifactError(f"{table.uri}/{path} cannot be read: {error}") from error


def _article_cells(
    table: Table, unit: Unit, parquet: pq.ParquetFile, names: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the article columns of each row; null for a missing article."""
    uris = parquet.read_row_groups(list(unit.groups), columns=["source_uri"])["source_uri"]
    articles = articles_of(table, table.parts[unit.part].name, uris.unique(), names)
    unknown = dict.fromkeys(names, pa.scalar(None))
    for uri in uris.to_pylist():
        yield articles.get(uri, unknown)


def _as_row(
    part: int, first: int, prepared: Sequence[np.ndarray | bytes], defects: list[str | None]
) -> pa.Table:
    texts = [value for value in prepared if isinstance(value, bytes)]
    if texts:
        values = np.frombuffer(b"".join(texts), np.uint8)
        shape, dtype = tuple(map(len, texts)), _BYTES
    else:
        values = np.stack(prepared) if prepared else np.empty(0, np.uint8)
        shape, dtype = values.shape, values.dtype.str
    # Without a copy: there may be a hundred megabytes.
    offsets = pa.py_buffer(np.array([0, values.nbytes], np.int64))
    around = [None, offsets, pa.py_buffer(values)]
    cells = [
        pa.array([part], pa.int64()),
        pa.array([first], pa.int64()),
        pa.Array.from_buffers(pa.large_binary(), 1, around),
        pa.array([shape], BATCH.field("shape").type),
        pa.array([dtype], pa.string()),
        pa.array([defects], BATCH.field("defects").type),
        pa.array([None], pa.binary()),
    ]
    return pa.Table.from_arrays(cells, schema=BATCH)


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Rows prepared for the model: usable inputs, and the defects of the others."""

    part: int
    first: int
    prepared: np.ndarray
    """Prepared usable rows. Shape [K, ...]; read-only. For bytes an object array, shape [K]."""
    defects: list[str | None]
    """Defect of every row, or None."""


def batch_of(table: pa.Table, row: int) -> RowBatch:
    """Return the prepared batch that is stored in one row of a table, without a copy."""
    buffer = table["prepared"][row].as_buffer()
    shape, dtype = table["shape"][row].as_py(), table["dtype"][row].as_py()
    if dtype == _BYTES:
        ends = np.cumsum([0, *shape]).tolist()
        texts = [buffer[start:end].to_pybytes() for start, end in itertools.pairwise(ends)]
        prepared = np.array(texts, object)
    else:
        prepared = np.frombuffer(buffer, np.dtype(dtype)).reshape(shape)
    return RowBatch(
        part=table["part"][row].as_py(),
        first=table["first"][row].as_py(),
        prepared=prepared,
        defects=table["defects"][row].as_py(),
    )
