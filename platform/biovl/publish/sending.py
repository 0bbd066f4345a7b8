"""Upload changed files to a repository, in commits of bounded size, and verify the result.

Files are compared with those in the repository by size and hash, so that nothing is sent twice and
an interrupted upload resumes. The card and the manifest are in the last commit: a repository with a
manifest is complete, as is a folder.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.fs as pafs

from biovl.core.artifacts import MANIFEST
from biovl.core.errors import StorageError
from biovl.core.folders import Folder
from biovl.publish.hub import Repository
from biovl.publish.kinds import CARD, matches

_FILES_PER_COMMIT = 100
_BYTES_PER_COMMIT = 8_000_000_000
"""Maximum size of a commit; files from a bucket need as much space on the local disk."""
_BLOCK_BYTES = 1 << 24
_LAST = (CARD, MANIFEST)


def upload(
    repository: Repository,
    folder: Folder,
    files: Mapping[str, int],
    written: Mapping[str, bytes],
    patterns: Sequence[str],
    *,
    sent: Callable[[int, int], None],
) -> dict[str, int]:
    """Upload changed files, delete files that the folder no longer has, and verify the result.

    Args:
        repository: Target repository.
        folder: Source folder; it is not modified.
        files: Sizes in bytes of the files to upload, by path.
        written: Contents of additional files, by path.
        patterns: Patterns of all files of this kind of folder; other files in the repository are
            not touched.
        sent: Called with the number of files and bytes after each commit.

    Returns:
        ``files`` and ``size_bytes`` of all files, ``sent_files`` and ``sent_bytes`` of those
        uploaded.

    Raises:
        StorageError: If the Hub rejects them, or returns other hashes afterwards.
    """
    existing = repository.files()
    committed: dict[str, str] = {}
    sizes = {**files, **{name: len(content) for name, content in written.items()}}
    for name in sorted(sizes):
        if name in existing and existing[name].size_bytes == sizes[name]:
            digest = _digest(folder, name, sizes[name], written, large=existing[name].is_large)
            if digest == existing[name].hash:
                committed[name] = digest
    todo = [name for name in sorted(sizes) if name not in committed and name not in _LAST]
    # The repository is incomplete as soon as one of its files changes.
    stale = [name for name in existing if name not in sizes and matches(name, patterns)]
    unfinished = [MANIFEST] * (MANIFEST in existing and bool(todo))
    if unfinished:
        committed.pop(MANIFEST, None)
    last = [name for name in _LAST if name in sizes and name not in committed]
    send = [
        (batch, unfinished if number == 0 else [])
        for number, batch in enumerate(_batches(todo, sizes))
    ]
    if last or stale:
        send.append((last, stale))
    for batch, deleted in send:
        with _local(folder, batch, written) as contents:
            subject = (
                f"Publish {len(batch)} files" if batch else "Delete files of an earlier version"
            )
            committed |= repository.commit(subject, contents, deleted)
        sent(len(batch), sum(sizes[name] for name in batch))
    uploaded = repository.files()
    wrong = []
    for name, size in sizes.items():
        if name in uploaded and uploaded[name].size_bytes == size:
            digest = committed.get(name, "")
            if len(digest) != len(uploaded[name].hash):
                digest = _digest(folder, name, size, written, large=uploaded[name].is_large)
            if digest == uploaded[name].hash:
                continue
        wrong.append(name)
    if wrong:
        raise StorageError(
            f"{repository.url}: {len(wrong)} files on the hub differ from those sent "
            f"({', '.join(sorted(wrong)[:3])} …): run it again"
        )
    names = [name for batch, _ in send for name in batch]
    return {
        "files": len(sizes),
        "size_bytes": sum(sizes.values()),
        "sent_files": len(names),
        "sent_bytes": sum(sizes[name] for name in names),
    }


def _batches(todo: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the files of each commit."""
    batch: list[str] = []
    held_bytes = 0
    for name in todo:
        if batch and (
            len(batch) == _FILES_PER_COMMIT or held_bytes + sizes[name] > _BYTES_PER_COMMIT
        ):
            yield batch
            batch, held_bytes = [], 0
        batch.append(name)
        held_bytes += sizes[name]
    if batch:
        yield batch


@contextlib.contextmanager
def _local(
    folder: Folder, names: Sequence[str], written: Mapping[str, bytes]
) -> Iterator[dict[str, Path | bytes]]:
    """Yield local paths of files; files of a bucket are downloaded while the block runs."""
    own = {name: written[name] for name in names if name in written}
    others = [name for name in names if name not in written]
    if isinstance(folder.filesystem, pafs.LocalFileSystem):
        yield {**own, **{name: Path(folder.at(name)) for name in others}}
        return
    with tempfile.TemporaryDirectory(prefix="biovl-publish-") as scratch:
        paths = {name: Path(scratch, f"{number:06d}") for number, name in enumerate(others)}
        for name, path in paths.items():
            with path.open("wb") as target:
                for block in _blocks(folder, name):
                    target.write(block)
        yield {**own, **paths}


def _digest(
    folder: Folder, name: str, size: int, written: Mapping[str, bytes], *, large: bool
) -> str:
    # A Git blob hash covers the type, the size and the content.
    digest = hashlib.sha256() if large else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for block in [written[name]] if name in written else _blocks(folder, name):
        digest.update(block)
    return digest.hexdigest()


def _blocks(folder: Folder, name: str) -> Iterator[bytes]:
    with folder.filesystem.open_input_stream(folder.at(name), compression=None) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block
