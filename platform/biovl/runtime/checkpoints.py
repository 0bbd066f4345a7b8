"""Checkpoints of a run: written asynchronously and atomically; old ones are deleted.

out/.draft/checkpoints/
  000001200.pt        state after 1,200 steps, to resume from; deleted when the run is published

A file is the output of ``torch.save`` followed by its SHA-256, in one file so that neither exists
without the other. PyTorch itself does not verify what it loads.
"""

import hashlib
import io
import logging
import pickle
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, cast

import torch

from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError

_FOLDER = ".draft/checkpoints"
_CORRUPT = "corrupt_checkpoints"

_MAGIC = b"biovl sha-256 1\n"
_TRAILER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_BLOCK_BYTES = 1 << 24

_END_OF_ZIP = b"PK\x05\x06"
"""First four of the last 22 bytes of a zip archive without a comment (APPNOTE.TXT 4.3.16)."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a run, for one writing process and any number of readers.

    Args:
        uri: The folder that the run publishes, local or ``s3://``.
        keep_last: Number of checkpoints to retain.
        pinned: Returns the steps that are retained in addition; called after every write.
    """

    def __init__(
        self, uri: str, *, keep_last: int = 2, pinned: Callable[[], Iterable[int]] = tuple
    ) -> None:
        self._draft = Draft(uri)
        self._folder = self._draft.folder
        self._keep_last, self._pinned = keep_last, pinned
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        names = self._folder.names(_FOLDER, ".pt")
        return sorted(int(name.removesuffix(".pt")) for name in names)

    def is_whole(self, steps_done: int) -> bool:
        """Return whether the checkpoint after ``steps_done`` steps is intact. Reads all of it."""
        if steps_done not in self.steps():
            return False
        try:
            self.verify(steps_done)
        except ArtifactError:
            return False
        return True

    def verify(self, steps_done: int) -> None:
        """Compare a checkpoint with its checksum, block by block.

        Raises:
            ArtifactError: If it does not exist or is corrupt.
        """
        name = _name(steps_done)
        digest, last = hashlib.sha256(), b""
        try:
            for block in self._blocks(name):
                last += block
                digest.update(last[:-_TRAILER_BYTES])
                last = last[-_TRAILER_BYTES:]
        except OSError as error:
            raise self._corrupt(name, error) from error
        if not last.startswith(_MAGIC):
            # Written by a version without checksums, or the checksum itself is corrupt.
            self.load(steps_done)
        elif last != _MAGIC + digest.digest():
            raise self._corrupt(name, "its SHA-256 does not match the stored one")

    def last_good(self, say: Callable[[str], None] = _log.warning) -> int:
        """Return the step of the last intact checkpoint, 0 if there are no checkpoints at all.

        Corrupt checkpoints are skipped, reported, and recorded in the draft: see ``corrupt``.

        Args:
            say: Called with a line about each skipped checkpoint.

        Raises:
            ArtifactError: If all checkpoints are corrupt: the cause may be a temporary failure of
                disk or network, so the run does not silently start over.
        """
        present = self.steps()
        for steps_done in reversed(present):
            try:
                self.verify(steps_done)
            except ArtifactError as error:
                say(f"skips a corrupt checkpoint: {error}")
                self._draft.note(f"{_CORRUPT}/{steps_done:09d}", {"error": str(error)})
            else:
                return steps_done
        if present:
            raise ArtifactError(
                f"none of the {len(present)} checkpoints in {self._folder.at(_FOLDER)} can be "
                "read: check the disk or bucket and run the same command again, or "
                "delete that folder to train from the beginning"
            )
        return 0

    def discard_after(self, steps_done: int) -> None:
        """Delete the checkpoints of more steps than ``steps_done``."""
        for later in self.steps():
            if later > steps_done:
                self._folder.filesystem.delete_file(self._folder.at(_name(later)))

    def corrupt(self) -> list[int]:
        """Return the steps of all checkpoints that were skipped as corrupt, ascending."""
        names = self._draft.note_names(_CORRUPT)
        return sorted(int(name.rpartition("/")[2]) for name in names)

    def load(self, steps_done: int, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Return the training state after ``steps_done`` steps.

        Raises:
            ArtifactError: If it does not exist or is corrupt.
        """
        name = _name(steps_done)
        try:
            data = io.BytesIO()
            for block in self._blocks(name):
                data.write(block)
            _check(data)
            data.seek(0)
            # Tensors and plain values only: loading a checkpoint cannot execute code.
            state: dict[str, Any] = torch.load(data, map_location=device, weights_only=True)
        except (
            OSError,
            RuntimeError,
            ValueError,
            EOFError,
            pickle.UnpicklingError,
            zipfile.BadZipFile,
        ) as error:
            raise self._corrupt(name, error) from error
        return state

    def _blocks(self, name: str) -> Iterator[bytes]:
        with self._folder.reader(name) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block

    def _corrupt(self, name: str, reason: object) -> ArtifactError:
        return ArtifactError(f"{self._folder.at(name)} cannot be read: {reason}")

    def save(self, state: dict[str, Any], then: Callable[[], None] = lambda: None) -> None:
        """Start writing a state in a thread, after waiting for the previous one.

        Args:
            state: Includes ``steps_done``. Its tensors must not be modified until ``wait`` returns.
            then: Called in the writing thread after the write.

        Raises:
            OSError: If the previous write failed; other exceptions of its thread are raised, too.
        """
        self.wait()
        self._writer = threading.Thread(target=self._write, args=(state, then), name="checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Wait until the last save is written.

        Raises:
            OSError: If the write failed.
        """
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _write(self, state: dict[str, Any], then: Callable[[], None]) -> None:
        try:
            with self._folder.writer(_name(state["steps_done"])) as stream:
                _save(state, stream)
            then()
            self._prune(state["steps_done"])
        # Any exception in the thread is raised again in ``wait``.
        except BaseException as error:
            self._failure = error

    def _prune(self, written: int) -> None:
        """Delete unneeded checkpoints up to the one just written.

        Later ones were corrupt, otherwise the run would have resumed from them: they are not
        counted.
        """
        passed = [steps_done for steps_done in self.steps() if steps_done <= written]
        kept = {*passed[-self._keep_last :], *self._pinned()}
        for steps_done in passed:
            if steps_done not in kept:
                self._folder.filesystem.delete_file(self._folder.at(_name(steps_done)))


def on_host(values: Any) -> Any:
    """Return a copy of a training state on the CPU, which later steps do not change."""
    if isinstance(values, torch.Tensor):
        return values.detach().to("cpu", copy=True)
    if isinstance(values, dict):
        return {key: on_host(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(on_host(value) for value in values)
    return values


def _name(steps_done: int) -> str:
    return f"{_FOLDER}/{steps_done:09d}.pt"


def _check(data: io.BytesIO) -> None:
    """Compare a loaded checkpoint with its checksum, and remove the checksum.

    Raises:
        ValueError: If they differ.
        zipfile.BadZipFile: If a file without a checksum is not a zip archive.
    """
    content = data.getbuffer()
    size = len(content) - _TRAILER_BYTES
    trailer = bytes(content[max(size, 0) :])
    if trailer.startswith(_MAGIC):
        digest = hashlib.sha256(content[:size]).digest()
        content.release()
        if trailer != _MAGIC + digest:
            raise ValueError("its SHA-256 does not match the stored one")
        data.truncate(size)
        return
    is_whole = bytes(content[-22:-18]) == _END_OF_ZIP
    content.release()
    # Written by a version without checksums: PyTorch stores each tensor's CRC-32, but does not
    # verify it.
    if not is_whole or zipfile.ZipFile(data).testzip() is not None:
        raise ValueError("it is truncated or corrupt")


class _Hashed(io.RawIOBase):
    """A write-only stream that forwards all bytes and hashes them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._stream.write(data)

    def finish(self) -> None:
        """Write the checksum of all bytes written."""
        self._stream.write(_MAGIC + self._digest.digest())


def _save(state: dict[str, Any], stream: IO[bytes]) -> None:
    hashed = _Hashed(stream)
    try:
        torch.save(state, cast(IO[bytes], hashed))
        hashed.finish()
    except RuntimeError as error:
        # torch.save closes its archive even if the disk is full, and reports only that failure.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
