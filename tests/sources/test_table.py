"""A folder of images and a table of captions."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.articles.content import Graphic
from biovl.errors import ConfigError, SourceError
from biovl.plugins import Plugin, make
from biovl.sources import Package

HEADER = "image,caption,article_id,figure_label,license,published"


def read(path: Path, **settings: object) -> list[Package]:
    source = make("sources", Plugin("table", {"path": str(path), **settings}))
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
        (tmp_path / name).write_bytes(name.encode())
    first, second = read(tmp_path / "t.csv")
    assert first.content is not None
    assert second.content is not None
    assert [f.caption for f in first.content.figures] == ['Two "quoted"\nlines, wide', "Second"]
    assert [f.label for f in first.content.figures] == ["Fig. 1", "Fig. 2"]
    assert first.content.license.spdx == "CC-BY-4.0"
    assert first.content.published == "2020-03"
    assert first.read("sub/b.png") == b"sub/b.png"
    assert second.content.figures[0].graphics == [Graphic(["c.png"])]
    assert second.files == {}
    assert first.name == "A1"


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_form_of_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    rows = [{"image": "a.png", "caption": "One", "article_id": 7}]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
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
    with pytest.raises(OSError, match="is not among"):
        package.read(path)


def test_columns_can_have_other_names_and_missing_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("file,text\na.png,One\n")
    with pytest.raises(SourceError, match="no column image, caption; it has file, text"):
        read(path)
    (package,) = read(path, columns={"image": "file", "caption": "text"})
    assert package.content is not None
    assert package.content.figures[0].caption == "One"
    with pytest.raises(SourceError, match="no column captoin"):
        read(path, columns={"captoin": "text"})


@pytest.mark.parametrize("content", ["", f"{HEADER}\n"])
def test_an_empty_table_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(SourceError, match="no rows"):
        read(tmp_path / "t.csv")


def test_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read(tmp_path / "absent.csv")
    (tmp_path / "t.jsonl").write_text("{nonsense")
    with pytest.raises(SourceError, match="line 1"):
        read(tmp_path / "t.jsonl")
    (tmp_path / "t.csv").write_bytes(b"image,caption\n\xff\xfe,x\n")
    with pytest.raises(SourceError, match="cannot be read"):
        read(tmp_path / "t.csv")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sources/table is not valid:\n  colour"):
        make("sources", Plugin("table", {"path": "x", "colour": "red"}))
    with pytest.raises(ConfigError, match="choose from packages, table"):
        make("sources", Plugin("pubmed"))
