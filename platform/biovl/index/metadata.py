"""Metadata of the figures of an index: a memory-mapped table, and a lookup from id to row.

``table.arrow`` is an uncompressed Arrow file with batches of equal length: row i is row ``i %
BATCH`` of batch ``i // BATCH``, and reading it touches only its bytes. ``lookup/`` contains the
sorted 64-bit hashes of all ids and the corresponding rows: 16 bytes per figure, also memory-mapped.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.articles import rights
from biovl.core import records
from biovl.core.errors import ArtifactError
from biovl.core.records import LicenseGroup
from biovl.index.mapped import map_array

BATCH = 65_536
"""Rows per batch: few enough for 32-bit offsets into captions, and enough to keep batches few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFigure:
    """Metadata of an indexed figure: citation, terms of reuse, and location of its image."""

    figure_id: str
    article_id: str
    figure_label: str | None
    caption: str
    title: str | None
    journal: str | None
    year: int | None
    published: str | None
    """Publication date in ISO 8601, at the published precision."""
    license: str | None
    """SPDX identifier of the licence that applies; None if unknown."""
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
    """URL of the article at PMC, or its DOI."""
    image_sha256: str | None
    """SHA-256 of the published image file."""
    credit: str | None
    """Attribution or permission statement of the figure, which may not share the article's
    licence."""
    retracted: bool | None
    shard: str
    """Path of the shard relative to the corpus."""
    offset: int
    size: int
    thumbnail_offset: int | None
    """Offset of the thumbnail in ``thumbnails.bin``, in bytes."""
    thumbnail_size: int | None
    redistributable: bool | None
    """Whether the image may be redistributed; None if unknown."""
    third_party: bool | None
    """Whether the figure credits a third party, so that the article's licence may not apply. If so,
    ``license`` is null."""
    stated_license: str | None
    """SPDX identifier of the published licence, whether or not it applies to this figure."""
    panel_type: str | None
    """Panel type assigned by the resolve job: single or multiple."""
    panel_subtype: str | None
    license_code: str | None
    """Licence code of the article in the metadata of its source."""
    derivatives_allowed: bool | None
    cut_out: bool | None
    """Whether the image is a panel cut out of a figure, which may be a derivative of it."""
    labels: list[str] | None
    """Values of columns of the corpus that a private table brought along: ``finding=nodule``."""


SCHEMA = records.schema(IndexedFigure)
LATER = frozenset(
    "redistributable third_party stated_license "
    "panel_type panel_subtype license_code derivatives_allowed cut_out labels".split()
)
"""Columns that tables of earlier versions may lack."""

CONCEPTS = ("global_concepts", "local_concepts", "concepts")
"""Columns of a corpus that contain concepts: those of the resolve job, and custom ones."""
IMAGE_TYPE = "image_type"
"""Column of a corpus with image types, as published by the annotate job."""


