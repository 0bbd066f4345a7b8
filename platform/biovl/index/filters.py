"""Filters of figures, on columns that are precomputed and memory-mapped.

fields.json              number of rows, and the storage format of each field
facets.json              figure counts of the most frequent values of each field, and of years
<field>.values.arrow     sorted values; the code of a value is its position + 1, 0 is null
<field>.codes.npy        code of each row, for fields with one value per figure
<field>.starts.npy       offset into rows.npy of each value, for other fields
<field>.rows.npy         rows of each value: fields with several values, or with very many
year.codes.npy           the year itself, 0 is null
"""

import functools
import json
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.core.errors import ArtifactError
from biovl.index.mapped import map_array, map_texts, places_of
from biovl.index.postings import ArrayFile, Runs, pieces, write_texts
from biovl.index.query import Filter, Years

FIELDS = tuple(field.name for field in fields(Filter) if field.name != "year")
COLUMNS = {"concept": "concepts", "mesh_term": "mesh_terms", "label": "labels"}
"""Columns of the metadata table for ``Filter`` fields with another name."""
LATER = frozenset({"panel_type", "panel_subtype", "label"})
"""Fields that indexes of earlier versions lack: there they are null for all figures."""
FACET_VALUES = 50
"""Number of most frequent values listed per field; years are listed completely."""

_MOST_CODES = 65_535
"""Fields with more values are stored by value: scanning every row would be slower."""
_PIECE = 65_536
"""Rows per batch while filters are built."""
_CACHE_BYTES = 256 << 20
_CACHE_FILTERS = 256
_CACHE_CHARS = 4_096
"""Filters with longer values are not cached: clients control their length."""

Storage = Literal["codes", "rows"]


class FilterSource(Protocol):
    """Source of the filterable columns: a ``MetadataTable``, or a ``pa.Table`` with its schema."""

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of all rows."""
        ...


@dataclass(frozen=True, eq=False)
class Selection:
    """The rows of an index that match a filter."""

    count: int
    bitmap: np.ndarray | None = None
    """Row i is bit ``i % 8`` of byte ``i // 8``; uint8. None: all rows match."""

    def rows(self, step: int = 1) -> np.ndarray | None:
        """Return the matching rows in order, int64; None: all rows.

        Args:
            step: Sample every ``step``-th group of eight neighbouring rows.
        """
        if self.bitmap is None:
            return None
        # If few rows match, most bytes are zero: ten times as fast as unpacking all of them.
        bytes_M = np.flatnonzero(self.bitmap[::step]) * step
        bits_M8 = np.unpackbits(self.bitmap[bytes_M, None], axis=1, bitorder="little")
        places, bits = np.nonzero(bits_M8)
        return bytes_M[places] * 8 + bits

    @functools.cached_property
    def rows_kept(self) -> np.ndarray | None:
        """Cached result of ``rows()``: eight bytes per row while the selection is in use."""
        return self.rows()


