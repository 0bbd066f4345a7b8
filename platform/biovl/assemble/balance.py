"""Balancing: count the pairs of each label, and drop pairs of over-represented labels.

A label column holds one string per row (an image type) or several (the concepts of a figure). Rows
without a label count under ``UNLABELLED``.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble.splits import shuffle_keys
from biovl.assemble.tally import SEPARATOR

UNLABELLED = "unlabelled"

LABELS = ("global_concepts", "local_concepts", "panel_type", "panel_subtype", "image_type")
"""Label columns published by the jobs of this platform."""

_SALT = 0xBA1A_4CE0
"""Differs from the order of pairs in shards, so that kept pairs are spread over all shards."""

Labels: TypeAlias = Any
"""A pa.Array or pa.ChunkedArray of type string or list<string>."""


def counts(labels: Labels) -> dict[str, int]:
    """Return the number of rows per label; a row with several labels counts under each."""
    found: Counter[str] = Counter()
    sets, of_row = _sets(labels)
    for names, rows in zip(sets, np.bincount(of_row, minlength=len(sets)).tolist(), strict=True):
        found.update(dict.fromkeys(names, rows))
    return dict(found)


def counts_by_group(labels: Labels, groups: Labels) -> Counter[tuple[str, str]]:
    """Return the number of rows per label and group.

    Args:
        labels: Labels of N rows.
        groups: Group of each row, such as its licence group. Shape [N], string.
    """
    found: Counter[tuple[str, str]] = Counter()
    for group in pc.unique(groups).to_pylist():
        rows = pc.is_null(groups) if group is None else pc.equal(groups, group)
        own = counts(labels.filter(rows))
        found.update({(name, group or "other"): number for name, number in own.items()})
    return found


def is_labels(kind: pa.DataType) -> bool:
    """Return whether a column of this type can hold labels."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True)
class Balanced:
    """Result of ``balance_labels``: the cap, and the reason of each dropped row."""

    cap: int | None
    """Maximum rows per label that was applied; None if no label was capped."""

    over: np.ndarray
    """Label that reached the cap for each dropped row; None for kept rows. Shape [N]."""


def balance_labels(
    labels: Labels,
    article_ids: list[str],
    row_ids: list[str],
    *,
    cap: int | None = None,
    target: int | None = None,
    seed: int = 0,
) -> Balanced:
    """Drop rows until no label has more than ``cap`` of them (BIOMEDICA, section 6: CB).

    A row with several labels is kept only if none of them has reached the cap. Rows with the
    rarest labels come first: a figure with microscopy and a plot has priority over figures that
    are only plots. Among rows with the same labels, those whose article has the smaller hash are
    kept: figures of an article stay together, independent of the machine and the order of rows.

    Args:
        labels: Labels of N rows.
        article_ids: Article of each row.
        row_ids: Unique id of each row.
        cap: Maximum rows per label.
        target: If ``cap`` is None: use the largest cap that keeps at most ``target`` rows.
        seed: Seed of the hash.
    """
    over = np.full(len(row_ids), None, object)
    sets, of_row = _sets(labels)
    sizes = np.bincount(of_row, minlength=len(sets)).tolist()
    by_set = dict(zip(sets, sizes, strict=True))
    if cap is None:
        if target is None or len(row_ids) <= target:
            return Balanced(None, over)
        cap = cap_for(by_set, target)
    stays, full = _room(by_set, cap)
    for number, names in enumerate(sets):
        if stays[names] == sizes[number]:
            continue
        rows = np.flatnonzero(of_row == number)
        articles = shuffle_keys((article_ids[row] for row in rows), seed ^ _SALT)
        own = shuffle_keys((row_ids[row] for row in rows), seed ^ _SALT)
        over[rows[np.lexsort((own, articles))][stays[names] :]] = full[names]
    return Balanced(cap, over)


def cap_for(rows: Mapping[frozenset[str], int], target: int) -> int:
    """Return the largest cap that keeps at most ``target`` rows.

    Args:
        rows: Number of rows by set of labels.
        target: At least 0.
    """
    low, high = 0, sum(rows.values())
    while low < high:
        middle = (low + high + 1) // 2
        stay, _ = _room(rows, middle)
        if sum(stay.values()) <= target:
            low = middle
        else:
            high = middle - 1
    return low


def _room(
    rows: Mapping[frozenset[str], int], cap: int
) -> tuple[dict[frozenset[str], int], dict[frozenset[str], str]]:
    """Return how many rows of each set of labels are kept, and the label that limits them."""
    total: Counter[str] = Counter()
    for names, number in rows.items():
        total.update(dict.fromkeys(names, number))
    left = dict.fromkeys(total, cap)
    stay, full = {}, {}
    rarest_first = sorted(
        rows, key=lambda names: (sorted(total[name] for name in names), sorted(names))
    )
    for names in rarest_first:
        scarce = min(sorted(names), key=lambda name: left[name])
        stay[names], full[names] = min(rows[names], left[scarce]), scarce
        for name in names:
            left[name] -= stay[names]
    return stay, full


def _sets(labels: Labels) -> tuple[list[frozenset[str]], np.ndarray]:
    """Return the distinct sets of labels, and the index of each row's set. int64, shape [N]."""
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    if pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type):
        # A null in a list would make all of it null.
        if labels.flatten().null_count:
            lists = ([name for name in row or () if name is not None] for row in labels.to_pylist())
            labels = pa.array(lists, pa.list_(pa.string()))
        labels = pc.binary_join(labels.cast(pa.list_(pa.string())), SEPARATOR)
    coded = pc.fill_null(labels.cast(pa.string()), "").dictionary_encode()
    texts = [
        frozenset(filter(None, text.split(SEPARATOR))) for text in coded.dictionary.to_pylist()
    ]
    # Sets: the order of labels does not matter.
    sets = list(dict.fromkeys(names or frozenset([UNLABELLED]) for names in texts))
    place = {names: number for number, names in enumerate(sets)}
    to_set = np.array([place[names or frozenset([UNLABELLED])] for names in texts], np.int64)
    return sets, to_set[coded.indices.to_numpy()] if len(texts) else np.empty(0, np.int64)
