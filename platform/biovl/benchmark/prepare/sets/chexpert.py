"""CheXpert: frontal chest radiographs with 14 findings, and its subset CheXpert-5x200.

Source:
    Irvin et al. 2019, arXiv:1901.07031; Huang et al. 2021 (GLoRIA), section 4: 200 images of each
    of five findings, without other findings; ``preprocess_chexpert_5x200_data`` of its code.
"""

import functools
import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from biovl.benchmark.prepare.labels import drawn, finding
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import SourceError

CLASSES = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
"""The five findings of the competition, and of CheXpert-5x200."""

NO_FINDING = "No Finding"
FINDINGS = (
    *(NO_FINDING, "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion"),
    *("Edema", "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion"),
    *("Pleural Other", "Fracture", "Support Devices"),
)
"""Columns of the table, in its order."""

_EACH = 200
_LISTS = ("chexpert_5x200.csv", "chexpert-5x200.csv", "chexpert_8x200.csv")
_VIEW = "Frontal/Lateral"

NO_IMAGE = "in the table of labels, but without an image"
LATERAL = "lateral view"
NO_CLASS = "not exactly one of the five findings"
PATIENT_IN_TEST = "patient is in the test set"
BAD_VALUE = "finding is neither 1, 0, -1 nor blank"

SETS = {
    "chexpert": SetAbout(
        title="CheXpert: five findings on frontal chest radiographs (CheXpert-5x200)",
        files=("train.csv", "train/", "valid.csv and valid/ (optional)", f"{_LISTS[0]} (optional)"),
        get="stanfordmlgroup.github.io/competitions/chexpert (CheXpert-v1.0 or -small)",
        size="11 GB (small) or 439 GB",
        licence="Stanford research use agreement",
        citation="Irvin et al. 2019, arXiv:1901.07031; Huang et al. 2021 (GLoRIA) for 5x200",
        papers={"GLoRIA, section 4": {"test": 5 * _EACH}},
        differs="BIOMEDICA has five classes and does not state which images it used. Here test "
        "is CheXpert-5x200 as GLoRIA defines it; GLoRIA drew it without a seed and does not "
        "publish it. If you have its list, chexpert_5x200.csv in raw with a column Path, it is "
        "used; otherwise images are drawn with reader.seed.",
    )
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    seed: int = 0
    """Seed of the 200 images of each finding."""
    rows: Literal["classes", "all"] = "classes"
    """Training and validation images: ``classes``, those with exactly one of the five findings;
    ``all``: all frontal ones, also without a label."""


@dataclass(frozen=True)
class _Image:
    key: str
    """``PATIENT/STUDY/VIEW``; numbers of patients are unique in all parts of the data set."""
    file: str
    states: Mapping[str, int | None]

    @property
    def label(self) -> str | None:
        """The finding if it is positive, one of the five, and no other is positive or uncertain."""
        named = [
            name for name, state in self.states.items() if state in (1, -1) and name != NO_FINDING
        ]
        is_class = len(named) == 1 and named[0] in CLASSES and self.states[named[0]] == 1
        return named[0] if is_class else None

    @property
    def patient(self) -> str:
        return self.key.split("/")[0]


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the splits.

    test is CheXpert-5x200; train is ``train.csv`` without the patients of test; val is
    ``valid.csv``, which radiologists labelled.

    Raises:
        SourceError: If train.csv or its images are missing, or no image has a label.
    """
    left_out, files = Counter[str](), {_key(name): name for name in raw.images()}
    train, val = _images(raw, "train.csv", files, left_out), list[_Image]()
    if raw.named("valid.csv"):
        val = _images(raw, "valid.csv", files, left_out)
    else:
        raw.warn("valid.csv was not found: no val images")
    test = _test(raw, train, config.seed)
    patients = {one.patient for one in test}
    others = [one for one in train if one.patient not in patients]
    left_out[PATIENT_IN_TEST] += len(train) - len(others) - len(test)
    splits = {"train": others, "val": val}
    if config.rows == "classes":
        for split, images in splits.items():
            splits[split] = [one for one in images if one.label]
            left_out[NO_CLASS] += len(images) - len(splits[split])
    splits["test"] = test
    strings = dict.fromkeys(("label", "group"), pa.string())
    return RawSet(
        holds="classes",
        columns={**strings, **dict.fromkeys(FINDINGS, pa.int8())},
        splits={split: [_example(raw, one) for one in images] for split, images in splits.items()},
        classes=CLASSES,
        left_out=+left_out,
    )


def _test(raw: RawFiles, train: list[_Image], seed: int) -> list[_Image]:
    """Return CheXpert-5x200: the published list if it is there, otherwise a draw."""
    by_key = {one.key: one for one in train}
    listed = raw.named(*_LISTS)
    if listed is not None:
        keys = [_key(row["Path"]) for row in raw.table(listed, ["Path"])]
        test = [by_key[key] for key in dict.fromkeys(keys) if key in by_key]
        without = [one.key for one in test if not one.label]
        if without:
            raw.warn(
                f"{listed} has {len(without):,} images without exactly one of the five "
                f"findings, the first {without[0]}: they have no label"
            )
        raw.warn(f"test is the list {listed}: {len(test):,} of {len(keys):,}")
        return test
    keys_of: dict[str, list[str]] = {name: [] for name in CLASSES}
    for one in train:
        if one.label:
            keys_of[one.label].append(one.key)
    if not any(keys_of.values()):
        raise SourceError(f"{raw.folder}: no frontal image of train.csv has one of {CLASSES}")
    return [by_key[key] for keys in keys_of.values() for key in drawn(keys, _EACH, seed)]


def _images(
    raw: RawFiles, name: str, files: Mapping[str, str], left_out: Counter[str]
) -> list[_Image]:
    """Return the frontal images of a table whose files are there, in its order."""
    images = []
    for row in raw.table(raw.required(name), ["Path", *FINDINGS], keep=[_VIEW]):
        key = _key(row["Path"])
        if "lateral" in (row.get(_VIEW) or key).lower():
            left_out[LATERAL] += 1
            continue
        file = files.get(key)
        if file is None:
            left_out[NO_IMAGE] += 1
            continue
        try:
            states = {finding_: finding(row[finding_]) for finding_ in FINDINGS}
        except ValueError:
            left_out[BAD_VALUE] += 1
            continue
        images.append(_Image(key, file, states))
    if not images:
        raise raw.missing(f"{name.partition('.')[0]}/patient…/study…/view1_frontal.jpg")
    return images


def _key(path: str) -> str:
    """Return ``PATIENT/STUDY/VIEW`` of a path: releases differ in the folders above."""
    parts = re.split(r"[/\\]", path.lower())
    return "/".join(parts[-3:]).rpartition(".")[0]


def _example(raw: RawFiles, one: _Image) -> Example:
    return Example(
        id=one.key,
        path=posixpath.basename(one.file),
        read=functools.partial(raw.read, one.file),
        values={"label": one.label, "group": one.patient, **one.states},
    )
