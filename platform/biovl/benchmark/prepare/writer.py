"""Parquet files of a split, written row by row, in the layout of the Hugging Face hub."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from biovl.benchmark.prepare.rows import Row
from biovl.core.folders import Folder
from biovl.core.parts import ROW_GROUP_BYTES, PartFormat, RowWriter

_ROW_BYTES = 500
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def schema_of(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of ``id``, ``image`` and some more columns.

    Its metadata tell the library datasets that ``image`` is an image.
    """
    fields = [("id", pa.string()), ("image", _IMAGE), *columns.items()]
    features = {name: _feature(name, kind) for name, kind in fields}
    metadata = json.dumps({"info": {"features": features}})
    return pa.schema(fields, metadata={"huggingface": metadata})


def _feature(name: str, kind: pa.DataType) -> dict[str, Any]:
    if name == "image":
        return {"_type": "Image"}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        listed = "List" if pa.types.is_list(kind) else "LargeList"
        return {"_type": listed, "feature": _feature("", kind.value_type)}
    if pa.types.is_struct(kind):
        return {item.name: _feature("", item.type) for item in kind}
    return {"_type": "Value", "dtype": "float64" if kind == pa.float64() else str(kind)}


def draft_name(split: str, number: int) -> str:
    """Return the name of a part of a split before publication."""
    return f".draft/parts/{split}-{number:05}.parquet"


def split_writer(folder: Folder, split: str, schema: pa.Schema, part_bytes: int) -> RowWriter[Row]:
    """Return a writer for the rows of a split in the draft; without rows it writes no part.

    Args:
        folder: The folder that is prepared.
        split: Name of the split.
        schema: Columns, as ``schema_of`` returns them.
        part_bytes: A part is closed when its rows reach this size.
    """
    # Images of questions are repeated in the next rows: each is stored once per row group.
    plain = [name for name in schema.names if name != "image"]
    is_repeated = {"question", "image_id"} <= set(plain)
    form = PartFormat[Row](
        name=lambda number: draft_name(split, number),
        schema=schema,
        table=lambda rows: _table(rows, schema),
        weight=lambda row: len(row.image) + _ROW_BYTES,
        part_bytes=part_bytes,
        options={
            "use_dictionary": [*plain, *["image.bytes"] * is_repeated],
            "dictionary_pagesize_limit": 2 * ROW_GROUP_BYTES,
        },
    )
    return RowWriter(folder, form, at_least_one=False)


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = {
        "id": [row.id for row in rows],
        "image": [{"bytes": row.image, "path": row.path} for row in rows],
        **{name: [row.values.get(name) for row in rows] for name in schema.names[2:]},
    }
    return pa.table(columns, schema=schema)
