"""Questions of medical visual question answering as published: files of VQA-RAD and SLAKE, tables.

    VQA-RAD, as on OSF              VQA-RAD, as MEVF's split     SLAKE
      VQA_RAD Dataset Public.json     trainset.json                train.json
      VQA_RAD Image Folder/           testset.json                 validate.json (or validation)
        synpic54610.jpg …             images/synpic54610.jpg …     test.json
                                                                   imgs/xmlab1/source.jpg …

A table of questions is read as well, as ``prepare`` writes it: Parquet files named after their
split with ``image``, ``image_id``, ``question``, ``answer`` and ``answer_type``, optionally
``question_id``, ``question_frame`` (the templated form) and ``language``. Nothing is checked or
left out here: see ``datasets/vqa.py``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.fs as pafs

from biovl.benchmark import selection
from biovl.benchmark.datasets import Images
from biovl.benchmark.datasets.prepared import KIND
from biovl.benchmark.stored_images import (
    Chosen,
    Column,
    ImageFiles,
    files_of,
    hash_of,
    image_bytes,
    parquet_parts,
)
from biovl.core.artifacts import find_manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import open_part
from biovl.images.hashing import sha256_hex

_NO_FRAME = ("", "null", "na")
"""Values of VQA-RAD for questions without a templated form."""

PUBLIC = "VQA_RAD Dataset Public.json"
"""VQA-RAD's file on OSF."""
MEVF = {"trainset.json": "train", "testset.json": "test"}
"""VQA-RAD's files of MEVF, with their splits."""
SLAKE = {
    "train": ("train.json",),
    "val": ("validate.json", "validation.json"),
    "test": ("test.json",),
}
"""SLAKE's files by split; that of val is called differently on the hub."""
_AT_ONCE = 256
"""Rows of a table in memory at a time, with their images."""
_RAD_IMAGES = ("VQA_RAD Image Folder", "images")

_NEEDED = ("image", "image_id", "question", "answer", "answer_type")
_OPTIONAL = ("question_id", "question_frame", "language")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question as published, not yet checked."""

    id: str
    """Id of the question, with the split before it."""
    split: str
    """Split: train, val or test."""
    image: str
    """Name of the image, relative to the folder of the images."""
    question: str
    """Text of the question."""
    answer: str
    """Reference answer."""
    kind: str
    """Type of the answer in lower case: open, closed, or something else."""
    frame: str = ""
    """Templated form of the question; empty: none."""
    language: str = ""
    """Language of the question in lower case; empty: not stated."""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The question with all its fields, as published."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """All questions of a folder as published, and its images."""

    questions: list[Question]
    form: str
    """Which data it is: ``osf`` or ``mevf`` (VQA-RAD), ``slake``, or another ``table``."""
    folder: str
    """Folder of the images; empty for a table."""
    versions: Mapping[str, int]
    """Size in bytes of each image by name; for a table, its first row."""

    def images(self, uri: str, names: Sequence[str]) -> Images:
        """Return some images of the folder ``uri``, by name."""
        versions = [(name, self.versions[name]) for name in names]
        if self.folder:
            files = tuple(f"{self.folder}/{name}" for name in names)
            # Contents, not times: a copy of the folder has the same fingerprint.
            digests = [sha256_hex(data) for data in files_of(ImageFiles(uri, files, ""), _AT_ONCE)]
            return ImageFiles(uri, files, hash_of(versions, digests))
        parts, _, known = parquet_parts(uri)
        rows = np.array([row for _, row in versions], np.int64)
        return Chosen(Column(uri, parts, "image", f"{known}-image"), rows)


def published(uri: str) -> Published:
    """Return all questions of VQA-RAD, SLAKE or a table in a folder, unchecked.

    Raises:
        ArtifactError: If the folder contains none of them, or its files are corrupt.
    """
    folder = Folder(uri)
    if folder.exists(PUBLIC):
        rows, images, form = of_osf(_rows(folder, PUBLIC)), _rad_images(folder), "osf"
    elif all(map(folder.exists, MEVF)):
        rows = of_mevf({split: _rows(folder, name) for name, split in MEVF.items()})
        images, form = _rad_images(folder), "mevf"
    elif folder.exists("train.json") and folder.exists("test.json"):
        existing = {
            split: name for split, names in SLAKE.items() for name in names if folder.exists(name)
        }
        rows = of_slake({split: _rows(folder, name) for split, name in existing.items()})
        images, form = "imgs", "slake"
    elif folder.names("", ".parquet") or folder.names("data", ".parquet"):
        return _table(uri)
    else:
        raise ArtifactError(
            f"{folder.described} holds neither VQA-RAD ({PUBLIC!r}, or trainset.json and "
            "testset.json) nor SLAKE (train.json and test.json): unpack one there"
        )
    versions = _image_sizes(folder, images)
    return Published(questions=rows, form=form, folder=images, versions=versions)


def of_osf(rows: Sequence[Mapping[str, Any]]) -> list[Question]:
    """Return the questions of VQA-RAD's file on OSF."""
    questions = []
    for number, row in enumerate(rows):
        is_test = str(row.get("phrase_type", "")).strip().lower().startswith("test")
        split = "test" if is_test else "train"
        questions.append(_row(row, split, number, row.get("image_name")))
    return questions


