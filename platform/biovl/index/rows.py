"""Reorder vectors from units (in the order of shards) to parts (in the order of rows).

The rows of each unit are sorted, so a part is one contiguous range of every unit. Records have a
fixed length, so that a range can be read alone. Rows are numbered after all pairs are known, so
that pairs that were left out cause no gaps.
"""

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, NothingUsable
from biovl.core.folders import Folder
from biovl.index import vectors
from biovl.index.config import IndexConfig
from biovl.index.units import ROW, part

# Shapes: U units, P parts, W rows of a part, D embedding.

_BOUNDS = ".draft/bounds.npy"


def number_rows(config: IndexConfig, receipts: Sequence[dict[str, Any]]) -> int:
    """Write where each part starts in each unit; return the total number of rows.

    Needs 16 bytes of memory per pair.

    Raises:
        NothingUsable: If there are no pairs.
    """
    folder = Draft(config.out).folder
    positions = [
        np.frombuffer(folder.read(part("rows", number)), ROW)["position"].copy()
        for number in range(len(receipts))
    ]
    sorted_rows = np.sort(np.concatenate(positions))
    if not len(sorted_rows):
        reasons = sum((Counter(receipt["left_out"]) for receipt in receipts), Counter[str]())
        text = ", ".join(f"{count:,} x {reason}" for reason, count in reasons.most_common())
        raise NothingUsable(
            f"no image of {config.corpus} could be read: there is nothing to index ({text})"
        )
    starts = sorted_rows[:: config.rows_per_part]
    bounds_UP = np.array(
        [[*np.searchsorted(own, starts), len(own)] for own in positions], dtype=np.int64
    )
    # Thumbnails are concatenated in the order of units.
    first_byte_U = np.cumsum([0, *(r["thumbnail_bytes"] for r in receipts)])[:-1]
    with folder.writer(_BOUNDS) as stream:
        np.save(stream, np.column_stack([bounds_UP, first_byte_U]))
    return len(sorted_rows)


def part_count(config: IndexConfig, rows: int) -> int:
    """Return the number of parts for a number of rows."""
    return -(-rows // config.rows_per_part)


def gathered_path(kind: str, number: int) -> str:
    """Return the path of the rows or vectors of a part, in the order of rows."""
    return f".draft/gathered/{kind}/{number:06d}.bin"


def filled_path(name: str, number: int) -> str:
    """Return the path of the encoded vectors of a part."""
    return f".draft/filled/{name}/{number:06d}.faiss"


def trained_path(name: str) -> str:
    """Return the path of the empty trained index."""
    return f".draft/trained/{name}.faiss"


def gather(config: IndexConfig, dim: int, number: int) -> None:
    """Write the rows and vectors of a part, collected from all units, in order."""
    folder = Draft(config.out).folder
    bounds = np.load(io.BytesIO(folder.read(_BOUNDS)))
    stretches = [
        (unit, int(row[number]), int(row[number + 1]), int(row[-1]))
        for unit, row in enumerate(bounds)
        if row[number] < row[number + 1]
    ]
    rows_W = np.empty(sum(end - first for _, first, end, _ in stretches), ROW)
    done = 0
    for unit, first, end, first_byte in stretches:
        own = np.frombuffer(_stretch(folder, part("rows", unit), ROW.itemsize, first, end), ROW)
        rows_W[done : done + len(own)] = own
        rows_W["thumbnail_offset"][done : done + len(own)] += first_byte
        done += len(own)
    order = np.argsort(rows_W["position"])
    for name in config.over:
        vectors_WD = np.empty((len(rows_W), dim), "<f2")
        done = 0
        for unit, first, end, _ in stretches:
            data = _stretch(folder, part(name, unit), 2 * dim, first, end)
            vectors_WD[done : done + end - first] = np.frombuffer(data, "<f2").reshape(-1, dim)
            done += end - first
        folder.write(gathered_path(name, number), vectors_WD[order].tobytes())
    folder.write(gathered_path("rows", number), rows_W[order].tobytes())


def fill(config: IndexConfig, dim: int, name: str, number: int) -> None:
    """Write a part of an index: its vectors, encoded by the trained index."""
    folder = Draft(config.out).folder
    vectors_WD = np.frombuffer(folder.read(gathered_path(name, number)), "<f2").reshape(-1, dim)
    data = vectors.fill(folder.read(trained_path(name)), vectors_WD, number * config.rows_per_part)
    folder.write(filled_path(name, number), data)


def _stretch(folder: Folder, name: str, itemsize: int, first: int, end: int) -> bytes:
    with folder.filesystem.open_input_file(folder.at(name)) as file:
        data: bytes = file.read_at((end - first) * itemsize, first * itemsize)
    if len(data) != (end - first) * itemsize:
        raise ArtifactError(
            f"{folder.uri}/{name} is shorter than before: start again in another out"
        )
    return data
