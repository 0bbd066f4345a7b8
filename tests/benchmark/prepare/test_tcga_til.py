"""TCGA-TIL's archive: study, split and class are those of the folders."""

import io
import tarfile
from pathlib import Path

import pytest

from biovl.benchmark.prepare.sets import tcga_til
from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import encoded, number_of, run, table

NAMES = {"til-negative": "none", "til-positive": "tumor infiltrating lymphocytes"}


def files() -> dict[str, bytes]:
    """Return patches by name; even numbers are positive."""
    found, number = {}, 0
    lines = ["partition,study,barcode,label,path,md5"]
    for study in ("pancancer", "luad", "brca"):
        for split in ("train", "val", "test"):
            for label in ("til-positive", "til-negative", "til-positive", "til-negative"):
                name = f"images-tcga-tils/{study}/{split}/{label}/TCGA-05-{4000 + number}-01Z_{number}.png"
                found[f"TCGA-TILs/{name}"] = encoded(number)
                lines.append(f"{split},{study},TCGA-05-{4000 + number},{label},{name},0")
                number += 1
    found["TCGA-TILs/images-tcga-tils-metadata.csv"] = "\n".join(lines).encode()
    found["TCGA-TILs/._x.png"] = b"x"
    return found


def packed(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_the_archive_is_read_as_downloaded(tmp_path: Path) -> None:
    packed(tmp_path / "raw/TCGA-TILs.tar.gz", files())
    manifest = run("tcga_til", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts == {"rows": 12, "train": 4, "val": 4, "test": 4, "left_out": {}}
    for row in table(tmp_path / "out").to_pylist():
        number = number_of(row["image"]["bytes"])
        assert 20 <= number < 24
        assert row["label"] == NAMES["til-negative" if number % 2 else "til-positive"]
        assert row["group"] == f"TCGA-05-{4000 + number}"
    assert any("test 4 instead of 2,480" in warning for warning in manifest.warnings)
    other = run("tcga_til", tmp_path / "raw", tmp_path / "other", **{"reader.study": "brca"})
    assert other.counts == manifest.counts
    with pytest.raises(SourceError, match=r"no study 'lihc', only brca, luad, pancancer"):
        run("tcga_til", tmp_path / "raw", tmp_path / "x", **{"reader.study": "lihc"})


def test_listed_images_that_are_not_there_are_counted(tmp_path: Path) -> None:
    members = files()
    for name in [name for name in members if "/luad/test/til-negative" in name][:1]:
        del members[name]
    packed(tmp_path / "raw/TCGA-TILs.tar.gz", members)
    manifest = run("tcga_til", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["left_out"] == {tcga_til.NOT_FOUND: 1}


def test_plain_class_folders_are_test_images(tmp_path: Path) -> None:
    for number, folder in enumerate(("TIL_Positive", "til negative")):
        (tmp_path / "raw" / folder).mkdir(parents=True)
        (tmp_path / "raw" / folder / "a.PNG").write_bytes(encoded(number))
    run("tcga_til", tmp_path / "raw", tmp_path / "out")
    rows = table(tmp_path / "out").to_pylist()
    assert {number_of(row["image"]["bytes"]): row["label"] for row in rows} == {
        0: NAMES["til-positive"],
        1: NAMES["til-negative"],
    }


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "raw/TCGA-TILs.tar.gz"
    packed(path, files())
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(SourceError, match=r"TCGA-TILs.tar.gz is truncated or damaged.*6604094"):
        run("tcga_til", tmp_path / "raw", tmp_path / "out")
