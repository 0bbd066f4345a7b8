"""Every format benchmarks come in: what is read, what is left out with a count, what is refused."""

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.benchmark import data as opening
from biovl.benchmark import selection
from biovl.benchmark.stored_images import Chosen, JoinedImages, parts_of
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from tests.benchmark.figure_retrieval.harvested import article, figure, publish_harvest


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (12, 10), (shade, shade, shade)).save(stream, "PNG")
    return stream.getvalue()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez_compressed(path, **arrays)
    return str(path)


def shade(data: bytes) -> int:
    return int(np.asarray(Image.open(io.BytesIO(data)).convert("L"))[0, 0])


def shades(images) -> list[int]:
    return [shade(data) for data in images.read(0, len(images))]


def test_folders_are_classes_and_underscores_are_spaces(tmp_path: Path) -> None:
    write(tmp_path / "normal_lung/a.png", png(1))
    write(tmp_path / "pneumonia/deep/b.PNG", png(2))
    write(tmp_path / "pneumonia/notes.txt", b"read me")
    write(tmp_path / "labels.csv", b"not an image of a class")
    found = opening.open_labelled(str(tmp_path))
    assert found.classes == ("normal lung", "pneumonia")
    assert found.labels.tolist() == [0, 1]
    assert set(found.splits.tolist()) == {"test"}
    assert found.left_out == {"no image by its name": 1}
    assert shades(found.images) == [1, 2]


def test_folders_of_splits_are_splits_and_classes_are_those_of_all(tmp_path: Path) -> None:
    for split, name, value in (("train", "a", 1), ("train", "b", 2), ("test", "b", 3)):
        write(tmp_path / split / name / "x.png", png(value))
    found = opening.open_labelled(str(tmp_path))
    assert found.splits.tolist() == ["train", "train", "test"]
    test = selection.only(found, "test")
    assert (test.labels.tolist(), test.classes, test.ids) == ([1], ("a", "b"), ["test/b/x.png"])


def test_a_split_is_embedded_once_for_all_who_ask_for_it(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            write(tmp_path / split / name / "x.png", png(1))
    whole = opening.open_labelled(str(tmp_path))
    known = {part.fingerprint for part in parts_of(whole.images)}
    assert selection.only(whole, "test").images.fingerprint in known
    again = pickle.loads(pickle.dumps(whole.images))
    assert again.fingerprint == whole.images.fingerprint
    with pytest.raises(ArtifactError, match=r"'val'.*test, train"):
        selection.only(whole, "val")


def test_images_that_change_have_another_fingerprint(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "x.png", png(1))
    before = opening.open_labelled(str(tmp_path)).images.fingerprint
    write(tmp_path / "a" / "x.png", png(1) + b"longer")
    assert opening.open_labelled(str(tmp_path)).images.fingerprint != before


def test_links_out_of_a_folder_are_counted_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret/passwd.png", png(9))
    for name in ("a", "b"):
        write(tmp_path / "data" / name / "x.png", png(1))
    (tmp_path / "data/a/link.png").symlink_to(tmp_path / "secret/passwd.png")
    found = opening.open_labelled(str(tmp_path / "data"))
    assert found.ids == ["a/x.png", "b/x.png"]
    assert found.left_out == {"a link out of the source or to a folder": 1}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "class folders"),
        (["a/x.png"], r"\(a\)"),
        (["a/x.txt", "b/y.txt"], "images"),
        (["a b/x.png", "a_b/y.png"], "'a b'.*'a_b'"),
        (["train/A/x.png", "train/B/x.png", "test/a/x.png"], "'A'.*'a'"),
        # Not three classes named train, test and unlabelled.
        (["train/a/x.png", "test/a/x.png", "unlabelled/x.png"], "'unlabelled'"),
    ],
)
def test_folders_that_are_no_benchmark_are_refused(
    tmp_path: Path, files: list[str], message: str
) -> None:
    for name in files:
        write(tmp_path / name, png(1))
    with pytest.raises(ArtifactError, match=message):
        opening.open_labelled(str(tmp_path))


