"""Files to a repository: what is not there, in commits of bounded size, and compared afterwards.

Files are compared with those that are there by size and hash, so that nothing is sent twice: what a
killed upload has committed stays. The card and the manifest come in the last commit, so that a
repository with a manifest is complete, as a folder is.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.fs as pafs

from biovl.core.artifacts import MANIFEST, Folder
from biovl.core.errors import StorageError
from biovl.publish.hub import Repository
from biovl.publish.kinds import CARD, matches

_FILES_PER_COMMIT = 100
_BYTES_PER_COMMIT = 8_000_000_000
"""What a bucket's files take on the local disk while they go."""
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
    """Send what is not there, delete what the folder has no longer, and look at what came.

    Args:
        repository: Where to.
        folder: Where from; nothing is written there.
        files: Those that go, by path: size in bytes.
        written: Further files, by path: their content.
        patterns: Of all the files of this kind of folder; others in the repository are let be.
        sent: Called with files and bytes when some are sent.

    Returns:
        ``files`` and ``size_bytes`` of all, ``sent_files`` and ``sent_bytes`` of those that were
        not there.

    Raises:
        StorageError: If the hub does not take them, or has them otherwise afterwards.
    """
    there = repository.files()
    known: dict[str, str] = {}
    sizes = {**files, **{name: len(content) for name, content in written.items()}}
    for name in sorted(sizes):
        if name in there and there[name].size_bytes == sizes[name]:
            digest = _digest(folder, name, sizes[name], written, large=there[name].is_large)
            if digest == there[name].hash:
                known[name] = digest
    todo = [name for name in sorted(sizes) if name not in known and name not in _LAST]
    # What is there is no whole folder any more once a first file of it changes.
    stale = [name for name in there if name not in sizes and matches(name, patterns)]
    unfinished = [MANIFEST] * (MANIFEST in there and bool(todo))
    if unfinished:
        known.pop(MANIFEST, None)
    last = [name for name in _LAST if name in sizes and name not in known]
    send = [(batch, unfinished if number == 0 else []) for number, batch in _numbered(todo, sizes)]
    if last or stale:
        send.append((last, stale))
    for batch, deleted in send:
        with _local(folder, batch, written) as contents:
            subject = (
                f"Publish {len(batch)} files" if batch else "Delete files of an earlier version"
            )
            known |= repository.commit(subject, contents, deleted)
        sent(len(batch), sum(sizes[name] for name in batch))
    found = repository.files()
    wrong = []
    for name, size in sizes.items():
        if name in found and found[name].size_bytes == size:
            digest = known.get(name, "")
            if len(digest) != len(found[name].hash):
                digest = _digest(folder, name, size, written, large=found[name].is_large)
            if digest == found[name].hash:
                continue
        wrong.append(name)
    if wrong:
        raise StorageError(
            f"{repository.url}: {len(wrong)} files are not there as they were sent "
            f"({', '.join(sorted(wrong)[:3])} …): run it again"
        )
    names = [name for batch, _ in send for name in batch]
    return {
        "files": len(sizes),
        "size_bytes": sum(sizes.values()),
        "sent_files": len(names),
        "sent_bytes": sum(sizes[name] for name in names),
    }


def _numbered(todo: Sequence[str], sizes: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
    """Yield files in batches for a commit each, with their numbers."""
    batch: list[str] = []
    number = held_bytes = 0
    for name in todo:
        if batch and (
            len(batch) == _FILES_PER_COMMIT or held_bytes + sizes[name] > _BYTES_PER_COMMIT
        ):
            yield number, batch
            number, batch, held_bytes = number + 1, [], 0
        batch.append(name)
        held_bytes += sizes[name]
    if batch:
        yield number, batch


@contextlib.contextmanager
def _local(
    folder: Folder, names: Sequence[str], written: Mapping[str, bytes]
) -> Iterator[dict[str, Path | bytes]]:
    """Yield files as the client takes them: those of a bucket are copied for so long."""
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
    # Git's name for a content is the hash of its kind, its size and itself.
    digest = hashlib.sha256() if large else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for block in [written[name]] if name in written else _blocks(folder, name):
        digest.update(block)
    return digest.hexdigest()


def _blocks(folder: Folder, name: str) -> Iterator[bytes]:
    with folder.filesystem.open_input_stream(folder.at(name), compression=None) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block
