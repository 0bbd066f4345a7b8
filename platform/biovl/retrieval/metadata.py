"""What is known of each figure of an index: a table mapped into memory, and its rows by id.

``table.arrow`` is an Arrow file without compression in batches of equal length, so that row i is
row ``i % BATCH`` of batch ``i // BATCH`` and reading it touches its bytes only. ``lookup/`` holds a
64-bit hash of every id, sorted, and the rows in that order: 16 bytes a figure, mapped as well.
"""

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from biovl import records
from biovl.errors import ArtifactError
from biovl.records import LicenseGroup
from biovl.retrieval.mapped import mapped

BATCH = 65_536
"""Rows of a batch: few enough for 32-bit offsets into captions, so many that batches are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFigure:
    """A figure of an index: what to judge, cite and reuse it by, and where its bytes are."""

    figure_id: str
    article_id: str
    figure_label: str | None
    caption: str
    title: str | None
    journal: str | None
    year: int | None
    published: str | None
    """ISO 8601 at the precision that was published."""
    license: str | None
    """SPDX identifier."""
    license_group: LicenseGroup
    license_url: str | None
    citation: str | None
    doi: str | None
    pmid: str | None
    kind: str
    image_type: str | None
    concepts: list[str]
    mesh_terms: list[str]
    width_px: int | None
    height_px: int | None
    split: str
    url: str | None
    """The article: at PMC, else its DOI."""
    image_sha256: str | None
    """Of the published file."""
    credit: str | None
    """Attribution or permissions of this figure: it may not share the article's licence."""
    retracted: bool | None
    shard: str
    """Relative to the corpus."""
    offset: int
    size: int
    thumbnail_offset: int | None
    """In ``thumbnails.bin``."""
    thumbnail_size: int | None


SCHEMA = records.schema(IndexedFigure)

_PMCID = re.compile(r"PMC\d+")
_YEAR = re.compile(r"(\d{4})(?!\d)")


def from_index_rows(
    rows: pa.Table, *, concepts: str = "concepts", image_type: str = "image_type"
) -> pa.Table:
    """Return rows of a corpus' ``index.parquet`` as rows of an index, in order, ``SCHEMA``.

    Args:
        rows: With ``pair_id``, ``article_id``, ``caption``, ``license_group``, ``kind``, ``split``,
            ``shard``, ``offset`` and ``size``; what else ``SCHEMA`` names is null if it is absent.
        concepts: A column that names them, a list or one text; none without such a column.
        image_type: The same, of which the first value counts.

    The thumbnails' places are null: who writes the thumbnails fills them in.
    """
    count = len(rows)
    published = _texts(rows, "published", count)
    links = [
        _link(article, doi)
        for article, doi in zip(
            rows["article_id"].to_pylist(), _texts(rows, "doi", count), strict=True
        )
    ]
    derived: dict[str, list[Any]] = {
        # A pair is what is indexed, and has an id of its own where a figure gives several.
        "figure_id": rows["pair_id"].to_pylist(),
        "year": [_year(text) for text in published],
        "image_type": [next(iter(values), None) for values in _lists(rows, image_type, count)],
        "concepts": _lists(rows, concepts, count),
        "mesh_terms": _lists(rows, "mesh_terms", count),
        "url": links,
        "thumbnail_offset": [None] * count,
        "thumbnail_size": [None] * count,
    }
    columns = []
    for column in SCHEMA:
        if column.name in derived:
            columns.append(pa.array(derived[column.name], column.type))
        elif column.name in rows.column_names:
            columns.append(rows[column.name].cast(column.type).combine_chunks())
        elif column.nullable:
            columns.append(pa.nulls(count, column.type))
        else:
            raise ArtifactError(f"the corpus' index has no column {column.name}")
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_table(tables: Iterable[pa.Table], stream: BinaryIO) -> int:
    """Write tables of ``SCHEMA``, one after the other, as ``table.arrow``; return the rows."""
    waiting: list[pa.Table] = []
    held = written = 0
    with pa.ipc.new_file(stream, SCHEMA) as file:
        for table in tables:
            waiting.append(table.cast(SCHEMA))
            held += len(table)
            while held >= BATCH:
                whole = pa.concat_tables(waiting)
                file.write_batch(_batch(whole.slice(0, BATCH)))
                waiting, held = [whole.slice(BATCH)], held - BATCH
                written += BATCH
        if held:
            file.write_batch(_batch(pa.concat_tables(waiting)))
    return written + held


def write_lookup(figure_ids: Iterable[str], folder: str | os.PathLike[str]) -> None:
    """Write what finds a figure's row: ``hashes.npy``, uint64, sorted, and ``rows.npy``, int64.

    Raises:
        ArtifactError: If an id comes twice.
    """
    # Half of it is stored; all of it tells an id that comes twice from another of the same half.
    both = np.fromiter((_hashes(figure_id) for figure_id in figure_ids), np.dtype("u8,u8"))
    hashes, others = np.ascontiguousarray(both["f0"]), both["f1"]
    rows = np.argsort(hashes, kind="stable")
    equal = np.flatnonzero(np.diff(hashes[rows]) == 0)
    twice = equal[others[rows[equal]] == others[rows[equal + 1]]]
    if len(twice):
        first, second = (int(rows[twice[0] + step]) for step in (0, 1))
        raise ArtifactError(f"rows {first} and {second} are of figures with the same id")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    np.save(target / "hashes.npy", hashes[rows])
    np.save(target / "rows.npy", rows.astype(np.int64))


