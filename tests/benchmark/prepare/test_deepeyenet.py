"""DeepEyeNet's JSON of images, keywords and descriptions."""

import json
from pathlib import Path

import pytest

from biovl.benchmark import data as opening
from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import encoded, numbers, run, table

FOLDERS = {"train": "train_set", "valid": "val_set", "test": "test_set"}


def entry(split: str, number: int, keywords: object, description: str) -> dict:
    name = f"eyenet0420/{FOLDERS[split]}/group41-{number}.jpg"
    return {name: {"keywords": keywords, "clinical-description": description}}


def write(raw: Path, changes: dict[str, list[dict]] | None = None) -> Path:
    for place, split in enumerate(FOLDERS):
        folder = raw / "eyenet0420" / FOLDERS[split]
        folder.mkdir(parents=True)
        rows = []
        for number in range(10 * place, 10 * place + 3):
            rows.append(
                entry(split, number, "macular hole, amd", f"{40 + number}-year-old female.")
            )
            (folder / f"group41-{number}.jpg").write_bytes(encoded(number))
        rows += (changes or {}).get(split, [])
        (raw / f"DeepEyeNet_{split}.json").write_text(json.dumps(rows))
    return raw


def test_the_text_of_an_image_is_keywords_and_description(tmp_path: Path) -> None:
    manifest = run("deepeyenet", write(tmp_path / "raw"), tmp_path / "out")
    assert manifest.counts == {"rows": 9, "train": 3, "val": 3, "test": 3, "left_out": {}}
    rows = table(tmp_path / "out")
    assert numbers(rows) == [20, 21, 22]
    assert rows["text"][0].as_py() == "macular hole, amd\n60-year-old female."
    assert rows["keywords"][0].as_py() == "macular hole, amd"
    assert rows["clinical_description"][2].as_py() == "62-year-old female."
    found = opening.open_pairs(str(tmp_path / "out"))
    assert found.texts == rows["text"].to_pylist()
    assert found.left_out == {"of another split": 6}


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    bad = [
        entry("test", 99, "amd", "gone"),
        entry("test", 20, "amd", "described twice"),
        entry("test", 21, "", " "),
    ]
    first = entry("test", 22, ["macular", "hole"], "")
    manifest = run("deepeyenet", write(tmp_path / "raw", {"test": [*bad, first]}), tmp_path / "out")
    assert manifest.counts["test"] == 3
    assert manifest.counts["left_out"] == {
        "image described before in the same split": 2,
        "neither keywords nor description": 1,
        "the image was not found": 1,
    }
    assert any("1 images were not found" in text and "99.jpg" in text for text in manifest.warnings)


def test_one_object_of_all_images_is_read_as_well(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    path = raw / "DeepEyeNet_test.json"
    path.write_text(
        json.dumps({k: v for row in json.loads(path.read_text()) for k, v in row.items()})
    )
    path.rename(raw / "DeepEyeNet_test.JSON")
    assert run("deepeyenet", raw, tmp_path / "out").counts["test"] == 3


def test_wrong_and_partial_downloads_are_named(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw")
    path = raw / "DeepEyeNet_valid.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"DeepEyeNet_valid.json is truncated or damaged"):
        run("deepeyenet", raw, tmp_path / "out")
    path.write_text('["a.jpg"]')
    with pytest.raises(SourceError, match="expected images with keywords and clinical-description"):
        run("deepeyenet", raw, tmp_path / "out")
    path.unlink()
    with pytest.raises(SourceError, match=r"DeepEyeNet_valid.json or DeepEyeNet_val.json was not"):
        run("deepeyenet", raw, tmp_path / "out")
