"""Inverted lists (rows by value), built by external sorting from rows in order.

    runs/<n>.values.arrow    sorted values of a range of rows
    runs/<n>.starts.npy      offset of each value in the following two files
    runs/<n>.rows.npy        the rows of each value
    runs/<n>.times.npy       number of occurrences of the value in each of these rows

A run covers a range of rows. The merged result does not depend on how rows were divided into runs.
Memory holds every value once, one run while it is written, and some millions of rows while runs are
merged.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from biovl.index.mapped import map_texts

# Shapes: V values, S values of a run, M concatenated rows, W values of a stretch.

_HELD = 16_000_000
"""Number of rows merged at a time; at least those of one value."""
_MOST_TIMES = 65_535
"""Maximum count of a value per row; no caption repeats a word so often, and BM25 saturates
earlier."""


@dataclass(frozen=True)
class Stretch:
    """Inverted lists of consecutive values, concatenated; the rows of each are sorted, unique."""

    first: int
    """Position of the first value among the sorted values."""
    counts_W: np.ndarray
    """Number of rows per value, int64."""
    rows_M: np.ndarray
    """Row numbers of the values, uint32."""
    times_M: np.ndarray
    """Number of occurrences of the value in each row, uint16."""


class Runs:
    """Sorted runs in a temporary folder; ``close`` deletes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._rows_of: dict[str, int] = {}
        # Left by an interrupted build.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, values: Sequence[str], number_M: np.ndarray, row_M: np.ndarray) -> None:
        """Write the next run. Its rows follow those of the previous run.

        Args:
            values: Unique values, in any order.
            number_M: Positions in ``values``, one for each occurrence; int.
            row_M: The row of each occurrence, below 2³².
        """
        order = sorted(range(len(values)), key=values.__getitem__)
        place_S = np.empty(len(values), np.int64)
        place_S[order] = np.arange(len(values))
        keys, times = np.unique(place_S[number_M] << 32 | row_M, return_counts=True)
        starts = np.searchsorted(keys, np.arange(len(values) + 1) << 32)
        texts = [values[number] for number in order]
        write_texts(pa.array(texts, pa.string()), self._path("values.arrow", self._count))
        for name, array in (
            ("starts", starts),
            ("rows", (keys & 0xFFFF_FFFF).astype(np.uint32)),
            ("times", np.minimum(times, _MOST_TIMES).astype(np.uint16)),
        ):
            np.save(self._path(f"{name}.npy", self._count), array)
        for text, rows in zip(texts, np.diff(starts).tolist(), strict=True):
            self._rows_of[text] = self._rows_of.get(text, 0) + rows
        self._count += 1

    def joined(self) -> tuple[pa.Array, np.ndarray, Iterator[Stretch]]:
        """Merge all runs into inverted lists.

        Returns:
            The sorted values; the number of rows per value, int64, shape [V]; and the rows. Nothing
            may be added afterwards.
        """
        texts = sorted(self._rows_of)
        counts_V = np.fromiter(map(self._rows_of.__getitem__, texts), np.int64, len(texts))
        # Replace values by positions: they need the most memory.
        place_of = self._rows_of
        for place, text in enumerate(texts):
            place_of[text] = place
        for number in range(self._count):
            own = map_texts(self._path("values.arrow", number)).to_pylist()
            places_S = np.fromiter(map(place_of.__getitem__, own), np.int64, len(own))
            np.save(self._path("places.npy", number), places_S)
        self._rows_of = {}
        return pa.array(texts, pa.string()), counts_V, self._stretches(counts_V)

    def _stretches(self, counts_V: np.ndarray) -> Iterator[Stretch]:
        end_V = np.cumsum(counts_V)
        first = 0
        while first < len(counts_V):
            before = end_V[first] - counts_V[first]
            end = max(first + 1, int(np.searchsorted(end_V, before + _HELD, "right")))
            yield self._stretch(first, counts_V[first:end])
            first = end

    def _stretch(self, first: int, counts_W: np.ndarray) -> Stretch:
        rows_M = np.empty(int(counts_W.sum()), np.uint32)
        times_M = np.empty(len(rows_M), np.uint16)
        next_W = np.cumsum(counts_W) - counts_W
        for number in range(self._count):
            places_S, starts, rows, times = (
                np.load(self._path(f"{name}.npy", number), mmap_mode="r")
                for name in ("places", "starts", "rows", "times")
            )
            low, high = np.searchsorted(places_S, [first, first + len(counts_W)])
            own_starts = starts[low : high + 1]
            counts = np.diff(own_starts)
            at_W = places_S[low:high] - first
            # Difference between the target and the current position of a value's rows.
            shift = np.repeat(next_W[at_W] - own_starts[:-1], counts)
            some = slice(own_starts[0], own_starts[-1])
            target = np.arange(some.start, some.stop) + shift
            rows_M[target], times_M[target] = rows[some], times[some]
            next_W[at_W] += counts
        return Stretch(first, counts_W, rows_M, times_M)

    def _path(self, name: str, number: int) -> Path:
        return self._folder / f"{number:06d}.{name}"


def write_texts(texts: pa.Array, path: Path, name: str = "value") -> None:
    """Write strings to an Arrow file that ``map_texts`` reads; ``name`` is that of the column."""
    batch = pa.record_batch([texts], names=[name])
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)


class ArrayFile:
    """A ``.npy`` file that is written incrementally."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._stream = path.open("wb")
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._stream, {**about, "shape": shape})
        self._dtype = dtype

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, numbers: np.ndarray) -> None:
        """Append numbers to the array."""
        self._stream.write(np.ascontiguousarray(numbers, self._dtype).data)


def pieces(columns: Iterable[pa.Array], rows: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield arrays in slices of at most ``rows`` rows, each with the number of its first row."""
    first = 0
    for column in columns:
        for start in range(0, len(column), rows):
            piece = column.slice(start, rows)
            yield first, piece
            first += len(piece)