class FilterTable:
    """Filters of an index: the filterable fields of all figures. Thread-safe."""

    def __init__(self, folder: Path, about: Mapping[str, Any], facets: Mapping[str, Any]) -> None:
        self.count: int = about["rows"]
        self._facets = {**{name: {} for name in FIELDS}, **facets}
        self._fields: dict[str, _Codes | _Rows] = {}
        for name, stored in about["fields"].items():
            kind = _Codes if stored == "codes" else _Rows
            self._fields[name] = kind(folder, name, self.count)
        self._year_N = map_array(folder / "year.codes.npy", "i", (self.count,))
        self._recent: OrderedDict[Filter, Selection] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def build(cls, table: FilterSource, folder: str | os.PathLike[str]) -> None:
        """Write the filter files of a table to a folder, which is created if necessary."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        stored: dict[str, Storage] = {}
        facets: dict[str, dict[str, int]] = {}
        years = table.column("year")
        for name in FIELDS:
            column = table.column(COLUMNS.get(name, name))
            stored[name], facets[name] = _write_field(target, name, column, len(years))
        year_N = _numbers(pc.fill_null(years, 0)).astype(np.int16)
        np.save(target / "year.codes.npy", year_N)
        found, counts = np.unique(year_N[year_N != 0], return_counts=True)
        facets["year"] = {str(y): int(c) for y, c in zip(found, counts, strict=True)}
        _write_json(target / "facets.json", facets)
        _write_json(target / "fields.json", {"rows": len(years), "fields": stored})

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "FilterTable":
        """Memory-map the files written by ``build``.

        Raises:
            ArtifactError: If a file is missing, corrupt or inconsistent with the others.
        """
        source = Path(folder)
        try:
            about = json.loads((source / "fields.json").read_bytes())
            facets = json.loads((source / "facets.json").read_bytes())
            if set(about["fields"]) | LATER != set(FIELDS):
                raise ValueError(f"fields.json has the fields {', '.join(about['fields'])}")
            return cls(source, about, facets)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{folder}: the filters cannot be read: {error}") from error

    def select(self, condition: Filter) -> Selection:
        """Return the rows that match a filter."""
        # Values from other processes and from JSON may be lists.
        condition = Filter(**{n: tuple(getattr(condition, n)) for n in FIELDS}, year=condition.year)
        if condition == Filter():
            return Selection(self.count)
        with self._lock:
            known = self._recent.get(condition)
            if known is not None:
                self._recent.move_to_end(condition)
                return known
        # Two threads may compute the same selection; that is cheaper than a lock.
        selection = self._computed(condition)
        if sum(len(value) for name in FIELDS for value in getattr(condition, name)) > _CACHE_CHARS:
            return selection
        with self._lock:
            self._recent[condition] = selection
            most = max(1, min(_CACHE_FILTERS, _CACHE_BYTES // max(1, self.count // 8)))
            while len(self._recent) > most:
                self._recent.popitem(last=False)
        return selection

    def facets(self) -> dict[str, dict[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts.

        All values of ``year`` are returned, in order.
        """
        return {name: dict(values) for name, values in self._facets.items()}

    def _computed(self, condition: Filter) -> Selection:
        fits_N = np.ones(self.count, bool)
        for name in FIELDS:
            for values in _alternatives(name, getattr(condition, name)):
                try:
                    field = self._fields.get(name)
                    fits_N &= field.fitting(values) if field else False
                except IndexError as error:
                    raise ArtifactError(f"the filters of {name} are damaged: {error}") from error
        if condition.year is not None and condition.year != Years():
            fits_N &= self._year_N != 0
            if condition.year.gte is not None:
                fits_N &= self._year_N >= condition.year.gte
            if condition.year.lte is not None:
                fits_N &= self._year_N <= condition.year.lte
        count = int(np.count_nonzero(fits_N))
        if count == self.count:
            return Selection(count)
        return Selection(count, np.packbits(fits_N, bitorder="little"))


def _alternatives(name: str, values: Sequence[str]) -> list[Sequence[str]]:
    """Return the values of which a figure must have one each: for labels, those of each column."""
    if name != "label":
        return [values] if values else []
    by_column: dict[str, list[str]] = {}
    for value in values:
        by_column.setdefault(value.partition("=")[0], []).append(value)
    return list(by_column.values())


class _Codes:
    """A field with one value per figure: the code of each row."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._values = map_texts(folder / f"{name}.values.arrow")
        self._codes_N = map_array(folder / f"{name}.codes.npy", "u", (count,))

    def fitting(self, values: Sequence[str]) -> np.ndarray:
        """Return whether each row has one of the values. Shape [N], bool."""
        is_wanted = np.zeros(len(self._values) + 1, bool)
        is_wanted[1:][places_of(self._values, set(values))] = True
        fits_N: np.ndarray = is_wanted[self._codes_N]
        return fits_N


class _Rows:
    """A field with several values per figure, or with very many values: the rows of each value."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._values = map_texts(folder / f"{name}.values.arrow")
        self._starts = map_array(folder / f"{name}.starts.npy", "i", (len(self._values) + 1,))
        self._rows = map_array(folder / f"{name}.rows.npy", "u", (int(self._starts[-1]),))
        self._count = count

    def fitting(self, values: Sequence[str]) -> np.ndarray:
        """Return whether each row has one of the values. Shape [N], bool."""
        fits_N = np.zeros(self._count, bool)
        for place in places_of(self._values, set(values)):
            fits_N[self._rows[self._starts[place] : self._starts[place + 1]]] = True
        return fits_N


