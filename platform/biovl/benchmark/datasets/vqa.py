"""Medical visual question answering: VQA-RAD and SLAKE in their published file layouts.

    VQA-RAD, as on OSF              VQA-RAD, as MEVF's split     SLAKE
      VQA_RAD Dataset Public.json     trainset.json                train.json
      VQA_RAD Image Folder/           testset.json                 validate.json (or validation)
        synpic54610.jpg …             images/synpic54610.jpg …     test.json
                                                                   imgs/xmlab1/source.jpg …

A table of questions is read as well, as ``prepare`` writes it: Parquet files named after their
split with ``image``, ``image_id``, ``question``, ``answer`` and ``answer_type``, optionally
``question_id``, ``question_frame`` (the templated form, see below) and ``language``.

VQA-RAD has two published sizes. The file on OSF has 2,248 questions: 1,797 for training and 451
(``phrase_type`` begins with ``test``) for testing. Papers that state 3,515 questions, BiomedCLIP
among them with 3,064 and 451, add its 1,267 ``question_frame``: the same question as a template,
with the same image and answer. 284 of these belong to test questions. Since 1,797 + 1,267 is 3,064,
all of them are used for training there: it sees the answers of 284 of the 451 test questions.
``templated`` chooses: ``none``, those of ``train`` questions (2,780 and 451), or ``all`` as
published, to compare with such papers.

Unusable questions are left out and counted: an unknown type of answer, no question, no answer, a
missing image. The same applies to questions of train or val that repeat an earlier one on the same
image with the same answer, or a test question; the split test is never changed.

Source:
    Lau et al. 2018, doi:10.1038/sdata.2018.251 (VQA-RAD); Liu et al. 2021, arXiv:2102.09542 (SLAKE:
    14,028 questions in two languages, 642 images; in English 4,919, 1,053 and 1,061).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from biovl.benchmark import selection
from biovl.benchmark.datasets import SPLITS, Images, Questions
from biovl.benchmark.datasets.prepared import KIND
from biovl.benchmark.stored_images import (
    Chosen,
    Column,
    ImageFiles,
    hash_of,
    image_bytes,
    parquet_parts,
)
from biovl.benchmark.vqa_answers import normalised
from biovl.core.artifacts import Folder, find_manifest
from biovl.core.errors import ArtifactError
from biovl.images.hashing import sha256_hex

KINDS = ("open", "closed")

NO_IMAGE = "the image is not there"

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
class Config:
    """Settings of the dataset: questions about images, VQA-RAD or SLAKE."""

    path: str
    """The unpacked folder, local or ``s3://``; the dataset is detected from its files."""
    templated: Literal["none", "train", "all"] = "none"
    """Which templated questions of VQA-RAD (as on OSF) to train on: ``none``, those of ``train``,
    or ``all``. With ``all``, training sees the answers of 284 test questions."""
    language: str = "en"
    """Language of SLAKE's questions, ``en`` or ``zh``."""
    repeated: Literal["drop", "keep"] = "drop"
    """Treatment of questions of train and val that repeat an earlier one or a test question:
    ``drop`` or ``keep``."""


@dataclass(frozen=True, kw_only=True)
class QuestionSet(Questions):
    """Questions of VQA-RAD or SLAKE, with statistics."""

    fingerprint: str
    """Hash of questions, answers and images."""
    notes: Mapping[str, Any]
    """``form``, a description of the dataset; number of ``questions`` by split and kind; number
    ``left_out`` by reason; number ``repeated`` by reason, which are left out unless
    ``repeated=keep``."""


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
            return ImageFiles(uri, files, hash_of(versions, _digests(ImageFiles(uri, files, ""))))
        parts, _, known = parquet_parts(uri)
        rows = np.array([row for _, row in versions], np.int64)
        return Chosen(Column(uri, parts, "image", f"{known}-image"), rows)


def build(config: Config) -> QuestionSet:
    """Return the usable questions of VQA-RAD or SLAKE in a folder.

    Raises:
        ArtifactError: If it contains none of these datasets, or its files are corrupt.
    """
    folder, data = Folder(config.path), published(config.path)
    own = [row for row in data.questions if row.language in ("", config.language)]
    others = Counter(row.language for row in data.questions)
    for name in ("", config.language):
        others.pop(name, None)
    # VQA-RAD's file mixes its splits, tables do not: the order is the same for both.
    own.sort(key=lambda row: SPLITS.index(row.split))
    rows, unusable = usable(_with_frames(own, config.templated), data.versions)
    left_out = unusable | {f"the language is {name}": n for name, n in sorted(others.items())}
    if not rows:
        raise ArtifactError(f"{folder.described} has no question that can be asked: {left_out}")
    repeated = repetitions(rows)
    if config.repeated == "drop":
        rows = [row for row, why in zip(rows, repeated, strict=True) if why is None]
    counts = {
        "left_out": left_out,
        "repeated": dict(sorted(Counter(why for why in repeated if why).items())),
    }
    return _questions(config, rows, counts, data)