class MetadataTable:
    """``table.arrow`` and ``lookup/`` of an index folder, mapped into memory."""

    def __init__(self, reader: Any, hashes_N: np.ndarray, rows_N: np.ndarray) -> None:
        self._reader = reader
        self._hashes_N = hashes_N
        self._rows_N = rows_N
        self._batches: dict[int, pa.RecordBatch] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "MetadataTable":
        """Open the table of an index folder.

        Raises:
            ArtifactError: If a file is missing, damaged or does not belong to the others.
        """
        path = Path(folder)
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path / "table.arrow")))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: the table cannot be read: {error}") from error
        hashes_N = mapped(path / "lookup/hashes.npy", "u", (None,))
        rows_N = mapped(path / "lookup/rows.npy", "i", (None,))
        if not reader.schema.equals(SCHEMA):
            raise ArtifactError(f"{path}/table.arrow has other columns than this version reads")
        table = cls(reader, hashes_N, rows_N)
        if not len(hashes_N) == len(rows_N) == len(table):
            raise ArtifactError(
                f"{path}: {len(table)} rows of the table and {len(hashes_N)} in lookup"
            )
        return table

    def __len__(self) -> int:
        batches = self._reader.num_record_batches
        return (batches - 1) * BATCH + self._batch(batches - 1).num_rows if batches else 0

    def rows(
        self, ids: Sequence[int] | np.ndarray, columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return what is known of figures by their rows, in order.

        Args:
            ids: Row numbers, 0 <= id < N.
            columns: Only these; all by default.

        Raises:
            ArtifactError: If the table is damaged there.
        """
        found: list[dict[str, Any]] = []
        for row in map(int, ids):
            batch = self._batch(row // BATCH)
            if columns is not None:
                batch = batch.select(list(columns))
            one = batch.slice(row % BATCH, 1)
            try:
                # Some microseconds; a text that begins nowhere ends the process.
                one.validate(full=True)
            except pa.ArrowException as error:
                raise ArtifactError(f"row {row} of table.arrow is damaged: {error}") from error
            found += one.to_pylist()
        return found

    def row_of(self, figure_id: str) -> int | None:
        """Return the row of a figure, or None if it is not there."""
        wanted = np.uint64(_hash(figure_id))
        place = int(np.searchsorted(self._hashes_N, wanted))
        # Different ids may have the same hash.
        while place < len(self._hashes_N) and self._hashes_N[place] == wanted:
            row = int(self._rows_N[place])
            if self.rows([row], ["figure_id"])[0]["figure_id"] == figure_id:
                return row
            place += 1
        return None

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column, which stays in the file until it is read."""
        numbers = range(self._reader.num_record_batches)
        return pa.chunked_array(
            [self._batch(number).column(name) for number in numbers], SCHEMA.field(name).type
        )

    def _batch(self, number: int) -> pa.RecordBatch:
        with self._lock:
            batch = self._batches.get(number)
            if batch is None:
                try:
                    batch = self._reader.get_batch(number)
                    batch.validate()
                except (OSError, pa.ArrowException) as error:
                    raise ArtifactError(f"table.arrow is damaged: {error}") from error
                self._batches[number] = batch
        return batch


def _batch(table: pa.Table) -> pa.RecordBatch:
    # Copied row by row, as a slice is written with traces of what it was cut from.
    (batch,) = table.take(pa.array(np.arange(len(table)))).combine_chunks().to_batches()
    return batch


def _hash(figure_id: str) -> int:
    data = figure_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _hashes(figure_id: str) -> tuple[int, int]:
    data = figure_id.encode("utf-8", "surrogatepass")
    other = hashlib.blake2b(data, digest_size=8, person=b"other").digest()
    return _hash(figure_id), int.from_bytes(other, "little")


def _link(article_id: str, doi: str | None) -> str | None:
    if _PMCID.fullmatch(article_id):
        return f"https://pmc.ncbi.nlm.nih.gov/articles/{article_id}/"
    return f"https://doi.org/{doi}" if doi else None


def _year(published: str | None) -> int | None:
    found = _YEAR.match(published or "")
    return int(found[1]) if found else None


def _texts(rows: pa.Table, name: str, count: int) -> list[str | None]:
    values: list[str | None] = (
        rows[name].to_pylist() if name in rows.column_names else [None] * count
    )
    return values


def _lists(rows: pa.Table, name: str, count: int) -> list[list[str]]:
    """Return a column of lists or of single texts as lists without nulls."""
    if name not in rows.column_names:
        return [[] for _ in range(count)]
    return [
        [] if not value else [value] if isinstance(value, str) else [v for v in value if v]
        for value in rows[name].to_pylist()
    ]