def _write_field(
    folder: Path, name: str, column: pa.ChunkedArray, count: int
) -> tuple[Storage, dict[str, int]]:
    """Write a field in batches; return its storage format and facets."""
    several = pa.types.is_list(column.type)
    values = None if several else _few_values(column)
    stored: Storage = "rows" if values is None else "codes"
    if values is not None:
        counts = _write_codes(folder / f"{name}.codes.npy", column, values, count)
    else:
        with Runs(folder / "runs") as runs:
            for first, piece in pieces(column.chunks, _PIECE):
                _add(runs, piece, first)
            values, counts, stretches = runs.joined()
            np.save(folder / f"{name}.starts.npy", np.concatenate([[0], np.cumsum(counts)]))
            shape = (int(counts.sum()),)
            with ArrayFile(folder / f"{name}.rows.npy", np.dtype(np.uint32), shape) as file:
                for stretch in stretches:
                    file.write(stretch.rows_M)
    write_texts(values, folder / f"{name}.values.arrow")
    return stored, _facets(name, values, counts)


def _facets(name: str, values: pa.Array, counts: np.ndarray) -> dict[str, int]:
    """Return the most frequent values of a field with their counts; of labels, of each column."""
    facets: dict[str, int] = {}
    listed: Counter[str] = Counter()
    for place in np.argsort(-counts, kind="stable"):
        value = values[int(place)].as_py()
        column = value.partition("=")[0] if name == "label" else ""
        listed[column] += 1
        if listed[column] <= FACET_VALUES:
            facets[value] = int(counts[place])
        elif name != "label":
            break
    return facets


def _few_values(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the sorted values of a column; None if there are too many for codes."""
    distinct: set[str | None] = set()
    for _, piece in pieces(column.chunks, _PIECE):
        distinct.update(pc.unique(piece).to_pylist())
        if len(distinct) > _MOST_CODES + 1:
            return None
    known = sorted(distinct - {None})  # type: ignore[type-var]
    return pa.array(known, pa.string()) if len(known) <= _MOST_CODES else None


def _write_codes(path: Path, column: pa.ChunkedArray, values: pa.Array, count: int) -> np.ndarray:
    """Write the code of each row; return the number of rows per value."""
    kind = np.min_scalar_type(len(values))
    counts = np.zeros(len(values) + 1, np.int64)
    with ArrayFile(path, kind, (count,)) as file:
        for _, piece in pieces(column.chunks, _PIECE):
            found = pc.fill_null(pc.index_in(piece, value_set=values), -1)
            codes = _numbers(found).astype(np.int64) + 1
            counts += np.bincount(codes, minlength=len(counts))
            file.write(codes)
    return counts[1:]


def _add(runs: Runs, piece: pa.Array, first: int) -> None:
    """Add the values of consecutive rows, starting at row ``first``."""
    texts = piece
    row_M = np.arange(len(piece))
    if pa.types.is_list(piece.type):
        lengths = _numbers(pc.fill_null(pc.list_value_length(piece), 0))
        texts, row_M = pc.list_flatten(piece), np.repeat(row_M, lengths)
    own = texts.dictionary_encode()
    number_M = _numbers(pc.fill_null(own.indices, -1))
    is_known = number_M >= 0
    runs.add(own.dictionary.to_pylist(), number_M[is_known], row_M[is_known] + first)


def _numbers(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = array.to_numpy()
    return numbers


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