def test_medmnist_has_three_splits_and_the_names_of_its_labels(tmp_path: Path) -> None:
    arrays = {}
    for at, split in enumerate(("train", "val", "test")):
        arrays[f"{split}_images"] = np.full((2, 5, 5), 10 * at, np.uint8) + np.arange(2)[
            :, None, None
        ].astype(np.uint8)
        arrays[f"{split}_labels"] = np.array([[0], [1]], np.uint8)
    found = opening.open_labelled(npz(tmp_path / "pneumoniamnist_28.npz", **arrays))
    assert found.classes == ("normal", "pneumonia")
    assert found.splits.tolist() == ["train", "train", "val", "val", "test", "test"]
    assert isinstance(found.images, JoinedImages)
    assert shades(found.images) == [0, 1, 10, 11, 20, 21]
    assert shades(Chosen(found.images, np.array([5, 1, 2]))) == [21, 1, 10]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 5, 5), np.uint8), np.zeros((2, 14), np.uint8), r"\b14\b"),
        (np.zeros((2, 5, 5), np.float32), np.zeros((2, 1), np.uint8), "float32.*uint8"),
        (np.zeros((2, 5, 5), np.uint8), np.zeros((3, 1), np.uint8), r"\b2\b.*\b3\b"),
        (np.array([None, {}]), np.zeros((2, 1), np.uint8), "test_images.*objects"),
    ],
)
def test_arrays_of_another_kind_are_refused_and_never_unpickled(
    tmp_path: Path, images: np.ndarray, labels: np.ndarray, message: str
) -> None:
    path = npz(tmp_path / "x.npz", test_images=images, test_labels=labels)
    with pytest.raises(ArtifactError, match=message):
        opening.open_labelled(path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.npz", b"not a zip")
    with pytest.raises(ArtifactError, match=r"/x\.npz .*npz"):
        opening.open_labelled(str(tmp_path / "x.npz"))


def hub_table(folder: Path, name: str, **columns: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if "label" in columns:
        features = {"label": {"_type": "ClassLabel", "names": ["benign", "malignant"]}}
        told = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": told})
    pq.write_table(table, folder / name, row_group_size=2)


def test_tables_of_the_hub_tell_names_of_labels_and_splits_by_their_files(tmp_path: Path) -> None:
    for split, first in (("test", 10), ("train", 20)):
        images = [{"bytes": png(first + row), "path": None} for row in range(3)]
        hub_table(
            tmp_path / "data", f"{split}-00000-of-00001.parquet", image=images, label=[0, 1, 1]
        )
    found = opening.open_labelled(str(tmp_path))
    assert found.classes == ("benign", "malignant")
    assert found.splits.tolist() == ["train"] * 3 + ["test"] * 3
    assert shades(found.images) == [20, 21, 22, 10, 11, 12]
    assert shades(selection.only(found, "test").images) == [10, 11, 12]


@pytest.mark.parametrize("name", ["{}_0", "{}.0", "my-{}-00000-of-00001", "{}0", "chest_{}"])
def test_splits_are_anywhere_in_the_names_of_files(name: str, tmp_path: Path) -> None:
    for split, label in (("train", 0), ("test", 1)):
        hub_table(tmp_path, f"{name.format(split)}.parquet", image=[png(1)], label=[label])
    found = opening.open_labelled(str(tmp_path))
    assert dict(zip(found.splits.tolist(), found.labels.tolist(), strict=True)) == {
        "train": 0,
        "test": 1,
    }
    hub_table(tmp_path, "more.parquet", image=[png(1)], label=[0])
    with pytest.raises(ArtifactError, match=r"more\.parquet is not named after a split"):
        opening.open_labelled(str(tmp_path))


def test_rows_of_one_set_are_chosen_and_those_without_a_label_counted(tmp_path: Path) -> None:
    hub_table(
        tmp_path,
        "x.parquet",
        image=[png(value) for value in range(5)],
        named=["b", "a", None, "b", "c"],
        dataset=["one", "one", "one", "one", "other"],
    )
    data = Plugin("table", {"path": str(tmp_path), "label": "named", "where": {"dataset": "one"}})
    found = opening.open_labelled(data)
    assert found.classes == ("a", "b")
    assert (found.labels.tolist(), found.left_out) == ([1, 0, 1], {"no label": 1})
    assert shades(found.images) == [0, 1, 3]
    with pytest.raises(ArtifactError, match=r"label.*dataset, image, named"):
        opening.open_labelled(str(tmp_path))
    with pytest.raises(ArtifactError, match=r"'two'.*one, other"):
        opening.open_labelled(Plugin("table", {**data.settings, "where": {"dataset": "two"}}))


@pytest.mark.parametrize(
    ("folds", "expected"), [([1.0, 2.0, None], "1, 2"), ([True, False, None], "false, true")]
)
def test_values_that_an_error_about_where_lists_match(
    tmp_path: Path, folds: list[object], expected: str
) -> None:
    images = [png(1), png(2), png(3)]
    hub_table(tmp_path, "x.parquet", image=images * 2, label=[0, 0, 0, 1, 1, 1], fold=folds * 2)
    settings = {"path": str(tmp_path), "where": {"fold": "other"}}
    with pytest.raises(ArtifactError, match=rf"fold 'other', only {expected}$"):
        opening.open_labelled(Plugin("table", settings))
    for value in expected.split(", "):
        data = Plugin("table", {**settings, "where": {"fold": value}})
        assert len(opening.open_labelled(data).images) == 2


def test_rows_left_out_are_counted_by_split(tmp_path: Path) -> None:
    labels = {"train": ["a", None, None, "b"], "test": ["a", "b", None, "b"]}
    for split, named in labels.items():
        images = [png(number) for number in range(4)]
        hub_table(tmp_path / "table", f"{split}.parquet", image=images, named=named)
        files = {"0.cls": b"0", "0.png": png(0), "1.cls": b"0", "2.cls": b"1"}
        tar(tmp_path / f"tars/{split}/0.tar", files)
        for name in ("a/0.png", "b/0.png", f"b/{split}.txt", "b/notes.txt"):
            write(tmp_path / "folder" / split / name, png(0))
    write(tmp_path / "folder/train/a/other.txt", b"")
    write(tmp_path / "tars/classnames.txt", b"cat\ndog\n")
    tables = opening.open_labelled(Plugin("table", {"path": f"{tmp_path}/table", "label": "named"}))
    assert (tables.left_out, selection.only(tables, "test").left_out) == (
        {"no label": 3},
        {"no label": 1},
    )
    tars = opening.open_labelled(str(tmp_path / "tars"))
    assert (tars.left_out, selection.only(tars, "test").left_out) == (
        {"no image": 4},
        {"no image": 2},
    )
    folders = opening.open_labelled(str(tmp_path / "folder"))
    reason = "no image by its name"
    assert (folders.left_out, selection.only(folders, "test").left_out) == (
        {reason: 5},
        {reason: 2},
    )


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([1, None, 0], pa.uint8()),
        pa.array([1, None, 0], pa.uint16()),
        pa.array([1.0, None, 0.0]),
        pa.array([1.0, float("nan"), 0.0], pa.float32()),
    ],
    ids=lambda labels: str(labels.type),
)
def test_numbers_of_any_type_are_labels(tmp_path: Path, labels: pa.Array) -> None:
    hub_table(tmp_path, "x.parquet", image=[png(1), png(2), png(3)], label=labels)
    found = opening.open_labelled(str(tmp_path))
    assert (found.labels.tolist(), found.left_out) == ([1, 0], {"no label": 1})


