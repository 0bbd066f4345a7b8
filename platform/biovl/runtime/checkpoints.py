"""Checkpoints of a run: written asynchronously and atomically; old ones are deleted.

out/.draft/checkpoints/
  000001200.pt        state after 1,200 steps, to resume from; deleted when the run is published
out/checkpoints/
  000001000.pt        a checkpoint of the history, which the published folder retains

Both are checkpoints of the folder: ``Checkpoints(out).steps()`` lists them and ``load`` reads one,
of a draft and of a published folder alike.

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
from biovl.core.folders import UNFINISHED

_FOLDER = ".draft/checkpoints"
_HISTORY = "checkpoints"
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
        keep_last: Number of most recent checkpoints to retain.
        pinned: Returns the steps that are retained in addition; called after every write.
        is_history: Returns whether the checkpoint after a number of steps is retained even after
            the run is published.
    """

    def __init__(
        self,
        uri: str,
        *,
        keep_last: int = 2,
        pinned: Callable[[], Iterable[int]] = tuple,
        is_history: Callable[[int], bool] = lambda steps_done: False,
    ) -> None:
        self._draft = Draft(uri)
        self._folder = self._draft.folder
        self._keep_last, self._pinned, self.is_history = keep_last, pinned, is_history
        self._host = _HostCopy()
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._skipped: set[int] = set()

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        return sorted({steps_done for steps_done, _ in self._files()})

    def is_whole(self, steps_done: int) -> bool:
        """Return whether the checkpoint after ``steps_done`` steps is intact. Reads all of it."""
        try:
            self._verify(steps_done)
        except ArtifactError:
            return False
        return True

    def _verify(self, steps_done: int) -> None:
        """Compare a checkpoint with its checksum, block by block."""
        name = self._name(steps_done)
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

    def load_last(self, say: Callable[[str], None] = _log.warning) -> dict[str, Any] | None:
        """Return the state of the last intact checkpoint, None if there are no checkpoints at all.

        Only for the writing process, before its first write: deletes the partial files of an
        interrupted process. Corrupt checkpoints are skipped, reported, and recorded in the draft:
        see ``corrupt``.

        Args:
            say: Called with a line about each skipped checkpoint.

        Raises:
            ArtifactError: If all checkpoints are corrupt: the cause may be a temporary failure of
                disk or network, so the run does not silently start over.
        """
        for name in self._folder.names(UNFINISHED, ".pt"):
            self._delete(f"{UNFINISHED}/{name}")
        present = self.steps()
        for steps_done in reversed(present):
            try:
                return self.load(steps_done)
            except ArtifactError as error:
                say(f"skips a corrupt checkpoint: {error}")
                self._skipped.add(steps_done)
                self._draft.note(f"{_CORRUPT}/{steps_done:09d}", {"error": str(error)})
        if present:
            raise ArtifactError(
                f"none of the {len(present)} checkpoints in {self._folder.at(_FOLDER)} can be "
                "read: check the disk or bucket and run the same command again, or "
                "delete that folder to train from the beginning"
            )
        return None

    def discard_after(self, steps_done: int) -> None:
        """Delete the checkpoints of all steps after ``steps_done``."""
        for later, name in self._files():
            if later > steps_done:
                self._delete(name)

    def corrupt(self) -> list[int]:
        """Return the steps of all checkpoints that were skipped as corrupt, ascending."""
        names = self._draft.note_names(_CORRUPT)
        return sorted(int(name.rpartition("/")[2]) for name in names)

    def load(self, steps_done: int) -> dict[str, Any]:
        """Return the training state after ``steps_done`` steps, with tensors on the CPU.

        Raises:
            ArtifactError: If it does not exist or is corrupt.
        """
        name = self._name(steps_done)
        try:
            data = io.BytesIO()
            for block in self._blocks(name):
                data.write(block)
            _check(data)
            data.seek(0)
            # Tensors and plain values only: loading a checkpoint cannot execute code.
            state: dict[str, Any] = torch.load(data, map_location="cpu", weights_only=True)
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

    def sha256(self, steps_done: int) -> str:
        """Return the SHA-256 that a checkpoint contains, in hexadecimal; empty if it has none.

        Checkpoints of versions without checksums have none. The content is not verified.
        """
        name = self._folder.at(self._name(steps_done))
        with self._folder.filesystem.open_input_file(name) as file:
            trailer = file.read_at(_TRAILER_BYTES, max(0, file.size() - _TRAILER_BYTES))
        return trailer[len(_MAGIC) :].hex() if trailer.startswith(_MAGIC) else ""

    def _blocks(self, name: str) -> Iterator[bytes]:
        with self._folder.reader(name) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block

    def _corrupt(self, name: str, reason: object) -> ArtifactError:
        return ArtifactError(f"{self._folder.at(name)} cannot be read: {reason}")

    def save(
        self,
        state: dict[str, Any],
        *,
        before: Callable[[], None] = lambda: None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy a state and start writing it in a thread, after waiting for the previous write.

        The caller waits for the copy only: its tensors may be modified afterwards. Copies of
        tensors on a GPU are in the order of its stream, and the caller does not wait for them.

        Args:
            state: Includes ``steps_done``.
            before: Called in the writing thread before the write.
            then: Called in the writing thread after the write.

        Raises:
            OSError: If the previous write failed; other exceptions of its thread are raised, too.
        """
        self.wait()
        copied = self._host.copy(state)
        self._writer = threading.Thread(
            target=self._write, args=(copied, before, then), name="checkpoint"
        )
        self._writer.start()

    def is_writing(self) -> bool:
        """Return whether ``save`` would wait for the previous write."""
        return self._writer is not None and self._writer.is_alive()

    def check(self) -> None:
        """Raise the error of the last write if it failed; does not wait for a write in progress.

        Raises:
            OSError: If the write failed.
        """
        if not self.is_writing():
            self.wait()

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

    def _write(
        self, state: dict[str, Any], before: Callable[[], None], then: Callable[[], None]
    ) -> None:
        try:
            self._host.synchronize()
            before()
            steps_done = state["steps_done"]
            name = _file(_HISTORY if self.is_history(steps_done) else _FOLDER, steps_done)
            with self._folder.writer(name) as stream:
                _save(state, stream)
            self._skipped.discard(steps_done)
            then()
            self._prune(steps_done, name)
        # Any exception in the thread is raised again in ``wait``.
        except BaseException as error:
            self._failure = error

    def _prune(self, written: int, written_to: str) -> None:
        """Delete unneeded checkpoints up to the one just written.

        Corrupt ones, which ``load_last`` skipped and no later write replaced, are not counted.
        """
        passed = [(steps, name) for steps, name in self._files() if steps <= written]
        last = sorted({steps for steps, _ in passed} - self._skipped)[-self._keep_last :]
        kept = {*last, *self._pinned()}
        for steps, name in passed:
            # With another history, it may have been in the other folder.
            is_old = steps == written and name != written_to
            if is_old or (steps not in kept and not self.is_history(steps)):
                self._delete(name)

    def prune_history(self) -> list[int]:
        """Delete surplus checkpoints from the history folder; return the steps of the rest."""
        steps = []
        for steps_done, name in self._files():
            if name.startswith(f"{_HISTORY}/"):
                if self.is_history(steps_done):
                    steps.append(steps_done)
                else:
                    self._delete(name)
        return sorted(steps)

    def _delete(self, name: str) -> None:
        self._folder.filesystem.delete_file(self._folder.at(name))

    def _files(self) -> list[tuple[int, str]]:
        """Return the steps and names of all files."""
        return [
            (int(name.removesuffix(".pt")), f"{folder}/{name}")
            for folder in (_FOLDER, _HISTORY)
            for name in self._folder.names(folder, ".pt")
        ]

    def _name(self, steps_done: int) -> str:
        """Return the name of an existing file."""
        files = dict(self._files())
        if steps_done not in files:
            existing = ", ".join(map(str, sorted(files))) or "none"
            raise ArtifactError(
                f"{self._folder.described} has no checkpoint {_file(_FOLDER, steps_done)} after "
                f"{steps_done:,} steps; steps with a checkpoint: {existing}"
            )
        return files[steps_done]


class _HostCopy:
    """Host memory for a copy of a state, which the next copy reuses.

    Fresh memory costs more time than the copy: the kernel clears every page (CPU), and the driver
    pins it (GPU). Pinned memory lets a GPU copy at the speed of its bus, without the host.

    Copies from a GPU are enqueued on its current stream, which runs the steps: they end before the
    next step modifies a tensor, and nothing needs to wait. A second stream could copy during the
    next forward pass, but would have to be waited for before every tensor that a step modifies, in
    order to save the 0.2 s that 5 GB take on PCIe 4.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], torch.Tensor] = {}
        self._from_gpu = False
        self._enqueued: torch.cuda.Event | None = None

    def copy(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a state on the host, valid after ``synchronize``."""
        copied: dict[str, Any] = self._copy(state, ())
        if self._from_gpu:
            self._enqueued = torch.cuda.Event()
            self._enqueued.record()
        return copied

    def synchronize(self) -> None:
        """Wait until the device has executed the last copy."""
        if self._enqueued is not None:
            self._enqueued.synchronize()

    def _copy(self, values: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(values, torch.Tensor):
            self._from_gpu |= values.is_cuda
            buffer = self._buffers.get(path)
            if buffer is None or (buffer.shape, buffer.dtype) != (values.shape, values.dtype):
                buffer = torch.empty_like(
                    values, device="cpu", requires_grad=False, pin_memory=values.is_cuda
                )
                self._buffers[path] = buffer
            return buffer.copy_(values.detach(), non_blocking=True)
        if isinstance(values, dict):
            return {key: self._copy(value, (*path, key)) for key, value in values.items()}
        if isinstance(values, list | tuple):
            return type(values)(
                self._copy(value, (*path, number)) for number, value in enumerate(values)
            )
        return values


def _file(folder: str, steps_done: int) -> str:
    return f"{folder}/{steps_done:09d}.pt"


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
