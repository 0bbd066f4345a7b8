"""MIMIC-CXR: radiographs as JPEG (MIMIC-CXR-JPG) or DICOM, and the whole report of their study.

    files/p10/p10000032/s50414267/02aa804e-….jpg    or .dcm
    files/p10/p10000032/s50414267.txt               or in mimic-cxr-reports.zip
    mimic-cxr-2.0.0-split.csv.gz                    optional: the official splits
    mimic-cxr-2.0.0-metadata.csv.gz                 optional: the view of each image

BMC-LongCLIP's benchmark is 1,000 unique pairs; which ones is not published. Here reports with an
image are drawn by a hash of the report's file name and ``seed``: the draw does not depend on the
layout, or on the order of files. Reports whose text was drawn before are skipped. The first image
of a study by its name is used. All pairs are in the split test, as the paper has no other.

Messages contain no text of a report and no value of a DICOM file.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa
from pydantic import NonNegativeInt

from biovl.benchmark.datasets import reports
from biovl.benchmark.prepare.annotation_files import Described
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import ConfigError, SourceError

SETS = {
    "mimic_cxr": SetAbout(
        title="MIMIC-CXR: chest radiographs and whole reports",
        files=(
            "files/p10/p10000032/s50414267/*.jpg (MIMIC-CXR-JPG) or *.dcm (MIMIC-CXR)",
            "the reports: files/p10/p10000032/s50414267.txt, or mimic-cxr-reports.zip",
            "optional: mimic-cxr-2.0.0-split.csv.gz, mimic-cxr-2.0.0-metadata.csv.gz",
        ),
        get="https://physionet.org/content/mimic-cxr-jpg (images) and "
        "https://physionet.org/content/mimic-cxr (mimic-cxr-reports.zip)",
        size="570 GB of JPEG or 4.7 TB of DICOM, 140 MB of reports; a part of the images suffices",
        licence="PhysioNet Credentialed Health Data License 1.5.0. Do not share the data, nor this "
        "folder: not with anyone who has not signed the licence, not on a hub, not with services "
        "of third parties. Do not try to identify patients",
        citation="Johnson et al. 2019, MIMIC-CXR, a de-identified publicly available database of "
        "chest radiographs with free-text reports, doi:10.1038/s41597-019-0322-0",
        papers={"BMC-LongCLIP, appendix B": {"test": 1_000}},
        differs="BMC-LongCLIP does not say which 1,000 of 227,835 reports, nor which images of a "
        "study. Here: reports in the order of a hash of their file name and the seed, without "
        "texts that occurred before; the first image of the study by name. Only reports whose "
        "images were downloaded are drawn: a part of them gives another draw. White space in "
        "reports is single spaces",
        settings={"pairs": 1_000, "images": 1, "seed": 0},
    ),
}

NO_REPORT = "image of a study without a report"
OTHER_SPLIT = "report of another official split"

_IMAGE = re.compile(r"(?:^|/)p\d\d/p(\d{8})/s(\d{8})/([^/]+)\.(jpe?g|png|dcm)$", re.IGNORECASE)
_REPORT = re.compile(r"(?:^|/)p\d\d/p\d{8}/(s\d{8}\.txt)$", re.IGNORECASE)
_FINDINGS = re.compile(r"\bFINDINGS?\b", re.IGNORECASE)
_COLUMNS = ("text", "group", "study_id", "official_split", "view")
_SPLIT, _METADATA = "mimic-cxr-2.0.0-split.csv", "mimic-cxr-2.0.0-metadata.csv"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: which reports and images."""

    pairs: NonNegativeInt = 1_000
    """Number of reports to draw; 0: all."""
    images: NonNegativeInt = 1
    """Images per report, the first by name; 0: all, with the same text."""
    seed: int = 0
    """Seed of the draw."""
    split: Literal["", "train", "validate", "test"] = ""
    """Official split to draw from: train, validate or test; empty: all."""


