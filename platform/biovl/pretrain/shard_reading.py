"""Read stored pairs from their shards in few requests, ahead of decoding."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location, storage_problem
from biovl.core.shards import parse_pair
from biovl.pretrain.order import PairLocations

_READERS = 8
_MAX_REQUEST_BYTES = 1 << 24
_RETRIES_AFTER_S = (1.0, 5.0, 20.0)
"""Pauses before our own retries; Arrow has already retried three times within seconds."""


@dataclass(frozen=True)
class Unreadable:
    """A pair that cannot be read, with the reason."""

    row: int
    reason: str
    """Reason from a fixed set, for counts; the specific error is in ``detail``."""
    detail: str = ""


def read_stored(
    places: PairLocations, rows: np.ndarray
) -> Iterator[tuple[int, dict[str, bytes] | Unreadable]]:
    """Yield the index in ``rows`` of each pair and its files by extension, in arbitrary order.

    Consecutive pairs of a shard are read with one request of at most 16 MiB.

    Args:
        places: Index of a split of one corpus or several.
        rows: Row numbers of the pairs in ``places``. Shape [B], int64.
    """
    runs = list(_runs(places, rows))
    # Waiting for a bucket needs no CPU; reads run ahead of decoding.
    with ThreadPoolExecutor(min(_READERS, max(1, len(runs)))) as pool:
        requests = pool.map(lambda run: _request(places, rows[run]), runs)
        for run, stored in zip(runs, requests, strict=True):
            for at, data in zip(run.tolist(), stored, strict=True):
                if isinstance(data, Unreadable):
                    yield at, data
                else:
                    yield at, _parsed(int(rows[at]), data)


def _runs(places: PairLocations, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of rows that are read with one request: consecutive pairs of a shard."""
    order = np.argsort(rows, kind="stable")
    shard, offset, size = places.shard[rows], places.offset[rows], places.size[rows]
    start = 0
    for at in range(1, len(order) + 1):
        first, last = order[start], order[at - 1]
        if at < len(order):
            following = order[at]
            is_next = (
                shard[following] == shard[last]
                and offset[following] == offset[last] + size[last]
                and offset[following] + size[following] - offset[first] <= _MAX_REQUEST_BYTES
            )
            if is_next:
                continue
        yield order[start:at]
        start = at


def _request(places: PairLocations, rows: np.ndarray) -> list[bytes | Unreadable]:
    """Return the stored bytes of consecutive pairs of one shard."""
    start = int(places.offset[rows[0]])
    ends = places.offset[rows] + places.size[rows] - start
    number = places.shard[rows[0]]
    corpus, shard = places.corpora[number], places.shards[number]
    try:
        stored = _patiently(lambda: _opened(corpus, shard).read_at(int(ends[-1]), start), corpus)
    except OSError as error:
        problem = storage_problem(error, corpus)
        if problem is not None:
            raise problem from error
        return [Unreadable(int(row), "shard cannot be read", str(error)) for row in rows]
    return [
        stored[end - places.size[row] : end]
        if end <= len(stored)
        else Unreadable(int(row), "shard ends before the pair does")
        for row, end in zip(rows, ends.tolist(), strict=True)
    ]


def _parsed(row: int, stored: bytes) -> dict[str, bytes] | Unreadable:
    """Return the files of a pair from its stored bytes."""
    try:
        return parse_pair(stored, "its place")
    except ArtifactError as error:
        return Unreadable(row, "no pair where the index says", str(error))


def _patiently(read: Callable[[], bytes], corpus: str) -> bytes:
    """Call ``read``, with retries for temporary errors of a bucket."""
    for wait_s in _RETRIES_AFTER_S:
        try:
            return read()
        except FileNotFoundError:
            raise
        except OSError:
            if isinstance(_location(corpus)[0], pafs.LocalFileSystem):
                raise
            time.sleep(wait_s)
    return read()


def _opened(corpus: str, shard: str) -> pa.NativeFile:
    filesystem, path = _location(corpus)
    # Open local files count against the process's limit; an open object holds only its size,
    # and opening it again would double the requests.
    if isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem.open_input_file(f"{path}/{shard}")
    return _opened_object(corpus, shard)


@lru_cache(1 << 16)
def _opened_object(corpus: str, shard: str) -> pa.NativeFile:
    filesystem, path = _location(corpus)
    return filesystem.open_input_file(f"{path}/{shard}")


@lru_cache(8)
def _location(corpus: str) -> tuple[pafs.FileSystem, str]:
    # Without a region in the environment, opening a bucket asks AWS for the region every time.
    return open_location(corpus)
