"""Tables as spreadsheet programs save them: their encodings, delimiters and first lines.

Excel saves "CSV UTF-8" with a byte-order mark, "Unicode Text" as UTF-16 with tabs, and plain "CSV"
in the code page of the machine (cp1252 in Western Europe and America) with semicolons if the
decimal separator is a comma. Delimiters and byte-order marks are detected reliably; a code page
cannot be (cp1252 decodes every other one to wrong letters), so it must be named.
"""

import codecs
import csv
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TextIO

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DELIMITERS = (",", ";", "\t", "|")
_MAX_CELL_CHARS = 100_000_000


def encoding_of(start: bytes, default: str = "utf-8") -> str:
    """Return the encoding given by the byte-order mark of a file, else the default.

    Args:
        start: At least the first three bytes.
        default: Encoding of a file without a byte-order mark.
    """
    marks = (name for mark, name in _MARKS.items() if start.startswith(mark))
    return next(marks, default)


def decode(data: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its byte-order mark.

    Raises:
        UnicodeDecodeError: If it is in neither; ``encoding_hint`` explains it.
    """
    return data.decode(encoding_of(data))


def encoding_hint(error: UnicodeDecodeError, setting: str = "") -> str:
    """Return advice for text that is not in the expected encoding.

    Args:
        error: The error from decoding the table.
        setting: Name of the setting for the encoding, if there is one.
    """
    byte = error.object[error.start]
    named = f", or name its encoding, as in {setting}=cp1252" if setting else ""
    return (
        f"it holds byte 0x{byte:02x}, which is not {error.encoding.upper()}: save it as "
        f'"CSV UTF-8"{named} (Excel\'s plain "CSV" is in the code page of its machine: '
        "cp1252 in Western Europe and America)"
    )


def rows(
    text: TextIO, *, delimiter: str, needed: Collection[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield each non-empty row, header first: the number of its last line, and its cells.

    Args:
        text: Opened with ``newline=""``.
        delimiter: Cell delimiter, unless the first line names another one (``sep=;``, as Excel
            writes) or only another one gives the header all needed columns.
        needed: Names of the required columns.

    Raises:
        csv.Error: If the text is not valid CSV, or a quotation mark opens a cell of several lines
            that does not end: it would contain the following rows.
    """
    csv.field_size_limit(_MAX_CELL_CHARS)
    skipped = 0
    first = text.readline()
    if named := named_delimiter(first):
        delimiter, first, skipped = named, text.readline(), 1
    else:
        delimiter = delimiter_of(first, delimiter, needed)

    of_row = list[str]()

    def lines() -> Iterator[str]:
        for line in itertools.chain([first] if first else [], text):
            of_row.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=delimiter)
    for cells in reader:
        if len(of_row) > 1:
            number = reader.line_num + skipped - len(of_row) + 1
            _check_quotes(of_row, delimiter, number)
        of_row.clear()
        if cells:
            yield reader.line_num + skipped, cells


def _check_quotes(lines: Sequence[str], delimiter: str, number: int) -> None:
    """Raise csv.Error if a quoted cell of a row's lines, the first of this number, does not end."""
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise csv.Error(
            f"line {number}: a cell begins with a quotation mark and does not end with one: "
            f"{lines[0].rstrip()[:80]!r}. In a quoted cell, write each mark of the text twice"
        ) from error


def named_delimiter(line: str) -> str | None:
    """Return the delimiter that a table's first line names (``sep=;``), None if it names none."""
    is_named = line.lower().startswith("sep=") and len(line.strip("\r\n")) == 5
    return line[4] if is_named else None


def delimiter_of(header: str, default: str, needed: Collection[str]) -> str:
    """Return the delimiter of a table from its header line.

    Args:
        header: The first line of a table.
        default: Returned unless only another delimiter gives all needed columns.
        needed: Names of the required columns.
    """
    for delimiter in (default, *_DELIMITERS):
        names = next(csv.reader([header], delimiter=delimiter), [])
        if {name.strip() for name in names}.issuperset(needed):
            return delimiter
    return default