@dataclass(frozen=True, kw_only=True)
class _Image:
    """An image of a study; names of images are those of the DICOM file."""

    file: str
    patient: str
    study: str
    name: str
    is_dicom: bool


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the drawn pairs as split test."""
    report_of, images_of, left_out = _reports(raw), _images(raw), Counter[str]()
    if not report_of or not images_of:
        what = "reports (s50414267.txt)" if not report_of else "images of studies"
        raise SourceError(
            f"{raw.folder} has no {what}; found {len(images_of):,} studies with images and "
            f"{len(report_of):,} reports. Download them from {SETS['mimic_cxr'].get}"
        )
    splits, views = _column(raw, _SPLIT, "split"), _column(raw, _METADATA, "ViewPosition")
    with_images = {name: file for name, file in report_of.items() if name[:-4] in images_of}
    left_out[reports.NO_IMAGES] = len(report_of) - len(with_images)
    left_out[NO_REPORT] = sum(
        len(own) for study, own in images_of.items() if f"{study}.txt" not in report_of
    )
    if config.split:
        own_split = _of_split(config.split, raw, with_images, images_of, splits)
        left_out[OTHER_SPLIT] = len(with_images) - len(own_split)
        with_images = own_split
    if not with_images:
        raise SourceError(
            f"{raw.folder}: no report belongs to an image; found {len(images_of):,} studies "
            f"with images and {len(report_of):,} reports, of other studies. Download the "
            f"reports of the same patients from {SETS['mimic_cxr'].get}"
        )

    def content(name: str) -> bytes:
        try:
            return raw.read(with_images[name])
        except OSError as error:
            # Without the error's own words, which may quote names.
            archive, is_archived, _ = with_images[name].partition(".zip/")
            where = f"{posixpath.basename(archive)}.zip" if is_archived else "its file"
            raise SourceError(
                f"{raw.folder}: a report cannot be read from {where}: "
                f"download it again from {SETS['mimic_cxr'].get}"
            ) from error

    texts, skipped = reports.draw(with_images, content, pairs=config.pairs, seed=config.seed)
    left_out.update(skipped)
    without = sum(not _FINDINGS.search(text) for text in texts.values())
    if without:
        raw.warn(
            f"{without:,} of {len(texts):,} reports have no section FINDINGS; whole reports are "
            "used, as in the paper"
        )
    if not splits:
        raw.warn(f"{_SPLIT}.gz was not found: official_split is empty")
    rows = [
        (image, texts[name])
        for name in sorted(texts)
        for image in images_of[name[:-4]][: config.images or None]
    ]
    return RawSet(
        holds="pairs",
        columns=dict.fromkeys(_COLUMNS, pa.string()),
        splits={"test": Described(rows, partial(_example, raw, splits, views))},
        left_out=dict(sorted((+left_out).items())),
    )


def _of_split(
    split: str,
    raw: RawFiles,
    reports_of: Mapping[str, str],
    images_of: Mapping[str, list[_Image]],
    splits: Mapping[str, str],
) -> dict[str, str]:
    """Return the reports of one official split, which is that of their first image."""
    if not splits:
        raise raw.missing(f"{_SPLIT}.gz, which names the official splits,")
    own = {
        name: file
        for name, file in reports_of.items()
        if splits.get(images_of[name[:-4]][0].name) == split
    }
    if not own:
        existing = ", ".join(sorted(set(splits.values())))
        raise ConfigError(f"reader.split: no report is of {split!r}; {_SPLIT} has {existing}")
    return own


def _reports(raw: RawFiles) -> dict[str, str]:
    """Return the files of reports by their name, s50414267.txt; the first of several."""
    files: dict[str, str] = {}
    for file in raw.names:
        match = _REPORT.search(file)
        if match is not None:
            files.setdefault(match[1].lower(), file)
    return files


def _images(raw: RawFiles) -> dict[str, list[_Image]]:
    """Return the images of each study, s50414267, by name; JPEG before DICOM of the same image."""
    by_name: dict[tuple[str, str], _Image] = {}
    for file in raw.images():
        match = _IMAGE.search(file)
        if match is not None:
            patient, study, name, suffix = match.groups()
            is_dicom = suffix.lower() == "dcm"
            image = _Image(file=file, patient=patient, study=study, name=name, is_dicom=is_dicom)
            known = by_name.get((study, name))
            if known is None or known.is_dicom:
                by_name[study, name] = image
    images_of: dict[str, list[_Image]] = {}
    for (study, _), image in sorted(by_name.items()):
        images_of.setdefault(f"s{study}", []).append(image)
    return images_of


def _column(raw: RawFiles, table: str, column: str) -> dict[str, str]:
    """Return a column by the image's name (dicom_id); empty if the table does not exist."""
    name = raw.named(f"{table}.gz") or raw.named(table)
    if name is None:
        return {}
    rows = raw.table(name, ["dicom_id", column], keep=[])
    return {row["dicom_id"]: row[column] for row in rows}


def _example(
    raw: RawFiles,
    splits: Mapping[str, str],
    views: Mapping[str, str],
    row: tuple[_Image, str],
) -> Example:
    image, text = row
    return Example(
        id=image.name,
        path=posixpath.basename(image.file),
        read=partial(raw.read, image.file),
        values={
            "text": text,
            "group": image.patient,
            "study_id": image.study,
            "official_split": splits.get(image.name),
            "view": views.get(image.name) or None,
        },
    )