def of_mevf(rows_of: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Question]:
    """Return the questions of VQA-RAD as distributed by MEVF, in one file per split.

    These files list templated forms as separate questions.
    """
    return [
        _row({**row, "question_frame": ""}, split, number, row.get("image_name"))
        for split, rows in rows_of.items()
        for number, row in enumerate(rows)
    ]


def of_slake(rows_of: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Question]:
    """Return the questions of SLAKE's files in all languages, by split."""
    return [
        _row(row, split, number, row.get("img_name"), str(row.get("q_lang")).strip().lower())
        for split, rows in rows_of.items()
        for number, row in enumerate(rows)
    ]


def _row(
    row: Mapping[str, Any], split: str, number: int, image: Any, language: str = ""
) -> Question:
    frame = _text(row.get("question_frame"))
    return Question(
        id=f"{split}/{row.get('qid', f'row {number}')}",
        split=split,
        image=_text(image),
        question=_text(row.get("question")),
        answer=_text(row.get("answer")),
        kind=str(row.get("answer_type", "")).strip().lower(),
        frame="" if frame.lower() in _NO_FRAME else frame,
        language=language,
        source=row,
    )


def _table(uri: str) -> Published:
    """Return the questions of Parquet files, named after their splits."""
    parts, schema, _ = parquet_parts(uri)
    missing = [name for name in _NEEDED if name not in schema.names]
    if missing:
        raise ArtifactError(
            f"{uri} has no column {missing[0]}: a table of questions has {', '.join(_NEEDED)}; "
            f"found {', '.join(schema.names)}"
        )
    names = [name for name in (*_NEEDED, *_OPTIONAL) if name in schema.names]
    folder, rows = Folder(uri), list[Question]()
    row_of, digest_of = dict[str, int](), dict[str, str]()
    for part, _ in parts:
        split = selection.split_of_file(part)
        if split is None:
            raise ArtifactError(f"{uri}/{part} is not named after a split: train, val or test")
        with open_part(folder, part) as file:
            for batch in file.iter_batches(_AT_ONCE, columns=names):
                for row in batch.to_pylist():
                    number, digest = len(rows), sha256_hex(image_bytes(row.pop("image")))
                    rows.append(_of_table(row, split, number))
                    image = rows[-1].image
                    first = row_of.setdefault(image, number)
                    if digest_of.setdefault(image, digest) != digest:
                        raise ArtifactError(
                            f"{uri}: rows {first} and {number} have the same image_id, but not "
                            "the same image: an image_id names one image in all splits"
                        )
    if len({row.id for row in rows}) < len({(row.split, row.id) for row in rows}):
        rows = [replace(row, id=f"{row.split}/{row.id}") for row in rows]
    return Published(questions=rows, form=_form_of_table(uri, rows), folder="", versions=row_of)


def _form_of_table(uri: str, rows: Sequence[Question]) -> str:
    """Return the form of a table: that of a data set only if prepare published it."""
    try:
        manifest = find_manifest(uri)
    except ArtifactError:
        # Another program's.
        manifest = None
    source = manifest.config["name"] if manifest is not None and manifest.kind == KIND else ""
    if source == "vqa_rad":
        return "osf" if any(row.frame for row in rows) else "mevf"
    return "slake" if source == "slake" else "table"


def _of_table(row: Mapping[str, Any], split: str, number: int) -> Question:
    return Question(
        id=_text(row.get("question_id")) or f"{split}/row {number}",
        split=split,
        image=_text(row["image_id"]) or f"{split}/row {number}",
        question=_text(row["question"]),
        answer=_text(row["answer"]),
        kind=_text(row["answer_type"]).lower(),
        frame=_text(row.get("question_frame")),
        language=_text(row.get("language")).lower(),
        source=row,
    )


def _text(value: Any) -> str:
    """Return a value as text with single spaces; none for NaN. Counts are numbers in VQA-RAD.

    Raises:
        ArtifactError: If it is a list or a mapping.
    """
    if isinstance(value, (list, dict)):
        raise ArtifactError(f"a question has {value!r}, expected one text: one answer for each")
    if isinstance(value, float) and not np.isfinite(value):
        return ""
    return " ".join(str("" if value is None else value).split())


def _rows(folder: Folder, name: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(folder.read(name).decode("utf-8-sig"))
    except ValueError as error:
        raise ArtifactError(f"{folder.described}/{name} is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ArtifactError(f"{folder.described}/{name} is not a list of questions")
    return rows


def _rad_images(folder: Folder) -> str:
    for name in _RAD_IMAGES:
        if folder.filesystem.get_file_info(folder.at(name)).type == pafs.FileType.Directory:
            return name
    raise ArtifactError(
        f"{folder.described} has no images: they are expected in {' or '.join(_RAD_IMAGES)}"
    )


def _image_sizes(folder: Folder, images: str) -> dict[str, int]:
    """Return the size in bytes of every file below a folder, by its path relative to it."""
    start = folder.at(images)
    infos = folder.filesystem.get_file_info(
        pafs.FileSelector(start, recursive=True, allow_not_found=True)
    )
    return {
        info.path[len(start) + 1 :]: info.size for info in infos if info.type == pafs.FileType.File
    }
