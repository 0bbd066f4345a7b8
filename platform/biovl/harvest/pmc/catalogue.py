"""A catalogue of article versions, and its comparison with an earlier one.

Millions of versions are processed in ranges of article numbers: a range holds all versions of an
article, and memory is bounded by one range.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.harvest.pmc.inventory import LISTED, TWICE

HARVESTED = "harvested"
NOT_ASKED = "not asked for"
FAILED = "record cannot be fetched"
MISSING = "record is missing"
UNREADABLE = "record cannot be read"
AGAIN = (FAILED, MISSING, UNREADABLE)
"""States that the next incremental harvest retries even if nothing else changed."""

SCHEMA = LISTED.append(pa.field("state", pa.string(), nullable=False))
"""Schema of ``catalogue/``: every version and its state, ``harvested`` or the reason why not."""

WIDTH = 100_000
"""Bucket width of the histogram of article numbers from which ranges of similar size are made."""

_VERSION_BITS = 20  # of a key: versions have up to six digits
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Range:
    """Range of article numbers from ``begin`` (included) to ``end`` (excluded)."""

    begin: int
    end: int

    def of(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table whose ``number`` is in the range."""
        return table.filter(
            pc.and_(
                pc.greater_equal(table["number"], self.begin), pc.less(table["number"], self.end)
            )
        )

    def filters(self) -> list[tuple[str, str, int]]:
        """Return the range as filters of ``pyarrow.parquet``, which then skips row groups."""
        return [("number", ">=", self.begin), ("number", "<", self.end)]


def number_histogram(table: pa.Table) -> dict[str, int]:
    """Return the histogram of article numbers: rows by ``number // WIDTH``."""
    found = np.unique(table["number"].to_numpy() // WIDTH, return_counts=True)
    return {str(place): int(count) for place, count in zip(*found, strict=True)}


def ranges(counts: Sequence[dict[str, int]], rows: int) -> list[Range]:
    """Return ranges that cover all numbers, of at least ``rows`` rows each except the last."""
    total: Counter[int] = Counter()
    for part in counts:
        total.update({int(place): count for place, count in part.items()})
    ends, held = [], 0
    for place in sorted(total):
        held += total[place]
        if held >= rows:
            ends.append((place + 1) * WIDTH)
            held = 0
    if held or not ends:
        ends.append(0)
    # The outer ranges are open, as an earlier catalogue may have other numbers.
    ends[-1] = np.iinfo(np.int64).max
    return [Range(b, e) for b, e in zip([0, *ends[:-1]], ends, strict=True)]


def distinct(table: pa.Table, refused: Counter[str]) -> pa.Table:
    """Return sorted distinct versions: of duplicates, the one modified last."""
    order = [(name, "ascending") for name in ("number", "version", "last_modified", "etag")]
    ordered = table.sort_by(order).combine_chunks()
    keys = _keys(ordered)
    is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
    if not is_last.all():
        refused[TWICE] += int((~is_last).sum())
    return ordered.filter(pa.array(is_last))


@dataclass(frozen=True)
class CatalogueDifference:
    """Differences between two catalogues in a range of article numbers. V versions."""

    same: np.ndarray
    """Whether each version is unchanged. Shape [V], bool."""
    touched: np.ndarray
    """Whether each version belongs to an article with any change. Shape [V], bool."""
    state: list[str | None]
    """State of each version in the earlier catalogue; None if new. Shape [V]."""
    ended: pa.Table
    """Versions of changed articles that were harvested before: rows of ``SCHEMA``."""
    counts: dict[str, int]


def difference(
    new: pa.Table, old: pa.Table, requested: np.ndarray | None, broken: Sequence[int] = ()
) -> CatalogueDifference:
    """Return the differences between two catalogues of a range.

    A version is unchanged if its record has the same ETag and modification day: the record
    contains the MD5 of every file of the version, so any change alters both.

    Args:
        new: ``LISTED``, sorted and distinct.
        old: ``SCHEMA``, sorted and distinct; no rows for a first harvest.
        requested: Sorted numbers of the requested articles; None for all.
        broken: Numbers of articles with failed downloads: they count as changed.
    """
    new_keys, old_keys = _keys(new), _keys(old)
    at = np.searchsorted(old_keys, new_keys)
    at[at == len(old_keys)] = 0
    known = old_keys[at] == new_keys if len(old_keys) else np.zeros(len(new_keys), bool)
    was = old.take(pa.array(at[known]))
    equal = np.zeros(len(new_keys), bool)
    equal[known] = pc.equal(was["etag"], new.filter(pa.array(known))["etag"]).to_numpy() & (
        _days(was) == _days(new)[known]
    )
    gone = ~np.isin(old_keys, new_keys)
    numbers, old_numbers = new["number"].to_numpy(), old["number"].to_numpy()
    state = np.full(len(new_keys), None, object)
    state[known] = was["state"].to_pylist()
    is_asked = np.ones(len(numbers), bool) if requested is None else np.isin(numbers, requested)
    # A search may match other articles every day although they did not change.
    turned = known & (is_asked == (state == NOT_ASKED))
    again = np.isin(state.astype(str), AGAIN) | np.isin(numbers, broken)
    moved = np.concatenate([numbers[~equal | turned | again], old_numbers[gone]])
    touched = np.isin(numbers, moved)
    harvested = np.array(pc.equal(old["state"], HARVESTED).to_numpy(zero_copy_only=False), bool)
    return CatalogueDifference(
        same=equal & ~np.isin(numbers, broken),
        touched=touched,
        state=list(state),
        ended=old.filter(pa.array(np.isin(old_numbers, moved) & harvested)),
        counts={
            "new": int((~known).sum()),
            "changed": int((known & ~equal).sum()),
            "same": int(equal.sum()),
            "gone": int(gone.sum()),
        },
    )


def _keys(table: pa.Table) -> np.ndarray:
    """Return one sortable number for each version. Shape [V], int64."""
    numbers, versions = table["number"].to_numpy(), table["version"].to_numpy()
    keys: np.ndarray = (numbers.astype(np.int64) << _VERSION_BITS) | versions.astype(np.int64)
    return keys


def _days(table: pa.Table) -> np.ndarray:
    days: np.ndarray = table["last_modified"].cast(pa.int64()).to_numpy() // _DAY_MS
    return days