def published(uri: str) -> Published:
    """Return the questions of a folder as published, without a check.

    Raises:
        ArtifactError: If the folder contains none of these datasets, or its files are corrupt.
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


def _digests(images: Images) -> list[str]:
    starts = range(0, len(images), _AT_ONCE)
    parts = [images.read(start, min(start + _AT_ONCE, len(images))) for start in starts]
    return [sha256_hex(data) for part in parts for data in part]


def of_osf(rows: Sequence[Mapping[str, Any]]) -> list[Question]:
    """Return the questions of VQA-RAD's file on OSF."""
    questions = []
    for number, row in enumerate(rows):
        is_test = str(row.get("phrase_type", "")).strip().lower().startswith("test")
        split = "test" if is_test else "train"
        questions.append(_row(row, split, number, row.get("image_name")))
    return questions


def of_mevf(rows_of: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Question]:
    """Return the questions of VQA-RAD's files of MEVF, by split.

    Templated forms are questions of their own there.
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


def _with_frames(rows: Iterable[Question], templated: str) -> Iterator[Question]:
    """Yield questions, each followed by its templated form where this is to be trained on."""
    for row in rows:
        yield row
        if row.frame and (templated == "all" or (templated == "train" and row.split != "test")):
            yield Question(
                id=f"{row.id}/templated",
                split="train",
                image=row.image,
                question=row.frame,
                answer=row.answer,
                kind=row.kind,
            )


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
        with folder.filesystem.open_input_file(folder.at(part)) as stream:
            for batch in pq.ParquetFile(stream).iter_batches(_AT_ONCE, columns=names):
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
    manifest = find_manifest(uri)
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


def usable(
    rows: Iterable[Question], images: Collection[str]
) -> tuple[list[Question], dict[str, int]]:
    """Return the usable questions, and the number of others by reason.

    Args:
        rows: Questions as published.
        images: Names of the images that exist.
    """
    kept, left_out = [], Counter[str]()
    for row in rows:
        reason = defect(row, images)
        if reason is None:
            kept.append(row)
        else:
            left_out[reason] += 1
    return kept, dict(sorted(left_out.items()))


def defect(row: Question, images: Collection[str]) -> str | None:
    """Return why a question is unusable, or None."""
    if row.kind not in KINDS:
        return f"the type of answer is {row.kind!r}"
    if not row.question or not row.answer:
        return "there is no question or no answer"
    return None if row.image in images else NO_IMAGE


def repetitions(rows: Sequence[Question]) -> list[str | None]:
    """Return for each row why it counts as repeated, or None."""
    tested = {_asked(row) for row in rows if row.split == "test"}
    earlier: set[tuple[str, str, str]] = set()
    reasons: list[str | None] = []
    for row in rows:
        key, reason = _asked(row), None
        if row.split != "test":
            if key in tested:
                reason = f"{row.split}: stands in test"
            elif key in earlier:
                reason = f"{row.split}: was met before"
            earlier.add(key)
        reasons.append(reason)
    return reasons


def _asked(row: Question) -> tuple[str, str, str]:
    return row.image, normalised(row.question), normalised(row.answer)


def _questions(
    config: Config, rows: list[Question], counted: dict[str, dict[str, int]], data: Published
) -> QuestionSet:
    names = sorted({row.image for row in rows})
    place = {name: number for number, name in enumerate(names)}
    images = data.images(config.path, names)
    counts = Counter((row.split, row.kind) for row in rows)
    return QuestionSet(
        name=_name(config, data.form),
        images=images,
        image_of=np.array([place[row.image] for row in rows], np.int64),
        questions=[row.question for row in rows],
        answers=[row.answer for row in rows],
        kinds=np.array([row.kind for row in rows]),
        splits=np.array([row.split for row in rows]),
        ids=unique([row.id for row in rows]),
        image_names=names,
        notes={
            "form": _said(data.form, config),
            "templated": config.templated,
            "images": len(names),
            "questions": {
                split: {kind: counts[split, kind] for kind in KINDS if counts[split, kind]}
                for split in SPLITS
                if any(counts[split, kind] for kind in KINDS)
            },
            **counted,
        },
        fingerprint=hash_of(images.fingerprint, rows),
    )


def _name(config: Config, form: str) -> str:
    own = {"osf": "VQA-RAD", "mevf": "VQA-RAD", "slake": "SLAKE"}
    return own.get(form) or config.path.rstrip("/").rpartition("/")[2]


def _said(form: str, config: Config) -> str:
    if form == "table":
        return "a table of questions"
    if form == "slake":
        return f"SLAKE, language {config.language}"
    if form == "mevf":
        return (
            "VQA-RAD as MEVF's split of 3,515 questions, whose training has templated forms of "
            "test questions"
        )
    return {
        "none": "VQA-RAD of 2,248 questions (OSF), without templated ones",
        "train": "VQA-RAD of 2,248 questions (OSF), with the templated ones of train",
        "all": "VQA-RAD of 3,515 questions: all templated ones in train, also those of test",
    }[config.templated]


def unique(ids: Iterable[str]) -> list[str]:
    """Return unique ids: a repeated one gets a number."""
    counts: Counter[str] = Counter()
    result = []
    for name in ids:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return result
