"""Raw files as people have them: tables of any program, links, hidden files, odd names."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from biovl.benchmark.prepare.labels import Labels, drawn, finding
from biovl.benchmark.prepare.raw_files import RawFiles, raw_fingerprint
from biovl.core.errors import SourceError


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_is_the_same_from_any_program(
    tmp_path: Path, encoding: str, end: str, delimiter: str
) -> None:
    lines = [[" ID ", "target", "note"], ["b 1", "1", '"näh; x, y"'], ["a", "0", ""], ["", "", ""]]
    text = end.join(delimiter.join(cells) for cells in lines)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    with RawFiles(str(tmp_path), "nowhere") as raw:
        rows = raw.table("t.csv", ["id", "Target"])
    assert rows == [
        {"id": "b 1", "Target": "1", "note": "näh; x, y"},
        {"id": "a", "Target": "0", "note": ""},
    ]
    assert bool(raw.warnings) == (encoding == "cp1252")


def test_a_table_that_ends_within_a_row_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b\n1,2,3\n4,5")
    (tmp_path / "twice.csv").write_text("id,a,a\n1,2,3\n")
    with RawFiles(str(tmp_path), "nowhere") as raw:
        rows = raw.table("t.csv", ["id"])
        assert rows[1] == {"id": "4", "a": "5", "b": ""}
        assert raw.warnings == ["t.csv ends within a row: it may be truncated"]
        with pytest.raises(SourceError, match="two columns a"):
            raw.table("twice.csv", ["id"])


@pytest.mark.parametrize("end", ["", '|"The" end', "\n\n"])
def test_a_quotation_mark_that_would_join_rows_is_an_error_with_its_line(
    tmp_path: Path, end: str
) -> None:
    (tmp_path / "t.csv").write_text(f'id|a\n1|"two\nlines"\n2|"A" cat\n3|"A cat\n4|b\n5{end}')
    with (
        RawFiles(str(tmp_path), "nowhere") as raw,
        pytest.raises(SourceError, match=r"t\.csv .*line 5: .*quotation mark.*A cat.*nowhere"),
    ):
        raw.table("t.csv", ["id"])


def test_cells_of_several_lines_and_marks_within_a_line_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id\ta\n1\t"two\n""lines"""\n2\t"A" cat\n3\t5" long\n')
    with RawFiles(str(tmp_path), "nowhere") as raw:
        rows = raw.table("t.csv", ["id"])
    assert [row["a"] for row in rows] == ['two\n"lines"', "A cat", '5" long']


def test_links_are_followed_once_and_hidden_files_skipped(tmp_path: Path) -> None:
    raw, other = tmp_path / "raw", tmp_path / "other"
    for folder in (raw, other, raw / "__MACOSX", raw / ".cache"):
        folder.mkdir()
    for path in (other / "A B.JPG", raw / "__MACOSX/a.jpg", raw / ".cache/b.jpg", raw / "._c.jpg"):
        path.write_bytes(b"x")
    (raw / "linked").symlink_to(other)
    (other / "loop").symlink_to(raw)
    (Path(os.fsdecode(os.fsencode(raw) + b"/\xe9.png"))).write_bytes(b"y")
    with RawFiles(str(raw), "nowhere") as files:
        assert files.images() == ["\\udce9.png", "linked/A B.JPG"]
        assert files.read("linked/A B.JPG") == b"x"
        assert files.named("a b.jpg") == "linked/A B.JPG"


def test_two_files_of_a_name_are_not_guessed_between(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Labels.csv").write_text("a")
    with (
        RawFiles(str(tmp_path), "nowhere") as raw,
        pytest.raises(SourceError, match=r"several files called labels.csv: one/.*two/"),
    ):
        raw.required("labels.csv")


def test_a_damaged_member_is_an_error_of_that_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.png", b"abcdefgh" * 9)
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(b"abcdefgh", b"abcdefgX", 1))
    with RawFiles(str(tmp_path), "nowhere") as raw, pytest.raises(OSError, match=r"a.zip/x.png"):
        raw.read("a.zip/x.png")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_that_was_unpacked_in_part_is_read_for_the_rest(
    tmp_path: Path, kind: str
) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / "all" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "all" / name).write_text(name)
    (tmp_path / "raw").mkdir()
    shutil.make_archive(str(tmp_path / "raw" / "x"), kind, tmp_path / "all")
    (tmp_path / "raw" / "a.png").write_text("unpacked")
    with RawFiles(str(tmp_path / "raw"), "nowhere") as raw:
        assert raw.images() == ["a.png", f"x.{kind}/b.png", f"x.{kind}/c.png"]
        assert [raw.read(name) for name in raw.images()] == [b"unpacked", b"b.png", b"c.png"]


def test_other_labels_in_an_archive_of_the_same_size_are_other_raw_files(tmp_path: Path) -> None:
    known = set()
    for label in (b"0", b"1"):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("t.csv", b"id,label\na," + label)
        known.add(raw_fingerprint(str(tmp_path)))
    assert len(known) == 2


def test_labels_are_words_or_numbers() -> None:
    labels = Labels({"normal": ("0", "no finding"), "ill": ("1", "Lung_Opacity")})
    cells = ("0", " 0.0", "NO-FINDING", "Normal", "1", "1.0", "lung opacity", "Ill")
    assert [labels.named(cell) for cell in cells] == ["normal"] * 4 + ["ill"] * 4
    assert [labels.named(cell) for cell in ("", "2", "maybe", "0.5")] == [None] * 4
    assert [finding(cell) for cell in ("1.0", "0", "-1.0", " ")] == [1, 0, -1, None]
    with pytest.raises(ValueError, match="expected 1, 0, -1"):
        finding("2")


def test_a_draw_does_not_depend_on_what_else_is_there() -> None:
    names = [f"{number}" for number in range(100)]
    chosen = drawn(names, 10, 0)
    assert drawn([*chosen, *names[:5]], 15, 0)
    assert set(chosen) <= set(drawn(names[::-1], 11, 0))
    assert drawn(names, 10, 1) != chosen