def test_fractions_are_no_labels(tmp_path: Path) -> None:
    hub_table(tmp_path, "x.parquet", image=[png(1), png(2)], label=[1.0, 0.5])
    with pytest.raises(ArtifactError, match=r"label holds numbers that are not labels .*0\.5"):
        opening.open_labelled(str(tmp_path))


def test_labels_that_files_number_differently_are_refused(tmp_path: Path) -> None:
    hub_table(tmp_path, "train-0.parquet", image=[png(1)], label=[1])
    features = {"label": {"_type": "ClassLabel", "names": ["malignant", "benign"]}}
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    other = pa.table({"image": [png(2)], "label": [1]}).replace_schema_metadata(told)
    pq.write_table(other, tmp_path / "test-0.parquet")
    with pytest.raises(ArtifactError, match=r"'malignant', 'benign'.*'benign', 'malignant'"):
        opening.open_labelled(str(tmp_path))
    given = {"path": str(tmp_path), "classes": ["benign", "malignant"]}
    assert opening.open_labelled(Plugin("table", given)).classes == ("benign", "malignant")


def test_a_class_that_no_row_has_is_refused(tmp_path: Path) -> None:
    hub_table(tmp_path, "x.parquet", image=[png(1), png(2)], named=["Normal", "sick"])
    data = {"path": str(tmp_path), "label": "named", "classes": ["normal", "sick"]}
    with pytest.raises(ArtifactError, match=r"'normal'.*Normal, sick"):
        opening.open_labelled(Plugin("table", data))


def tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_tars_with_labels_are_classes_as_clip_benchmark_has_them(tmp_path: Path) -> None:
    tar(
        tmp_path / "test/0.tar",
        {"s/0.png": png(1), "s/0.cls": b"1", "s/1.cls": b"0", "s/2.cls": b"0", "s/2.png": png(2)},
    )
    # With the byte-order mark and the blank line that editors add.
    write(tmp_path / "classnames.txt", b"\xef\xbb\xbfcat\ndog\n\n")
    found = opening.open_labelled(str(tmp_path))
    assert (found.classes, found.labels.tolist()) == (("cat", "dog"), [1, 0])
    assert found.left_out == {"no image": 1}
    assert shades(found.images) == [1, 2]


@pytest.mark.parametrize("names", [["0.png", "0.seg.png"], ["0.seg.png", "0.png"]])
def test_of_several_images_of_a_key_that_of_the_key_is_read(
    tmp_path: Path, names: list[str]
) -> None:
    shades_of = {"0.png": 1, "0.seg.png": 9}
    files = {name: png(shades_of[name]) for name in names} | {"0.cls": b"0"}
    tar(tmp_path / "test/0.tar", files | {"1.img.png": png(2), "1.cls": b"1"})
    write(tmp_path / "classnames.txt", b"cat\ndog\n")
    assert shades(opening.open_labelled(str(tmp_path)).images) == [1, 2]


def test_tars_named_after_splits_are_of_these(tmp_path: Path) -> None:
    (tmp_path / "classnames.txt").write_text("cell\ntissue\n")
    for name, number in (("imgs-train-0000", 1), ("imgs-validation-0000", 2), ("imgs-test-0", 3)):
        tar(tmp_path / f"{name}.tar", {"0.png": png(number), "0.cls": b"0"})
    found = opening.open_labelled(str(tmp_path))
    assert sorted(found.splits.tolist()) == ["test", "train", "val"]
    tar(tmp_path / "more.tar", {"0.png": png(4), "0.cls": b"1"})
    with pytest.raises(ArtifactError, match=r"more\.tar is not named after a split"):
        opening.open_labelled(str(tmp_path))
    given = Plugin("webdataset", {"path": str(tmp_path), "split": "val"})
    assert opening.open_labelled(given).splits.tolist() == ["val"] * 4


def test_tars_with_texts_are_pairs(tmp_path: Path) -> None:
    tar(tmp_path / "0.tar", {"0.png": png(1), "0.txt": b"one", "1.png": png(2), "1.txt": b"one"})
    found = opening.open_pairs(str(tmp_path))
    assert (found.texts, found.text_of_image.tolist()) == (["one"], [0, 0])
    with pytest.raises(ArtifactError, match=r"LabelledTexts|Pairs"):
        opening.open_labelled(str(tmp_path))


def test_lines_of_a_text_are_captions_where_clip_benchmark_reads_them_so(tmp_path: Path) -> None:
    tar(
        tmp_path / "test/0.tar",
        {"0.png": png(1), "0.txt": b"one\ntwo\n", "1.png": png(2), "1.txt": b"two"},
    )
    tar(tmp_path / "train/0.tar", {"0.png": png(3), "0.txt": b"three"})
    assert opening.open_pairs(str(tmp_path)).texts == ["one\ntwo", "two"]
    write(tmp_path / "dataset_type.txt", b"retrieval\n")
    found = opening.open_pairs(str(tmp_path))
    assert found.texts == ["one", "two"]
    assert (found.text_of_image.tolist(), found.further_F2.tolist()) == ([0, 1], [[0, 1]])
    assert shades(found.images) == [1, 2]
    assert found.left_out == {"of another split": 1}


