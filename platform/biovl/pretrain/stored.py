"""Pairs as they are stored, read from their shards in few requests, ahead of who decodes them."""

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
from biovl.pretrain.order import Places

_READERS = 8
_MAX_REQUEST_BYTES = 1 << 24
_RETRIES_AFTER_S = (1.0, 5.0, 20.0)
"""Arrow has tried three times within seconds before we do again."""


@dataclass(frozen=True)
class Unreadable:
    """A pair that cannot be trained on, and why."""

    row: int
    reason: str
    """One of few; what differs from pair to pair is in ``detail``."""
    detail: str = ""


def read_stored(
    corpus: str, places: Places, rows: np.ndarray
) -> Iterator[tuple[int, dict[str, bytes] | Unreadable]]:
    """Yield where in ``rows`` a pair stands and its files by kind, each pair once, in some order.

    Pairs that stand together in a shard are read with one request, of at most 16 MiB.

    Args:
        corpus: What assemble published, local or ``s3://``.
        places: Of one of its splits.
        rows: Places of the pairs. Shape [B], int64.
    """
    runs = list(_runs(places, rows))
    # Waiting for a bucket needs no CPU; reading runs ahead of decoding.
    with ThreadPoolExecutor(min(_READERS, max(1, len(runs)))) as pool:
        requests = pool.map(lambda run: _request(corpus, places, rows[run]), runs)
        for run, stored in zip(runs, requests, strict=True):
            for at, data in zip(run.tolist(), stored, strict=True):
                if isinstance(data, Unreadable):
                    yield at, data
                else:
                    yield at, _parsed(int(rows[at]), data)


def _runs(places: Places, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield which of the rows are read with one request: those that stand together."""
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


def _request(corpus: str, places: Places, rows: np.ndarray) -> list[bytes | Unreadable]:
    """Return the stored bytes of pairs that stand together in one shard."""
    start = int(places.offset[rows[0]])
    ends = places.offset[rows] + places.size[rows] - start
    shard = places.shards[places.shard[rows[0]]]
    try:
        stored = _patiently(lambda: _opened(corpus, shard).read_at(int(ends[-1]), start), corpus)
    except OSError as error:
        found = storage_problem(error, corpus)
        if found is not None:
            raise found from error
        return [Unreadable(int(row), "shard cannot be read", str(error)) for row in rows]
    return [
        stored[end - places.size[row] : end]
        if end <= len(stored)
        else Unreadable(int(row), "shard ends before the pair does")
        for row, end in zip(rows, ends.tolist(), strict=True)
    ]


def _parsed(row: int, stored: bytes) -> dict[str, bytes] | Unreadable:
    """Return the files of a pair from the bytes of its place."""
    try:
        return parse_pair(stored, "its place")
    except ArtifactError as error:
        return Unreadable(row, "no pair where the index says", str(error))


def _patiently(read: Callable[[], bytes], corpus: str) -> bytes:
    """Return what ``read`` does, which a bucket may refuse for a moment."""
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
    # An open local file is one of the few a process may have; an open object is only its size,
    # and asking for it again would double the requests.
    if isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem.open_input_file(f"{path}/{shard}")
    return _opened_object(corpus, shard)


@lru_cache(1 << 16)
def _opened_object(corpus: str, shard: str) -> pa.NativeFile:
    filesystem, path = _location(corpus)
    return filesystem.open_input_file(f"{path}/{shard}")


@lru_cache(8)
def _location(corpus: str) -> tuple[pafs.FileSystem, str]:
    # Without a region in the environment, opening a bucket asks AWS for it every time.
    return open_location(corpus)
