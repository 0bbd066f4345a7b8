"""A folder of images and a table of captions."""

import datetime
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.articles.content import Graphic
from biovl.core.errors import ConfigError, SourceError
from biovl.core.plugins import Plugin, make
from biovl.core.records import Figure, plain_doi
from biovl.harvest.rows import rows
from biovl.harvest.sources import Package, Warns, table

PNG = b"\x89PNG\r\n\x1a\n"
"""What a file of this format begins with."""

HEADER = "image,caption,article_id,figure_label,license,published"


def read(path: Path | str, **settings: object) -> list[Package]:
    source = make("harvest.sources", Plugin("table", {"path": str(path), **settings}))
    return [package for address in source.addresses() for package in source.read(address)]


def test_rows_of_one_article_are_one_package(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        f"\ufeff{HEADER}\n"
        'a.png,"Two ""quoted""\nlines,  wide",A1,Fig. 1,CC BY 4.0,2020-03\n'
        "sub/b.png,Second,A1,Fig. 2,,\n"
        "c.png,Alone,,,,\n",
        encoding="utf-8",
    )
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "sub/b.png"):
        (tmp_path / name).write_bytes(PNG + name.encode())
    first, second = read(tmp_path / "t.csv")
    assert first.content is not None
    assert second.content is not None
    assert [f.caption for f in first.content.figures] == ['Two "quoted"\nlines, wide', "Second"]
    assert [f.label for f in first.content.figures] == ["Fig. 1", "Fig. 2"]
    assert first.content.license.spdx == "CC-BY-4.0"
    assert first.content.published == "2020-03"
    assert first.read("sub/b.png") == PNG + b"sub/b.png"
    assert second.content.figures[0].graphics == [Graphic(["c.png"])]
    assert second.files == {}
    assert first.name == "A1"