def test_only_line_breaks_end_the_captions_of_a_text(tmp_path: Path) -> None:
    text = "a\u2028b\x0cc\x85d \r\n e\n"
    tar(tmp_path / "test/0.tar", {"0.png": png(1), "0.txt": text.encode()})
    write(tmp_path / "dataset_type.txt", b"retrieval\n")
    assert opening.open_pairs(str(tmp_path)).texts == ["a\u2028b\x0cc\x85d", "e"]


def test_a_table_of_captions_may_not_name_files_outside(tmp_path: Path) -> None:
    write(tmp_path / "images/a.png", png(1))
    rows = [
        "image,caption,journal",
        'images/a.png,"A cell, dividing",J',
        "../secret.png,A secret,J",
        "/etc/passwd,A secret,J",
        "images/gone.png,Gone,J",
        "images/a.png,  ,J",
    ]
    write(tmp_path / "captions.csv", "\n".join(rows).encode())
    # The folder is enough: its captions are found by the name of the table.
    assert opening.dataset_plugin(str(tmp_path)) == opening.dataset_plugin(
        Plugin("captions", {"path": str(tmp_path / "captions.csv")})
    )
    found = opening.open_pairs(str(tmp_path / "captions.csv"))
    assert found.texts == ["A cell, dividing", "Gone"]
    assert found.left_out == {"named outside the folder": 2}
    assert found.about.column_names == ["journal"]
    # A file that is not there is found out when it is embedded.
    assert [len(data) > 0 for data in found.images.read(0, 2)] == [True, False]


def test_rows_of_the_same_file_are_one_image_with_several_captions(tmp_path: Path) -> None:
    write(tmp_path / "a.png", png(1))
    write(tmp_path / "b.png", png(2))
    rows = ["image,caption", "a.png,One", "b.png,Two", "a.png,Three", "a.png,One", "b.png,One"]
    write(tmp_path / "captions.csv", "\n".join(rows).encode())
    found = opening.open_pairs(str(tmp_path / "captions.csv"))
    assert (found.ids, found.texts) == (["0/a.png", "1/b.png"], ["One", "Three", "Two"])
    assert found.text_of_image.tolist() == [0, 2]
    assert found.further_F2.tolist() == [[0, 1], [1, 0]]
    assert shades(found.images) == [1, 2]


@pytest.mark.parametrize("name", ["captions.csv", "captions.tsv"])
@pytest.mark.parametrize("closing", ["", '"Dog" runs', '""'])
def test_a_quotation_mark_that_would_join_rows_is_an_error_with_its_line(
    tmp_path: Path, name: str, closing: str
) -> None:
    comma = "\t" if name.endswith(".tsv") else ","
    rows = [("image", "caption"), ("a.png", '"Two\nlines"'), ("b.png", '"Cat sits'), ("c.png", "x")]
    text = "\n".join(comma.join(row) for row in [*rows, ("d.png", closing)])
    write(tmp_path / name, text.encode())
    with pytest.raises(ArtifactError, match=r"line 4: .*quotation mark.*b\.png.*Cat sits"):
        opening.open_pairs(str(tmp_path / name))


def test_rows_of_another_number_of_cells_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "captions.csv", b"image,caption\na.png,one\nb.png,two, three\n")
    with pytest.raises(ArtifactError, match=r"line 3: 3 cells, 2 in the header"):
        opening.open_pairs(str(tmp_path / "captions.csv"))


def test_other_columns_are_text_and_paths_are_compared(tmp_path: Path) -> None:
    write(tmp_path / "a.png", png(1))
    rows = ["image,patient,caption", "a.png,01,one", "./a.png,1,two"]
    write(tmp_path / "captions.csv", "\n".join(rows).encode())
    found = opening.open_pairs(str(tmp_path / "captions.csv"))
    assert found.ids == ["0/a.png"]
    assert list(found.texts) == ["one", "two"]
    assert found.about["patient"].to_pylist() == ["01"]


