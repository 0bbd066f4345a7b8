"""VQA-RAD and SLAKE: JSON files of questions, and the images that they name.

    VQA-RAD, as on OSF              VQA-RAD, as MEVF's split     SLAKE
      VQA_RAD Dataset Public.json     trainset.json                train.json
      VQA_RAD Image Folder/           testset.json                 validate.json  test.json
        synpic54610.jpg …             images/synpic54610.jpg …     imgs/xmlab1/source.jpg …

Every question is a row with its image. The templated form of a question of VQA-RAD is the column
``question_frame``, from which benchmark adds training questions (``tasks.vqa.templated``). Repeated
questions are kept and counted: benchmark drops them from training (``tasks.vqa.repeated``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from biovl.benchmark import vqa_files
from biovl.benchmark.datasets import SPLITS, vqa
from biovl.benchmark.prepare.annotation_files import Described, NamedImages, read_json
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.selection import unique
from biovl.core.errors import SourceError

_RAD_GET = "https://osf.io/89kps (VQA_RAD Dataset Public.json, VQA_RAD Image Folder.zip)"

SETS = {
    "vqa_rad": SetAbout(
        title="VQA-RAD: questions about radiographs and slices",
        files=(
            "'VQA_RAD Dataset Public.json' with 'VQA_RAD Image Folder'",
            "or trainset.json and testset.json (MEVF) with images",
        ),
        get=_RAD_GET,
        size="about 20 MB",
        licence="CC0-1.0",
        citation="Lau et al. 2018, A dataset of clinically generated visual questions and answers "
        "about radiology images, doi:10.1038/sdata.2018.251",
        papers={
            "OSF, without templated forms": {"train": 1_797, "test": 451},
            "BiomedCLIP, table 1 (MEVF's files)": {"train": 3_064, "test": 451},
        },
        differs="the file on OSF has 1,797 questions to train on, and 1,267 templated forms in the "
        "column question_frame; 1,797 + 1,267 = 3,064, the number of BiomedCLIP and of MEVF's "
        "trainset.json. 284 of the forms are those of test questions, with their answers",
    ),
    "slake": SetAbout(
        title="SLAKE: questions about radiographs and slices, in English",
        files=("train.json, validate.json or validation.json, test.json", "imgs.zip, or imgs/"),
        get="https://huggingface.co/datasets/BoKelvin/SLAKE (the three JSON files and imgs.zip)",
        size="about 220 MB",
        licence="CC-BY-4.0",
        citation="Liu et al. 2021, SLAKE: a semantically-labeled knowledge-enhanced dataset for "
        "medical visual question answering, arXiv:2102.09542",
        papers={
            "BiomedCLIP, table 1 (English)": {"train": 4_919, "val": 1_053, "test": 1_061},
        },
        settings={"data": "slake"},
    ),
}

_COLUMNS = (
    *("question", "answer", "answer_type", "question_type"),
    *("image_id", "question_id", "organ"),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: which questions."""

    data: Literal["vqa_rad", "slake"] = "vqa_rad"
    """The data set."""
    language: Literal["en", "zh", "all"] = "en"
    """Language of SLAKE's questions; ``all``: both, told apart by the column ``language``."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the questions by split."""
    is_slake, left_out = config.data == "slake", Counter[str]()
    rows = vqa_files.of_slake(_by_split(raw, vqa_files.SLAKE)) if is_slake else _rad(raw)
    if is_slake and config.language != "all":
        others = Counter(row.language for row in rows if row.language != config.language)
        left_out.update({f"the language is {name}": count for name, count in others.items()})
        rows = [row for row in rows if row.language == config.language]
    images = NamedImages(raw)
    files = {name: images.find(name) for name in {row.image: None for row in rows} if name}
    found = {name: file for name, file in files.items() if file is not None}
    usable, unusable = vqa.usable(rows, found)
    left_out.update(unusable)
    images.warn(SETS[config.data].get)
    if not usable:
        raise SourceError(
            f"{raw.folder} has no question that can be asked: {dict(left_out)}. "
            + " ".join(raw.warnings)
        )
    repeated = Counter(why for why in vqa.repetitions(usable) if why)
    for why, count in sorted(repeated.items()):
        raw.warn(f"{count} repeated questions ({why}): benchmark does not train on them")
    ids = unique(row.id for row in usable)
    rows_of: dict[str, list[tuple[str, vqa_files.Question]]] = {split: [] for split in SPLITS}
    for name, row in zip(ids, usable, strict=True):
        rows_of[row.split].append((name, row))
    names = (*_COLUMNS, "language" if is_slake else "question_frame")
    return RawSet(
        holds="questions",
        columns=dict.fromkeys(names, pa.string()),
        splits={
            split: Described(own, partial(_example, raw, found))
            for split, own in rows_of.items()
            if own
        },
        left_out=dict(sorted(left_out.items())),
    )


def _rad(raw: RawFiles) -> list[vqa_files.Question]:
    public = raw.named(vqa_files.PUBLIC)
    if public is not None:
        return vqa_files.of_osf(_questions(raw, public))
    if not all(map(raw.named, vqa_files.MEVF)):
        raise raw.missing(f"{vqa_files.PUBLIC!r}, or {' and '.join(vqa_files.MEVF)}")
    names = {split: (name,) for name, split in vqa_files.MEVF.items()}
    return vqa_files.of_mevf(_by_split(raw, names))


def _by_split(raw: RawFiles, files: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    return {split: _questions(raw, raw.required(*names)) for split, names in files.items()}


def _questions(raw: RawFiles, name: str) -> list[dict[str, Any]]:
    rows = read_json(raw, name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SourceError(
            f"{raw.folder}/{name} is not a list of questions: expected one object each"
        )
    return rows


def _example(
    raw: RawFiles, files: Mapping[str, str], named: tuple[str, vqa_files.Question]
) -> Example:
    name, row = named
    source, file = row.source, files[row.image]
    return Example(
        id=name,
        path=row.image,
        read=partial(raw.read, file),
        values={
            "question": row.question,
            "answer": row.answer,
            "answer_type": row.kind,
            "question_type": _optional(source, "question_type", "content_type"),
            "image_id": row.image,
            "question_id": row.id,
            "organ": _optional(source, "image_organ", "location"),
            "question_frame": row.frame or None,
            "language": row.language or None,
        },
    )


def _optional(source: Mapping[str, Any], *names: str) -> str | None:
    return next((str(source[name]).strip() for name in names if source.get(name)), None)