def test_a_quotation_mark_that_would_join_rows_is_an_error_with_its_line(tmp_path: Path) -> None:
    rows = 'image,caption\na.png,One\nb.png,"Cat sits\nc.png,Two\n'
    (tmp_path / "t.csv").write_text(rows)
    with pytest.raises(SourceError, match=r"source\.path: .*line 3: .*quotation mark.*b\.png"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_every_form_of_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    rows = [{"image": "a.png", "caption": "One", "article_id": 7}]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "xlsx":
        book = openpyxl.Workbook()
        for cells in (list(rows[0]), list(rows[0].values())):
            book.active.append(cells)
        book.save(path)
    elif kind == "jsonl":
        path.write_text(json.dumps(rows[0]) + "\n")
    else:
        separator = "," if kind == "csv" else "\t"
        path.write_text(separator.join(rows[0]) + "\n" + separator.join(map(str, rows[0].values())))
    (package,) = read(path)
    assert package.content is not None
    assert package.content.figures[0].caption == "One"
    assert package.name == "7"


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.png", "a/../../secret.png", "..\\x"])
def test_an_image_path_that_leaves_the_folder_finds_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.jsonl").write_text(json.dumps({"image": path, "caption": "c"}))
    (package,) = read(tmp_path / "in" / "t.jsonl")
    assert package.files == {}
    with pytest.raises(OSError, match=re.escape(path)):
        package.read(path)


def test_columns_can_have_other_names_and_missing_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("file,text\na.png,One\n")
    with pytest.raises(SourceError, match=r"image, caption.*file, text"):
        read(path)
    (package,) = read(path, columns={"image": "file", "caption": "text"})
    assert package.content is not None
    assert package.content.figures[0].caption == "One"
    with pytest.raises(SourceError, match=r"captoin.*caption"):
        read(path, columns={"captoin": "text"})


@pytest.mark.parametrize("content", ["", f"{HEADER}\n"])
def test_an_empty_table_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(SourceError, match=r"source\.path: .*t\.csv"):
        read(tmp_path / "t.csv")


def test_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.csv"):
        read(tmp_path / "absent.csv")
    (tmp_path / "t.jsonl").write_text("{nonsense")
    with pytest.raises(SourceError, match="line 1"):
        read(tmp_path / "t.jsonl")
    (tmp_path / "t.csv").write_bytes(b"image,caption\n\xff\xfe,x\n")
    with pytest.raises(SourceError, match="0xff"):
        read(tmp_path / "t.csv")


def test_a_workbook_is_read_from_the_sheet_that_is_named(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["image", "caption"])
    cells = ["image", "text", "published", "group_id"]
    book.create_sheet("2024").append(cells)
    book["2024"].append(["a.png", "One", datetime.datetime(2024, 3, 4, 5, 6), 7])
    book.save(tmp_path / "t.xlsx")
    (package,) = read(tmp_path / "t.xlsx", sheet="2024", columns={"caption": "text"})
    assert package.content is not None
    assert package.content.published == "2024-03-04"
    assert package.content.figures[0].group_id == "7"
    with pytest.raises(SourceError, match=r"source\.path: .*no sheet 2025, only Sheet, 2024"):
        read(tmp_path / "t.xlsx", sheet="2025")
    (tmp_path / "t.csv").write_text("image,caption\n")
    with pytest.raises(SourceError, match=r"source\.sheet"):
        read(tmp_path / "t.csv", sheet="2024")
    with pytest.raises(SourceError, match=r"t\.xls: save it as \.xlsx"):
        read(tmp_path / "t.xls")


def test_columns_to_keep_must_exist_and_not_hide_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.csv").write_text("image,caption,sex,scanner\na.png,One,F,3T\n")
    (package,) = read(tmp_path / "t.csv", keep=["sex"])
    assert package.content is not None
    assert package.content.figures[0].extra_columns == {"sex": "F"}
    assert "t.csv: scanner; source.keep publishes" in caplog.text
    with pytest.raises(SourceError, match=r"source\.keep: .* age; it has .*sex"):
        read(tmp_path / "t.csv", keep=["sex", "age"])
    for wrong in (["caption"], ["split"], ["a=b"], ["sex", "sex"]):
        with pytest.raises(ConfigError, match="already a name"):
            read(tmp_path / "t.csv", keep=wrong)
    with pytest.raises(ConfigError, match="Modalty is not a keyword"):
        read(tmp_path / "t.csv", dicom_columns=["Modalty"])


def test_a_pipe_or_a_link_out_of_the_folder_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.png").symlink_to(tmp_path / "secret.png")
    os.mkfifo(folder / "b.png")
    (folder / "t.csv").write_text("image,caption\na.png,A\nb.png,B\n")
    assert [package.files for package in read(folder / "t.csv")] == [{}, {}]


@pytest.mark.parametrize("path", ["a\0.png", "a" * 5_000, "folder"])
def test_a_path_that_names_no_file_finds_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "t.jsonl").write_text(json.dumps({"image": path, "caption": "c"}))
    (package,) = read(tmp_path / "t.jsonl")
    assert package.files == {}


def test_a_row_has_the_very_image_it_names_or_none(tmp_path: Path) -> None:
    # In a PMC package each of these would be found by its stem or its name in another folder.
    (tmp_path / "y").mkdir()
    for name in ("y/1.png", "b.png", "b.jpg"):
        (tmp_path / name).write_bytes(PNG + name.encode())
    (tmp_path / "t.csv").write_text(
        "image,caption,article_id\nx/1.png,,A\ny/1.png,,A\nb.png,,A\nb.jpg,,A\nc.png,,A\n"
    )
    (package,) = read(tmp_path / "t.csv")
    found = [row.image for row in rows(package) if isinstance(row, Figure)]
    assert found == [None, PNG + b"y/1.png", PNG + b"b.png", PNG + b"b.jpg", None]