def test_names_and_captions_of_digits_are_no_numbers(tmp_path: Path) -> None:
    write(tmp_path / "001", png(1))
    write(tmp_path / "captions.csv", b"image,caption\n001,007\n")
    found = opening.open_pairs(str(tmp_path / "captions.csv"))
    assert (found.ids, found.texts, shades(found.images)) == (["0/001"], ["007"], [1])


def test_a_list_of_texts_in_a_row_are_several_captions_of_its_image(tmp_path: Path) -> None:
    table = pa.table({"image": [png(1), png(2)], "text": [["One", "Two"], ["Three"]]})
    pq.write_table(table, tmp_path / "test-00000-of-00001.parquet")
    found = opening.open_pairs(Plugin("table", {"path": str(tmp_path), "text": "text"}))
    assert found.texts == ["One", "Two", "Three"]
    assert found.further_F2.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("LICENSE.txt", "files/p10/p11/s5.txt", "files/p10/p11/s5/a.jpg"), "reports"),
        (("b.txt", "b.png"), "reports"),
        # A text next to an image of a class.
        (("LICENSE.txt", "cell/a.png", "cell/a.txt", "gel/b.png"), "folder"),
        # About classes and splits.
        (("benign/a.png", "malignant/b.png", "benign.txt"), "folder"),
        (("train/x/a.png", "test/x/b.png", "train.txt", "test.txt"), "folder"),
        (("train/a.png", "test/b.png", "train.txt", "test.txt"), "folder"),
    ],
)
def test_reports_are_found_by_their_folder_alone(
    tmp_path: Path, files: tuple[str, ...], name: str
) -> None:
    for file in files:
        write(tmp_path / file, b"No effusion." if file.endswith(".txt") else png(1))
    assert opening.dataset_plugin(str(tmp_path)) == Plugin(name, {"path": str(tmp_path)})


def test_reports_have_the_images_of_the_folder_of_their_name(tmp_path: Path) -> None:
    study = tmp_path / "p10/p100"
    write(study / "s1.txt", b"FINDINGS:\n  Clear.")
    write(study / "s1/b.png", png(2))
    write(study / "s1/a.png", png(1))
    write(study / "s2.txt", b"FINDINGS: Clear.")
    write(study / "s2/c.png", png(3))
    write(study / "s3.txt", b"No image.")
    found = opening.open_pairs(Plugin("reports", {"path": str(tmp_path)}))
    assert found.texts == ["FINDINGS: Clear."]
    assert found.left_out == {"report without an image": 1, "text of another report": 1}
    every = opening.open_pairs(Plugin("reports", {"path": str(tmp_path), "images": 0}))
    assert len(every.images) == len(every.ids) in (1, 2)


def test_long_captions_are_of_the_newest_version_of_an_article(tmp_path: Path) -> None:
    def version(name: str, number: str, **changes: object) -> dict:
        uri = f"s3://bucket/{name}.{number}"
        return article(name, version=number, source_uri=uri, **changes)

    articles = [
        # The two versions of the first are in different units, those of the others in the same.
        *(version("PMC1", number) for number in ("10", "9")),
        version("PMC2", "1"),
        version("PMC3", "1"),
        version("PMC2", "2", retracted=True),
        version("PMC3", "2", defect="xml is malformed"),
    ]
    figures = [
        figure(one, figure_id=f"{one['article_id']}-F1", caption=f"Of {one['source_uri']}")
        for one in articles
        if one["defect"] is None
    ]
    publish_harvest(tmp_path, articles, figures)
    found = opening.open_pairs(Plugin("long_captions", {"path": str(tmp_path)}))
    assert sorted(zip(found.ids, [text.split("\n")[0] for text in found.texts], strict=True)) == [
        ("PMC1-F1", "Of s3://bucket/PMC1.10"),
        ("PMC3-F1", "Of s3://bucket/PMC3.1"),
    ]
    assert found.left_out == {"a newer version is there": 2, "article retracted": 1}


def test_what_is_asked_for_and_what_is_there_differ() -> None:
    with pytest.raises(ArtifactError, match=r"/nowhere/at/all.*\.npz.*\.csv.*\.tsv"):
        opening.open_dataset("/nowhere/at/all")
    with pytest.raises(ConfigError, match=r"'tables'.*table"):
        opening.open_dataset(Plugin("tables", {}))
