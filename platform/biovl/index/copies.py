"""Local files of an index: in place, or copied once from a bucket to a cache."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

import pyarrow.fs as pafs

from biovl.core.artifacts import MANIFEST, Manifest, to_json
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder

log = logging.getLogger(__name__)

MANIFEST_SHA256 = "manifest_sha256"
"""Note of an index's manifest: the SHA-256 of the manifest without this note."""

_UNFINISHED = ".unfinished-"
_THREADS = 4
"""Threads that compute checksums: together they are faster than most disks (2 GB/s each)."""
_VERIFIED_MOST = 10_000
_verified: set[tuple[object, ...]] = set()
"""Files whose checksum this process has verified: device, inode, size, time of change, checksum."""


def is_local(uri: str) -> bool:
    """Return whether the location is a local folder, whose files can be memory-mapped."""
    return isinstance(Folder(uri).filesystem, pafs.LocalFileSystem)


def in_place(uri: str, manifest: Manifest) -> Path:
    """Return the folder of a local index after verifying its files.

    Raises:
        ArtifactError: If a file is missing, truncated or corrupt.
    """
    folder = Path(Folder(uri).path)
    verify(folder, manifest)
    return folder


def copy_to_cache(uri: str, manifest: Manifest, print_: str, cache: Path) -> Path:
    """Return the folder of the cache with the files of an index; copy them if necessary.

    An incomplete copy is replaced.

    Raises:
        ArtifactError: If the copy fails; partial files are deleted.
    """
    target = cache / print_
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone_in(cache):
            # Left by interrupted processes: this process holds the lock.
            for left in cache.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(left, ignore_errors=True)
            if target.is_dir() and not _is_whole(target, manifest):
                discard(target)
            if not target.is_dir():
                _copy(Folder(uri), manifest, target)
    except OSError as error:
        raise ArtifactError(f"{uri} cannot be copied to {cache}: {error}") from error
    return target


def discard(copy: Path) -> None:
    """Delete a copy; processes that have memory-mapped its files keep their data."""
    gone = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=copy.parent))
    with contextlib.suppress(FileNotFoundError):
        # Renamed first, so that a partly deleted copy is never visible under its name.
        copy.rename(gone / copy.name)
    shutil.rmtree(gone, ignore_errors=True)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Reject truncated files: reading past the end of a memory-mapped file raises SIGBUS.

    Raises:
        ArtifactError: If a file is missing or has another size than in the manifest.
    """
    for name, about in manifest.files.items():
        path = folder / _checked(name)
        size = path.stat().st_size if path.is_file() else None
        if size != about["size_bytes"]:
            raise ArtifactError(f"{path} has {size} bytes, expected {about['size_bytes']}")


def verify(folder: Path, manifest: Manifest) -> None:
    """Verify the sizes and checksums of the files of an index.

    Each process reads a file once, and again only if it has changed. Indexes of earlier versions
    have no checksums: only sizes are verified, and a warning is logged.

    Raises:
        ArtifactError: If a file is corrupt; the message has its name.
    """
    check_sizes(folder, manifest)
    known = {
        folder / name: about["sha256"]
        for name, about in manifest.files.items()
        if "sha256" in about
    }
    if len(known) < len(manifest.files):
        log.warning(
            "%s: %d files have no checksum, so damage to them is not noticed: the index was built "
            "by an earlier version",
            folder,
            len(manifest.files) - len(known),
        )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="verify") as threads:
        # Iterate over the results, so that exceptions are raised here.
        list(threads.map(_verify_file, known.keys(), known.values()))


def verify_manifest(uri: str, manifest: Manifest) -> None:
    """Verify the checksum of the manifest of an index, if it has one.

    Raises:
        ArtifactError: If the manifest is corrupt.
    """
    expected = manifest.notes.get(MANIFEST_SHA256)
    if expected is not None and manifest_sha256(manifest) != expected:
        raise ArtifactError(
            f"{uri}/{MANIFEST} is damaged: its checksum differs. Copy the index again, or rebuild "
            "it"
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; the file is read block by block."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_sha256(manifest: Manifest) -> str:
    """Return the SHA-256 of a manifest without its own checksum, in hexadecimal."""
    notes = {name: value for name, value in manifest.notes.items() if name != MANIFEST_SHA256}
    # As after a round trip through JSON: keys are strings, in sorted order.
    values = json.loads(to_json(asdict(replace(manifest, notes=notes))))
    return hashlib.sha256(to_json(values)).hexdigest()


def with_checksum(manifest: Manifest) -> Manifest:
    """Return a manifest with its own checksum among its notes."""
    notes = {**manifest.notes, MANIFEST_SHA256: manifest_sha256(manifest)}
    return replace(manifest, notes=notes)


def _verify_file(path: Path, expected: str) -> None:
    try:
        status = path.stat()
        key = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, expected)
        if key in _verified:
            return
        is_whole = sha256_of(path) == expected
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    if not is_whole:
        raise ArtifactError(
            f"{path} is damaged: its SHA-256 differs from the one in {MANIFEST}. Copy the index "
            "again, or rebuild it"
        )
    # Two changes in quick succession may have the same time stamp.
    if time.time_ns() - status.st_ctime_ns > 10**9:
        if len(_verified) >= _VERIFIED_MOST:
            _verified.clear()
        _verified.add(key)


def _copy(source: Folder, manifest: Manifest, target: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        for name in (*map(_checked, manifest.files), MANIFEST):
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            with (
                source.filesystem.open_input_stream(source.at(name)) as stream,
                (draft / name).open("wb") as file,
            ):
                shutil.copyfileobj(stream, file, 1 << 24)
                # Without checksums only sizes are verified later: a partial file must not have
                # the final size.
                file.flush()
                os.fsync(file.fileno())
        verify(draft, manifest)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    try:
        verify(folder, manifest)
    except ArtifactError:
        return False
    return True


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArtifactError(f"{MANIFEST} names {name!r:.200}, which is outside of its folder")
    return name


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a cache folder in the block, or until the process dies."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