def test_a_row_with_a_comma_too_many_is_a_defect_and_spares_the_others(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,caption\na.png,One, two\nb.png,Three\nc.png\n")
    first, second, third = read(path)
    assert (first.defect, first.defect_detail) == (
        table.SPILLS,
        "line 2: 3 cells, 2 in the header",
    )
    assert second.content is not None
    assert second.content.figures[0].caption == "Three"
    assert third.content is not None
    assert third.content.figures[0].caption == ""


@pytest.mark.parametrize(
    ("value", "published"),
    [
        (datetime.datetime(2020, 3, 1, 12), "2020-03-01"),
        (datetime.date(2020, 3, 1), "2020-03-01"),
        ("2020-03-01T12:00:00Z", "2020-03-01"),
        ("2020-3-1", "2020"),
        ("March 2020", None),
        (2020.0, "2020"),
    ],
)
def test_a_date_keeps_the_precision_it_can_be_read_with(
    tmp_path: Path, value: object, published: str | None
) -> None:
    row = {"image": "a.png", "caption": "c", "published": value}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    (package,) = read(tmp_path / "t.parquet")
    assert package.content is not None
    assert package.content.published == published


def test_a_year_stands_in_for_a_date(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,year\na.png,One,2019\n")
    (package,) = read(tmp_path / "t.csv")
    assert package.content is not None
    assert package.content.published == "2019"


def test_a_year_stands_in_for_a_date_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,published,year\na.png,One,18.07.2011,2011\n")
    (package,) = read(tmp_path / "t.csv")
    assert package.content is not None
    assert package.content.published == "2011"


def test_dates_that_are_not_iso_are_counted(tmp_path: Path) -> None:
    dates = ["18.07.2011", "2011-07-18", "07/18/2011", "2011", ""]
    lines = [f"a.png,One,{number},{date}" for number, date in enumerate(dates)]
    (tmp_path / "t.csv").write_text("\n".join(["image,caption,group_id,published", *lines]))
    (warning,) = warnings_of(tmp_path / "t.csv")
    assert "published of 2 rows" in warning
    assert "2011-07-18" in warning


@pytest.mark.parametrize("licences", [("CC BY 4.0", ""), ("", "CC BY 4.0")])
def test_a_row_without_a_licence_does_not_take_that_of_another_row(
    tmp_path: Path, licences: tuple[str, str]
) -> None:
    first, second = licences
    (tmp_path / "t.csv").write_text(
        f"image,caption,article_id,license\na.png,One,x,{first}\nb.png,Two,x,{second}\n"
    )
    (package,) = read(tmp_path / "t.csv")
    figures = [row for row in rows(package) if isinstance(row, Figure)]
    assert [(row.license, row.redistributable) for row in figures] == [
        ("CC-BY-4.0", True) if licence else (None, None) for licence in licences
    ]


def test_whole_and_absent_numbers_are_what_they_were_before_a_library_wrote_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"image": "a", "caption": "c", "article_id": 7.0, "pmid": NaN}\n'
        '{"image": "b", "caption": "c", "article_id": NaN}\n'
        '{"image": "c", "caption": "c", "article_id": NaN}\n'
    )
    packages = read(tmp_path / "t.jsonl")
    assert [package.name for package in packages] == ["7", "row-000000001", "row-000000002"]
    assert packages[0].content is not None
    assert packages[0].content.pmid is None


def test_only_a_line_feed_ends_a_line_of_json(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"image": "a", "caption": "x\u2028y"}\r\n{"image": "b", "caption": "\\ud800"}',
        encoding="utf-8",
        newline="",
    )
    first, second = read(tmp_path / "t.jsonl")
    assert first.content is not None
    assert first.content.figures[0].caption == "x\ny"
    # Half a character cannot be stored.
    assert second.content is not None
    assert second.content.figures[0].caption == "?"


def test_a_doi_is_the_same_with_its_address() -> None:
    assert [
        plain_doi(text)
        for text in ("https://doi.org/10.1/A", "http://dx.doi.org/10.1/A", "DOI: 10.1/A", "10.1/A")
    ] == ["10.1/A"] * 4


def test_rows_of_one_doi_are_one_article_unless_they_have_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "image,caption,article_id,doi\n"
        "a.png,One,,https://doi.org/10.1/X\nb.png,Two,,10.1/x\n"
        "c.png,Three,PMC9_fig1,10.1/y\nd.png,Four,PMC9_fig2,10.1/y\n"
    )
    articles = [list(rows(package))[-1] for package in read(tmp_path / "t.csv")]
    assert [article.article_id for article in articles] == ["10.1/x", "PMC9_fig1", "PMC9_fig2"]
    assert [article.figure_count for article in articles] == [2, 1, 1]
    # One publication: its figures stay in one split.
    groups = {
        figure.group_id
        for package in read(tmp_path / "t.csv")[1:]
        for figure in (package.content.figures if package.content else [])
    }
    assert groups == {"10.1/y"}


