"""Encoded images read from files, Parquet columns, tars, npz arrays or corpus shards.

Objects of each class can be pickled, and read a range of images into memory.
"""

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from biovl.benchmark.datasets import Images
from biovl.core.errors import ArtifactError, StorageError
from biovl.core.folders import Folder
from biovl.core.shards import parse_pair, read_ranges
from biovl.core.tables import open_part

# Shapes: N images, H, W pixels, C colours.

MAX_FILE_BYTES = 1 << 30
"""Maximum size of a file; larger ones count as missing images."""

_THREADS = 8


def hash_of(*values: Any) -> str:
    """Return a hash of JSON-serialisable values."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def version_of(folder: Folder, name: str) -> tuple[str, int, int]:
    """Return name, size and modification time of a file, which identify its version.

    Contents are not read: that would take as long as embedding.
    """
    info = folder.filesystem.get_file_info(folder.at(name))
    return name, info.size or 0, info.mtime_ns or 0


def files_of(images: Images, at_once: int = 256) -> Iterator[bytes]:
    """Yield all encoded files of a dataset, of which ``at_once`` are in memory at a time."""
    for start in range(0, len(images), at_once):
        yield from images.read(start, min(start + at_once, len(images)))


@dataclass(frozen=True)
class ImageFiles:
    """Images in separate files."""

    uri: str
    """Folder of the files, local or ``s3://``."""
    names: tuple[str, ...]
    """Paths relative to the folder."""
    fingerprint: str
    """Hash of the versions of the files."""

    @classmethod
    def of(cls, uri: str, names: Sequence[str]) -> "ImageFiles":
        """Return the named images of a folder; their versions are looked up."""
        folder = Folder(uri)
        return cls(uri, tuple(names), hash_of([version_of(folder, name) for name in names]))

    def __len__(self) -> int:
        return len(self.names)

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the encoded files of a range; ``b""`` for a missing or too large one."""
        folder = Folder(self.uri)
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda name: _file(folder, name), self.names[start:stop]))


def _file(folder: Folder, name: str) -> bytes:
    try:
        info = folder.filesystem.get_file_info(folder.at(name))
        if not info.is_file or (info.size or 0) > MAX_FILE_BYTES:
            return b""
        return folder.read(name)
    except StorageError:
        raise
    except OSError:
        return b""


@dataclass(frozen=True)
class Column:
    """A column of Parquet files: bytes, or Hugging Face's struct of bytes and path."""

    uri: str
    """Folder of the files, local or ``s3://``."""
    parts: tuple[tuple[str, int], ...]
    """Names of the files with their numbers of rows."""
    column: str
    """Name of the column."""
    fingerprint: str
    """Hash of the versions of the files."""

    def __len__(self) -> int:
        return sum(rows for _, rows in self.parts)

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the files of a range; ``b""`` for an empty cell. Reads whole row groups."""
        return self.take(np.arange(start, min(stop, len(self))))

    def take(self, row_K: np.ndarray) -> list[bytes]:
        """Return the files of some rows, in any order. Reads each row group once."""
        folder, files, first = Folder(self.uri), dict[int, bytes](), 0
        distinct = np.unique(row_K)
        for name, rows in self.parts:
            own = distinct[(distinct >= first) & (distinct < first + rows)] - first
            if len(own):
                with open_part(folder, name) as file:
                    read = _taken(file, self.column, own)
                    files |= zip((first + own).tolist(), read, strict=True)
            first += rows
        return [files[row] for row in row_K.tolist()]


def _taken(file: pq.ParquetFile, column: str, row_K: np.ndarray) -> list[bytes]:
    files, first = list[bytes](), 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        own = row_K[(row_K >= first) & (row_K < first + rows)] - first
        if len(own):
            cells = file.read_row_group(number, columns=[column]).column(0)
            # Not take, which copies cells to one array: that has at most 2 GB.
            files += [image_bytes(cells[row].as_py()) for row in own.tolist()]
        first += rows
    return files


def image_bytes(cell: Any) -> bytes:
    """Return the encoded file in a table cell, ``b""`` if there is none."""
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    return cell if isinstance(cell, bytes) else b""


@dataclass(frozen=True)
class Ranges:
    """Byte ranges of larger files, such as members of tars."""

    uri: str
    """Folder of the files, local or ``s3://``."""
    names: tuple[str, ...]
    """Names of the files."""
    file_N: np.ndarray
    """Index of each image's file."""
    offset_N: np.ndarray
    """Offset of each image in its file, in bytes."""
    size_N: np.ndarray
    """Size of each image, in bytes."""
    fingerprint: str
    """Hash of the versions of the files."""
    is_pair: bool = False
    """Whether a range is a pair of a corpus shard, of which the image is one file."""

    def __len__(self) -> int:
        return len(self.file_N)

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return encoded images ``[start, stop)``; adjacent bytes are read with one request."""
        return [self._image(data) for data in self.stored(start, stop)]

    def stored(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the stored bytes of each image of a range."""
        rows = slice(start, stop)
        names = [self.names[file] for file in self.file_N[rows]]
        ranges = zip(names, self.offset_N[rows].tolist(), self.size_N[rows].tolist(), strict=True)
        return read_ranges(Folder(self.uri), ranges)

    def _image(self, data: bytes) -> bytes:
        if not self.is_pair:
            return data
        files = parse_pair(data, self.uri)
        return next((item for kind, item in files.items() if kind not in ("txt", "json")), b"")


