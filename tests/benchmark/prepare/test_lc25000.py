"""LC25000's class folders and archive: the label is the folder's, whatever else lies there."""

import zipfile
from pathlib import Path

import pytest

from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import encoded, number_of, run, table

FOLDERS = {
    "lung_image_sets/lung_scc": "lung squamous cell carcinomas",
    "lung_image_sets/lung_aca": "lung adenocarcinomas",
    "lung_image_sets/lung_n": "normal lung tissue",
    "colon_image_sets/colon_n": "normal colonic tissue",
    "colon_image_sets/colon_aca": "colon adenocarcinomas",
}


def files(each: int = 3) -> dict[str, bytes]:
    """Return images by name; the number of an image tells its folder."""
    found = {"__MACOSX/lung_image_sets/lung_n/._x.jpeg": b"\0\5", "lung_image_sets/.DS_Store": b"x"}
    for number, folder in enumerate(FOLDERS):
        for row in range(each):
            suffix = ".JPEG" if row == 1 else ".jpeg"
            name = f"lung_colon_image_set/{folder}/{folder[-3:]} {row}{suffix}"
            found[name] = encoded(40 * number + row, "JPEG", quality=98, subsampling=0)
    return found


def zipped(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def check(out: Path, name: str) -> None:
    rows = table(out).to_pylist()
    assert len(rows) == (9 if name == "lc25000_lung" else 6)
    for row in rows:
        folder = list(FOLDERS)[round(number_of(row["image"]["bytes"]) / 40)]
        assert row["label"] == FOLDERS[folder]
        assert row["id"].startswith(folder.rpartition("/")[2])


@pytest.mark.parametrize("name", ["lc25000_lung", "lc25000_colon"])
def test_labels_are_those_of_the_folders(tmp_path: Path, name: str) -> None:
    zipped(tmp_path / "raw/LC25000.zip", files())
    manifest = run(name, tmp_path / "raw", tmp_path / "out")
    check(tmp_path / "out", name)
    assert manifest.counts["left_out"] == {}
    with zipfile.ZipFile(tmp_path / "raw/LC25000.zip") as archive:
        archive.extractall(tmp_path / "raw")
    # The archive stays where it was unpacked: its images are not read twice.
    again = run(name, tmp_path / "raw", tmp_path / "again")
    check(tmp_path / "again", name)
    assert again.counts == manifest.counts


def test_a_missing_class_and_a_damaged_archive_are_named(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    zipped(raw / "a.zip", {name: data for name, data in files().items() if "lung_n/" not in name})
    with pytest.raises(SourceError, match=r"a folder lung_n with images was not found"):
        run("lc25000_lung", raw, out)
    (raw / "a.zip").write_bytes((raw / "a.zip").read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"a.zip is truncated or damaged .*Download it again"):
        run("lc25000_lung", raw, out)
    assert not out.exists()


def test_a_damaged_image_is_left_out_and_counted(tmp_path: Path) -> None:
    members = files()
    bad = [name for name in members if "lung_aca" in name]
    members[bad[0]] = members[bad[0]][:200]
    members[bad[1]] = b""
    members["notes/strange.jpeg"] = encoded(1)
    zipped(tmp_path / "raw/a.zip", members)
    manifest = run("lc25000_lung", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["test"] == 7
    assert sum(manifest.counts["left_out"].values()) == 3
    assert any(bad[0].rpartition("/")[2] in warning for warning in manifest.warnings)


def test_images_that_are_there_twice_are_read_once(tmp_path: Path) -> None:
    zipped(tmp_path / "raw/LC25000.zip", files())
    zipped(tmp_path / "raw/archive.zip", files())
    manifest = run("lc25000_lung", tmp_path / "raw", tmp_path / "out")
    check(tmp_path / "out", "lc25000_lung")
    assert manifest.counts["left_out"] == {"id occurs before": 9}
    assert any("test: 9 left out, id occurs before" in warning for warning in manifest.warnings)


def test_an_archive_with_backslashes_is_read(tmp_path: Path) -> None:
    members = {f".\\{name}".replace("/", "\\"): data for name, data in files().items()}
    zipped(tmp_path / "raw/a.zip", members)
    run("lc25000_lung", tmp_path / "raw", tmp_path / "out")
    check(tmp_path / "out", "lc25000_lung")
