"""Medical visual question answering: VQA-RAD and SLAKE in their published file layouts.

    VQA-RAD, as on OSF              VQA-RAD, as MEVF's split     SLAKE
      VQA_RAD Dataset Public.json     trainset.json                train.json
      VQA_RAD Image Folder/           testset.json                 validate.json  test.json
        synpic54610.jpg …             images/synpic54610.jpg …     imgs/xmlab1/source.jpg …

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.fs as pafs

from biovl.benchmark.datasets import SPLITS, Questions
from biovl.benchmark.stored_images import ImageFiles, hash_of
from biovl.benchmark.vqa_answers import normalised
from biovl.core.artifacts import Folder
from biovl.core.errors import ArtifactError

KINDS = ("open", "closed")

_NO_FRAME = ("", "null", "na")
"""Values of VQA-RAD for questions without a templated form."""

_PUBLIC = "VQA_RAD Dataset Public.json"
_RAD_IMAGES = ("VQA_RAD Image Folder", "images")


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
class _Row:
    id: str
    split: str
    image: str
    question: str
    answer: str
    kind: str


def build(config: Config) -> QuestionSet:
    """Return the usable questions of VQA-RAD or SLAKE in a folder.

    Raises:
        ArtifactError: If it contains none of these datasets, or its files are corrupt.
    """
    folder = Folder(config.path)
    if folder.exists(_PUBLIC):
        rows, images, form = list(_public(folder, config.templated)), _rad_images(folder), "osf"
    elif folder.exists("trainset.json") and folder.exists("testset.json"):
        rows, images, form = list(_mevf(folder)), _rad_images(folder), "mevf"
    elif folder.exists("train.json") and folder.exists("test.json"):
        rows, images, form = list(_slake(folder, config.language)), "imgs", "slake"
    else:
        raise ArtifactError(
            f"{folder.described} holds neither VQA-RAD ({_PUBLIC!r}, or trainset.json and "
            "testset.json) nor SLAKE (train.json and test.json): unpack one there"
        )
    sizes = _image_sizes(folder, images)
    rows, left_out = _usable(rows, sizes)
    if not rows:
        raise ArtifactError(f"{folder.described} has no question that can be asked: {left_out}")
    repeated = _repeated(rows)
    if config.repeated == "drop":
        rows = [row for row, why in zip(rows, repeated, strict=True) if why is None]
    counts = {
        "left_out": left_out,
        "repeated": dict(sorted(Counter(why for why in repeated if why).items())),
    }
    return _questions(config, rows, counts, sizes, images, form)


def _public(folder: Folder, templated: str) -> Iterator[_Row]:
    for number, row in enumerate(_rows(folder, _PUBLIC)):
        is_test = str(row.get("phrase_type", "")).strip().lower().startswith("test")
        question = _row(row, "test" if is_test else "train", number, row.get("image_name"))
        yield question
        frame = _text(row.get("question_frame"))
        has_frame = frame.lower() not in _NO_FRAME
        if has_frame and (templated == "all" or (templated == "train" and not is_test)):
            yield _Row(
                id=f"{question.id}/templated",
                split="train",
                image=question.image,
                question=frame,
                answer=question.answer,
                kind=question.kind,
            )


def _mevf(folder: Folder) -> Iterator[_Row]:
    for name, split in (("trainset.json", "train"), ("testset.json", "test")):
        for number, row in enumerate(_rows(folder, name)):
            yield _row(row, split, number, row.get("image_name"))


def _slake(folder: Folder, language: str) -> Iterator[_Row]:
    for name, split in zip(("train.json", "validate.json", "test.json"), SPLITS, strict=True):
        if not folder.exists(name):
            continue
        for number, row in enumerate(_rows(folder, name)):
            if row.get("q_lang") == language:
                yield _row(row, split, number, row.get("img_name"))


def _row(row: Mapping[str, Any], split: str, number: int, image: Any) -> _Row:
    return _Row(
        id=f"{split}/{row.get('qid', f'row {number}')}",
        split=split,
        image=_text(image),
        question=_text(row.get("question")),
        answer=_text(row.get("answer")),
        kind=str(row.get("answer_type", "")).strip().lower(),
    )


def _text(value: Any) -> str:
    """Return a value as text with single spaces. Counts are numbers in VQA-RAD."""
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


def _usable(rows: list[_Row], sizes: Mapping[str, int]) -> tuple[list[_Row], dict[str, int]]:
    """Return the usable questions, and the number of others by reason."""
    usable, left_out = [], Counter[str]()
    for row in rows:
        if row.kind not in KINDS:
            left_out[f"the type of answer is {row.kind!r}"] += 1
        elif not row.question or not row.answer:
            left_out["there is no question or no answer"] += 1
        elif row.image not in sizes:
            left_out["the image is not there"] += 1
        else:
            usable.append(row)
    return usable, dict(sorted(left_out.items()))


def _repeated(rows: list[_Row]) -> list[str | None]:
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


def _asked(row: _Row) -> tuple[str, str, str]:
    return row.image, normalised(row.question), normalised(row.answer)


def _questions(
    config: Config,
    rows: list[_Row],
    counted: dict[str, dict[str, int]],
    sizes: Mapping[str, int],
    images: str,
    form: str,
) -> QuestionSet:
    names = sorted({row.image for row in rows})
    place = {name: number for number, name in enumerate(names)}
    # Names and sizes, not times: a copy of the folder has the same fingerprint.
    known = hash_of([(name, sizes[name]) for name in names])
    counts = Counter((row.split, row.kind) for row in rows)
    return QuestionSet(
        name="SLAKE" if form == "slake" else "VQA-RAD",
        images=ImageFiles(config.path, tuple(f"{images}/{name}" for name in names), known),
        image_of=np.array([place[row.image] for row in rows], np.int64),
        questions=[row.question for row in rows],
        answers=[row.answer for row in rows],
        kinds=np.array([row.kind for row in rows]),
        splits=np.array([row.split for row in rows]),
        ids=_unique([row.id for row in rows]),
        notes={
            "form": _said(form, config),
            "images": len(names),
            "questions": {
                split: {kind: counts[split, kind] for kind in KINDS if counts[split, kind]}
                for split in SPLITS
                if any(counts[split, kind] for kind in KINDS)
            },
            **counted,
        },
        fingerprint=hash_of(known, rows),
    )


def _said(form: str, config: Config) -> str:
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


def _unique(ids: list[str]) -> list[str]:
    """Return unique ids: a repeated one gets a number."""
    counts: Counter[str] = Counter()
    result = []
    for name in ids:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return result
