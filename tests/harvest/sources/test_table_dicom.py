"""A table of DICOM images: their pixels are published, and nothing else of them."""

import bz2
import gzip
import io
import logging
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from PIL import Image

from biovl.core import config
from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin, make
from biovl.core.records import Figure
from biovl.harvest import job
from biovl.harvest.config import RECIPES, HarvestConfig
from biovl.harvest.rows import rows
from biovl.images import dicom as dicoms
from tests.images.dicom_files import PATIENT, dicom

CT = np.arange(1024, dtype=np.uint16).reshape(32, 32)


def figures(path: Path, **settings: Any) -> list[Figure]:
    source = make("harvest.sources", Plugin("table", {"path": str(path), **settings}))
    packages = (package for address in source.addresses() for package in source.read(address))
    return [row for package in packages for row in rows(package) if isinstance(row, Figure)]


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("Doe^Secretive.dcm", data)
    return stream.getvalue()


def test_the_image_of_a_row_is_the_png_of_its_pixels(tmp_path: Path) -> None:
    (tmp_path / "a.dcm").write_bytes(dicom(CT, bits=10))
    (tmp_path / "without-suffix").write_bytes(dicom(CT, bits=10))
    (tmp_path / "t.csv").write_text("image,caption\na.dcm,One\nwithout-suffix,Two\n")
    for figure in figures(tmp_path / "t.csv"):
        assert figure.defect is None
        assert (figure.image_format, figure.image_mode) == ("png", "L")
        assert figure.image is not None
        shown = np.asarray(Image.open(io.BytesIO(figure.image)))
        np.testing.assert_array_equal(shown, np.rint(CT / 1023 * 255))


def test_what_is_unusable_is_a_defect_and_nothing_of_it_is_stored(tmp_path: Path) -> None:
    good = dicom(CT)
    for name, data in {
        "burned.dcm": dicom(CT, BurnedInAnnotation="YES"),
        "cut.dcm": good[:-100],
        "packed.dcm.gz": gzip.compress(good),
        "packed.dcm.bz2": bz2.compress(good),
        "scan.zip": zipped(good),
        "report.dcm": b"\0" * 128 + b"DICM" + PATIENT["PatientName"].encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t.csv").write_text(
        "image,caption\nburned.dcm,A\ncut.dcm,B\npacked.dcm.gz,C\nreport.dcm,D\n"
        "packed.dcm.bz2,E\nscan.zip,F\n"
    )
    found = figures(tmp_path / "t.csv")
    assert [figure.image for figure in found] == [None] * 6
    assert [figure.defect for figure in found][:3] == [
        dicoms.BURNED_IN,
        dicoms.UNDECODABLE,
        dicoms.UNREADABLE,
    ]
    assert not _of_patient(repr(found).encode())
    assert figures(tmp_path / "t.csv", dicom_burned_in=True)[0].defect is None


def test_frames_are_the_middle_one_a_number_or_all(tmp_path: Path) -> None:
    frames = np.arange(4, dtype=np.uint8)[:, None, None] * np.full((1, 16, 16), 10, np.uint8)
    (tmp_path / "a.dcm").write_bytes(dicom(frames, NumberOfFrames=4))
    (tmp_path / "b.png").write_bytes(_png(np.zeros((16, 16), np.uint8)))
    (tmp_path / "t.csv").write_text("image,caption\na.dcm,One\nb.png,Two\n")

    def first_pixels(**settings: Any) -> list[int]:
        found = figures(tmp_path / "t.csv", **settings)
        images = [Image.open(io.BytesIO(figure.image or b"")) for figure in found]
        return [int(np.asarray(image)[0, 0]) for image in images]

    assert first_pixels() == [20, 0]
    assert first_pixels(dicom_frame=1) == [0, 0]
    assert first_pixels(dicom_frame="all") == [0, 10, 20, 30, 0]
    names = [figure.image_name for figure in figures(tmp_path / "t.csv", dicom_frame="all")]
    assert names[3:] == ["a.dcm#frame-4", "b.png"]
    with pytest.raises(ConfigError, match="dicom_frame"):
        figures(tmp_path / "t.csv", dicom_frame=0)


def test_nothing_of_the_patient_is_published_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "1.dcm").write_bytes(dicom(CT, ImageComments="Doe^Secretive"))
    (tmp_path / "scans" / "2.dcm").write_bytes(dicom(CT)[:-9])
    (tmp_path / "t.csv").write_text("image,caption\nscans/1.dcm,One\nscans/2.dcm,Two\n")
    settings = {"source.path": str(tmp_path / "t.csv"), "out": str(tmp_path / "figures")}
    own: HarvestConfig = config.override(RECIPES["table"](), settings)
    Draft(own.out).folder.create()
    addresses = [
        {"uri": a.uri, "name": a.name} for a in make("harvest.sources", own.source).addresses()
    ]
    job.read_unit(own, 0, addresses)
    parts = [path for path in (tmp_path / "figures").rglob("*") if path.is_file()]
    tables = [ds.dataset(path).to_table() for path in parts if path.suffix == ".parquet"]
    assert sorted(map(len, tables)) == [2, 2]
    for content in (*(path.read_bytes() for path in parts), repr([t.to_pylist() for t in tables])):
        assert not _of_patient(content if isinstance(content, bytes) else content.encode())
    assert not _of_patient(caplog.text.encode())


def _of_patient(content: bytes) -> list[str]:
    return [value for value in PATIENT.values() if value.encode() in content]


def _png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()
