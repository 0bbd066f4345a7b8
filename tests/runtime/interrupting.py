"""Stopping a job between two units of work, within this process.

A draft is the same whoever stopped its job: the receipts of what is done, and perhaps a part that
nobody finished. That a process may die at any moment is tested with SIGKILL once per mechanism
(harvest's units, annotate's actors, enrich's journal, training's checkpoints, a sweep's trials,
published copies, votes) and by ``benchmarks/chaos.py``; that each further job goes on from its
draft is tested with this, on the Ray of the session.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from biovl.runtime.progress import Progress


@contextmanager
def interrupted(stage: str, units: int = 1) -> Iterator[None]:
    """Stop the job in the block by Ctrl-C after ``units`` units of a stage, 0 as it begins."""
    current = ""
    left = units
    begin, add = Progress.stage, Progress.add

    def begin_stage(self: Progress, name: str, total: int, *, done_before: int = 0) -> None:
        nonlocal current
        current = name
        begin(self, name, total, done_before=done_before)
        if name == stage and units == 0:
            raise KeyboardInterrupt

    def count(self: Progress, note: str = "") -> None:
        nonlocal left
        add(self, note)
        left -= current == stage
        if left == 0:
            raise KeyboardInterrupt

    with (
        mock.patch.object(Progress, "stage", begin_stage),
        mock.patch.object(Progress, "add", count),
        pytest.raises(KeyboardInterrupt),
    ):
        yield


@contextmanager
def counted() -> Iterator[dict[str, tuple[int, int]]]:
    """Yield, by stage of the job in the block, how many units were done before, and of how many."""
    stages: dict[str, tuple[int, int]] = {}
    begin = Progress.stage

    def begin_stage(self: Progress, name: str, total: int, *, done_before: int = 0) -> None:
        stages[name] = done_before, total
        begin(self, name, total, done_before=done_before)

    with mock.patch.object(Progress, "stage", begin_stage):
        yield stages