def test_an_article_is_called_what_the_first_row_that_says_so_calls_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "image,caption,article_id,title,language\na,,A,,\nb,,A,Title,EN\nc,,A,Other,fr\n"
    )
    (package,) = read(tmp_path / "t.csv")
    assert package.content is not None
    assert (package.content.title, package.content.language) == ("Title", "en")


def test_names_differ_where_articles_do(tmp_path: Path) -> None:
    # figure_id is made of the name and has no dots and slashes.
    ids = ["A.1", "A-1", "A/1", "é", "PMC7"]
    (tmp_path / "t.csv").write_text(
        "image,caption,article_id\n" + "".join(f"x,,{article_id}\n" for article_id in ids),
        encoding="utf-8",
    )
    packages = read(tmp_path / "t.csv")
    assert len({package.name for package in packages}) == len(ids)
    assert [package.content.pmcid for package in packages if package.content][-1] == "PMC7"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.ods", b"PK", r"t\.ods.*csv"),
        ("t.xlsx", b"PK", r"t\.xlsx cannot be read: .* Excel workbook"),
        ("t.csv", b"image,image,caption\na,b,c\n", "t.csv.* column image"),
        ("t.csv", b"image/caption\na/b\n", "image/caption"),
        ("t.csv", b'image,caption\na,"' + b"x" * 100_000_001, "field"),
        ("t.parquet", b"PAR1", r"t\.parquet"),
        ("t.jsonl", b'{"image": {"bytes": ""}, "caption": ""}', "image .*dict"),
        ("t.jsonl", b"[1]", r"line 1: .*\[1\]"),
    ],
)
def test_what_is_no_table_is_an_error(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read(tmp_path / name)


def test_a_folder_of_images_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption\na.png,One\n")
    with pytest.raises(SourceError, match=r"source\.images: .*absent"):
        read(tmp_path / "t.csv", images=str(tmp_path / "absent"))


def test_a_table_in_a_bucket(bucket: Callable[[str, bytes], None], bucket_uri: str) -> None:
    bucket("private/t.csv", b"image,caption\nsub/a.png,One\n../t.csv,Two\nabsent.png,Three\n")
    bucket("private/sub/a.png", PNG)
    packages = read(f"{bucket_uri}/private/t.csv")
    assert [package.files for package in packages] == [{"sub/a.png": 8}, {}, {}]
    assert packages[0].read("sub/a.png") == PNG
    assert packages[0].uri == "s3://corpora/private/t.csv#0"


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sources/table.*\n  colour: "):
        make("harvest.sources", Plugin("table", {"path": "x", "colour": "red"}))
    with pytest.raises(ConfigError, match=r"pubmed.*packages, pmc_open_data, table"):
        make("harvest.sources", Plugin("pubmed"))


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({}, "image;caption\r\na.png;Größe 5,2 µm\r\n".encode()),
        ({}, "image;caption\r\na.png;Größe 5,2 µm\r\n".encode("utf-8-sig")),
        ({}, "sep=;\r\nimage;caption\r\na.png;Größe 5,2 µm\r\n".encode()),
        ({}, "image\tcaption\r\na.png\tGröße 5,2 µm\r\n".encode("utf-16")),
        ({}, b"\xfe\xff" + "image|caption\na.png|Größe 5,2 µm\n".encode("utf-16-be")),
        ({"encoding": "cp1252"}, "image;caption\r\na.png;Größe 5,2 µm\r\n".encode("cp1252")),
        ({"encoding": "mac_roman"}, 'image,caption\ra.png,"Größe 5,2 µm"'.encode("mac_roman")),
        # A byte-order mark is stronger than a setting for all files.
        ({"encoding": "cp1252"}, "image;caption\na.png;Größe 5,2 µm\n".encode("utf-8-sig")),
    ],
)
def test_tables_as_spreadsheets_save_them(
    tmp_path: Path, settings: dict[str, str], data: bytes
) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    (package,) = read(tmp_path / "t.csv", **settings)
    assert package.content is not None
    (figure,) = package.content.figures
    assert (figure.caption, figure.graphics) == ("Größe 5,2 µm", [Graphic(["a.png"])])


