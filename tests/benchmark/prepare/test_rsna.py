"""RSNA's tables and DICOM files: one image per patient, its label, and the papers' split."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from biovl.benchmark.prepare.sets import rsna
from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import number_of, run, table
from tests.images.dicom_files import dicom

NORMAL, PNEUMONIA = "normal lung", "pneumonia"


def image(number: int, **attributes: object) -> bytes:
    pixels = np.full((16, 16), number, np.uint8)
    return dicom(pixels, **attributes)


def patients(count: int) -> dict[str, int]:
    """Return the targets of patients whose ids are not in the order of their numbers."""
    return {f"{7919 * number % 9973:08x}-{number}": int(number % 3 == 0) for number in range(count)}


def write(raw: Path, targets: dict[str, int], *, encoding: str = "utf-8", end: str = "\n") -> None:
    (raw / "stage_2_train_images").mkdir(parents=True)
    lines, details = ["patientId,x,y,width,height,Target"], ["patientId,class"]
    for patient, target in targets.items():
        boxes = ["1.0,2.0,3.0,4.0,1", "5.0,6.0,7.0,8.0,1"] if target else [",,,,0"]
        lines += [f"{patient},{box}" for box in boxes]
        details += [f"{patient},{'Lung Opacity' if target else 'Normal'}"] * len(boxes)
        number = int(patient.rpartition("-")[2])
        path = raw / "stage_2_train_images" / f"{patient}.{'DCM' if number % 5 == 0 else 'dcm'}"
        path.write_bytes(image(number))
    (raw / "stage_2_train_labels.csv").write_bytes(end.join(lines).encode(encoding))
    (raw / "stage_2_detailed_class_info.csv").write_bytes(end.join(details).encode(encoding))


def check(out: Path, targets: dict[str, int], splits: tuple[str, ...]) -> int:
    rows = [row for split in splits for row in table(out, split).to_pylist()]
    for row in rows:
        assert row["label"] == (PNEUMONIA if targets[row["group"]] else NORMAL)
        number = number_of(row["image"]["bytes"]) % 256
        assert int(row["group"].rpartition("-")[2]) == number
        assert row["image"]["path"].endswith(".png")
    return len(rows)


def test_the_split_has_the_papers_counts() -> None:
    split = rsna.split_patients([str(number) for number in range(26_684)])
    assert {name: len(ids) for name, ids in split.items()} == {
        "train": 18_678,
        "val": 4_003,
        "test": 4_003,
    }
    assert len(set().union(*split.values())) == 26_684
    assert len(rsna.halves(30_227, 0.3)[1]) == 9_069


def test_the_split_is_that_of_scikit_learn() -> None:
    ids = [f"{number:03}" for number in range(137)]
    train, others = train_test_split(ids, test_size=0.3, random_state=0)
    test, val = train_test_split(others, test_size=0.5, random_state=0)
    assert rsna.split_patients(ids) == {"train": train, "val": val, "test": test}


@pytest.mark.parametrize(("encoding", "end"), [("utf-8-sig", "\r\n"), ("utf-16", "\n")])
def test_each_patient_has_its_label(tmp_path: Path, encoding: str, end: str) -> None:
    targets = patients(40)
    write(tmp_path / "raw", targets, encoding=encoding, end=end)
    manifest = run("rsna", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["rows"] == check(tmp_path / "out", targets, ("train", "val", "test"))
    assert (manifest.counts["train"], manifest.counts["val"]) == (28, 6)
    rows = table(tmp_path / "out").to_pylist()
    assert all((row["detail"] == "Normal") == (row["label"] == NORMAL) for row in rows)
    assert manifest.counts["left_out"] == {}
    assert not manifest.notes["groups_in_two_splits"]["count"]


def test_rows_of_the_table_as_test_overlap_and_say_so(tmp_path: Path) -> None:
    targets = patients(40)
    write(tmp_path / "raw", targets)
    out = tmp_path / "out"
    manifest = run("rsna", tmp_path / "raw", out, **{"reader.test": "rows"})
    # 40 patients, 14 of them with two boxes: 54 rows.
    assert manifest.counts["test"] == 17
    check(out, targets, ("test",))
    assert len(set(table(out)["id"].to_pylist())) == 17
    assert any("patients or slides" in warning for warning in manifest.warnings)


def test_the_split_does_not_depend_on_which_images_are_there(tmp_path: Path) -> None:
    targets = patients(40)
    write(tmp_path / "raw", targets)
    run("rsna", tmp_path / "raw", tmp_path / "whole")
    files = sorted((tmp_path / "raw/stage_2_train_images").iterdir())
    for path in files[::2]:
        path.unlink()
    files[1].write_bytes(files[1].read_bytes()[:300])
    manifest = run("rsna", tmp_path / "raw", tmp_path / "part")
    for split in ("train", "val", "test"):
        part = set(table(tmp_path / "part", split)["id"].to_pylist())
        assert part <= set(table(tmp_path / "whole", split)["id"].to_pylist())
    left_out = manifest.counts["left_out"]
    assert left_out[rsna.NO_IMAGE] == 20
    assert sum(left_out.values()) == 21
    assert manifest.counts["rows"] == 19


def test_grey_levels_are_those_displayed(tmp_path: Path) -> None:
    targets = patients(8)
    write(tmp_path / "raw", targets)
    folder = tmp_path / "raw/stage_2_train_images"
    for number, path in enumerate(sorted(folder.iterdir())):
        inverted = number % 2
        kind = "MONOCHROME1" if inverted else "MONOCHROME2"
        pixels = np.array([[0, 1024], [2047, 4095]] * 4, np.uint16)
        window = {"WindowCenter": 1024, "WindowWidth": 2048}
        path.write_bytes(dicom(pixels, bits=12, PhotometricInterpretation=kind, **window))
    run("rsna", tmp_path / "raw", tmp_path / "out")
    shown = {
        row["image"]["bytes"]
        for s in ("train", "test")
        for row in table(tmp_path / "out", s).to_pylist()
    }
    assert len(shown) == 2


def test_contradictions_and_unknown_labels_are_counted(tmp_path: Path) -> None:
    targets = patients(10)
    write(tmp_path / "raw", targets)
    path = tmp_path / "raw/stage_2_train_labels.csv"
    lines = path.read_text().splitlines()
    first, second, third = (line.partition(",")[0] for line in (lines[1], lines[3], lines[4]))
    lines.append(f"{first},,,,0")
    lines = [line.replace(",0", ",maybe") if line.startswith(second) else line for line in lines]
    lines = [line[:-1] + "1.0" if line.startswith(third) else line for line in lines]
    path.write_text("\n".join(lines))
    manifest = run("rsna", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["left_out"] == {rsna.TWO_LABELS: 1, rsna.UNKNOWN: 1}
    assert any("contradicts" in w and third in w for w in manifest.warnings)


def test_missing_tables_labels_and_images_are_errors(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    write(raw, patients(4))
    path = raw / "stage_2_train_labels.csv"
    whole = path.read_text()
    path.write_text("patientId,x\na,1\n")
    with pytest.raises(SourceError, match="no column Target; its columns are patientId, x"):
        run("rsna", raw, out)
    path.write_text("patientId,Target\na,\nb,\n")
    with pytest.raises(SourceError, match="has no label"):
        run("rsna", raw, out)
    path.unlink()
    with pytest.raises(SourceError, match=r"stage_2_train_labels.csv was not found.*kaggle"):
        run("rsna", raw, out)
    path.write_text(whole)
    for image in (raw / "stage_2_train_images").iterdir():
        image.unlink()
    with pytest.raises(SourceError, match="dcm was not found"):
        run("rsna", raw, out)


def test_the_archive_is_read_as_downloaded(tmp_path: Path) -> None:
    targets = patients(12)
    write(tmp_path / "unpacked", targets)
    (tmp_path / "raw").mkdir()
    with zipfile.ZipFile(tmp_path / "raw/rsna-pneumonia-detection-challenge.zip", "w") as archive:
        for path in sorted((tmp_path / "unpacked").rglob("*.*")):
            archive.write(path, path.relative_to(tmp_path / "unpacked"))
        archive.writestr("stage_2_test_images/x.dcm", image(99))
    manifest = run("rsna", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["rows"] == 12
    check(tmp_path / "out", targets, ("train", "val", "test"))
