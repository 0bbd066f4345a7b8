"""Saving that does not depend on how fast the disk is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from biovl.runtime.checkpoints import Checkpoints


@contextmanager
def saves_at_once() -> Iterator[None]:
    """Within the block, write a checkpoint before the next step begins.

    Else one that is due while the one before is being written is postponed, and there are fewer.
    """
    save = Checkpoints.save

    def save_at_once(self: Checkpoints, *state: Any, **how: Any) -> None:
        save(self, *state, **how)
        self.wait()

    with mock.patch.object(Checkpoints, "save", save_at_once):
        yield
