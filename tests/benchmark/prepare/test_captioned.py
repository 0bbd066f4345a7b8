"""Flickr30k, BioMed-Flickr and Quilt-1M: all captions of an image, from the published tables."""

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from biovl.benchmark import data as opening
from biovl.benchmark.tasks.retrieval import Config, Retrieval
from biovl.core.errors import SourceError
from tests.benchmark.encoded import embedded, random_rows
from tests.benchmark.prepare.preparing import encoded, numbers, run, table

SPLITS = ("train", "test", "val", "test", "test", "train")


def words(image: int, number: int) -> str:
    return f"Two people, {image}, are doing {number} things ."


def karpathy(images: int = 6) -> dict:
    """Return the JSON of Karpathy's splits."""
    return {
        "dataset": "flickr30k",
        "images": [
            {
                "sentids": [5 * image + number for number in range(5)],
                "imgid": image,
                "sentences": [
                    {
                        "tokens": ["two", "people"],
                        "raw": words(image, number),
                        "imgid": image,
                        "sentid": 5 * image + number,
                    }
                    for number in range(5)
                ],
                "split": SPLITS[image],
                "filename": f"1000{image}.jpg",
            }
            for image in range(images)
        ],
    }


def flickr(raw: Path, content: dict | None = None) -> Path:
    (raw / "flickr30k-images").mkdir(parents=True)
    for image in range(6):
        (raw / "flickr30k-images" / f"1000{image}.jpg").write_bytes(encoded(image))
    (raw / "dataset_flickr30k.json").write_text(json.dumps(content or karpathy()))
    return raw


def test_an_image_has_its_five_captions_in_karpathys_splits(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    # The archive of the splits holds those of other data sets, too.
    (raw / "dataset_coco.json").write_text("{}")
    manifest = run("flickr30k", raw, tmp_path / "out")
    assert manifest.counts == {"rows": 6, "train": 2, "val": 1, "test": 3, "left_out": {}}
    rows = table(tmp_path / "out")
    assert numbers(rows) == [1, 3, 4]
    assert rows["text"][1].as_py() == [words(3, number) for number in range(5)]
    assert rows["caption_id"][1].as_py() == ["15", "16", "17", "18", "19"]
    assert any("test 3 instead of 1,000" in text for text in manifest.warnings)


def test_benchmark_counts_all_five_captions_as_correct_and_uses_only_test(tmp_path: Path) -> None:
    run("flickr30k", flickr(tmp_path / "raw"), tmp_path / "out")
    task = Retrieval(Config(data=str(tmp_path / "out"), ks=(1,), resamples=50))
    data = task.data()
    assert data.left_out == {"of another split": 3}
    assert len(data.texts) == 15
    image_ND = random_rows(3)
    # Only the last caption of each image is near it; the others are near another image.
    vectors = {
        words(image, number): image_ND[place if number == 4 else (place + 1) % 3]
        for place, image in enumerate((1, 3, 4))
        for number in range(5)
    }
    found = {
        score.name: score.value for score in task.evaluate(data, embedded(image_ND, vectors)).scores
    }
    # One of the five captions at the top is the image's own, all are tied.
    assert found["image_to_text_recall_at_1"] == pytest.approx(1 / 5)
    assert found["text_to_image_recall_at_1"] == pytest.approx(1 / 5)
    perfect = {words(i, n): image_ND[p] for p, i in enumerate((1, 3, 4)) for n in range(5)}
    found = {
        score.name: score.value for score in task.evaluate(data, embedded(image_ND, perfect)).scores
    }
    assert found["image_to_text_recall_at_1"] == found["text_to_image_recall_at_1"] == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
def test_the_token_file_has_no_splits(tmp_path: Path, encoding: str) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "dataset_flickr30k.json").unlink()
    lines = [f"1000{i}.jpg#{n}\t{words(i, n)} café" for i in range(6) for n in range(5)]
    (raw / "results_20130124.token").write_bytes("\r\n".join(lines).encode(encoding))
    manifest = run("flickr30k", raw, tmp_path / "out")
    assert manifest.counts["test"] == 6
    assert table(tmp_path / "out")["text"][2].as_py()[4] == f"{words(2, 4)} café"
    assert any("has no splits" in text for text in manifest.warnings)


