"""CheXpert's tables: 5x200, findings of every image, and no patient of the test set in train."""

from pathlib import Path

import pytest

from biovl.benchmark import data
from biovl.benchmark.prepare.sets import chexpert
from biovl.core.errors import SourceError
from biovl.core.plugins import Plugin
from tests.benchmark.prepare.preparing import encoded, number_of, run, table

HEAD = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *chexpert.FINDINGS]


def row(path: str, view: str = "Frontal", **states: str) -> str:
    cells = [states.get(name.replace(" ", "_"), "") for name in chexpert.FINDINGS]
    return ",".join([path, "Male", "60", view, "AP", *cells])


def write(raw: Path, patients: int = 20, *, end: str = "\n") -> None:
    """Write images of which the number tells the finding: number % 5."""
    lines, of_table = [",".join(HEAD)], {"train": [], "valid": []}
    for number in range(patients):
        table_name = "valid" if number >= patients - 5 else "train"
        finding = chexpert.CLASSES[number % 5].replace(" ", "_")
        name = f"{table_name}/patient{number:05}/study1/view1_frontal.jpg"
        file = raw / "CheXpert-v1.0-small" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(encoded(12 * number, "JPEG", quality=98, subsampling=0))
        others = {"No_Finding": "0.0", "Support_Devices": ""}
        of_table[table_name].append(
            row(f"CheXpert-v1.0-small/{name}", **{finding: "1.0", **others})
        )
        side = name.replace("frontal", "lateral").replace("view1", "view2")
        (raw / "CheXpert-v1.0-small" / side).write_bytes(encoded(1, "JPEG"))
        of_table[table_name].append(row(f"CheXpert-v1.0-small/{side}", "Lateral", Edema="1.0"))
    for table_name, rows in of_table.items():
        path = raw / "CheXpert-v1.0-small" / f"{table_name}.csv"
        path.write_bytes(end.join([*lines, *rows]).encode("utf-8-sig"))


def append(raw: Path, *rows: str, table_name: str = "train") -> None:
    path = raw / "CheXpert-v1.0-small" / f"{table_name}.csv"
    path.write_text("\n".join([path.read_text(), *rows]))


def image(raw: Path, name: str, number: int) -> str:
    file = raw / "CheXpert-v1.0-small" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encoded(number, "JPEG", quality=98))
    return f"CheXpert-v1.0-small/{name}"


def test_images_have_their_only_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chexpert, "_EACH", 2)
    write(tmp_path / "raw", end="\r\n")
    manifest = run("chexpert", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts == {
        "rows": 20,
        "train": 5,
        "val": 5,
        "test": 10,
        "left_out": {chexpert.LATERAL: 20},
    }
    for split in ("train", "val", "test"):
        for one in table(tmp_path / "out", split).to_pylist():
            number = round(number_of(one["image"]["bytes"]) / 12)
            assert one["label"] == chexpert.CLASSES[number % 5]
            assert one["group"] == f"patient{number:05}"
            assert one[one["label"]] == 1
            assert (one["No Finding"], one["Support Devices"]) == (0, None)
    assert not manifest.notes["groups_in_two_splits"]["count"]
    again = run("chexpert", tmp_path / "raw", tmp_path / "again")
    assert table(tmp_path / "again").equals(table(tmp_path / "out"))
    assert again.counts == manifest.counts


def test_several_uncertain_and_no_findings_are_no_class(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw, 10)
    name = "train/patient{}/study1/view1_frontal.jpg"
    append(
        raw,
        row(image(raw, name.format("00101"), 1), Edema="1.0", Pneumonia="-1.0"),
        row(image(raw, name.format("00102"), 1), Edema="-1.0"),
        row(image(raw, name.format("00103"), 1), Fracture="1.0"),
        row(image(raw, name.format("00104"), 1), Edema="7"),
        row(name.format("00105"), Edema="1.0"),
        row(
            image(raw, "train/patient00000/study2/view1_frontal.jpg", 1),
            Edema="1.0",
            Fracture="1.0",
        ),
    )
    manifest = run("chexpert", raw, tmp_path / "out")
    left_out = manifest.counts["left_out"]
    assert left_out[chexpert.NO_CLASS] == 3
    assert left_out[chexpert.BAD_VALUE] == left_out[chexpert.NO_IMAGE] == 1
    assert left_out[chexpert.PATIENT_IN_TEST] == 1
    whole = run("chexpert", raw, tmp_path / "all", **{"reader.rows": "all"})
    assert whole.counts["train"] == 3
    states = {one["id"]: one["Edema"] for one in table(tmp_path / "all", "train").to_pylist()}
    assert sorted(states.values(), key=str) == [-1, 1, None]
    found = data.open_labelled(str(tmp_path / "all"))
    assert found.left_out == {"no label": 3}
    assert found.classes == chexpert.CLASSES
    plugin = Plugin("prepared", {"path": str(tmp_path / "all"), "finding": "Fracture"})
    assert data.open_labelled(plugin).labels.tolist() == [1]


def test_a_published_list_is_the_test_set(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw)
    paths = [f"CheXpert-v1.0/train/patient0000{n}/study1/view1_frontal.jpg" for n in (6, 3)]
    (raw / "chexpert_5x200.csv").write_text("\n".join(["Path", *paths]))
    manifest = run("chexpert", raw, tmp_path / "out")
    assert table(tmp_path / "out")["group"].to_pylist() == ["patient00006", "patient00003"]
    assert manifest.counts["train"] == 13
    assert any("chexpert_5x200.csv: 2 of 2" in warning for warning in manifest.warnings)


def test_missing_tables_and_images_are_errors(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw)
    folder = raw / "CheXpert-v1.0-small"
    (folder / "train").rename(tmp_path / "train")
    with pytest.raises(SourceError, match=r"view1_frontal.jpg was not found"):
        run("chexpert", raw, tmp_path / "out")
    (tmp_path / "train").rename(folder / "train")
    text = (folder / "train.csv").read_text()
    (folder / "train.csv").write_text(text.replace("Edema", "Oedema"))
    with pytest.raises(SourceError, match="no column Edema"):
        run("chexpert", raw, tmp_path / "out")
    (folder / "train.csv").unlink()
    with pytest.raises(SourceError, match=r"train.csv was not found.*stanford"):
        run("chexpert", raw, tmp_path / "out")


def test_folders_of_another_release_are_matched_by_patient(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw, 10)
    (raw / "CheXpert-v1.0-small/train").rename(raw / "CheXpert-v1.0 batch 2 (train 1)")
    assert run("chexpert", raw, tmp_path / "out").counts["test"] == 5
