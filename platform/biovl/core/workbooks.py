"""Tables in Excel workbooks (.xlsx, .xlsm): one sheet as rows of cells, header first.

Formulas give the values that Excel stored with them. Rows above the header and headings across
several columns are not rows of the table. The value of a cell that is merged over several rows
applies to each of them.
"""

import io
from collections.abc import Collection, Iterator
from typing import Any

import python_calamine as calamine

_OLE = b"\xd0\xcf\x11\xe0"
"""Begins old .xls files, and the container of encrypted workbooks."""
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_MAX_ROWS_ABOVE = 50
"""Rows that titles and notes may take above the header."""

Cells = list[Any]


def rows(data: bytes, *, sheet: str, needed: Collection[str]) -> Iterator[tuple[int, Cells]]:
    """Yield row number and cells of each row of a sheet, header first, without empty rows.

    Cells are strings, floats, booleans, dates, times or None. Columns without a name are left out.

    Args:
        data: The file.
        sheet: Name of the sheet; empty: the visible sheet that has all needed columns.
        needed: Names of the required columns.

    Raises:
        ValueError: If it is not a workbook, is encrypted, or the sheet is not determined.
    """
    try:
        found = _sheet(_opened(data), sheet, needed)
        table = _table(found)
    except calamine.CalamineError as error:
        raise ValueError(f"it is not a valid Excel workbook: {error}") from error
    first, header = _header(table, needed)
    columns = [column for column, name in enumerate(header) if name]
    headings, origin = _merged(found, table)
    yield first + 1, [header[column] for column in columns]
    for number in range(first + 1, len(table)):
        if number not in headings and any(map(_is_filled, table[number])):
            cells = (table[origin.get((number, column), number)][column] for column in columns)
            yield number + 1, [_value(cell) for cell in cells]


def _opened(data: bytes) -> calamine.CalamineWorkbook:
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise ValueError(
                "it is encrypted: save a copy without a password (in Excel: File, Info, Protect "
                "Workbook, Encrypt with Password, delete the password)"
            )
        raise ValueError("it is in the old .xls format: save it as .xlsx (Excel Workbook) or CSV")
    return calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))


def _table(sheet: calamine.CalamineSheet) -> list[Cells]:
    return sheet.to_python(skip_empty_area=False)


def _sheet(
    book: calamine.CalamineWorkbook, name: str, needed: Collection[str]
) -> calamine.CalamineSheet:
    """Return the sheet of a name, or the only one that fits."""
    visible = [
        about.name
        for about in book.sheets_metadata
        if about.visible == calamine.SheetVisibleEnum.Visible
        and about.typ == calamine.SheetTypeEnum.WorkSheet
    ]
    if name:
        if name not in book.sheet_names:
            raise ValueError(f"it has no sheet {name}, only {', '.join(book.sheet_names)}")
        return book.get_sheet_by_name(name)
    if len(visible) != 1:
        visible = [one for one in visible if _has(book.get_sheet_by_name(one), needed)] or visible
    if len(visible) != 1:
        raise ValueError(
            f"choose one of its sheets with source.sheet: {', '.join(visible or book.sheet_names)}"
        )
    return book.get_sheet_by_name(visible[0])


def _has(sheet: calamine.CalamineSheet, needed: Collection[str]) -> bool:
    _, header = _header(_table(sheet), needed)
    return set(header).issuperset(needed)


def _header(table: list[Cells], needed: Collection[str]) -> tuple[int, list[str]]:
    """Return the first row with all needed columns, otherwise the first that is not empty."""
    for number, cells in enumerate(table[:_MAX_ROWS_ABOVE]):
        names = [str(cell).strip() for cell in cells]
        if set(names).issuperset(needed):
            return number, names
    for number, cells in enumerate(table):
        if any(map(_is_filled, cells)):
            return number, [str(cell).strip() for cell in cells]
    return 0, []


def _merged(
    sheet: calamine.CalamineSheet, table: list[Cells]
) -> tuple[set[int], dict[tuple[int, int], int]]:
    """Return rows that are headings, and the row of the value of cells merged with those above."""
    headings, origin = set[int](), dict[tuple[int, int], int]()
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        for number in range(top, min(bottom + 1, len(table))):
            others = table[number][:left] + table[number][right + 1 :]
            if left < right and not any(map(_is_filled, others)):
                headings.add(number)
            else:
                origin[number, left] = top
    return headings, origin


def _value(cell: Any) -> Any:
    if isinstance(cell, float):
        # As displayed, with at most 15 digits: 0.3 may be stored as 0.30000000000000004.
        return float(f"{cell:.15g}")
    return cell if _is_filled(cell) else None


def _is_filled(cell: Any) -> bool:
    return cell is not None and not (isinstance(cell, str) and not cell.strip())