@pytest.mark.parametrize("space", ["\u2028", "\x0c", "\x85"])
def test_only_line_breaks_end_a_caption_of_the_token_file(tmp_path: Path, space: str) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "dataset_flickr30k.json").unlink()
    token = f"10000.jpg#0\tone{space}two\n10001.jpg#0\tthree\n"
    (raw / "results_20130124.token").write_text(token, encoding="utf-8")
    run("flickr30k", raw, tmp_path / "out")
    assert table(tmp_path / "out")["text"].to_pylist() == [["one two"], ["three"]]


def test_the_table_with_bars_is_read(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "dataset_flickr30k.json").unlink()
    lines = ["image_name| comment_number| comment"]
    lines += [f"1000{i}.jpg| {n}| {words(i, n)}" for i in range(6) for n in range(5)]
    (raw / "results.csv").write_text("\n".join(lines))
    run("flickr30k", raw, tmp_path / "out")
    assert table(tmp_path / "out")["text"][2].as_py() == [words(2, number) for number in range(5)]


def test_the_table_of_the_hub_has_karpathys_splits(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "dataset_flickr30k.json").unlink()
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["raw", "sentids", "split", "filename", "img_id"])
    for one in karpathy()["images"]:
        texts = json.dumps([sentence["raw"] for sentence in one["sentences"]])
        writer.writerow([texts, one["sentids"], one["split"], one["filename"], one["imgid"]])
    (raw / "flickr_annotations_30k.csv").write_text(stream.getvalue())
    run("flickr30k", raw, tmp_path / "out")
    run("flickr30k", flickr(tmp_path / "json"), tmp_path / "other")
    for split in ("train", "val", "test"):
        assert table(tmp_path / "out", split) == table(tmp_path / "other", split)
    text = stream.getvalue().replace("things .", "things", 1).replace("]", "", 1)
    (raw / "flickr_annotations_30k.csv").write_text(text)
    with pytest.raises(SourceError, match=r"flickr_annotations_30k.csv, row 2 is truncated"):
        run("flickr30k", raw, tmp_path / "again")