def from_index_rows(
    rows: pa.Table,
    *,
    concepts: Sequence[str] = CONCEPTS,
    image_type: str = IMAGE_TYPE,
    labels: Sequence[str] = (),
) -> pa.Table:
    """Convert rows of ``index.parquet`` of a corpus to rows of an index with ``SCHEMA``, in order.

    Args:
        rows: Table with ``pair_id``, ``article_id``, ``caption``, ``license_group``, ``kind``,
            ``split``, ``shard``, ``offset`` and ``size``; other columns of ``SCHEMA`` are null
            if absent.
        concepts: Columns with concepts, lists or single strings; absent columns are ignored.
        image_type: Column with image types; the first value is used.
        labels: Columns whose values become labels, ``column=value``.

    The positions of thumbnails are null; they are filled in when thumbnails are written.
    """
    count = len(rows)
    derived = {
        # Pairs are indexed, and have ids of their own if a figure has several pairs.
        "figure_id": _column(rows, "pair_id"),
        "year": _years(_column(rows, "published")),
        "image_type": _first(_lists(rows, [image_type])),
        "concepts": _lists(rows, concepts),
        "mesh_terms": _lists(rows, ["mesh_terms"]),
        "labels": _lists(_labelled(rows, labels) if labels else rows, labels),
        "url": _links(_column(rows, "article_id"), _column(rows, "doi")),
        "thumbnail_offset": pa.nulls(count),
        "thumbnail_size": pa.nulls(count),
        **_rights(rows),
    }
    columns = []
    for column in SCHEMA:
        if column.name in derived:
            columns.append(derived[column.name].cast(column.type))
        elif column.name in rows.column_names:
            columns.append(rows[column.name].cast(column.type).combine_chunks())
        elif column.nullable:
            columns.append(pa.nulls(count, column.type))
        else:
            raise ArtifactError(f"the corpus' index has no column {column.name}")
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_table(tables: Iterable[pa.Table], stream: BinaryIO) -> int:
    """Write tables with ``SCHEMA`` as ``table.arrow``; return the number of rows."""
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
    """Write the lookup from id to row: ``hashes.npy``, uint64, sorted, and ``rows.npy``, int64.

    Raises:
        ArtifactError: If an id occurs twice.
    """
    # Half of the digest is stored; the whole distinguishes duplicate ids from hash collisions.
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
    """Metadata of all figures, from the memory-mapped ``table.arrow`` and ``lookup/``."""

    def __init__(self, reader: Any, hashes_N: np.ndarray, rows_N: np.ndarray) -> None:
        self._reader = reader
        self._hashes_N = hashes_N
        self._rows_N = rows_N
        self._absent = tuple(name for name in SCHEMA.names if name not in reader.schema.names)
        self._batches: dict[int, pa.RecordBatch] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "MetadataTable":
        """Open the table of an index folder.

        Raises:
            ArtifactError: If a file is missing, corrupt or inconsistent with the others.
        """
        path = Path(folder)
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path / "table.arrow")))
            names = reader.schema.names
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: the table cannot be read: {error}") from error
        hashes_N = map_array(path / "lookup/hashes.npy", "u", (None,))
        rows_N = map_array(path / "lookup/rows.npy", "i", (None,))
        expected = [c for c in SCHEMA if c.name not in LATER or c.name in names]
        if not reader.schema.equals(pa.schema(expected)):
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
        """Return the metadata of rows, in order.

        Indexes of earlier versions lack some columns.

        Args:
            ids: Row numbers, 0 <= id < N.
            columns: Columns to return; all by default.

        Raises:
            ArtifactError: If the table is corrupt at these rows.
        """
        batches: list[pa.RecordBatch] = []
        names = SCHEMA.names if columns is None else list(columns)
        stored = [name for name in names if name not in self._absent]
        for row in map(int, ids):
            batch = self._batch(row // BATCH).select(stored)
            one = batch.slice(row % BATCH, 1)
            try:
                # Takes microseconds; invalid string offsets would crash the process.
                one.validate(full=True)
            except pa.ArrowException as error:
                raise ArtifactError(f"row {row} of table.arrow is damaged: {error}") from error
            batches.append(one)
        # All at once: half the time of single rows.
        return pa.Table.from_batches(batches).to_pylist() if batches else []

    def row_of(self, figure_id: str) -> int | None:
        """Return the row of a figure; None if the id is unknown."""
        digest = np.uint64(_hash(figure_id))
        place = int(np.searchsorted(self._hashes_N, digest))
        # Hashes may collide.
        while place < len(self._hashes_N) and self._hashes_N[place] == digest:
            row = int(self._rows_N[place])
            if self.rows([row], ["figure_id"])[0]["figure_id"] == figure_id:
                return row
            place += 1
        return None

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column, memory-mapped."""
        numbers = range(self._reader.num_record_batches)
        if name in self._absent:
            return pa.chunked_array([pa.nulls(len(self), SCHEMA.field(name).type)])
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
    # Copied row by row: a slice would be written with remains of its parent.
    (batch,) = table.take(pa.array(np.arange(len(table)))).combine_chunks().to_batches()
    return batch


def _hash(figure_id: str) -> int:
    data = figure_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _hashes(figure_id: str) -> tuple[int, int]:
    data = figure_id.encode("utf-8", "surrogatepass")
    other = hashlib.blake2b(data, digest_size=8, person=b"other").digest()
    return _hash(figure_id), int.from_bytes(other, "little")


def _column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column of strings; nulls if it is absent."""
    if name not in rows.column_names:
        return pa.nulls(len(rows), pa.string())
    return rows[name].cast(pa.string()).combine_chunks()


def _rights(rows: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of redistribution rights and applicable licences."""
    if "license_group" not in rows.column_names:
        raise ArtifactError("the corpus' index has no column license_group")
    present = [name for name in (*rights.READS, "license_url") if name in rows.column_names]
    plain = rows.select(present).to_pylist()
    terms = [rights.terms(row) for row in plain]
    return {
        "license": pa.array([one.license for one in terms], pa.string()),
        "license_group": pa.array([one.group for one in terms], pa.string()),
        "license_url": pa.array([one.url for one in terms], pa.string()),
        "redistributable": pa.array([rights.redistributable(row) for row in plain], pa.bool_()),
        "derivatives_allowed": pa.array(
            [rights.derivatives_allowed(row) for row in plain], pa.bool_()
        ),
        "third_party": pa.array([rights.credits_third_party(row) for row in plain], pa.bool_()),
        "cut_out": pa.array([rights.is_cut_out(row) for row in plain], pa.bool_()),
        "stated_license": _column(rows, "license"),
    }


def _links(article_ids: pa.Array, dois: pa.Array) -> pa.Array:
    """Return the URLs of articles: at PMC, or else their DOI."""
    at_pmc = pc.binary_join_element_wise(
        "https://pmc.ncbi.nlm.nih.gov/articles/", article_ids, "/", ""
    )
    at_doi = pc.binary_join_element_wise("https://doi.org/", dois, "")
    no_doi = pc.equal(pc.fill_null(dois, ""), "")
    return pc.if_else(
        pc.match_substring_regex(article_ids, r"\APMC\d+\z"),
        at_pmc,
        pc.if_else(no_doi, pa.scalar(None, pa.string()), at_doi),
    )


def _years(published: pa.Array) -> pa.Array:
    """Return the years of dates that begin with one; null for others."""
    begins = pc.match_substring_regex(published, r"\A\d{4}(\D|\z)")
    years = pc.utf8_slice_codeunits(published, 0, 4)
    return pc.if_else(begins, years, pa.scalar(None, pa.string())).cast(pa.int32())


def _lists(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Merge columns of lists or single strings into one list column.

    Nulls, empty strings and repeated values are omitted; values are in the order of the columns.
    """
    texts, parents = [pa.array([], pa.string())], [np.empty(0, np.int64)]
    for name in names:
        if name not in rows.column_names:
            continue
        column = rows[name].combine_chunks()
        row_M = np.arange(len(column))
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
            column, row_M = pc.list_flatten(column), np.repeat(row_M, lengths)
        if pa.types.is_floating(column.type):
            # As pandas writes missing numbers.
            column = pc.if_else(pc.is_nan(column), None, column)
        values = column.cast(pa.string())
        is_known = pc.fill_null(pc.not_equal(values, ""), False)
        texts.append(values.filter(is_known))
        parents.append(row_M[is_known.to_numpy(zero_copy_only=False)])
    row_M = np.concatenate(parents)
    values = pa.concat_arrays(texts)
    codes = values.dictionary_encode()
    # The first place of each value of a row, in the order of the rows.
    keys = row_M * (len(codes.dictionary) + 1) + codes.indices.to_numpy()
    firsts = np.sort(np.unique(keys, return_index=True)[1])
    order = firsts[np.argsort(row_M[firsts], kind="stable")]
    starts = np.searchsorted(row_M[order], np.arange(len(rows) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(starts, values.take(pa.array(order)))


def _labelled(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return columns of strings, numbers or lists of them, with the name before each value."""
    columns = []
    for name in names:
        lists = _lists(rows, [name])
        values = pc.binary_join_element_wise(name, lists.values, "=")
        columns.append(pa.ListArray.from_arrays(lists.offsets, values))
    return pa.table(columns, names=list(names))


def _first(lists: pa.ListArray) -> pa.Array:
    """Return the first value of each list; null for an empty list."""
    is_empty = pc.equal(pc.list_value_length(lists), 0)
    starts = pc.if_else(is_empty, pa.scalar(None, pa.int32()), lists.offsets[:-1])
    return lists.values.take(starts)
