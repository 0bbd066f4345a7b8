"""Counts of a prepared data set, and warnings about them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from biovl.benchmark.prepare.sets import RawSet, SetAbout
from biovl.core.folders import Folder
from biovl.core.tables import read_table

_SHOWN = 5


def statistics(
    folder: Folder, files: Mapping[str, Mapping[str, Any]], opened: RawSet
) -> dict[str, Any]:
    """Return rows by class or finding and patients of each split, and overlaps between splits.

    Args:
        folder: The folder of the files.
        files: The Parquet files, named after their split.
        opened: The data set.
    """
    is_classes, is_findings = opened.holds == "classes", opened.holds == "findings"
    read = ["id", *["label"] * is_classes, *opened.classes * is_findings]
    read += ["group"] * ("group" in opened.columns)
    by_class: dict[str, dict[str, Any]] = {}
    ids, groups = dict[str, set[str]](), dict[str, set[str]]()
    for name in files:
        split = name.partition("-")[0]
        table = read_table(folder, name, read)
        ids.setdefault(split, set()).update(table["id"].to_pylist())
        if "group" in read:
            known = (group for group in table["group"].to_pylist() if group is not None)
            groups.setdefault(split, set()).update(known)
        counts = by_class.setdefault(split, dict.fromkeys(opened.classes, 0))
        if is_classes:
            for label, count in Counter(table["label"].drop_null().to_pylist()).items():
                counts[label] = counts.get(label, 0) + count
        if is_findings:
            for finding in opened.classes:
                states = Counter(map(_state, table[finding].to_pylist()))
                before = Counter(counts[finding] or {})
                counts[finding] = dict(sorted((before + states).items()))
    return {
        "by_class": by_class,
        "groups": {split: len(known) for split, known in groups.items()},
        "ids_in_two_splits": _shared(ids),
        "groups_in_two_splits": _shared(groups),
    }


def _state(value: int | None) -> str:
    return {1: "positive", 0: "negative", -1: "uncertain"}.get(value, "blank")  # type: ignore[arg-type]


def _shared(of_split: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return how many values are in more than one split, and the first of them."""
    counts = Counter(value for values in of_split.values() for value in values)
    shared = sorted(value for value, count in counts.items() if count > 1)
    return {"count": len(shared), "first": shared[:_SHOWN]}


def warnings_of(
    found: Mapping[str, Any], rows_of: Mapping[str, int], about: SetAbout, opened: RawSet
) -> list[str]:
    """Return warnings about counts unlike the papers', overlapping splits and missing classes."""
    warnings = []
    for paper, expected in about.papers.items():
        differing = [
            f"{split} {rows_of.get(split, 0):,} instead of {count:,}"
            for split, count in expected.items()
            if rows_of.get(split, 0) != count
        ]
        if differing:
            warnings.append(f"counts differ from {paper}: {', '.join(differing)}")
    shared = {"ids": "ids", "groups": "patients or slides (column group)"}
    for key, what in shared.items():
        overlap = found[f"{key}_in_two_splits"]
        if overlap["count"]:
            first = ", ".join(overlap["first"])
            warnings.append(f"in two splits: {overlap['count']:,} {what}: {first}")
    if opened.holds == "classes":
        for split, counts in found["by_class"].items():
            empty = [name for name in opened.classes if not counts.get(name)]
            if empty:
                warnings.append(f"{split} has no image of {', '.join(empty)}")
    return warnings
