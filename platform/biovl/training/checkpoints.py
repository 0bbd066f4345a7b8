"""Checkpoints of a run: written beside training, whole or not at all, the last few kept.

out/.draft/checkpoints/
  000001200.pt        what a run goes on from after 1,200 steps; goes when the run is published
"""

import io
import pickle
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

import torch

from biovl.errors import ArtifactError
from biovl.storage import Draft

_FOLDER = ".draft/checkpoints"


class Checkpoints:
    """The checkpoints of a run, for one process to write and any to read.

    Args:
        uri: The folder that the run is to publish, local or ``s3://``.
        keep_last: How many to keep.
        pinned: Returns the steps that are kept besides, asked after every write.
    """

    def __init__(
        self, uri: str, *, keep_last: int = 2, pinned: Callable[[], Iterable[int]] = tuple
    ) -> None:
        self._folder = Draft(uri).folder
        self._keep_last, self._pinned = keep_last, pinned
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None

    def steps(self) -> list[int]:
        """Return the steps after which there is a checkpoint, ascending."""
        names = self._folder.names(_FOLDER, ".pt")
        return sorted(int(name.removesuffix(".pt")) for name in names)

    def is_whole(self, steps_done: int) -> bool:
        """Return whether there is a checkpoint after these steps that can be read. Reads it."""
        if steps_done not in self.steps():
            return False
        try:
            self.load(steps_done)
        except ArtifactError:
            return False
        return True

    def load(self, steps_done: int, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Return a state.

        Raises:
            ArtifactError: If there is none after these steps, or it is damaged.
        """
        name = _name(steps_done)
        try:
            data = self._folder.read(name)
            # Tensors and plain values alone: a checkpoint cannot run code.
            state: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location=device, weights_only=True
            )
        except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            raise ArtifactError(f"{self._folder.at(name)} cannot be read: {error}") from error
        return state

    def save(self, state: dict[str, Any], then: Callable[[], None] = lambda: None) -> None:
        """Begin to write a state, whose tensors nobody changes; the last one is waited for first.

        Args:
            state: With ``steps_done``.
            then: Called in the writing thread when it is written.

        Raises:
            OSError: If the last one could not be written, or what else went wrong with it.
        """
        self.wait()
        self._writer = threading.Thread(target=self._write, args=(state, then), name="checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Wait until what was saved is written.

        Raises:
            OSError: If it could not be.
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
        # In a thread: whatever it is, it is raised where somebody waits.
        except BaseException as error:
            self._failure = error

    def _prune(self, written: int) -> None:
        """Delete what is not needed of the checkpoints up to the one just written.

        Later ones could not be read, or the run would not be here: they do not count as kept.
        """
        passed = [steps_done for steps_done in self.steps() if steps_done <= written]
        kept = {*passed[-self._keep_last :], *self._pinned()}
        for steps_done in passed:
            if steps_done not in kept:
                self._folder.filesystem.delete_file(self._folder.at(_name(steps_done)))


def _name(steps_done: int) -> str:
    return f"{_FOLDER}/{steps_done:09d}.pt"


def _save(state: dict[str, Any], stream: IO[bytes]) -> None:
    try:
        torch.save(state, stream)
    except RuntimeError as error:
        # Torch ends its archive also where the disk is full, and speaks of that alone.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
