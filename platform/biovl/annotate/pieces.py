"""Computed columns: written as pieces per batch, and joined into parts aligned with the table's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.annotate.annotators import NOT_FINITE, NOT_SELECTED, Annotator, LoadedModel
from biovl.annotate.batches import RowBatch, Unit, piece
from biovl.core.artifacts import Draft
from biovl.core.tables import TablePart

# Shapes: B rows of a batch, K usable ones, D embedding.

_GROUP_ROWS = 16_384
"""Rows per row group of a part: with 1,024 dimensions, 32 MB."""


def schema_of(annotator: Annotator) -> pa.Schema:
    """Return the schema of the parts: the computed columns and the defect column."""
    return annotator.writes.append(pa.field(defect_column(annotator), pa.string()))


def defect_column(annotator: Annotator) -> str:
    """Return the name of the column with the reasons why an annotator could not use rows."""
    return f"{annotator.name}_defect"


def compute(annotator: Annotator, model: LoadedModel, batch: RowBatch) -> pa.Table:
    """Return the computed columns of a batch, with the defect of each row."""
    defects = np.array(batch.defects, object)
    usable_K = np.flatnonzero([defect is None for defect in batch.defects])
    values: dict[str, np.ndarray] = {}
    if len(usable_K):
        computed = model(batch.prepared)
        # Values out of the type's range become infinite, which is checked below.
        with np.errstate(over="ignore"):
            values = {
                field.name: _values(computed[field.name], field.type) for field in annotator.writes
            }
        good_K = np.all([_finite(array) for array in values.values()], axis=0)
        defects[usable_K[~good_K]] = NOT_FINITE
        values = {name: array[good_K] for name, array in values.items()}
        usable_K = usable_K[good_K]
    columns = [
        _column(field.type, values.get(field.name), usable_K, len(defects))
        for field in annotator.writes
    ]
    columns.append(pa.array(defects.tolist(), pa.string()))
    status = annotator.writes.get_field_index(f"{annotator.name}_status")
    if status >= 0:
        columns[status] = pc.if_else(
            pa.array(defects == NOT_SELECTED), NOT_SELECTED, columns[status]
        )
    return pa.Table.from_arrays(columns, schema=schema_of(annotator))


def write(out: str, annotator: Annotator, model: LoadedModel, batch: RowBatch) -> int:
    """Compute the columns of a batch and write them; return the number of rows."""
    with Draft(out).folder.writer(piece(batch.part, batch.first)) as stream:
        pq.write_table(compute(annotator, model, batch), stream, compression="none")
    return len(batch.defects)


def join(
    out: str, annotator: Annotator, part: TablePart, units: Sequence[Unit], size: int
) -> dict[str, Any]:
    """Write a part of the computed columns from its pieces.

    Args:
        out: Folder to publish.
        annotator: Annotator of the columns.
        part: Part of the table.
        units: Units of the part, in order.
        size: Rows per batch.

    Returns:
        The receipt: ``rows``, ``size_bytes``, ``defects`` by reason, value counts of categorical
        columns, and sums of integer columns.
    """
    folder = Draft(out).folder
    schema, defects = schema_of(annotator), Counter[str]()
    values = {name: Counter[str]() for name in annotator.counted}
    sums = {field.name: 0 for field in schema if pa.types.is_integer(field.type)}
    vectors = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    plain = [name for name in schema.names if name not in vectors]
    held: list[pa.Table] = []
    with (
        folder.writer(part.name) as stream,
        # Vector components rarely repeat, and their minima are useless.
        pq.ParquetWriter(
            stream, schema, compression="zstd", use_dictionary=plain, write_statistics=plain
        ) as parquet,
    ):
        for unit in units:
            for first, _ in unit.batches(size):
                with folder.filesystem.open_input_file(folder.at(piece(unit.part, first))) as file:
                    held.append(pq.read_table(file, schema=schema))
                defects.update(_present(held[-1], defect_column(annotator)))
                for name, counter in values.items():
                    counter.update(_present(held[-1], name))
                for name in sums:
                    sums[name] += pc.sum(held[-1][name]).as_py() or 0
                if sum(map(len, held)) >= _GROUP_ROWS:
                    parquet.write_table(pa.concat_tables(held))
                    held = []
        if held:
            parquet.write_table(pa.concat_tables(held))
    size_bytes = folder.filesystem.get_file_info(folder.at(part.name)).size
    return {
        "rows": sum(unit.rows for unit in units),
        "size_bytes": size_bytes,
        "defects": dict(defects),
        "values": {name: dict(counter) for name, counter in values.items()},
        "sums": sums,
    }


def _present(table: pa.Table, name: str) -> list[str]:
    return [value for value in table[name].to_pylist() if value is not None]


def _values(computed: Any, kind: pa.DataType) -> np.ndarray:
    inner = kind.value_type if pa.types.is_fixed_size_list(kind) else kind
    if pa.types.is_primitive(inner):
        return np.asarray(computed, inner.to_pandas_dtype())
    # One by one: NumPy would turn lists of equal length into another axis.
    values = np.empty(len(computed), object)
    for place, value in enumerate(computed):
        values[place] = value
    return values


def _finite(array: np.ndarray) -> np.ndarray:
    """Return which rows have no NaN and no value out of the type's range."""
    if array.dtype.kind != "f":
        return np.ones(len(array), bool)
    finite: np.ndarray = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    return finite


def _column(
    kind: pa.DataType, values: np.ndarray | None, usable_K: np.ndarray, rows: int
) -> pa.Array:
    """Return values at their rows, null elsewhere."""
    is_null_B = np.ones(rows, bool)
    is_null_B[usable_K] = False
    if values is None:
        return pa.nulls(rows, kind)
    whole = np.zeros((rows, *values.shape[1:]), values.dtype)
    whole[usable_K] = values
    if pa.types.is_fixed_size_list(kind):
        flat = pa.array(whole.reshape(-1), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=pa.array(is_null_B))
    return pa.array(whole, kind, mask=is_null_B)


def totals(receipts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of all parts: rows, annotated and defective rows, defects and values.

    Rows that are neither annotated nor defective were not selected.
    """
    rows = sum(receipt["rows"] for receipt in receipts)
    defects = sum((Counter(receipt["defects"]) for receipt in receipts), Counter[str]())
    left_out = defects.pop(NOT_SELECTED, 0)
    counted: dict[str, Counter[str]] = {}
    sums = Counter[str]()
    for receipt in receipts:
        # Receipts of earlier versions lack them.
        sums.update(receipt.get("sums", {}))
        for name, values in receipt["values"].items():
            counted[name] = counted.get(name, Counter()) + Counter(values)
    return {
        "rows": rows,
        "annotated": rows - left_out - defects.total(),
        "defective": defects.total(),
        "defects": dict(sorted(defects.items())),
        **{name: dict(counter.most_common()) for name, counter in counted.items()},
        **sums,
    }