def test_a_comma_in_a_name_does_not_change_the_delimiter(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"image","caption","size; unit"\na.png,"One; two",5\n')
    (package,) = read(tmp_path / "t.csv")
    assert package.content is not None
    assert package.content.figures[0].caption == "One; two"


def test_a_code_page_is_never_guessed_and_the_error_says_how_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("image;caption\na.png;Größe\n".encode("cp1252"))
    with pytest.raises(SourceError, match=r"byte 0xf6.*source\.encoding=cp1252"):
        read(tmp_path / "t.csv")
    with pytest.raises(SourceError, match=r"source\.encoding.*cp1252"):
        read(tmp_path / "t.csv", encoding="excel-latin")


def test_only_folders_of_images_are_read(tmp_path: Path) -> None:
    def folders(named: list[str], **settings: str) -> list[str]:
        path = tmp_path / "t.csv"
        path.write_text("image,caption\n" + "".join(f"{image},C\n" for image in named))
        source = make("harvest.sources", Plugin("table", {"path": str(path), **settings}))
        return [folder.removeprefix(f"file://{tmp_path}") for folder in source.folders()]

    assert folders(["a.png"]) == []
    assert folders(["x/a.png", "x/y/b.png", "z/c.png", "d.png", ""]) == ["/x", "/z"]
    assert folders(["x/a.png"], images=str(tmp_path / "own")) == ["/own"]


def groups_of(path: Path, **settings: object) -> list[list[str | None]]:
    return [
        [row.group_id for row in rows(package) if isinstance(row, Figure)]
        for package in read(path, **settings)
    ]


def test_figures_carry_what_must_stay_in_one_split(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,caption,patient\na.png,A,p1\nb.png,B,p2\nc.png,C,p1\nd.png,D,\n")
    assert groups_of(path, columns={"group": "patient"}) == [["p1"], ["p2"], ["p1"], [None]]
    assert groups_of(path) == [[None]] * 4


def test_groups_that_share_an_article_are_one(tmp_path: Path) -> None:
    # p1 and p3 are in articles with p2: were they in other splits, one article would be in two.
    path = tmp_path / "t.csv"
    path.write_text(
        "image,caption,article_id,group_id\n"
        "a,,A,p2\nb,,A,p1\nc,,B,p3\nd,,B,p2\ne,,C,p3\nf,,D,p9\ng,,B,\n"
    )
    assert groups_of(path) == [["p1", "p1"], ["p1", "p1", "p1"], ["p1"], ["p9"]]


def warnings_of(path: Path, **settings: object) -> list[str]:
    source = make("harvest.sources", Plugin("table", {"path": str(path), **settings}))
    assert isinstance(source, Warns)
    return source.warnings()


@pytest.mark.parametrize(
    "column", ["patient_id", "PatientID", "Subject", "study_uid", "mrn", "recordId", "group"]
)
def test_a_column_that_repeats_and_is_not_the_group_is_warned_of(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"image,caption,{column}\na.png,A,7\nb.png,B,8\nc.png,C,7\n")
    quiet, loud = warnings_of(path)
    assert "3 rows" in quiet
    assert "LEAK" in loud
    assert f"source.columns.group={column}" in loud
    assert warnings_of(path, columns={"group": column}) == []
    # A column that is only kept groups nothing.
    assert warnings_of(path, keep=[column]) == [quiet, loud]


def test_no_group_is_warned_of_more_quietly_where_nothing_repeats(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,caption,modality,acquisition\na.png,A,CT,x\nb.png,B,CT,x\n")
    (only,) = warnings_of(path)
    assert "source.columns.group" in only
    path.write_text("image,caption,patient\na.png,A,1\nb.png,B,2\n")
    assert not any("LEAK" in line for line in warnings_of(path))
    path.write_text("image,caption,article_id\na.png,A,1\nb.png,B,1\n")
    (only,) = warnings_of(path)
    assert "patient of several articles" in only


def test_a_column_that_is_named_and_nowhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,caption,patient\na.png,A,1\n")
    with pytest.raises(SourceError, match="group=patients"):
        read(path, columns={"group": "patients"})
    # Of JSON any row may be the first with a column.
    path = tmp_path / "t.jsonl"
    path.write_text('{"image": "a", "caption": "A"}\n{"image": "b", "caption": "B", "who": 1}\n')
    assert groups_of(path, columns={"group": "who"}) == [[None], ["1"]]
