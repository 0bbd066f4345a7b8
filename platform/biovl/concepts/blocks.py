"""Rows of a table with their embeddings, read in blocks.

A block is a range of rows of fixed length, independent of the parts of the table. Rounding depends
on the blocks, so the same images give the same clusters regardless of how they are stored.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import Input, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import COLUMNS, Table, TablePart, columns_of, open_part, open_table

# Shapes: N rows, U those with a usable embedding, D embedding.

NO_EMBEDDING = "no embedding"
NOT_FINITE = "embedding is not finite"

_BATCH_ROWS = 8_192
_BUFFER_BYTES = 1 << 22
_DEFAULT = "dinov2"


@dataclass(frozen=True, kw_only=True)
class EmbeddedTable:
    """A table and the embedding of its images."""

    table: Table
    uri: str
    """URI of the folder of columns."""
    column: str
    defect: str | None
    """Column with the reason for a missing embedding; None if there is no such column."""
    dim: int

    def as_inputs(self) -> list[Input]:
        """Return the table and the folder of the embedding as inputs for manifests."""
        read = Input(name="embedding", uri=self.uri, fingerprint=fingerprint(self.uri))
        return [self.table.as_input(), read]


def open_source(table_uri: str, embedding_uri: str | None) -> EmbeddedTable:
    """Open a table and its embedding column.

    Raises:
        ArtifactError: If the table or the embedding does not exist, or the embedding was computed
            for another table.
    """
    table = open_table(table_uri)
    uri = embedding_uri or columns_of(table.uri, _DEFAULT)
    manifest = read_manifest(uri, COLUMNS)
    made_from = [item.fingerprint for item in manifest.inputs]
    if table.fingerprint not in made_from:
        raise ArtifactError(
            f"{uri} was made from another table than {table_uri}: expected an input with "
            f"fingerprint {table.fingerprint[:12]}…, found "
            f"{', '.join(found[:12] for found in made_from) or None}"
        )
    column = manifest.notes.get("embedding")
    if not isinstance(column, str):
        raise ArtifactError(
            f"{uri} has no embedding (its manifest names none): expected columns of an annotator "
            f"that embeds images; found {', '.join(manifest.notes.get('columns', [])) or 'none'}"
        )
    folder = Folder(uri)
    missing = {part.name for part in table.parts} - set(folder.names("", ".parquet"))
    if missing:
        raise ArtifactError(
            f"{uri} lacks {len(missing)} parts of {table_uri} ({', '.join(sorted(missing)[:3])} …)"
        )
    with folder.filesystem.open_input_file(folder.at(table.parts[0].name)) as stream:
        schema = pq.read_schema(stream)
    defect = f"{column}_defect"
    return EmbeddedTable(
        table=table,
        uri=uri,
        column=column,
        defect=defect if defect in schema.names else None,
        dim=_dim(uri, column, schema),
    )


def _dim(uri: str, column: str, schema: pa.Schema) -> int:
    if column not in schema.names:
        raise ArtifactError(f"{uri} has no column {column}; found {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise ArtifactError(
            f"{uri} has {kind} in {column}, expected vectors: lists of a fixed number of floats"
        )
    return int(kind.list_size)


def block_count(table: Table, block_rows: int) -> int:
    """Return the number of blocks of a table; the last may be shorter."""
    return -(-table.rows // block_rows)


def block_range(table: Table, block_rows: int, number: int) -> tuple[int, int]:
    """Return the first row of a block, and the end (exclusive)."""
    return number * block_rows, min((number + 1) * block_rows, table.rows)


def stretches(
    parts: Sequence[TablePart], first: int, stop: int
) -> Iterator[tuple[TablePart, int, int]]:
    """Yield, for a range of rows of the table, each part with its first row and end (exclusive)."""
    begin = 0
    for part in parts:
        low, high = max(first - begin, 0), min(stop - begin, part.rows)
        if low < high:
            yield part, low, high
        begin += part.rows


def read_rows(
    folder: Folder,
    path: str,
    first: int,
    stop: int,
    columns: Sequence[str],
    *,
    batch_rows: int = _BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a Parquet file in batches; other row groups are not read.

    Raises:
        ArtifactError: If the file has fewer rows.
    """
    with open_part(folder, path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        # Streamed: a row group may hold all images of a table.
        if file.metadata.num_rows < stop:
            raise ArtifactError(
                f"{folder.described}/{path} has {file.metadata.num_rows:,} rows, expected at least "
                f"{stop:,}: it does not belong to this table"
            )
        begin = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if begin < stop and begin + rows > first:
                at = begin
                for batch in file.iter_batches(batch_rows, row_groups=[group], columns=[*columns]):
                    low, high = max(first - at, 0), min(stop - at, batch.num_rows)
                    at += batch.num_rows
                    if low < high:
                        yield batch.slice(low, high - low)
            begin += rows


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """Rows of a table with their usable embeddings. U of N rows are usable."""

    is_usable_N: np.ndarray
    """Whether each row has a usable embedding. bool, shape [N]."""
    vectors_UD: np.ndarray
    """Embeddings of the usable rows. float32, shape [U, D]."""
    reasons: Counter[str]
    """Number of the other rows, by defect."""


def read_vectors(source: EmbeddedTable, first: int, stop: int) -> Iterator[Vectors]:
    """Yield the embeddings of rows of the table, in order, a few thousand rows at a time."""
    folder = Folder(source.uri)
    columns = [source.column, *([source.defect] if source.defect else [])]
    for part, low, high in stretches(source.table.parts, first, stop):
        for batch in read_rows(folder, part.name, low, high, columns):
            yield _usable(batch, source)


def _usable(batch: pa.RecordBatch, source: EmbeddedTable) -> Vectors:
    column = batch.column(source.column)
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    # flatten() skips null lists; a null component becomes NaN.
    numbers = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    vectors_UD = numbers.reshape(-1, source.dim)
    is_finite = np.isfinite(vectors_UD).all(axis=1)
    is_usable = is_there.copy()
    is_usable[is_there] = is_finite
    reasons: Counter[str] = Counter()
    if not is_finite.all():
        reasons[NOT_FINITE] = int((~is_finite).sum())
        vectors_UD = vectors_UD[is_finite]
    if not is_there.all():
        absent = pa.array(~is_there)
        found = (
            batch.column(source.defect).filter(absent).to_pylist()
            if source.defect
            else [None] * int((~is_there).sum())
        )
        reasons.update(reason or NO_EMBEDDING for reason in found)
    return Vectors(is_usable_N=is_usable, vectors_UD=vectors_UD, reasons=reasons)
