"""Shards: WebDataset tars in which every pair can be read by its byte range.

A pair is a run of consecutive tar members ``<key>.jpg``, ``<key>.txt`` …. Its offset and size
include their headers and padding, so that one range request returns the pair. The same pairs give
the same bytes: headers hold no times, users or modes of the machine.
"""

import functools
import io
import re
import tarfile
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location
from biovl.core.folders import Folder

MAX_FILE_BYTES = 1 << 30
"""Larger members are rejected when reading: a header may claim any size."""

_READ_BYTES = 32 << 20
"""Maximum size of a read request, unless a single range is larger."""
_GAP_BYTES = 1 << 20
"""Gaps up to this size between two ranges are read as well: cheaper than another request."""
_BLOCK = tarfile.BLOCKSIZE
_KEY = re.compile(r"[A-Za-z0-9_-]+")
# The reader's key ends at the first dot of the name; what follows names the kind of file.
_MEMBER = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_.-]+)")
_MAX_PAX_BYTES = 64 * _BLOCK
_MOST_OPEN = 128
"""Shards that a process has open at a time: it may commonly open 1,024 files."""


@dataclass(frozen=True)
class PairLocation:
    """Byte range of a pair in its shard."""

    offset: int
    """Offset of the pair's first tar header, in bytes."""

    size: int
    """Size in bytes up to the end of the padding of its last file; a multiple of 512."""


@dataclass(frozen=True)
class StoredPair:
    """A pair as stored in a shard."""

    key: str
    files: dict[str, bytes]
    """Content by extension: ``jpg``, ``txt``, ``json`` …"""
    place: PairLocation


class ShardWriter:
    """Writer of pairs to a stream, as a WebDataset tar archive; the stream is not closed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._offset = 0

    def add(self, key: str, files: Mapping[str, bytes]) -> PairLocation:
        """Write a pair, and return its byte range.

        Args:
            key: Letters, digits, ``_`` and ``-``; different from the previous pair's.
            files: Content by extension, in the order to write.

        Raises:
            ValueError: If readers would parse the key differently, or there are no files.
        """
        if not _KEY.fullmatch(key) or not files:
            raise ValueError(
                f"a pair needs files and a key of letters, digits, _ and -, not {key!r}"
            )
        start = self._offset
        for kind, data in files.items():
            header = tarfile.TarInfo(f"{key}.{kind}")
            header.size = len(data)
            self._write(header.tobuf(tarfile.PAX_FORMAT))
            self._write(data)
            self._write(bytes(-len(data) % _BLOCK))
        return PairLocation(start, self._offset - start)

    def copy(self, stored: bytes) -> PairLocation:
        """Write the bytes of a pair of another shard, and return its byte range in this one.

        Args:
            stored: The pair's byte range in the other shard.

        Raises:
            ValueError: If it is not a multiple of a tar block, 512 bytes.
        """
        if len(stored) % _BLOCK:
            raise ValueError(f"a stored pair is a multiple of {_BLOCK} bytes, not {len(stored)}")
        place = PairLocation(self._offset, len(stored))
        self._write(stored)
        return place

    def finish(self) -> int:
        """Write the end of the tar archive, and return its size in bytes."""
        self._write(bytes(2 * _BLOCK))
        self._write(bytes(-self._offset % tarfile.RECORDSIZE))
        return self._offset

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._offset += len(data)


def copy_pairs(
    source: Folder, target: ShardWriter, pairs: Iterable[tuple[str, int, int]]
) -> list[int]:
    """Copy pairs of other shards to one, and return their offsets in it.

    Args:
        source: Folder of the other shards.
        target: Writer of the shard.
        pairs: File, offset and size of each pair.

    Raises:
        ArtifactError: If a file ends before a pair does.
    """

    @functools.lru_cache(_MOST_OPEN)
    def opened(name: str) -> Any:
        # Closed with its last reference.
        return source.filesystem.open_input_file(source.at(name))

    offsets = []
    for name, offset, size in pairs:
        stored = opened(name).read_at(size, offset)
        if len(stored) != size:
            raise ArtifactError(
                f"{source.described}/{name} ends before the pair at {offset} does: it does "
                "not match its index"
            )
        offsets.append(target.copy(stored).offset)
    return offsets


def shard_name(split: str, number: int) -> str:
    """Return the path of a shard in its corpus, without extension."""
    return f"{split}/{number:05d}"


def shard_names(shards_of: Mapping[str, int]) -> list[str]:
    """Return the paths of all shards of a corpus, without extension, by number of each split."""
    return [shard_name(split, n) for split, count in shards_of.items() for n in range(count)]


def corpus_files(
    folder: Folder, names: Iterable[str], receipts: Iterable[Mapping[str, int]]
) -> dict[str, Mapping[str, int]]:
    """Return the files of a corpus for its manifest: its shards and its two tables.

    Args:
        folder: The corpus.
        names: Paths of the shards, without suffix.
        receipts: ``rows`` and ``size_bytes`` of each shard.
    """
    files: dict[str, Mapping[str, int]] = {
        f"{name}.tar": receipt for name, receipt in zip(names, receipts, strict=True)
    }
    # A draft that an earlier version began has receipts without sizes.
    unsized = [name for name, receipt in files.items() if "size_bytes" not in receipt]
    sizes = folder.sizes(["index.parquet", "dropped.parquet", *unsized])
    return files | {
        name: {**files.get(name, {}), "size_bytes": size} for name, size in sizes.items()
    }


def embedding_kind(column: str) -> str:
    """Return the extension of an embedding file in a pair: ``<column>.npy``; loaders decode it."""
    return f"{column}.npy"


def pack_embedding(values_D: np.ndarray) -> bytes:
    """Return an embedding as the content of a pair's file, in NumPy's format."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values_D, (1, 0), allow_pickle=False)
    return stream.getvalue()


