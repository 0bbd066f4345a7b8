"""Constructors and subsets of datasets, arranged so that tasks share the embeddings of a split."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark.datasets import SPLITS, Images, LabelledImages, Pairs
from biovl.benchmark.stored_images import Chosen, JoinedImages, parts_of
from biovl.core.errors import ArtifactError

# Shapes: N images.

NO_TEXT, OTHER_SPLIT = "no text", "of another split"

_SPLIT_NAMES = {
    **{"train": "train", "training": "train", "trainval": "train"},
    **{"val": "val", "valid": "val", "validation": "val", "dev": "val"},
    **{"test": "test", "testing": "test", "eval": "test"},
}


def split_named(name: str) -> str | None:
    """Return train, val or test for its usual spellings, otherwise None."""
    return _SPLIT_NAMES.get(name.lower())


def split_of_file(name: str) -> str | None:
    """Return the split in the name of a file, ``test-00000-of-00001`` or ``my_test.2``; or None."""
    words = re.split(r"[^a-z]+", name.rpartition("/")[2].lower())
    found = {split for word in words if (split := split_named(word))}
    return found.pop() if len(found) == 1 else None


def unique(ids: Iterable[str]) -> list[str]:
    """Return ids made unique: a repeated one gets a suffix, ``#2``, ``#3`` and so on."""
    counts: Counter[str] = Counter()
    result = []
    for name in ids:
        counts[name] += 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return result


