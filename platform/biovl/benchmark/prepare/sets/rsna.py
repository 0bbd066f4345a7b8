"""RSNA pneumonia detection challenge: DICOM files and a table of boxes.

BiomedCLIP's train and dev counts are those of GLoRIA's split of the 26,684 patients: 30 % drawn
with scikit-learn's ``train_test_split`` and seed 0, of which half are dev. Its 9,069 test images
are as many as 30 % of the 30,227 rows of the table, one per box; how they were drawn is not stated.

Source:
    Shih et al. 2019, doi:10.1148/ryai.2019180041; Huang et al. 2021 (GLoRIA), code of
    ``preprocess_pneumonia_data``; Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, table 1.
"""

import functools
import math
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from biovl.benchmark.prepare.labels import Labels
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.prompts import PROMPTS
from biovl.core.errors import SourceError

_LABELS, _DETAILS = "stage_2_train_labels.csv", "stage_2_detailed_class_info.csv"
_TEST_IMAGES = "stage_2_test_images"
_SHARE, _SEED = 0.3, 0

NO_IMAGE = "in the table of labels, but without an image"
NO_LABEL = "image without a label"
TWO_LABELS = "patient with two labels"
UNKNOWN = "label is neither 0 nor 1"

SETS = {
    "rsna": SetAbout(
        title="RSNA pneumonia challenge: pneumonia on a chest radiograph or not",
        files=(
            _LABELS,
            f"{_DETAILS} (optional)",
            "stage_2_train_images/ (.dcm), or the archive with all",
        ),
        get="kaggle.com/c/rsna-pneumonia-detection-challenge",
        size="3.7 GB",
        licence="terms of the RSNA 2018 challenge",
        citation="Shih et al. 2019, doi:10.1148/ryai.2019180041",
        papers={"BiomedCLIP, table 1": {"train": 18_678, "val": 4_003, "test": 9_069}},
        differs="train and val are GLoRIA's split, with BiomedCLIP's counts; test is the other "
        "4,003 patients. BiomedCLIP's 9,069 is 30 % of the 30,227 rows of the table, which has a "
        "row per box: presumably its test set repeats patients and overlaps with train. "
        "reader.test=rows draws as many rows with seed 0; the paper does not publish its choice.",
    )
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    test: Literal["patients", "rows"] = "patients"
    """``patients``: those in neither train nor val; ``rows``: 30 % of the rows of the table, as
    many as in BiomedCLIP, which overlap with train and repeat images."""


def halves(count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that scikit-learn's ``train_test_split`` returns for seed 0: train, test."""
    order = np.random.RandomState(_SEED).permutation(count)
    tests = math.ceil(share * count)
    return order[tests:], order[:tests]


def split_patients(ids: Sequence[str]) -> dict[str, list[str]]:
    """Return GLoRIA's train, val and test patients.

    Args:
        ids: All patients, sorted.
    """
    train, others = halves(len(ids), _SHARE)
    test, val = halves(len(others), 0.5)
    rows_of = {"train": train, "val": others[val], "test": others[test]}
    return {split: [ids[row] for row in rows] for split, rows in rows_of.items()}


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the patients by split, one image each.

    Raises:
        SourceError: If the table is missing, has no usable label, or there are no images.
    """
    name, left_out = raw.required(_LABELS), Counter[str]()
    table = raw.table(name, ["patientId", "Target"])
    labels = _labels_of(raw, name, table, left_out)
    details = _details(raw)
    _warn_of_contradictions(raw, labels, details)
    images = _images(raw)
    if not images:
        raise raw.missing("stage_2_train_images/*.dcm")
    # The split is that of the whole table, also if only some images were downloaded.
    patients = sorted({row["patientId"] for row in table})
    ids_of = {split: [(one, one) for one in ids] for split, ids in split_patients(patients).items()}
    if config.test == "rows":
        _, drawn = halves(len(table), _SHARE)
        ids_of["test"] = [
            (f"{table[row]['patientId']}/{row}", table[row]["patientId"]) for row in drawn
        ]
    left_out[NO_IMAGE] += len(labels.keys() - images.keys())
    left_out[NO_LABEL] += len(images.keys() - set(patients))
    splits = {
        split: [
            Example(
                id=own,
                path=posixpath.basename(images[patient]),
                read=functools.partial(raw.read, images[patient]),
                values={
                    "label": labels[patient],
                    "group": patient,
                    "detail": details.get(patient),
                },
            )
            for own, patient in ids
            if patient in labels and patient in images
        ]
        for split, ids in ids_of.items()
    }
    return RawSet(
        holds="classes",
        columns={"label": pa.string(), "group": pa.string(), "detail": pa.string()},
        splits=splits,
        classes=PROMPTS["rsna"].classes,
        left_out=+left_out,
    )


def _labels_of(
    raw: RawFiles, name: str, table: list[dict[str, str]], left_out: Counter[str]
) -> dict[str, str]:
    """Return the class of each patient."""
    spelled = Labels(PROMPTS["rsna"].spellings)
    states: dict[str, set[str | None]] = {}
    for row in table:
        states.setdefault(row["patientId"], set()).add(spelled.named(row["Target"]))
    labels = {one: state.pop() for one, state in states.items() if len(state) == 1}
    left_out[TWO_LABELS] += len(states) - len(labels)
    found = {one: label for one, label in labels.items() if label is not None}
    left_out[UNKNOWN] += len(labels) - len(found)
    if not found:
        values = sorted({row["Target"] for row in table})[:5]
        raise SourceError(f"{raw.folder}/{name} has no label: Target is {values}, not 0 and 1")
    return found


def _details(raw: RawFiles) -> dict[str, str]:
    name = raw.named(_DETAILS)
    rows = [] if name is None else raw.table(name, ["patientId", "class"])
    return {row["patientId"]: row["class"] for row in rows}


def _warn_of_contradictions(raw: RawFiles, labels: dict[str, str], details: dict[str, str]) -> None:
    """Warn if the two tables disagree: only a lung opacity is a target."""
    normal, pneumonia = PROMPTS["rsna"].classes
    implied = {
        one: pneumonia if detail.lower() == "lung opacity" else normal
        for one, detail in details.items()
    }
    wrong = [one for one, label in labels.items() if implied.get(one, label) != label]
    if wrong:
        raw.warn(
            f"{_DETAILS} contradicts {_LABELS} for {len(wrong):,} patients, the first "
            f"{wrong[0]}; Target is used"
        )


def _images(raw: RawFiles) -> dict[str, str]:
    """Return the image of each patient by the file's stem; DICOM is preferred to a copy."""
    names = [name for name in raw.images() if _TEST_IMAGES not in name.lower()]
    names.sort(key=lambda name: name.lower().endswith((".dcm", ".dicom")))
    return {posixpath.basename(name).rpartition(".")[0]: name for name in names}