def test_images_of_arch_are_found_by_their_uuid(tmp_path: Path) -> None:
    for part, suffix, first in (("books_set", "png", 0), ("pubmed_set", "jpg", 2)):
        rows = {
            str(number): {
                "figure_id": f"0012-{number}",
                "letter": "Single",
                "caption": f"An adenoma {first}",
                "uuid": f"uuid-{first + number}",
            }
            for number in range(3)
        }
        (tmp_path / "raw" / part / "images").mkdir(parents=True)
        (tmp_path / "raw" / part / "captions.json").write_text(json.dumps(rows))
        for number in range(2):
            path = tmp_path / f"raw/{part}/images/uuid-{first + number}.{suffix}"
            path.write_bytes(encoded(first + number))
    manifest = run("arch", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["test"] == 4
    # As in the download, some captions have no image.
    assert manifest.counts["left_out"] == {"the image was not found": 2}
    rows = table(tmp_path / "out")
    assert numbers(rows) == [0, 1, 2, 3]
    assert rows["text"].to_pylist() == [["An adenoma 0"]] * 2 + [["An adenoma 2"]] * 2
    assert rows["id"][0].as_py() == "books_set/images/uuid-0.png"
    assert len(opening.open_pairs(str(tmp_path / "out")).texts) == 2
    (tmp_path / "raw/pubmed_set/captions.json").write_text("{}")
    with pytest.raises(SourceError, match="expected captions with caption and uuid"):
        run("arch", tmp_path / "raw", tmp_path / "again")
    (tmp_path / "raw/pubmed_set/captions.json").unlink()
    with pytest.raises(SourceError, match=r"pubmed_set/captions.json was not found"):
        run("arch", tmp_path / "raw", tmp_path / "again")


def test_images_that_exist_twice_are_named(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "resized").mkdir()
    (raw / "resized/10003.jpg").write_bytes(encoded(77))
    manifest = run("flickr30k", raw, tmp_path / "out")
    assert numbers(table(tmp_path / "out")) == [1, 3, 4]
    assert any("1 images exist more than once" in text for text in manifest.warnings)


def test_odd_rows_are_counted(tmp_path: Path) -> None:
    content = karpathy()
    content["images"][0]["split"] = "restval"
    content["images"][1]["split"] = "dev2"
    content["images"][3]["filename"] = "gone.jpg"
    content["images"][4]["sentences"][0]["raw"] = " "
    content["images"][4]["sentences"][0]["tokens"] = []
    content["images"][4]["sentences"][1]["raw"] = words(4, 2)
    manifest = run("flickr30k", flickr(tmp_path / "raw", content), tmp_path / "out")
    assert manifest.counts == {
        "rows": 4,
        "train": 2,
        "val": 1,
        "test": 1,
        "left_out": {"no caption": 1, "the image was not found": 5, "the split is 'dev2'": 1},
    }
    said = "\n".join(manifest.warnings)
    assert "1 images do not have five different captions" in said
    assert "1 images were not found" in said
    assert "gone.jpg" in said
    assert table(tmp_path / "out")["text"][0].as_py() == [words(4, n) for n in (2, 3, 4)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"images": [{"filename": "1.jpg"', "truncated or damaged"),
        (b"[]", "expected Karpathy's format"),
        (b'{"images": []}', "has no image with a caption"),
        (None, "dataset_flickr30k.json or .* or results.csv was not found"),
    ],
)
def test_wrong_and_partial_downloads_are_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    raw = flickr(tmp_path / "raw")
    if content is None:
        (raw / "dataset_flickr30k.json").unlink()
    else:
        (raw / "dataset_flickr30k.json").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        run("flickr30k", raw, tmp_path / "out")


def test_a_token_file_without_tabs_is_named(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / "dataset_flickr30k.json").unlink()
    (raw / "results_20130124.token").write_text("10000.jpg#0 two people")
    with pytest.raises(SourceError, match=r"line 1: expected IMAGE#NUMBER, a tab"):
        run("flickr30k", raw, tmp_path / "out")


QUILT = (
    *("", "caption", "image_path", "subset", "split", "pathology", "roi_text", "noisy_text"),
    *("corrected_text", "med_umls_ids", "magnification", "height", "width"),
)


def quilt_csv(rows: list[dict]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, QUILT)
    writer.writeheader()
    writer.writerows({"": number, **row} for number, row in enumerate(rows))
    return stream.getvalue()


def quilt(raw: Path) -> Path:
    """Write the lookup table, and images in an archive."""
    names = [f"-_4qTp3ytLw_image_{number}.jpg" for number in range(4)]
    rows = [
        {"image_path": names[0], "caption": "A smear, with\nblasts", "subset": "quilt"},
        {"image_path": names[1], "caption": "Ductal carcinoma", "subset": "openpath"},
        {"image_path": names[0], "caption": "Blasts", "subset": "quilt"},
        {"image_path": names[2], "caption": "Trained on", "subset": "quilt", "split": "train"},
        {"image_path": "gone.jpg", "caption": "Gone", "subset": "laion"},
        {"image_path": names[3], "caption": "", "subset": "quilt"},
    ]
    raw.mkdir()
    text = quilt_csv([{"split": "val", "roi_text": "['a, \"b\"']", **row} for row in rows])
    (raw / "quilt_1M_lookup.csv").write_text(text)
    with zipfile.ZipFile(raw / "images_part_1.zip", "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(f"quilt_1m/{name}", encoded(number))
    return raw


def test_an_image_of_quilt_has_all_its_captions(tmp_path: Path) -> None:
    manifest = run("quilt_1m", quilt(tmp_path / "raw"), tmp_path / "out")
    assert manifest.counts == {
        "rows": 3,
        "train": 1,
        "val": 2,
        "left_out": {"no caption": 1, "the image was not found": 1},
    }
    rows = table(tmp_path / "out", "val")
    assert numbers(rows) == [0, 1]
    assert rows["text"].to_pylist() == [["A smear, with blasts", "Blasts"], ["Ductal carcinoma"]]
    assert rows["subset"].to_pylist() == ["quilt", "openpath"]
    # Without a split test, val is evaluated.
    found = opening.open_pairs(str(tmp_path / "out"))
    assert found.texts == ["A smear, with blasts", "Blasts", "Ductal carcinoma"]
    assert found.left_out == {"of another split": 1}


def test_a_part_of_quilt_is_prepared(tmp_path: Path) -> None:
    settings = {"reader.splits": ["val"], "reader.subsets": ["quilt"]}
    manifest = run("quilt_1m", quilt(tmp_path / "raw"), tmp_path / "out", **settings)
    assert manifest.counts["rows"] == 1
    assert manifest.counts["left_out"] == {
        "no caption": 1,
        "of the split train, which was not requested": 1,
    }


def test_the_tables_of_single_splits_are_read(tmp_path: Path) -> None:
    raw = quilt(tmp_path / "raw")
    (raw / "quilt_1M_lookup.csv").unlink()
    for split, image in (("train", 2), ("val", 0)):
        row = {"image_path": f"-_4qTp3ytLw_image_{image}.jpg", "caption": f"of {split}"}
        (raw / f"quilt_1m_{split}.csv").write_text(quilt_csv([row]))
    manifest = run("quilt_1m", raw, tmp_path / "out")
    assert (manifest.counts["train"], manifest.counts["val"]) == (1, 1)
    assert table(tmp_path / "out", "val")["text"].to_pylist() == [["of val"]]


def test_columns_and_folders_name_the_split_in_any_case(tmp_path: Path) -> None:
    raw = quilt(tmp_path / "raw")
    lookup = raw / "quilt_1M_lookup.csv"
    text = lookup.read_text()
    lookup.write_text(text.replace(",subset,split,", ",Subset,SPLIT,", 1))
    found = run("quilt_1m", raw, tmp_path / "out").counts
    assert (found["train"], found["val"]) == (1, 2)
    assert table(tmp_path / "out", "val")["subset"].to_pylist() == ["quilt", "openpath"]


@pytest.mark.parametrize(
    ("folder", "split"),
    [("evaluation", "test"), ("interval", "test"), ("validation", "val"), ("train/a", "train")],
)
def test_a_folder_names_a_split_with_its_whole_name(
    folder: str, split: str, tmp_path: Path
) -> None:
    raw = flickr(tmp_path / "raw")
    (raw / folder).mkdir(parents=True)
    (raw / folder / "captions.csv").write_text("image,caption\n10000.jpg,Cells")
    assert run("biomed_flickr", raw, tmp_path / "out").counts[split] == 1


def test_a_table_without_captions_is_named(tmp_path: Path) -> None:
    raw = quilt(tmp_path / "raw")
    (raw / "quilt_1M_lookup.csv").write_text("image_path,words\na.jpg,b")
    with pytest.raises(SourceError, match=r"no column caption; its columns are image_path, words"):
        run("quilt_1m", raw, tmp_path / "out")


def test_biomed_flickr_is_a_table_of_captions_and_lies_where_benchmark_looks(
    tmp_path: Path,
) -> None:
    raw = flickr(tmp_path / "raw")
    rows = "image;caption\r\nflickr30k-images/10000.jpg;Größe\r\n10001.jpg;Zelle\r\n"
    (raw / "captions.csv").write_bytes(rows.encode("cp1252"))
    run("biomed_flickr", raw, tmp_path / "prepared/biomed_flickr")
    found = opening.open_pairs(str(tmp_path / "prepared/biomed_flickr"))
    assert found.texts == ["Größe", "Zelle"]


def test_an_image_named_in_two_ways_is_one_image(tmp_path: Path) -> None:
    raw = flickr(tmp_path / "raw")
    names = ("10000.jpg", "10001.jpg", r"flickr30k-images\10000.jpg", "./10000.jpg")
    rows = ["image,caption", *(f"{name},text {number}" for number, name in enumerate(names))]
    (raw / "captions.csv").write_text("\n".join(rows))
    run("biomed_flickr", raw, tmp_path / "out")
    assert table(tmp_path / "out")["text"].to_pylist() == [
        ["text 0", "text 2", "text 3"],
        ["text 1"],
    ]
