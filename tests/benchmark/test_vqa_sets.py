"""VQA-RAD and SLAKE are read as published, with all that is odd in them counted."""

import json
import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.benchmark.datasets.vqa import Config, build
from biovl.core.errors import ArtifactError
from tests.benchmark.toy_questions import picture, rows_of, write_vqa_rad


def rad(folder: Path, rows: list[dict], **settings: str):
    write_vqa_rad(folder, images=4)
    (folder / "VQA_RAD Dataset Public.json").write_text(json.dumps(rows))
    return build(Config(path=str(folder), **settings))


def a_row(**changes):
    return {**rows_of(1)[0], **changes}


def test_questions_of_vqa_rad_have_splits_kinds_and_images(tmp_path):
    found = rad(tmp_path / "rad", rows_of(4))
    assert found.name == "VQA-RAD"
    assert found.splits.tolist() == ["train"] * 6 + ["test"] * 2
    assert found.kinds.tolist() == ["open", "closed"] * 4
    assert found.image_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.answers[:2] == ["red", "Yes"]
    assert found.ids[-1] == "test/7"
    assert found.images.read(1, 2) == [picture("green", 1)]
    assert "2,248" in found.notes["form"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer_type": "MAYBE"}, "the type of answer is 'maybe'"),
        ({"image_name": "gone.png"}, "the image was not found"),
        ({"image_name": None}, "the image was not found"),
        ({"question": "  "}, "there is no question or no answer"),
        ({"answer": None}, "there is no question or no answer"),
        ({"answer": float("nan")}, "there is no question or no answer"),
    ],
)
def test_what_cannot_be_asked_is_left_out_and_counted(tmp_path, changes, reason):
    found = rad(tmp_path / "rad", [*rows_of(4), a_row(qid="x", **changes)])
    assert found.notes["left_out"] == {reason: 1}
    assert len(found.questions) == 8


def test_a_number_is_an_answer(tmp_path):
    found = rad(tmp_path / "rad", [a_row(answer=4), a_row(answer="none", question="How many?")])
    assert found.answers == ["4", "none"]


def test_a_question_of_train_that_stands_in_test_is_not_trained_on(tmp_path):
    asked = a_row(phrase_type="test_para")
    same = a_row(question="which COLOUR is it", answer="Red.")
    other = a_row(answer="crimson")
    rows = [same, other, other, asked, asked]
    found = rad(tmp_path / "rad", rows)
    assert found.splits.tolist() == ["train", "test", "test"]
    assert found.answers[0] == "crimson"
    assert found.notes["repeated"] == {"train: stands in test": 1, "train: was met before": 1}
    kept = build(Config(path=str(tmp_path / "rad"), repeated="keep"))
    assert len(kept.questions) == 5
    assert kept.notes["repeated"] == found.notes["repeated"]
    assert len(set(kept.ids)) == 5


@pytest.mark.parametrize(
    ("templated", "frames"), [("none", []), ("train", ["A?"]), ("all", ["A?", "B?"])]
)
def test_templated_questions_are_trained_on_where_that_is_asked(tmp_path, templated, frames):
    rows = [
        a_row(question_frame="A? "),
        a_row(image_name="1.png", question_frame="B?", phrase_type="test_freeform"),
        a_row(image_name="2.png"),
    ]
    found = rad(tmp_path / "rad", rows, templated=templated)
    extra = [q for q, name in zip(found.questions, found.ids, strict=True) if "templated" in name]
    assert extra == frames
    assert found.splits.tolist().count("test") == 1


