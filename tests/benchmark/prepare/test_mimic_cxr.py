"""MIMIC-CXR's layouts: the same pairs from JPEG, DICOM and archives; no text of a patient is said."""

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset

from biovl.benchmark import data as opening
from biovl.core.errors import ConfigError, SourceError
from biovl.core.plugins import Plugin
from tests.benchmark.prepare.preparing import encoded, number_of, picture, run, table

STUDIES = 12
JPG = "physionet.org/files/mimic-cxr-jpg/2.1.0"
CXR = "physionet.org/files/mimic-cxr/2.1.0"


def place(study: int) -> str:
    return f"files/p1{study % 2}/p1{study % 2}00{study:04}/s5{study:07}"


def image_name(study: int, view: int) -> str:
    return f"{view}{study:07}-aaaaaaaa-bbbbbbbb-cccccccc-dddddddd"


def report(study: int) -> str:
    return (
        f"                                 FINAL REPORT\n EXAMINATION:  CHEST (PA AND LAT)\n \n"
        f" INDICATION:  ___ year old woman, secret {study}\n \n FINDINGS: \n \n Clear, {study}.\n"
    )


def dicom(number: int) -> bytes:
    file = Dataset()
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = uid.DigitalXRayImageStorageForPresentation
    file.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    file.PatientName = "Secret^Patient"
    grey = picture(number)[..., 0].astype(np.uint16) * 16
    file.Rows, file.Columns = grey.shape
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 16, 12, 11, 0
    file.PixelData = grey.tobytes()
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, file, enforce_file_format=True)
    return stream.getvalue()


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write(raw: Path, *, as_dicom: bool = False, reports_in: str = CXR) -> Path:
    """Write studies with two images each; reports in a folder, or in PhysioNet's archive."""
    for study in range(STUDIES):
        for view in (1, 2):
            name = f"{place(study)}/{image_name(study, view)}"
            if as_dicom:
                put(raw / f"{CXR}/{name}.dcm", dicom(study))
            else:
                put(raw / f"{JPG}/{name}.jpg", encoded(10 * study, "JPEG", quality=98))
    texts = {f"{place(study)}.txt": report(study).encode() for study in range(STUDIES)}
    if reports_in == "zip":
        (raw / CXR).mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(raw / f"{CXR}/mimic-cxr-reports.zip", "w") as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
    else:
        for name, text in texts.items():
            put(raw / reports_in / name, text)
    return raw


def tables(raw: Path, *, zipped: bool = True) -> None:
    rows, views = ["dicom_id,study_id,subject_id,split"], ["dicom_id,subject_id,ViewPosition"]
    for study in range(STUDIES):
        split = ("train", "validate", "test")[study % 3]
        for view in (1, 2):
            name, of = image_name(study, view), place(study).split("/")
            rows.append(f"{name},{of[3][1:]},{of[2][1:]},{split}")
            views.append(f"{name},{of[2][1:]},{('PA', 'LATERAL')[view - 1]}")
    for table_name, lines in (("split", rows), ("metadata", views)):
        data = "\r\n".join(lines).encode()
        name = f"{JPG}/mimic-cxr-2.0.0-{table_name}.csv"
        put(raw / (f"{name}.gz" if zipped else name), gzip.compress(data) if zipped else data)


def drawn(out: Path) -> list[tuple[str, str]]:
    rows = table(out).to_pylist()
    return [(row["id"], row["text"]) for row in rows]


