"""Lists of article versions to one catalogue, and what is different from an earlier one.

Millions of versions are worked on in ranges of article numbers: all versions of an article are in
one, and none needs more memory than it takes.
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
"""Also where all else is as it was, the next increment asks for these again."""

SCHEMA = LISTED.append(pa.field("state", pa.string(), nullable=False))
"""``catalogue/`` of a harvest: every version there is, and what became of it: ``harvested``, or the
reason why not."""

WIDTH = 100_000
"""Article numbers are counted by so many, to make ranges of about equal weight."""

_VERSION_BITS = 20  # of a key: versions have up to six digits
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Range:
    """Article numbers from ``begin`` to before ``end``."""

    begin: int
    end: int

    def of(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table whose ``number`` is in it."""
        return table.filter(
            pc.and_(
                pc.greater_equal(table["number"], self.begin), pc.less(table["number"], self.end)
            )
        )

    def filters(self) -> list[tuple[str, str, int]]:
        """Return the same for ``pyarrow.parquet``, which then skips what is outside."""
        return [("number", ">=", self.begin), ("number", "<", self.end)]


def counted(table: pa.Table) -> dict[str, int]:
    """Return how many rows there are by ``number // WIDTH``."""
    found = np.unique(table["number"].to_numpy() // WIDTH, return_counts=True)
    return {str(place): int(count) for place, count in zip(*found, strict=True)}


def ranges(counts: Sequence[dict[str, int]], rows: int) -> list[Range]:
    """Return ranges of at least so many rows each, which together hold every number."""
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
    # Nothing is outside, also of an earlier catalogue.
    ends[-1] = np.iinfo(np.int64).max
    return [Range(b, e) for b, e in zip([0, *ends[:-1]], ends, strict=True)]


def distinct(table: pa.Table, refused: Counter[str]) -> pa.Table:
    """Return versions in order, each once: as it was modified last."""
    order = [(name, "ascending") for name in ("number", "version", "last_modified", "etag")]
    ordered = table.sort_by(order).combine_chunks()
    keys = _keys(ordered)
    is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
    if not is_last.all():
        refused[TWICE] += int((~is_last).sum())
    return ordered.filter(pa.array(is_last))


@dataclass(frozen=True)
class Difference:
    """What of a range of a catalogue is not as it was."""

    same: np.ndarray
    """Which versions are as in the earlier catalogue. Shape [V], bool."""
    touched: np.ndarray
    """Which belong to articles of which anything is not. Shape [V], bool."""
    state: list[str | None]
    """What became of each before; None of what is new. Shape [V]."""
    ended: pa.Table
    """``SCHEMA``: what of touched articles was harvested before."""
    counts: dict[str, int]


def difference(
    new: pa.Table, old: pa.Table, asked: np.ndarray | None, broken: Sequence[int] = ()
) -> Difference:
    """Compare two catalogues of a range.

    A version is the same if its ETag and the day it was modified are: a record holds the MD5 of
    every file of its version, so whatever changes changes both.

    Args:
        new: ``LISTED``, in order and distinct.
        old: ``SCHEMA``, in order and distinct; no rows for a first harvest.
        asked: Sorted numbers of the articles that are asked for; None for all.
        broken: Numbers of articles of which a file could not be had: nothing of them is the same.
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
    is_asked = np.ones(len(numbers), bool) if asked is None else np.isin(numbers, asked)
    # Whether an article is asked for may change without it: a search finds others every day.
    turned = known & (is_asked == (state == NOT_ASKED))
    again = np.isin(state.astype(str), AGAIN) | np.isin(numbers, broken)
    moved = np.concatenate([numbers[~equal | turned | again], old_numbers[gone]])
    touched = np.isin(numbers, moved)
    harvested = np.array(pc.equal(old["state"], HARVESTED).to_numpy(zero_copy_only=False), bool)
    return Difference(
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
