"""Rows of tables as hospitals have them: CSV, Excel workbooks, JSON Lines, Parquet."""

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from biovl.core import spreadsheets, workbooks
from biovl.core.errors import SourceError
from biovl.core.filesystems import Tree

SPILLED = "\0more"
"""Column of cells beyond the header: they cannot be assigned to columns."""

_WORKBOOKS = ("xlsx", "xlsm")
_KINDS = ("csv", "tsv", *_WORKBOOKS, "jsonl", "ndjson", "parquet")


def raw_rows(
    table: Tree, path: str, *, sheet: str, encoding: str, needed: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table by column name, with values as the file has them.

    Cells beyond the header are in the column ``SPILLED``, as a sentence.

    Args:
        table: The file.
        path: Its location, for messages.
        sheet: Sheet of a workbook; empty: the only visible one that has the needed columns.
        encoding: Encoding of a text file without a byte-order mark.
        needed: Columns by which the delimiter, the header and the sheet are found.

    Raises:
        SourceError: If the file is not a table that can be read.
    """
    kind = table.path.rpartition(".")[2].lower()
    if kind == "xls":
        raise SourceError(f"source.path: {path}: save it as .xlsx (Excel Workbook) or CSV")
    if kind not in _KINDS:
        raise SourceError(f"source.path: {path} is not a {', '.join(_KINDS)} file")
    if sheet and kind not in _WORKBOOKS:
        raise SourceError(f"source.sheet: {path} is not an .xlsx file")
    try:
        with table.filesystem.open_input_file(table.path) as stream:
            if kind == "parquet":
                for batch in pq.ParquetFile(stream).iter_batches(batch_size=1_000):
                    yield from batch.to_pylist()
                return
            if kind in _WORKBOOKS:
                cells = workbooks.rows(stream.read(), sheet=sheet, needed=needed)
                yield from _named_rows(path, cells)
                return
            found = spreadsheets.encoding_of(stream.read(4), encoding)
            stream.seek(0)
            # The csv module needs line ends unchanged; in JSON Lines only \n ends a line.
            newline = "\n" if kind in ("jsonl", "ndjson") else ""
            text = io.TextIOWrapper(stream, found, newline=newline)
            if kind in ("jsonl", "ndjson"):
                for number, line in enumerate(text, start=1):
                    if line.strip():
                        yield _json_object(path, number, line)
                return
            delimiter = "\t" if kind == "tsv" else ","
            yield from _named_rows(
                path, spreadsheets.rows(text, delimiter=delimiter, needed=needed)
            )
    except UnicodeDecodeError as error:
        hint = spreadsheets.encoding_hint(error, "source.encoding")
        raise SourceError(f"source.path: {path} cannot be read: {hint}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise SourceError(f"source.path: {path} cannot be read: {error}") from error


def _named_rows(path: str, lines: Iterator[tuple[int, list[Any]]]) -> Iterator[dict[str, Any]]:
    header = [name.strip() for name in next(lines, (1, []))[1]]
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise SourceError(f"{path} has more than one column {', '.join(twice)}")
    for number, cells in lines:
        row: dict[str, Any] = dict(itertools.zip_longest(header, cells[: len(header)]))
        if len(cells) > len(header):
            row[SPILLED] = f"line {number}: {len(cells)} cells, {len(header)} in the header"
        yield row


def _json_object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise SourceError(f"{path}, line {number}: {error}") from error
    if not isinstance(values, dict):
        raise SourceError(f"{path}, line {number}: expected an object, got {line[:50]}")
    return values
