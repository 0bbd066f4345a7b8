"""The files of an index on this machine: where they are, or copied out of a bucket once."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pyarrow.fs as pafs

from biovl.errors import ArtifactError
from biovl.storage import MANIFEST, Folder, Manifest

_UNFINISHED = ".unfinished-"


def is_local(uri: str) -> bool:
    """Return whether files are read where they are."""
    return isinstance(Folder(uri).filesystem, pafs.LocalFileSystem)


def in_place(uri: str, manifest: Manifest) -> Path:
    """Return a local index's folder, all its files being of the size that they should have.

    Raises:
        ArtifactError: If one is not.
    """
    folder = Path(Folder(uri).path)
    check_sizes(folder, manifest)
    return folder


def copied(uri: str, manifest: Manifest, print_: str, cache: Path) -> Path:
    """Return a folder of the cache with the files of an index, copied if they are not there.

    A copy that is not whole is made anew: what it was made from still is.

    Raises:
        ArtifactError: If it cannot be copied; what was copied so far is deleted.
    """
    target = cache / print_
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone_in(cache):
            # Of those that were killed: nobody copies beside whoever is alone.
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
    """Delete a copy. Who has it open keeps what is open."""
    gone = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=copy.parent))
    with contextlib.suppress(FileNotFoundError):
        # Renamed first, so that no copy is ever half there under its name.
        copy.rename(gone / copy.name)
    shutil.rmtree(gone, ignore_errors=True)


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse what was cut short: what is mapped into memory and is not there ends the process."""
    for name, about in manifest.files.items():
        path = folder / _checked(name)
        found = path.stat().st_size if path.is_file() else None
        if found != about["size_bytes"]:
            raise ArtifactError(f"{path} has {found} bytes, expected {about['size_bytes']}")


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
                # A size is all that is checked later: what a crash leaves must not have it.
                file.flush()
                os.fsync(file.fileno())
        check_sizes(draft, manifest)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    try:
        check_sizes(folder, manifest)
    except ArtifactError:
        return False
    return True


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArtifactError(f"{MANIFEST} names {name!r:.200}, which is not in its folder")
    return name


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process copies into a folder; one that ends lets go."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
