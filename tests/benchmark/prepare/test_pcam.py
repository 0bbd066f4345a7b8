"""PatchCamelyon's HDF5 files: labels stay with their images, damaged files are named."""

import gzip
from pathlib import Path

import h5py
import numpy as np
import pytest

from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import numbers, picture, run, table

STEM = "camelyonpatch_level_2_split_"
NAMES = ("normal lymph node", "lymph node metastasis")


def write(raw: Path, split: str, labels: list[int], *, zipped: bool = True, first: int = 0) -> None:
    raw.mkdir(exist_ok=True)
    x = np.stack([picture(first + row, side=96) for row in range(len(labels))])
    for part, values in (("x", x), ("y", np.array(labels, np.uint8).reshape(-1, 1, 1, 1))):
        path = raw / f"{STEM}{split}_{part}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset(part, data=values, chunks=True, compression="gzip")
        if zipped:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


def test_each_patch_has_its_label_gzipped_or_not(tmp_path: Path) -> None:
    raw, labels = tmp_path / "raw", [1, 0, 0, 1, 1]
    write(raw, "test", labels)
    write(raw, "valid", [0, 1], zipped=False, first=50)
    write(raw, "train", [1, 0, 1], first=90)
    manifest = run("pcam", raw, tmp_path / "out")
    assert manifest.counts == {"rows": 10, "train": 3, "val": 2, "test": 5, "left_out": {}}
    rows = table(tmp_path / "out")
    assert numbers(rows) == [0, 1, 2, 3, 4]
    assert rows["label"].to_pylist() == [NAMES[label] for label in labels]
    assert table(tmp_path / "out", "val")["label"].to_pylist() == list(NAMES)
    assert manifest.notes["classes"] == list(NAMES)
    assert any("train 3 instead of 262,144" in warning for warning in manifest.warnings)


def test_slides_of_the_meta_file_show_those_in_two_splits(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw, "test", [0, 1])
    write(raw, "valid", [0, 1], first=50)
    for split, slides in (("test", "ab"), ("valid", "bc")):
        lines = ["index,coord_y,coord_x,tumor_patch,center_tumor_patch,wsi"]
        lines += [f"{row},1,2,True,False,{slide}" for row, slide in enumerate(slides)]
        (raw / f"{STEM}{split}_meta.csv").write_text("\r\n".join(lines))
    manifest = run("pcam", raw, tmp_path / "out")
    assert table(tmp_path / "out")["group"].to_pylist() == ["a", "b"]
    assert "in two splits: 1 patients or slides (column group): b" in manifest.warnings
    assert any("no train images" in warning for warning in manifest.warnings)
    (raw / f"{STEM}valid_meta.csv").write_text("index,wsi\n0")
    manifest = run("pcam", raw, tmp_path / "other")
    assert f"{STEM}valid_meta.csv ends within a row: it may be truncated" in manifest.warnings
    assert any("valid_meta.csv has 1 rows for 2 images" in one for one in manifest.warnings)
    assert table(tmp_path / "other", "val")["group"].to_pylist() == [None, None]


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    write(raw, "test", [0, 1, 1])
    labels = raw / f"{STEM}test_y.h5.gz"
    whole = labels.read_bytes()
    labels.unlink()
    with pytest.raises(SourceError, match=rf"{STEM}test_y.h5 or .h5.gz was not found. Found: .*_x"):
        run("pcam", raw, out)
    labels.write_bytes(whole[:-20])
    with pytest.raises(SourceError, match=r"test_y.h5.gz is truncated .*zenodo"):
        run("pcam", raw, out)
    plain = gzip.decompress(whole)
    labels.unlink()
    (raw / f"{STEM}test_y.h5").write_bytes(plain[: len(plain) // 2])
    with pytest.raises(SourceError, match=r"test_y.h5 is truncated"):
        run("pcam", raw, out)
    assert not out.exists()


def test_labels_of_another_download_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw, "test", [0, 1, 1])
    write(tmp_path / "other", "test", [0, 1])
    name = f"{STEM}test_y.h5.gz"
    (raw / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(SourceError, match=r"3 images and .* 2 labels"):
        run("pcam", raw, tmp_path / "out")