@dataclass(frozen=True)
class Array:
    """Images in an array of an npz file, as in MedMNIST: [N, H, W] or [N, H, W, 3]."""

    uri: str
    """Folder of the npz file, local or ``s3://``."""
    name: str
    """Name of the npz file."""
    key: str
    """Name of the array."""
    shape: tuple[int, ...]
    """Shape of the array."""
    fingerprint: str
    """Hash of the version of the file."""

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the images of a range, encoded as lossless PNG."""
        shape = (stop - start, *self.shape[1:])
        with open_array(self.uri, self.name, self.key) as (stream, _, _):
            size = int(np.prod(self.shape[1:]))
            stream.seek(start * size, io.SEEK_CUR)
            data = stream.read((stop - start) * size)
        return [png(pixels) for pixels in np.frombuffer(data, np.uint8).reshape(shape)]


@contextlib.contextmanager
def open_array(
    uri: str, name: str, key: str
) -> Iterator[tuple[Any, tuple[int, ...], np.dtype[Any]]]:
    """Yield an array's bytes as a stream, its shape and its dtype. Pickled objects are not loaded.

    Raises:
        ArtifactError: If the array does not exist, contains objects, or is in Fortran order.
    """
    folder, where = Folder(uri), f"{uri}/{name}: {key}"
    try:
        with (
            folder.filesystem.open_input_file(folder.at(name)) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(f"{key}.npy") as stream,
        ):
            version = np.lib.format.read_magic(stream)
            headers = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            if version not in headers:
                raise ArtifactError(f"{where} is npy {version}, expected 1.0 or 2.0")
            shape, is_fortran, dtype = headers[version](stream)
            if dtype.hasobject or is_fortran:
                raise ArtifactError(
                    f"{where} holds objects or is in Fortran order, expected C order"
                )
            yield stream, shape, dtype
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{where} cannot be read: {error}") from error


def array_names(uri: str, name: str) -> set[str]:
    """Return the names of the arrays in an npz file.

    Raises:
        ArtifactError: If it is not an npz file.
    """
    folder = Folder(uri)
    try:
        with (
            folder.filesystem.open_input_file(folder.at(name)) as file,
            zipfile.ZipFile(file) as archive,
        ):
            return {member.removesuffix(".npy") for member in archive.namelist()}
    except (ValueError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{uri}/{name} is not an npz file: {error}") from error


def png(pixels: np.ndarray) -> bytes:
    """Return pixels as lossless PNG. uint8, [H, W], [H, W, 1] or [H, W, 3]."""
    grey = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


@dataclass(frozen=True)
class Chosen:
    """A selection of images by index, in any order."""

    images: Images
    """Images that are selected from."""
    row_N: np.ndarray
    """Index of each selected image. int64, [N]."""
    fingerprint: str = field(init=False)
    """Hash of images and selection."""

    def __post_init__(self) -> None:
        known = hashlib.blake2b(self.images.fingerprint.encode(), digest_size=16)
        known.update(np.ascontiguousarray(self.row_N, np.int64).tobytes())
        object.__setattr__(self, "fingerprint", known.hexdigest())

    def __len__(self) -> int:
        return len(self.row_N)

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the encoded files of a range; consecutive rows are read together."""
        rows, files = self.row_N[start:stop], list[bytes]()
        if isinstance(self.images, Column):
            return self.images.take(rows)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            if len(run):
                files += self.images.read(int(run[0]), int(run[-1]) + 1)
        return files


@dataclass(frozen=True)
class JoinedImages:
    """Concatenation of several ``Images``.

    Each part is embedded separately, once for all tasks that use it.
    """

    parts: tuple[Images, ...]
    """The parts, in order."""
    fingerprint: str = field(init=False)
    """Hash of the parts."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "fingerprint", hash_of("joined", *(part.fingerprint for part in self.parts))
        )

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the encoded files of a range, which may span several parts."""
        files, first = list[bytes](), 0
        for part in self.parts:
            begin, end = max(start - first, 0), min(stop - first, len(part))
            if begin < end:
                files += part.read(begin, end)
            first += len(part)
        return files


def parts_of(images: Images) -> Sequence[Images]:
    """Return the parts of ``JoinedImages``; other images are the only part."""
    return images.parts if isinstance(images, JoinedImages) else (images,)


def parquet_parts(uri: str) -> tuple[tuple[tuple[str, int], ...], pa.Schema, str]:
    """Return the Parquet files of a folder with their rows, their schema, and a fingerprint.

    Files may be in ``data/``, as on Hugging Face.

    Raises:
        ArtifactError: If there are no files, one cannot be read, or their columns differ.
    """
    folder, parts, schemas, known = Folder(uri), [], [], []
    names = folder.names("", ".parquet") or [
        f"data/{name}" for name in folder.names("data", ".parquet")
    ]
    for name in names:
        try:
            with folder.filesystem.open_input_file(folder.at(name)) as stream:
                metadata = pq.read_metadata(stream)
        except pa.ArrowInvalid as error:
            raise ArtifactError(f"{uri}/{name} is not Parquet: {error}") from error
        parts.append((name, metadata.num_rows))
        schemas.append(metadata.schema.to_arrow_schema())
        known.append(version_of(folder, name))
    if not parts:
        raise ArtifactError(f"{uri} has no .parquet files, neither there nor in data/")
    if any(schema.names != schemas[0].names for schema in schemas):
        raise ArtifactError(f"{uri}: the columns of its .parquet files differ")
    return tuple(parts), schemas[0], hash_of(known)
