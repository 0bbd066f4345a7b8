"""For each value the rows that have it, made from rows in order without holding them all.

    runs/<n>.values.arrow    the values that a stretch of rows has, sorted
    runs/<n>.starts.npy      for each of them where its rows begin in …
    runs/<n>.rows.npy        … the rows, and in ``times`` how often each has it
    runs/<n>.times.npy

A run is one stretch of rows; runs joined are the same however rows were parted. What is held is
every value once, a run while it is written, and some millions of rows while they are joined.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from biovl.index.mapped import mapped_texts

# Shapes: V values, S values of a run, M rows of values end to end, W values of a stretch.

_HELD = 16_000_000
"""So many rows are joined at a time, at least those of one value."""
_MOST_TIMES = 65_535
"""More often counts as this: no caption has a word so often, and BM25 grows no more there."""


@dataclass(frozen=True)
class Stretch:
    """The rows of consecutive values, end to end; of a value they are in order, each once."""

    first: int
    """The first value."""
    counts_W: np.ndarray
    """Rows of each value, int64."""
    rows_M: np.ndarray
    """uint32."""
    times_M: np.ndarray
    """How often the row has the value, uint16."""


class Runs:
    """Runs of values and rows in a folder of their own, which ``close`` deletes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._rows_of: dict[str, int] = {}
        # Of a build that was killed.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, values: Sequence[str], number_M: np.ndarray, row_M: np.ndarray) -> None:
        """Add rows, which follow those that were added before.

        Args:
            values: What they have, each once, in any order.
            number_M: Places in ``values``, of each row as many as it has; int.
            row_M: The rows, below 2³².
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
        """Return all values, sorted; how many rows each has, int64, shape [V]; and the rows.

        Nothing may be added afterwards.
        """
        texts = sorted(self._rows_of)
        counts_V = np.fromiter(map(self._rows_of.__getitem__, texts), np.int64, len(texts))
        # The same words with places instead: they are the most that is held.
        place_of = self._rows_of
        for place, text in enumerate(texts):
            place_of[text] = place
        for number in range(self._count):
            own = mapped_texts(self._path("values.arrow", number)).to_pylist()
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
            # Where a value's rows go, less where they are.
            shift = np.repeat(next_W[at_W] - own_starts[:-1], counts)
            some = slice(own_starts[0], own_starts[-1])
            target = np.arange(some.start, some.stop) + shift
            rows_M[target], times_M[target] = rows[some], times[some]
            next_W[at_W] += counts
        return Stretch(first, counts_W, rows_M, times_M)

    def _path(self, name: str, number: int) -> Path:
        return self._folder / f"{number:06d}.{name}"


def write_texts(texts: pa.Array, path: Path) -> None:
    """Write texts for ``mapped_texts``."""
    batch = pa.record_batch([texts], names=["value"])
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)


class ArrayFile:
    """A ``.npy`` file of one dimension that is written piece by piece."""

    def __init__(self, path: Path, dtype: np.dtype, length: int) -> None:
        self._stream = path.open("wb")
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._stream, {**about, "shape": (length,)})
        self._dtype = dtype

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, numbers: np.ndarray) -> None:
        """Append numbers."""
        self._stream.write(np.ascontiguousarray(numbers, self._dtype).data)


def pieces(columns: Iterable[pa.Array], rows: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield arrays in pieces of at most so many rows, each with its first row."""
    first = 0
    for column in columns:
        for start in range(0, len(column), rows):
            piece = column.slice(start, rows)
            yield first, piece
            first += len(piece)
