"""Tables in Excel workbooks, written by openpyxl."""

import datetime
import io
from typing import Any

import openpyxl
import pytest

from biovl.core import workbooks


def saved(book: openpyxl.Workbook) -> bytes:
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def read(book: openpyxl.Workbook, sheet: str = "") -> list[list[Any]]:
    rows = workbooks.rows(saved(book), sheet=sheet, needed=["image", "caption"])
    return [cells for _, cells in rows]


def test_values_are_those_of_the_cells() -> None:
    book = openpyxl.Workbook()
    book.active.append(["image", "caption", "date", "time", "age", "dose", "known", "score"])
    day, time = datetime.date(2024, 3, 4), datetime.datetime(2024, 3, 4, 5, 6)
    book.active.append(["a.png", "One", day, time, 42, 0.1 + 0.2, True, "=1+1"])
    # A formula without a stored value is empty: openpyxl does not compute.
    assert read(book)[1] == ["a.png", "One", day, time, 42.0, 0.3, True, None]


def test_titles_headings_and_empty_rows_are_not_rows_of_the_table() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["B1"] = "Study of 2024"
    sheet.merge_cells("B1:D1")
    sheet["B2"] = "image"
    sheet["C2"] = "caption"
    sheet["B3"] = "Site A"
    sheet.merge_cells("B3:D3")
    sheet["B5"] = "a.png"
    sheet["C5"] = "One"
    sheet["F5"] = "a note without a column name"
    assert list(workbooks.rows(saved(book), sheet="", needed=["image", "caption"])) == [
        (2, ["image", "caption"]),
        (5, ["a.png", "One"]),
    ]


def test_a_cell_merged_over_rows_holds_for_each() -> None:
    # Otherwise images of one patient would be divided among splits.
    book = openpyxl.Workbook()
    for row in (
        ["patient", "image", "caption"],
        ["P1", "a.png", "One"],
        [None, "b.png", "Two"],
        [None, None, None],
        ["P2", "c.png", "Three"],
    ):
        book.active.append(row)
    book.active.merge_cells("A2:A4")
    assert [row[0] for row in read(book)] == ["patient", "P1", "P1", "P2"]


def test_a_cell_merged_over_rows_and_columns_holds_for_each_row() -> None:
    book = openpyxl.Workbook()
    for row in (
        ["image", "caption", "patient", "ward"],
        ["a.png", "One", "P1", None],
        ["b.png", "Two", None, None],
        ["c.png", "Three", None, None],
    ):
        book.active.append(row)
    book.active.merge_cells("C2:D4")
    assert [row[2] for row in read(book)] == ["patient", "P1", "P1", "P1"]


def test_the_sheet_is_the_only_one_that_fits_or_the_one_named() -> None:
    book = openpyxl.Workbook()
    book.active.title = "Read me"
    book.active.append(["This workbook …"])
    book.create_sheet("Data").append(["image", "caption"])
    assert read(book) == [["image", "caption"]]
    book.create_sheet("Old").append(["caption", "image"])
    with pytest.raises(ValueError, match=r"source\.sheet: Data, Old"):
        read(book)
    assert read(book, "Old") == [["caption", "image"]]
    with pytest.raises(ValueError, match="no sheet New, only Read me, Data, Old"):
        read(book, "New")
    book["Old"].sheet_state = "hidden"
    assert read(book) == [["image", "caption"]]


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"\xd0\xcf\x11\xe0" + b"\0" * 600, "old .xls format: save it as .xlsx"),
        (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), "without a password"),
        (b"PK\x03\x04 nothing else", "not a valid Excel workbook"),
        (b"", "not a valid Excel workbook"),
    ],
)
def test_other_files_are_errors_that_say_what_to_do(data: bytes, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        list(workbooks.rows(data, sheet="", needed=["image"]))