def splits_of(stated: Iterable[str | None] | None, parts: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return the split of each row of a table, empty if unknown.

    Args:
        stated: The column of splits, if there is one.
        parts: Name and number of rows of each file; without a column, names determine the split.

    Raises:
        ArtifactError: If some files are named after a split and others are not.
    """
    if stated is not None:
        return np.array([split_named(name) or name for name in (name or "" for name in stated)])
    by_file = {name: split_of_file(name) for name, _ in parts}
    unknown = [name for name, split in by_file.items() if split is None]
    if 0 < len(unknown) < len(by_file):
        raise ArtifactError(
            f"{unknown[0]} is not named after a split, as other files of the table are: name it "
            "after train, val or test, or put it elsewhere"
        )
    return np.repeat([split or "" for split in by_file.values()], [rows for _, rows in parts])


def rows_where(table: pa.Table, where: Mapping[str, str]) -> np.ndarray:
    """Return which rows have values, by column; values are compared as text. bool, [N]."""
    mask_N = np.ones(len(table), bool)
    for name, value in where.items():
        mask_N &= np.asarray(pc.equal(table[name].cast(pa.string()), value).fill_null(False))
    return mask_N


def labelled(
    *,
    name: str,
    images: Images,
    labels: Sequence[int] | np.ndarray,
    classes: Sequence[str],
    splits: Sequence[str] | np.ndarray,
    ids: Sequence[str],
    left_out_of: Mapping[str, Mapping[str, int]] | None = None,
) -> LabelledImages:
    """Return validated labelled images, sorted by split so that each split is one part.

    Raises:
        ArtifactError: If there are no images or only one class, or a label or an id is not valid.
    """
    label_N, split_N = np.asarray(labels, np.int64), np.asarray(splits, dtype=str)
    if not len(images):
        raise ArtifactError(f"{name} holds no images")
    if len(classes) < 2:
        raise ArtifactError(
            f"{name} has one class ({', '.join(classes)}): there is nothing to tell apart"
        )
    if len(set(classes)) < len(classes):
        raise ArtifactError(f"{name} has two classes of the same name: {', '.join(classes)}")
    if len(set(ids)) < len(ids):
        raise ArtifactError(f"{name} has two images of the same id")
    if not (len(label_N) == len(split_N) == len(ids) == len(images)):
        raise ArtifactError(
            f"{name} has {len(images)} images, {len(label_N)} labels and {len(split_N)} splits"
        )
    wrong = np.flatnonzero((label_N < 0) | (label_N >= len(classes)))
    if len(wrong):
        raise ArtifactError(
            f"{name}: the label of {ids[wrong[0]]} is {label_N[wrong[0]]}, expected "
            f"0..{len(classes) - 1}"
        )
    unknown = sorted(set(split_N.tolist()) - set(SPLITS))
    if unknown:
        raise ArtifactError(f"{name}: splits are {', '.join(SPLITS)}, found {unknown[0]!r}")
    rows = [np.flatnonzero(split_N == split) for split in SPLITS]
    order = np.concatenate(rows)
    parts: list[Images] = [_rows(images, part) for part in rows if len(part)]
    return LabelledImages(
        name=name,
        images=parts[0] if len(parts) == 1 else JoinedImages(tuple(parts)),
        labels=label_N[order],
        classes=tuple(classes),
        splits=split_N[order],
        ids=[ids[row] for row in order],
        left_out_of=dict(left_out_of or {}),
    )


def labels_of_names(
    path: str, column: str, names: Sequence[str | None], classes: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return labels of rows, -1 for other names, and the classes: all names, sorted, if empty.

    Raises:
        ArtifactError: If no row has one of the classes.
    """
    existing = sorted({name for name in names if name})
    missing = [name for name in classes if name not in existing]
    if missing:
        raise ArtifactError(
            f"{path}: classes has {missing[0]!r}, which no {column} is; found "
            f"{', '.join(existing[:40])}"
        )
    classes = tuple(classes or existing)
    places = {name: number for number, name in enumerate(classes)}
    return np.array([places.get(name or "", -1) for name in names], np.int64), classes


def _rows(images: Images, row_N: np.ndarray) -> Images:
    first = 0
    for part in parts_of(images):
        if np.array_equal(row_N, np.arange(first, first + len(part))):
            return part
        first += len(part)
    return Chosen(images, row_N)


def only(data: LabelledImages, split: str) -> LabelledImages:
    """Return a dataset with only the images of one split.

    Raises:
        ArtifactError: If the split has no images.
    """
    rows = np.flatnonzero(data.splits == split)
    if not len(rows):
        existing = ", ".join(sorted(set(data.splits.tolist())))
        raise ArtifactError(f"{data.name} has no images in the split {split!r}, only in {existing}")
    return replace(
        data,
        images=_rows(data.images, rows),
        labels=data.labels[rows],
        splits=data.splits[rows],
        ids=[data.ids[row] for row in rows],
        left_out_of={split: data.left_out_of.get(split, {})},
    )


def count_left_out(reason: str, splits: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the number of rows left out by split and reason, from the split of each row."""
    return {split: {reason: count} for split, count in Counter(splits).items()}


def pairs(
    *,
    name: str,
    images: Images,
    texts: Sequence[str] | Sequence[Sequence[str]],
    ids: Sequence[str],
    about: pa.Table | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Pairs:
    """Return validated pairs: equal texts are merged, images without a text left out.

    Args:
        name: Name of the dataset.
        images: N images.
        texts: Text, or texts, of each image.
        ids: Unique id of each image.
        about: Columns by which scores are broken down, one row per image.
        left_out: Number of rows left out before, by reason.

    Raises:
        ArtifactError: If there are no pairs, or an id is repeated.
    """
    without = Counter(left_out or {})
    texts_N = [_distinct([own] if isinstance(own, str) else own) for own in texts]
    with_text = [row for row, own in enumerate(texts_N) if own]
    if len(with_text) < len(texts_N):
        without[NO_TEXT] += len(texts_N) - len(with_text)
        images = Chosen(images, np.array(with_text, np.int64))
        texts_N, ids = [texts_N[row] for row in with_text], [ids[row] for row in with_text]
        about = about.take(with_text) if about is not None else None
    if not len(images):
        raise ArtifactError(f"{name} holds no pairs")
    if not (len(texts_N) == len(ids) == len(images)):
        raise ArtifactError(f"{name} has {len(images)} images and texts of {len(texts_N)}")
    if len(set(ids)) < len(ids):
        raise ArtifactError(f"{name} has two images of the same id")
    places: dict[str, int] = {}
    rows = [
        (image, places.setdefault(text, len(places)))
        for image, own in enumerate(texts_N)
        for text in own
    ]
    pair_P2 = np.array(rows, np.int64)
    is_first_P = np.diff(pair_P2[:, 0], prepend=-1) > 0
    none = pa.table({"id": pa.array(ids, pa.string())})
    return Pairs(
        name=name,
        images=images,
        texts=list(places),
        text_of_image=pair_P2[is_first_P, 1],
        about=none if about is None else about,
        ids=list(ids),
        further_F2=pair_P2[~is_first_P],
        left_out=dict(without),
    )


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.strip()))