def test_the_split_of_mevf_is_read_and_named(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0.png").write_bytes(picture("red", 0))
    (tmp_path / "trainset.json").write_text(json.dumps([a_row(question="A?")]))
    (tmp_path / "testset.json").write_text(json.dumps([a_row(question="B?")]))
    found = build(Config(path=str(tmp_path)))
    assert found.splits.tolist() == ["train", "test"]
    assert "3,515" in found.notes["form"]


def test_slake_is_read_in_one_language_with_its_own_splits(tmp_path):
    for number in (1, 2):
        folder = tmp_path / "imgs" / f"xmlab{number}"
        folder.mkdir(parents=True)
        (folder / "source.jpg").write_bytes(picture("red", number))
    row = {"img_name": "xmlab1/source.jpg", "question": "Modality?", "answer": "CT", "qid": 0}
    row |= {"q_lang": "en", "answer_type": "OPEN"}
    chinese = {**row, "q_lang": "zh", "qid": 1}
    for name, image in (("train", 1), ("validate", 2), ("test", 2)):
        image_name = {"img_name": f"xmlab{image}/source.jpg"}
        asked = {"question": f"Modality in {name}?"}
        rows = [{**row, **image_name, **asked}, {**chinese, **image_name}]
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    found = build(Config(path=str(tmp_path)))
    assert found.name == "SLAKE"
    assert found.splits.tolist() == ["train", "val", "test"]
    assert found.image_of.tolist() == [0, 1, 1]
    assert build(Config(path=str(tmp_path), language="zh")).ids[0] == "train/1"


def test_a_folder_of_something_else_says_what_is_expected(tmp_path):
    with pytest.raises(ArtifactError, match=r"trainset\.json.*test\.json"):
        build(Config(path=str(tmp_path)))


def test_a_damaged_file_is_named(tmp_path):
    write_vqa_rad(tmp_path / "rad", images=1)
    (tmp_path / "rad" / "VQA_RAD Dataset Public.json").write_text("[{")
    with pytest.raises(ArtifactError, match=r"Public\.json"):
        build(Config(path=str(tmp_path / "rad")))


def questions(folder, split: str, ids: list, first: int) -> None:
    """Write a table of questions, each with an image of its own."""
    rows = [
        {
            "image": picture("red", first + number),
            "image_id": name,
            "question": f"What is {first + number}?",
            "answer": "a scan",
            "answer_type": "open",
        }
        for number, name in enumerate(ids)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-0.parquet")


def test_an_image_id_names_one_image_in_all_splits(tmp_path):
    questions(tmp_path, "test", ["0", "1"], first=0)
    questions(tmp_path, "train", ["1", "2"], first=1)
    found = build(Config(path=str(tmp_path)))
    assert len(found.images) == 3
    questions(tmp_path, "train", ["0", "1"], first=2)
    with pytest.raises(ArtifactError, match=r"rows 0 and 2 have the same image_id"):
        build(Config(path=str(tmp_path)))


def test_an_image_id_names_one_image_in_a_split(tmp_path):
    questions(tmp_path, "test", ["0", "1", "0"], first=0)
    with pytest.raises(ArtifactError, match=r"rows 0 and 2 have the same image_id"):
        build(Config(path=str(tmp_path)))


def test_ids_that_splits_share_have_the_split_before_them(tmp_path):
    for split, first in (("test", 0), ("train", 2)):
        questions(tmp_path, split, [f"{split} a", f"{split} b"], first=first)
        file = tmp_path / f"{split}-0.parquet"
        pq.write_table(pq.read_table(file).append_column("question_id", [[0, 1]]), file)
    assert build(Config(path=str(tmp_path))).ids == ["train/0", "train/1", "test/0", "test/1"]
    (tmp_path / "train-0.parquet").unlink()
    assert build(Config(path=str(tmp_path))).ids == ["0", "1"]


def test_a_table_is_no_published_set_and_counts_other_languages(tmp_path):
    questions(tmp_path, "test", ["a", "b", "c"], first=0)
    file = tmp_path / "test-0.parquet"
    pq.write_table(pq.read_table(file).append_column("language", [["EN", "de", None]]), file)
    found = build(Config(path=str(tmp_path)))
    assert (found.name, found.notes["form"]) == (tmp_path.name, "a table of questions")
    assert len(found.questions) == 2
    assert found.notes["left_out"] == {"the language is de": 1}
    # Of another program.
    (tmp_path / "manifest.json").write_text("{}")
    found = build(Config(path=str(tmp_path), language="DE"))
    assert (found.notes["form"], len(found.questions)) == ("a table of questions", 2)


def test_several_answers_in_a_cell_are_refused(tmp_path):
    questions(tmp_path, "test", ["a"], first=0)
    file = tmp_path / "test-0.parquet"
    table = pq.read_table(file).drop_columns("answer").append_column("answer", [[["CT", "scan"]]])
    pq.write_table(table, file)
    with pytest.raises(ArtifactError, match=r"\['CT', 'scan'\], expected one text"):
        build(Config(path=str(tmp_path)))


def test_other_pixels_of_equal_size_are_other_data(tmp_path):
    before = rad(tmp_path / "rad", rows_of(4))
    file = tmp_path / "rad" / "VQA_RAD Image Folder" / "1.png"
    data = file.read_bytes()
    file.write_bytes(data[:-20] + bytes(20))
    after = build(Config(path=str(tmp_path / "rad")))
    assert file.stat().st_size == len(data)
    assert before.fingerprint != after.fingerprint
    shutil.copytree(tmp_path / "rad", tmp_path / "copy")
    assert build(Config(path=str(tmp_path / "copy"))).fingerprint == after.fingerprint


def test_questions_without_an_image_id_have_their_own_image(tmp_path):
    questions(tmp_path, "test", [None, ""], first=0)
    questions(tmp_path, "train", [None, "x"], first=2)
    found = build(Config(path=str(tmp_path)))
    images = found.images.read(0, len(found.images))
    assert [images[row] for row in found.image_of] == [picture("red", n) for n in (2, 3, 0, 1)]


@pytest.mark.shared
def test_vqa_rad_has_both_published_sizes(shared_data, tmp_path):
    with tarfile.open(shared_data / "labelled" / "vqa_rad.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = str(tmp_path / "vqa_rad")
    cleaned = build(Config(path=path, repeated="keep"))
    assert (cleaned.splits == "train").sum() == 1797
    assert (cleaned.splits == "test").sum() == 451
    assert cleaned.notes["questions"]["test"] == {"open": 179, "closed": 272}
    # One of the 315 images is asked nothing.
    assert len(cleaned.images) == 314
    assert cleaned.notes["left_out"] == {}
    assert cleaned.notes["repeated"] == {"train: stands in test": 1, "train: was met before": 3}
    original = build(Config(path=path, templated="all", repeated="keep"))
    assert (original.splits == "train").sum() == 3064
    assert (original.splits == "test").sum() == 451
    without = build(Config(path=path, templated="train", repeated="keep"))
    assert (without.splits == "train").sum() == 3064 - 284
    assert all(data[:2] == b"\xff\xd8" for data in cleaned.images.read(0, 314))
