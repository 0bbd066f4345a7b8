"""Parquet files of a split, written row by row, in the layout of the Hugging Face hub."""

import contextlib
import json
import sys
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.benchmark.prepare.rows import Row
from biovl.benchmark.prepare.sets import RawSet
from biovl.core.artifacts import Folder

_ROW_GROUP_BYTES = 16_000_000
"""Uncompressed bytes per row group: bounds the memory of this writer and of readers."""
_ROW_BYTES = 500
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def schema_of(opened: RawSet) -> pa.Schema:
    """Return the schema: ``id``, ``image`` and the data set's columns.

    Its metadata tell the library datasets that ``image`` is an image.
    """
    fields = [("id", pa.string()), ("image", _IMAGE), *opened.columns.items()]
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


class SplitWriter:
    """Writes the rows of a split to the draft; a full part is closed and another one begun."""

    def __init__(self, folder: Folder, split: str, schema: pa.Schema, part_bytes: int) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        self._part_bytes = part_bytes
        self._rows: list[Row] = []
        self._held = self._written = self._part_rows = 0
        self._open: contextlib.ExitStack | None = None
        self._writer: pq.ParquetWriter | None = None
        self.parts: list[dict[str, int]] = []
        """Rows and size of each part."""

    @staticmethod
    def draft_name(split: str, number: int) -> str:
        """Return the name of a part before publication."""
        return f".draft/parts/{split}-{number:05}.parquet"

    def add(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        self._held += len(row.image) + _ROW_BYTES
        if self._held >= min(_ROW_GROUP_BYTES, self._part_bytes):
            self._flush()
        if self._written >= self._part_bytes:
            self._finish_part()

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._flush()
                self._finish_part()
        except BaseException:
            kind, error, trace = sys.exc_info()
            raise
        finally:
            if self._open is not None and error is not None:
                self._open.__exit__(kind, error, trace)

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._open = contextlib.ExitStack()
            name = self.draft_name(self._split, len(self.parts))
            stream = self._open.enter_context(self._folder.writer(name))
            # Images are compressed already and unique: dictionaries would only add cost. Those of
            # questions are repeated in the next rows: each is stored once per row group.
            plain = [name for name in self._schema.names if name != "image"]
            is_repeated = {"question", "image_id"} <= set(plain)
            self._writer = self._open.enter_context(
                pq.ParquetWriter(
                    stream,
                    self._schema,
                    compression="zstd",
                    use_dictionary=[*plain, *["image.bytes"] * is_repeated],
                    dictionary_pagesize_limit=2 * _ROW_GROUP_BYTES,
                    write_statistics=plain,
                )
            )
        columns = {
            "id": [row.id for row in self._rows],
            "image": [{"bytes": row.image, "path": row.path} for row in self._rows],
            **{
                name: [row.values.get(name) for row in self._rows]
                for name in self._schema.names[2:]
            },
        }
        self._writer.write_table(pa.table(columns, schema=self._schema))
        self._part_rows += len(self._rows)
        self._written += self._held
        self._rows, self._held = [], 0

    def _finish_part(self) -> None:
        if self._open is None:
            return
        self._open.close()
        name = self.draft_name(self._split, len(self.parts))
        size = self._folder.filesystem.get_file_info(self._folder.at(name)).size
        self.parts.append({"rows": self._part_rows, "size_bytes": size})
        self._open = self._writer = None
        self._written = self._part_rows = 0
