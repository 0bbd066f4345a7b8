"""A folder of a job on a local disk or ``s3://``: listed, read, and written atomically."""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import IO, Any, BinaryIO

import pyarrow.fs as pafs

from biovl.core.errors import ArtifactError, StorageError
from biovl.core.filesystems import (
    display_path,
    open_location,
    storage_problem,
    translate_storage_errors,
)

DRAFT = ".draft"
"""Subfolder of what an interrupted job needs to resume; it is deleted on publication."""
UNFINISHED = f"{DRAFT}/unfinished"
"""Folder of local files that are being written; their names end in those of the finished files."""
_BLOCK_BYTES = 1 << 24
_BLOCKS_IN_FLIGHT = 8
"""Blocks of an upload in memory: several parts are sent at the same time."""
_DELETE_TRIES = 100
"""Maximum attempts to delete a folder that is being written to."""


class Folder:
    """A local or remote folder. Files are written atomically.

    Every method raises StorageError if the disk or bucket fails, and OSError if a single file does.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.filesystem, self.path = open_location(uri)
        self._is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self.described = display_path(self.filesystem, self.path)
        """The location without credentials, for error messages."""

    def at(self, name: str) -> str:
        """Return the path of a file in ``filesystem``."""
        return f"{self.path}/{name}"

    def create(self) -> None:
        """Create the folder and its parents if they do not exist; a bucket needs none.

        Raises:
            ArtifactError: If the path cannot be used as a folder.
        """
        if self._is_local:
            with self._told():
                self._make_local_folder(self.path)

    def exists(self, name: str) -> bool:
        """Return whether a file of this name exists."""
        with self._told(), self._as_a_folder():
            return bool(self.filesystem.get_file_info(self.at(name)).type == pafs.FileType.File)

    def names(self, folder: str, suffix: str = "") -> list[str]:
        """Return the sorted file names in a subfolder; empty if it does not exist."""
        return sorted(self.versions(folder, suffix))

    def versions(self, folder: str, suffix: str = "") -> dict[str, tuple[int, int]]:
        """Return modification time (ns) and size (bytes) of the files in a subfolder, by name."""
        selector = pafs.FileSelector(self.at(folder), allow_not_found=True)
        with self._told():
            found = self.filesystem.get_file_info(selector)
        return {
            info.base_name: (info.mtime_ns, info.size)
            for info in found
            if info.type == pafs.FileType.File and info.base_name.endswith(suffix)
        }

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes in bytes of those files that exist; one listing per subfolder.

        Args:
            names: Paths relative to this folder.
        """
        by_folder: dict[str, list[str]] = {}
        for name in names:
            by_folder.setdefault(name.rpartition("/")[0], []).append(name)
        found = {}
        for folder, wanted in by_folder.items():
            present = self.versions(folder)
            for name in wanted:
                base = name.rpartition("/")[2]
                if base in present:
                    found[name] = present[base][1]
        return found

    def entries(self) -> list[str]:
        """Return the sorted names of all entries of the folder; empty if it does not exist.

        Raises:
            ArtifactError: If the path is a file.
        """
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        with self._told(), self._as_a_folder():
            return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        with self._told(), self.filesystem.open_input_stream(self.at(name)) as stream:
            data: bytes = stream.read()
        return data

    @contextlib.contextmanager
    def reader(self, name: str) -> Iterator[Any]:
        """Yield a binary stream of a file that is too large to hold in memory."""
        with self._told(), self.filesystem.open_input_stream(self.at(name)) as stream:
            yield stream

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically."""
        with self.writer(name) as stream:
            stream.write(data)

    def upload(self, local: Path) -> dict[str, dict[str, Any]]:
        """Copy the files of a local folder and of those in it.

        Returns:
            ``size_bytes`` and ``sha256`` of each file, by relative path.
        """
        files = {}
        for path in sorted(path for path in local.rglob("*") if path.is_file()):
            name = path.relative_to(local).as_posix()
            with path.open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
                source.seek(0)
                if self._is_local:
                    with self.writer(name) as stream:
                        shutil.copyfileobj(source, stream, _BLOCK_BYTES)
                else:
                    with self._told():
                        self._send(source, name)
            files[name] = {"size_bytes": path.stat().st_size, "sha256": digest}
        return files

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Yield a stream; the file appears when the block ends without an exception."""
        with self._told():
            write = self._local_writer if self._is_local else self._bucket_writer
            with write(name) as stream:
                yield stream

    @contextlib.contextmanager
    def _local_writer(self, name: str) -> Iterator[BinaryIO]:
        # Inside the draft, so that files of an interrupted process are deleted on publication.
        folder, _, last = self.at(name).rpartition("/")
        unfinished = self.at(f"{UNFINISHED}/{uuid.uuid4().hex}-{last}")
        self._make_local_folder(folder)
        self._make_local_folder(unfinished.rpartition("/")[0])
        try:
            with open(unfinished, "wb") as stream:
                yield stream
                # Otherwise a power loss may leave an empty file under the final name.
                stream.flush()
                os.fsync(stream.fileno())
            self.filesystem.move(unfinished, self.at(name))
        except BaseException:
            # On a full disk, free the space for other writers.
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def _make_local_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with self._as_a_folder():
            self.filesystem.create_dir(path, recursive=True)

    @contextlib.contextmanager
    def _as_a_folder(self) -> Iterator[None]:
        """Explain why no folder can exist at this path: a parent is a file, a name is too long.

        Raises:
            ArtifactError: If a parent is not a folder; the message names the first one.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, PermissionError) or storage_problem(error, self.described):
                raise
            parents = [self.path, *map(str, PurePath(self.path).parents)]
            nearest = next(place for place in parents if os.path.lexists(place) or place == "/")
            reason = "" if os.path.isdir(nearest) else f"{nearest} is not a folder. "
            raise ArtifactError(
                f"{self.described} cannot be used as a folder, choose another one. "
                f"{reason}Found: {error}"
            ) from error

    @contextlib.contextmanager
    def _bucket_writer(self, name: str) -> Iterator[BinaryIO]:
        # Closing a stream to S3 publishes what was written so far, also after an exception.
        with tempfile.TemporaryFile() as stream:
            with translate_storage_errors(
                f"{tempfile.gettempdir()} (TMPDIR), for an upload to {self.described}"
            ):
                yield stream
            stream.seek(0)
            self._send(stream, name)

    def _send(self, stream: IO[bytes], name: str) -> None:
        with self.filesystem.open_output_stream(self.at(name)) as upload:
            for number, block in enumerate(iter(lambda: stream.read(_BLOCK_BYTES), b"")):
                upload.write(block)
                # Arrow uploads parts in the background, and holds all that are not sent yet: the
                # whole file, if the disk is faster than the network.
                if number % _BLOCKS_IN_FLIGHT == _BLOCKS_IN_FLIGHT - 1:
                    upload.flush()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            with translate_storage_errors(self.described):
                yield
        # For an input package this may be a defect; without its output folder no job can run.
        except PermissionError as error:
            raise StorageError(
                f"{self.described}: this user may not read or write there: change its owner or "
                f"permissions, or choose another folder. Found: {error}"
            ) from error

    def delete_folder(self, name: str) -> None:
        """Delete a subfolder and its contents, if it exists."""
        with self._told():
            for tries_left in reversed(range(_DELETE_TRIES)):
                info = self.filesystem.get_file_info(self.at(name))
                if info.type != pafs.FileType.Directory:
                    return
                try:
                    self.filesystem.delete_dir(self.at(name))
                    return
                # A file was written or deleted concurrently, for example by the lease's refresh
                # thread.
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or not tries_left:
                        raise
