"""Medical visual question answering: VQA-RAD and SLAKE as published, or a table of questions.

``vqa_files`` has the layouts of the files.

VQA-RAD has two published sizes. The file on OSF has 2,248 questions: 1,797 for training and 451
(``phrase_type`` begins with ``test``) for testing. Papers that state 3,515 questions, such as
BiomedCLIP (3,064 and 451), add the 1,267 values of ``question_frame``: the same question as a
template, with the same image and answer. 284 of these belong to test questions. Since 1,797 + 1,267
is 3,064, these papers train on all templates, and so on the answers of 284 of the 451 test
questions. ``templated`` selects the templates to add: ``none``, those of ``train`` questions (2,780
and 451), or ``all``, to compare with these papers.

Unusable questions are left out and counted: an unknown type of answer, no question, no answer, a
missing image. The same applies to questions of train or val that repeat an earlier one on the same
image with the same answer, or a test question; the split test is never changed.

Source:
    Lau et al. 2018, doi:10.1038/sdata.2018.251 (VQA-RAD); Liu et al. 2021, arXiv:2102.09542 (SLAKE:
    14,028 questions in two languages, 642 images; in English 4,919, 1,053 and 1,061).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from biovl.benchmark.datasets import SPLITS, Questions
from biovl.benchmark.selection import unique
from biovl.benchmark.stored_images import hash_of
from biovl.benchmark.vqa_answers import normalised
from biovl.benchmark.vqa_files import Published, Question, published
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import base_name
from biovl.core.folders import Folder

KINDS = ("open", "closed")

NO_IMAGE = "the image was not found"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a visual question answering dataset, VQA-RAD or SLAKE."""

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


def build(config: Config) -> QuestionSet:
    """Return the usable questions of VQA-RAD or SLAKE in a folder.

    Raises:
        ArtifactError: If it contains none of these datasets, or its files are corrupt.
    """
    folder, data = Folder(config.path), published(config.path)
    wanted = ("", config.language.strip().lower())
    own = [row for row in data.questions if row.language in wanted]
    others = Counter(row.language for row in data.questions)
    for name in wanted:
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
    return own.get(form) or base_name(config.path)


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