def parse_embedding(data: bytes) -> np.ndarray:
    """Return an embedding from the content of its file. Shape [D].

    Raises:
        ValueError: If it is not a one-dimensional array of floats in NumPy's format.
    """
    try:
        values: np.ndarray = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    # A damaged header is parsed as Python, whose versions raise different errors.
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"not in NumPy's format: {error}") from error
    if values.ndim != 1 or values.dtype.kind != "f":
        raise ValueError(f"expected a vector of floats, got {values.dtype} {list(values.shape)}")
    return values


def read_pair(uri: str, offset: int, size: int) -> dict[str, bytes]:
    """Return the files of one pair by extension, reading only its byte range.

    Args:
        uri: Location of the shard, local or ``s3://``.
        offset: Offset of the pair's byte range.
        size: Size of the pair's byte range.

    Raises:
        ArtifactError: If the shard cannot be read or the range is not a pair.
    """
    filesystem, path = open_location(uri)
    where = f"{uri} at {offset}"
    try:
        with filesystem.open_input_file(path) as file:
            data = file.read_at(size, offset)
    except OSError as error:
        raise ArtifactError(f"{uri} cannot be read: {error}") from error
    if len(data) != size:
        raise ArtifactError(f"{where}: the shard ends before the pair does")
    return parse_pair(data, where)


