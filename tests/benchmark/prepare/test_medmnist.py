"""MedMNIST's npz files: pixels and labels of every row, and files that are not whole."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from biovl.benchmark import data
from biovl.core.errors import ArtifactError, SourceError
from biovl.core.plugins import Plugin
from tests.benchmark.prepare.preparing import numbers, picture, run, table


def write(raw: Path, name: str, labels: dict[str, list], *, side: int = 28) -> None:
    raw.mkdir(exist_ok=True)
    arrays = {}
    for split, values in labels.items():
        arrays[f"{split}_images"] = np.stack([picture(n, side=side) for n in range(len(values))])
        arrays[f"{split}_labels"] = np.array(values, np.uint8).reshape(len(values), -1)
    np.savez_compressed(raw / f"{name}.npz", **arrays)


def test_labels_and_pixels_are_those_of_the_rows(tmp_path: Path) -> None:
    labels = {"train": [6, 0, 3], "val": [1], "test": [5, 2, 4, 4]}
    write(tmp_path / "raw", "dermamnist", labels)
    write(tmp_path / "raw", "dermamnist_64", labels, side=64)
    manifest = run("ham10000", tmp_path / "raw", tmp_path / "out")
    rows = table(tmp_path / "out")
    assert numbers(rows) == [0, 1, 2, 3]
    assert Image.open(io.BytesIO(rows["image"][0]["bytes"].as_py())).size == (64, 64)
    named = [manifest.notes["classes"][label] for label in labels["test"]]
    assert rows["label"].to_pylist() == named
    assert named[0] == "melanocytic nevi"
    small = run("ham10000", tmp_path / "raw", tmp_path / "small", **{"reader.size": 28})
    assert small.counts == manifest.counts
    found = data.open_labelled(str(tmp_path / "out"))
    assert found.classes == tuple(manifest.notes["classes"])
    assert found.labels.tolist() == [6, 0, 3, 1, 5, 2, 4, 4]


def test_prepared_and_raw_are_read_alike(tmp_path: Path) -> None:
    labels = {"train": [6, 0, 3], "val": [1], "test": [5, 2, 4, 4]}
    write(tmp_path / "raw", "dermamnist_224", labels)
    run("ham10000", tmp_path / "raw", tmp_path / "out")
    raw = data.open_labelled(str(tmp_path / "raw/dermamnist_224.npz"))
    prepared = data.open_labelled(str(tmp_path / "out"))
    assert prepared.classes == raw.classes
    assert prepared.labels.tolist() == raw.labels.tolist()
    assert prepared.splits.tolist() == raw.splits.tolist()
    assert prepared.images.read(0, 8) == raw.images.read(0, 8)


def test_raw_may_be_the_file_itself(tmp_path: Path) -> None:
    write(tmp_path / "raw", "breastmnist", {"test": [1, 0]})
    (tmp_path / "raw/notes.txt").write_text("mine")
    manifest = run("breastmnist", tmp_path / "raw/breastmnist.npz", tmp_path / "out")
    assert manifest.counts["test"] == 2


def test_a_class_without_images_stays_a_class(tmp_path: Path) -> None:
    write(tmp_path / "raw", "retinamnist_224", {"train": [4, 0], "test": [3, 0]})
    manifest = run("deepdrid", tmp_path / "raw", tmp_path / "out")
    found = data.open_labelled(str(tmp_path / "out"))
    assert len(found.classes) == 5
    assert found.labels.tolist() == [4, 0, 3, 0]
    assert any("test has no image of diabetic retinopathy grade 1" in w for w in manifest.warnings)


def test_grey_images_of_several_findings(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    states = np.eye(14, dtype=np.uint8)[:5]
    images = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
    np.savez(raw / "chestmnist.npz", test_images=images, test_labels=np.asfortranarray(states))
    manifest = run("chestmnist", raw, tmp_path / "out")
    rows = table(tmp_path / "out").to_pylist()
    assert [row["atelectasis"] for row in rows] == [1, 0, 0, 0, 0]
    assert manifest.notes["by_class"]["test"]["effusion"] == {"negative": 4, "positive": 1}
    plugin = Plugin("prepared", {"path": str(tmp_path / "out"), "finding": "effusion"})
    found = data.open_labelled(plugin)
    assert found.classes == ("no effusion", "effusion")
    assert found.labels.tolist() == [0, 0, 1, 0, 0]
    with pytest.raises(ArtifactError, match="choose one of its findings"):
        data.open_labelled(str(tmp_path / "out"))
    pixels = np.asarray(Image.open(io.BytesIO(rows[3]["image"]["bytes"])))
    np.testing.assert_array_equal(pixels, images[3])


def test_files_that_are_not_whole_are_named(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    with pytest.raises(SourceError, match=r"breastmnist_224.npz or .* was not found. Found: no"):
        run("breastmnist", raw, out)
    write(raw, "breastmnist_224", {"test": [0, 1, 1]})
    path = raw / "breastmnist_224.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SourceError, match=r"breastmnist_224.npz is truncated.*Download it again"):
        run("breastmnist", raw, out)
    np.savez(path, test_images=np.zeros((3, 28, 28), np.uint8), test_labels=np.zeros((3, 1), int))
    data_of = bytearray(path.read_bytes())
    data_of[1_000] ^= 255
    path.write_bytes(data_of)
    with pytest.raises(SourceError, match=r"truncated or damaged .*Bad CRC.*Download it again"):
        run("breastmnist", raw, out)
    write(raw, "breastmnist_224", {"test": [0, 2]})
    with pytest.raises(SourceError, match="labels are 0 to 2, expected 0 to 1"):
        run("breastmnist", raw, out)
    arrays = {"test_images": np.zeros((3, 28, 28), np.uint8), "test_labels": np.zeros((2, 1), int)}
    np.savez(path, **arrays)
    with pytest.raises(SourceError, match="3 images and labels of shape"):
        run("breastmnist", raw, out)