def test_an_image_has_the_whole_report_of_its_study(tmp_path: Path) -> None:
    tables(write(tmp_path / "raw"))
    manifest = run("mimic_cxr", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts == {"rows": STUDIES, "test": STUDIES, "left_out": {}}
    for row in table(tmp_path / "out").to_pylist():
        study = int(row["study_id"]) % 1000
        assert row["text"] == " ".join(report(study).split())
        assert round(number_of(row["image"]["bytes"]) / 10) == study
        assert row["id"] == image_name(study, 1)
        assert row["group"] == place(study).split("/")[2][1:]
        assert row["official_split"] == ("train", "validate", "test")[study % 3]
        assert row["view"] == "PA"


def test_the_draw_does_not_depend_on_the_layout(tmp_path: Path) -> None:
    write(tmp_path / "jpg")
    write(tmp_path / "zip", reports_in="zip")
    write(tmp_path / "dicom", as_dicom=True)
    write(tmp_path / "both")
    write(tmp_path / "both", as_dicom=True)
    pairs = {}
    for raw in ("jpg", "zip", "dicom", "both"):
        out = tmp_path / f"out-{raw}"
        manifest = run("mimic_cxr", tmp_path / raw, out, **{"reader.pairs": 5})
        assert manifest.counts["left_out"] == {"not drawn": STUDIES - 5}
        pairs[raw] = drawn(out)
        suffix = ".png" if raw == "dicom" else ".jpg"
        paths = [image["path"] for image in table(out)["image"].to_pylist()]
        assert {path[-4:] for path in paths} == {suffix}
    assert pairs["jpg"] == pairs["zip"] == pairs["dicom"] == pairs["both"]
    run("mimic_cxr", tmp_path / "jpg", tmp_path / "again", **{"reader.pairs": 5, "reader.seed": 1})
    assert drawn(tmp_path / "again") != pairs["jpg"]


def test_benchmark_has_the_same_pairs_from_raw_and_prepared_files(tmp_path: Path) -> None:
    write(tmp_path / "raw", reports_in=JPG)
    run("mimic_cxr", tmp_path / "raw", tmp_path / "mimic_cxr", **{"reader.pairs": 5})
    settings = {"path": str(tmp_path / "raw"), "pairs": 5}
    one = opening.open_pairs(Plugin("reports", settings))
    other = opening.open_pairs(str(tmp_path / "mimic_cxr"))
    texts = [one.texts[number] for number in one.text_of_image]
    assert sorted(texts) == sorted(other.texts[number] for number in other.text_of_image)
    assert len(one.texts) == 5
    assert set(one.images.read(0, 5)) == set(other.images.read(0, 5))


def test_all_images_of_a_study_can_be_taken_and_one_official_split(tmp_path: Path) -> None:
    tables(write(tmp_path / "raw"), zipped=False)
    settings = {"reader.images": 0, "reader.split": "test", "reader.pairs": 0}
    manifest = run("mimic_cxr", tmp_path / "raw", tmp_path / "out", **settings)
    rows = table(tmp_path / "out").to_pylist()
    assert len(rows) == 2 * STUDIES // 3
    assert {row["official_split"] for row in rows} == {"test"}
    assert {row["view"] for row in rows} == {"PA", "LATERAL"}
    assert manifest.counts["left_out"] == {"report of another official split": 8}


def test_reports_that_say_nothing_new_are_left_out_and_those_without_findings_counted(
    tmp_path: Path,
) -> None:
    raw = write(tmp_path / "raw")
    files = [raw / CXR / f"{place(study)}.txt" for study in range(STUDIES)]
    files[1].write_bytes(b"\xef\xbb\xbf \r\n")
    files[2].write_bytes(files[3].read_bytes().replace(b"\n", b"\r\n"))
    files[4].write_bytes("WET READ: Große Raumforderung".encode("cp1252"))
    files[5].unlink()
    put(raw / CXR / "files/p10/p10009999/s59999999.txt", b"FINDINGS: None.")
    manifest = run("mimic_cxr", raw, tmp_path / "out")
    assert manifest.counts["left_out"] == {
        "image of a study without a report": 2,
        "report without an image": 1,
        "report without text": 1,
        "text of another report": 1,
    }
    texts = [text for _, text in drawn(tmp_path / "out")]
    assert "WET READ: Große Raumforderung" in texts
    said = "\n".join(manifest.warnings)
    assert "1 of 9 reports have no section FINDINGS" in said
    assert "test 9 instead of 1,000" in said
    assert "official_split is empty" in said


def test_the_card_forbids_to_share_and_says_how_pairs_are_chosen(tmp_path: Path) -> None:
    write(tmp_path / "raw")
    manifest = run("mimic_cxr", tmp_path / "raw", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "Do not share the data, nor this folder" in card
    assert "hash of their file name and the seed" in card
    chosen = {"name": "mimic_cxr", "pairs": 1_000, "images": 1, "seed": 0}
    assert manifest.config["reader"] == chosen


def damaged_reports(raw: Path) -> None:
    path = raw / CXR / "mimic-cxr-reports.zip"
    path.write_bytes(path.read_bytes()[:-30])


def damaged_member(raw: Path) -> None:
    path = raw / CXR / "mimic-cxr-reports.zip"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"secret", b"SECRET"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged_reports, r"mimic-cxr-reports.zip is truncated"),
        (damaged_member, r"a report cannot be read from mimic-cxr-reports.zip"),
        (
            lambda raw: [path.unlink() for path in raw.rglob("*.jpg")],
            r"no images.*0 studies with images and 12 reports.*physionet",
        ),
        (
            lambda raw: (raw / CXR / "mimic-cxr-reports.zip").unlink(),
            r"no reports.*12 studies with images and 0 reports.*physionet",
        ),
    ],
)
def test_wrong_and_partial_downloads_are_named_without_words_of_patients(
    tmp_path: Path, damage: Any, message: str
) -> None:
    raw = write(tmp_path / "raw", reports_in="zip")
    damage(raw)
    with pytest.raises(SourceError, match=message) as raised:
        run("mimic_cxr", raw, tmp_path / "out")
    assert "secret" not in str(raised.value).lower()
    assert "p1000" not in str(raised.value)


def test_reports_of_other_patients_and_a_missing_table_are_named(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", reports_in="zip")
    with pytest.raises(SourceError, match=r"mimic-cxr-2.0.0-split.csv.gz, which names"):
        run("mimic_cxr", raw, tmp_path / "out", **{"reader.split": "test"})
    with pytest.raises(ConfigError, match=r"'train', 'validate' or 'test' \(got 'val'"):
        run("mimic_cxr", raw, tmp_path / "out", **{"reader.split": "val"})
    other = raw / CXR / "mimic-cxr-reports.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("files/p19/p19999999/s59999999.txt", "FINDINGS: secret")
    with pytest.raises(SourceError, match=r"no report belongs to an image.*1 reports"):
        run("mimic_cxr", raw, tmp_path / "out")


def test_a_damaged_image_is_counted_and_named_without_words_of_the_file(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", as_dicom=True)
    (first,) = raw.glob(f"{CXR}/{place(3)}/1*.dcm")
    first.write_bytes(first.read_bytes()[:-200])
    manifest = run("mimic_cxr", raw, tmp_path / "out")
    assert manifest.counts["test"] == STUDIES - 1
    said = "\n".join(manifest.warnings)
    assert "1 left out" in said
    assert "Secret" not in said