def read_ranges(folder: Folder, ranges: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
    """Yield the bytes of each range, in order; ranges close to each other share a request.

    Args:
        folder: Folder of the files.
        ranges: Name of a file, offset and size of each range.
    """
    for name, run in _runs(ranges):
        start, end = run[0][0], sum(run[-1])
        with folder.filesystem.open_input_file(folder.at(name)) as file:
            data = file.read_at(end - start, start)
        for offset, size in run:
            yield data[offset - start : offset - start + size]


def _runs(
    ranges: Iterable[tuple[str, int, int]],
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield a file's name, and offset and size of the ranges that are read with one request."""
    last, run = "", list[tuple[int, int]]()
    for name, offset, size in ranges:
        if run:
            is_near = name == last and 0 <= offset - sum(run[-1]) <= _GAP_BYTES
            if not is_near or offset + size - run[0][0] > _READ_BYTES:
                yield last, run
                run = []
        last = name
        run.append((offset, size))
    if run:
        yield last, run


def parse_pair(data: bytes, where: str) -> dict[str, bytes]:
    """Return the files of a pair by extension, from the bytes of its range.

    Args:
        data: The bytes of the range.
        where: Name of the range in error messages.

    Raises:
        ArtifactError: If it is not exactly one pair.
    """
    pairs = list(_pairs(_Stream(io.BytesIO(data).read, where)))
    if len(pairs) != 1 or pairs[0].place != PairLocation(0, len(data)):
        raise ArtifactError(
            f"{where}: {len(data)} bytes hold {len(pairs)} pairs, expected exactly one"
        )
    return pairs[0].files


def read_shard(uri: str) -> Iterator[StoredPair]:
    """Yield the pairs of a shard in order, holding one at a time.

    Raises:
        ArtifactError: If the shard cannot be read, is truncated or holds anything but pairs.
    """
    filesystem, path = open_location(uri)
    try:
        with filesystem.open_input_stream(path) as file:
            stream = _Stream(file.read, uri)
            yield from _pairs(stream)
            if not stream.has_end:
                raise ArtifactError(f"{uri} is truncated: it has no end-of-archive block")
    except OSError as error:
        raise ArtifactError(f"{uri} cannot be read: {error}") from error


class _Stream:
    """A byte stream that is read once, with its position and the name of its source."""

    def __init__(self, read: Callable[[int], bytes], name: str) -> None:
        self._read = read
        self.name = name
        self.offset = 0
        self.has_end = False

    def block(self) -> bytes:
        """Return the next block; empty at the end of the archive or of the bytes."""
        data = self._read(_BLOCK)
        if data and len(data) < _BLOCK:
            raise ArtifactError(f"{self.name}: ends within a header at {self.offset}")
        self.has_end = bool(data) and not any(data)
        self.offset += len(data)
        return b"" if self.has_end else data

    def padded(self, size: int) -> bytes:
        """Return the next ``size`` bytes and skip their padding."""
        padded = size + -size % _BLOCK
        data = self._read(padded)
        if len(data) < padded:
            raise ArtifactError(f"{self.name}: ends within a file at {self.offset}")
        self.offset += padded
        return data[:size]


def _pairs(stream: _Stream) -> Iterator[StoredPair]:
    key, files, start = "", dict[str, bytes](), 0
    for name, offset, data in _members(stream):
        member = _MEMBER.fullmatch(name)
        if member is None:
            raise ArtifactError(f"{stream.name}: {name!r:.200} is not the name of a pair's file")
        if member[1] != key and files:
            yield StoredPair(key, files, PairLocation(start, offset - start))
            files = {}
        if not files:
            key, start = member[1], offset
        if member[2] in files:
            raise ArtifactError(f"{stream.name}: {name!r:.200} occurs twice")
        files[member[2]] = data
    if files:
        end = stream.offset - (_BLOCK if stream.has_end else 0)
        yield StoredPair(key, files, PairLocation(start, end - start))


def _members(stream: _Stream) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, offset and content of each file. Reads only what ``ShardWriter`` writes."""
    while True:
        start = stream.offset
        header = _header(stream)
        if header is None:
            return
        name = None
        if header.type == tarfile.XHDTYPE:
            name = _long_name(stream, header.size)
            header = _header(stream)
            if header is None:
                raise ArtifactError(f"{stream.name}: a long name at {start} belongs to no file")
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ArtifactError(f"{stream.name}: {header.name!r:.200} is not a plain file")
        if not 0 <= header.size <= MAX_FILE_BYTES:
            raise ArtifactError(f"{stream.name}: {header.name!r:.200} claims {header.size} bytes")
        yield name or header.name, start, stream.padded(header.size)


def _header(stream: _Stream) -> tarfile.TarInfo | None:
    at = stream.offset
    block = stream.block()
    if not block:
        return None
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise ArtifactError(f"{stream.name}: no tar header at {at}: {error}") from error


def _long_name(stream: _Stream, size: int) -> str:
    """Return the path that an extended header gives to the following file."""
    if not 0 < size <= _MAX_PAX_BYTES:
        raise ArtifactError(f"{stream.name}: an extended header claims {size} bytes")
    record = stream.padded(size)
    length, _, field = record.partition(b" ")
    if length != str(size).encode() or not field.startswith(b"path=") or field[-1:] != b"\n":
        raise ArtifactError(f"{stream.name}: an extended header holds more than a path")
    return field[len(b"path=") : -1].decode("ascii", "replace")
