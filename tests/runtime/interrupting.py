"""Stopping a job between two units of work within this process, and killing what works for it.

A draft is the same whoever stopped its job: the receipts of what is done, and perhaps a part that
nobody finished. That a process may die at any moment is tested with SIGKILL once per mechanism
(harvest's units, annotate's actors, enrich's journal, training's checkpoints, a sweep's trials,
published copies, votes) and by ``benchmarks/chaos.py``; that each further job goes on from its
draft is tested with this, on the Ray of the session.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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
        if current == stage:
            left -= 1
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


@contextmanager
def killing(ready: Callable[[], int | None]) -> Iterator[list[int]]:
    """Kill -9 the process that is given, once it is, while the block runs; yield which it was.

    A block may end before its process was found: on a busy machine this one is the slow one.
    """
    killed: list[int] = []
    is_over = threading.Event()

    def wait() -> None:
        while not killed and not is_over.wait(0.005):
            process = ready()
            if process is not None:
                # It may have ended since it was found.
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


def process_of(name: str) -> int | None:
    """Return a process of this Ray's, another of which may test beside us."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(f"ray::{name}".encode()):
                process = int(path.parent.name)
                if is_below(os.getpid(), process):
                    return process
    return None


def is_below(root: int, process: int) -> bool:
    """Return whether a process was started by another, or by one of those that it started."""
    while process > 1:
        # After the name, which is in brackets: the state, and the parent.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        process = int(fields[1])
        if process == root:
            return True
    return False
