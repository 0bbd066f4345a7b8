"""VQA-RAD and SLAKE as published: benchmark gets the same questions from raw and prepared files."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biovl.benchmark import data as opening
from biovl.benchmark.datasets import vqa
from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import encoded, run, table

PUBLIC = "VQA_RAD Dataset Public.json"


def rad_row(qid: int, image: str = "synpic1.jpg", **changes: Any) -> dict[str, Any]:
    """Return a question with all fields of the file on OSF."""
    return {
        "qid": str(qid),
        "phrase_type": "freeform",
        "qid_linked_id": f"03f451ca-de62-4617-9679-e836026a7642-{qid}",
        "image_case_url": "https://medpix.nlm.nih.gov/case?id=48e1dd0e-8552-46ad-a354-5eb55be86de6",
        "image_name": image,
        "image_organ": "HEAD",
        "evaluation": "not evaluated",
        "question": f"Are regions of the brain infarcted, {qid}?",
        "question_rephrase": "NULL",
        "question_relation": "NULL",
        "question_frame": "NULL",
        "question_type": "PRES",
        "answer": "Yes",
        "answer_type": "CLOSED ",
        **changes,
    }


ROWS = [
    rad_row(1, question_frame="Is there an infarct?"),
    rad_row(2, "synpic2.jpg", phrase_type="test_freeform", question_frame="Is there a lesion?"),
    rad_row(3, "synpic2.jpg", answer=4, answer_type="OPEN", question="How many\n are  there?"),
    rad_row(4, answer="Söder’s line", answer_type="OPEN", question_type="ABN, SIZE"),
    rad_row(1, question_frame="Is there an infarct?"),
    rad_row(5, "synpic2.jpg", phrase_type="test_para"),
    rad_row(6, "synpic2.jpg", question=rad_row(5)["question"]),
]


def rad(raw: Path, rows: list[dict] = ROWS, *, encode: str = "utf-8") -> Path:
    (raw / "VQA_RAD Image Folder").mkdir(parents=True)
    for number in (1, 2):
        path = raw / "VQA_RAD Image Folder" / f"synpic{number}.jpg"
        path.write_bytes(encoded(number, "JPEG"))
    text = json.dumps(rows, ensure_ascii=False, indent=1).replace("\n", "\r\n")
    (raw / PUBLIC).write_bytes(text.encode(encode))
    return raw


def same(raw: Path, out: Path, **settings: Any) -> vqa.QuestionSet:
    """Check that the benchmark's questions are equal; return them."""
    one, other = (vqa.build(vqa.Config(path=str(at), **settings)) for at in (raw, out))
    for name in ("questions", "answers", "ids", "name"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("kinds", "splits", "image_of"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    for name in ("form", "questions", "repeated", "images"):
        assert one.notes[name] == other.notes[name], name
    assert one.images.read(0, len(one.images)) == other.images.read(0, len(other.images))
    return other


def test_vqa_rad_is_the_same_from_raw_and_prepared_files(tmp_path: Path) -> None:
    rad(tmp_path / "raw")
    manifest = run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts == {"rows": 7, "train": 5, "test": 2, "left_out": {}}
    for templated in ("none", "train", "all"):
        for repeated in ("drop", "keep"):
            settings = {"templated": templated, "repeated": repeated}
            found = same(tmp_path / "raw", tmp_path / "out", **settings)
            assert found.name == "VQA-RAD"
    found = same(tmp_path / "raw", tmp_path / "out")
    assert len(found.questions) == 5
    assert "Söder’s line" in found.answers


def test_a_row_has_question_answer_types_and_image(tmp_path: Path) -> None:
    rad(tmp_path / "raw")
    run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    row = table(tmp_path / "out", "train").to_pylist()[1]
    assert row.pop("image") == {"bytes": encoded(2, "JPEG"), "path": "synpic2.jpg"}
    assert row == {
        "id": "train/3",
        "question": "How many are there?",
        "answer": "4",
        "answer_type": "open",
        "question_type": "PRES",
        "image_id": "synpic2.jpg",
        "question_id": "train/3",
        "organ": "HEAD",
        "question_frame": None,
    }
    assert opening.dataset_plugin(str(tmp_path / "out")).name == "vqa"


def test_counts_are_compared_with_both_published_sizes(tmp_path: Path) -> None:
    rad(tmp_path / "raw")
    manifest = run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    said = "\n".join(manifest.warnings)
    assert "train 5 instead of 1,797, test 2 instead of 451" in said
    assert "train 5 instead of 3,064" in said
    assert "1 repeated questions (train: stands in test)" in said
    assert "1 repeated questions (train: was met before)" in said
    card = (tmp_path / "out/README.md").read_text()
    assert "| train | 5 | 1,797 | 3,064 |" in card.replace("  ", " ")
    assert "CC0-1.0" in card


def test_mevfs_files_are_the_same_from_raw_and_prepared_files(tmp_path: Path) -> None:
    raw = rad(tmp_path / "raw")
    (raw / PUBLIC).unlink()
    (raw / "VQA_RAD Image Folder").rename(raw / "images")
    for name, rows in (("trainset.json", ROWS[2:4]), ("testset.json", ROWS[1:2])):
        (raw / name).write_text(json.dumps(rows))
    manifest = run("vqa_rad", raw, tmp_path / "out")
    assert (manifest.counts["train"], manifest.counts["test"]) == (2, 1)
    found = same(raw, tmp_path / "out", templated="all")
    assert "MEVF" in found.notes["form"]


def test_images_in_an_archive_and_folders_around_them_are_found(tmp_path: Path) -> None:
    raw = rad(tmp_path / "raw/download/osfstorage")
    with zipfile.ZipFile(raw / "VQA_RAD Image Folder.zip", "w") as archive:
        for path in sorted((raw / "VQA_RAD Image Folder").iterdir()):
            archive.write(path, f"VQA_RAD Image Folder/{path.name}")
            path.unlink()
    manifest = run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["rows"] == 7


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_file_saved_by_windows_has_the_same_questions(tmp_path: Path, encoding: str) -> None:
    rad(tmp_path / "raw", encode=encoding)
    manifest = run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    assert "Söder’s line" in table(tmp_path / "out", "train")["answer"].to_pylist()
    warned = [text for text in manifest.warnings if "cp1252" in text]
    assert len(warned) == (encoding == "cp1252")


def test_what_cannot_be_asked_is_left_out_and_counted(tmp_path: Path) -> None:
    bad = [
        rad_row(20, "gone.jpg"),
        rad_row(21, "gone.jpg"),
        rad_row(22, answer_type="MAYBE"),
        rad_row(23, answer=None),
        rad_row(24, question=" "),
    ]
    rad(tmp_path / "raw", [*ROWS, *bad])
    manifest = run("vqa_rad", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["rows"] == 7
    assert manifest.counts["left_out"] == {
        "the image was not found": 2,
        "the type of answer is 'maybe'": 1,
        "there is no question or no answer": 2,
    }
    (warning,) = [text for text in manifest.warnings if "not found" in text]
    assert "1 images were not found" in warning
    assert "gone.jpg" in warning
    assert "osf.io/89kps" in warning


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: (raw / PUBLIC).unlink(), "trainset.json and testset.json was not found.*osf"),
        (lambda raw: (raw / PUBLIC).write_text('[{"qid": 1'), "truncated or damaged.*again from"),
        (lambda raw: (raw / PUBLIC).write_text("<html>login</html>"), "truncated or damaged"),
        (lambda raw: (raw / PUBLIC).write_text('{"a": 1}'), "is not a list of questions"),
        (lambda raw: [f.unlink() for f in raw.glob("*/*.jpg")], "no question that can be asked"),
        (lambda raw: (raw / "x.zip").write_bytes(b"PK\3\4 and no more"), "x.zip is truncated"),
    ],
)
def test_wrong_and_partial_downloads_are_named(tmp_path: Path, damage: Any, message: str) -> None:
    raw = rad(tmp_path / "raw")
    damage(raw)
    with pytest.raises(SourceError, match=message):
        run("vqa_rad", raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def slake_row(qid: int, image: int, language: str = "en", **changes: Any) -> dict[str, Any]:
    """Return a question with all fields of SLAKE's files."""
    return {
        "img_id": image,
        "img_name": f"xmlab{image}/source.jpg",
        "question": "What modality is used?" if language == "en" else "图像的模态是什么?",
        "answer": "MRI" if language == "en" else "核磁共振",
        "q_lang": language,
        "location": "Abdomen",
        "modality": "MRI",
        "answer_type": "OPEN",
        "base_type": "vqa",
        "content_type": "Modality",
        "triple": ["vhead", "_", "_"],
        "qid": qid,
        **changes,
    }


def slake(raw: Path) -> Path:
    rows = [slake_row(number, number // 2, "zh" if number % 2 else "en") for number in range(8)]
    rows += [slake_row(9, 1, question="Is it a CT?", answer="No", answer_type="CLOSED")]
    raw.mkdir()
    files = {"train.json": rows[:4] + rows[8:], "validate.json": rows[4:6], "test.json": rows[6:8]}
    for name, own in files.items():
        (raw / name).write_text(json.dumps(own, ensure_ascii=False), encoding="utf-8")
    for image in range(4):
        (raw / f"imgs/xmlab{image}").mkdir(parents=True)
        (raw / f"imgs/xmlab{image}/source.jpg").write_bytes(encoded(image, "JPEG"))
        # Its masks are no images of questions.
        (raw / f"imgs/xmlab{image}/mask.png").write_bytes(encoded(100))
    return raw


def test_slake_is_the_same_from_raw_and_prepared_files(tmp_path: Path) -> None:
    slake(tmp_path / "raw")
    manifest = run("slake", tmp_path / "raw", tmp_path / "slake")
    assert manifest.counts == {
        "rows": 5,
        "train": 3,
        "val": 1,
        "test": 1,
        "left_out": {"the language is zh": 4},
    }
    assert any("train 3 instead of 4,919" in text for text in manifest.warnings)
    found = same(tmp_path / "raw", tmp_path / "slake")
    assert found.name == "SLAKE"
    assert found.splits.tolist() == ["train"] * 3 + ["val", "test"]


def test_both_languages_of_slake_can_be_prepared(tmp_path: Path) -> None:
    slake(tmp_path / "raw")
    run("slake", tmp_path / "raw", tmp_path / "out", **{"reader.language": "all"})
    for language in ("en", "zh"):
        found = same(tmp_path / "raw", tmp_path / "out", language=language)
        assert {text.isascii() for text in found.answers} == {language == "en"}


def test_slake_as_on_the_hub_is_the_same(tmp_path: Path) -> None:
    raw = slake(tmp_path / "raw")
    run("slake", raw, tmp_path / "out")
    (raw / "validate.json").rename(raw / "validation.json")
    same(raw, tmp_path / "out")
    with zipfile.ZipFile(raw / "imgs.zip", "w") as archive:
        for path in sorted((raw / "imgs").rglob("*.*")):
            archive.write(path, path.relative_to(raw))
            path.unlink()
    run("slake", raw, tmp_path / "zipped")
    for split in ("train", "val", "test"):
        assert table(tmp_path / "zipped", split) == table(tmp_path / "out", split)


def test_a_missing_split_of_slake_is_named(tmp_path: Path) -> None:
    (slake(tmp_path / "raw") / "validate.json").unlink()
    with pytest.raises(SourceError, match=r"validation.json was not found.*BoKelvin/SLAKE"):
        run("slake", tmp_path / "raw", tmp_path / "out")


def test_an_image_of_several_questions_is_stored_once(tmp_path: Path) -> None:
    raw = rad(tmp_path / "raw", [rad_row(number) for number in range(200)])
    noise = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8)
    Image.fromarray(pixels).save(noise, "PNG")
    (raw / "VQA_RAD Image Folder/synpic1.jpg").write_bytes(noise.getvalue())
    manifest = run("vqa_rad", raw, tmp_path / "out")
    (file,) = manifest.files.values()
    assert file["size_bytes"] < 2 * len(noise.getvalue())
