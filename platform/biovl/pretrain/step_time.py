"""Time of each part of a training step, in seconds, of every worker.

On a GPU, parts are delimited by CUDA events: they are read when the step is complete, and the host
does not wait for them. On the CPU, times are read from a clock.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from biovl.runtime.workers import Workers

PARTS = ("data", "copy", "forward", "communication", "backward", "optimizer", "other")
"""Parts of a step. ``data``: idle, since the next batch was not loaded. ``copy``: waiting for its
copy to the GPU. ``communication``: waiting for other workers, but for what overlaps with the
backward pass. ``other``: logging, saving."""

LAG_SHARE = 0.1
"""A worker lags if it computes longer than the mean of all by this share of a step."""

Seconds = dict[str, float]
"""Seconds of each part of a step."""


class StepClock:
    """Measures the parts of a worker's steps.

    Args:
        device: Device of the model.
        now: Returns seconds: for the waits of the host, and for all parts on the CPU.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self._is_cuda, self._now = device.type == "cuda", now
        self._marks: list[tuple[str, Any]] = [("other", self._mark())]
        self._waited_s = 0.0

    def begin(self, part: str) -> str:
        """Begin a part, and return the name of the previous part."""
        before = self._marks[-1][0]
        self._marks.append((part, self._mark()))
        return before

    @contextlib.contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Attribute the time of the block to ``part``, and later time to the previous part."""
        before = self.begin(part)
        try:
            yield
        finally:
            self.begin(before)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Attribute the time of the block to ``data``, up to the idle time of the device."""
        requested_at = self._now()
        yield
        self._waited_s += self._now() - requested_at

    def end_step(self) -> Callable[[], Seconds]:
        """End a step, and return a function that returns the seconds of its parts.

        Call the function only after the device has completed the step.
        """
        marks, waited_s = [*self._marks, ("", self._mark())], self._waited_s
        self._marks, self._waited_s = [("other", marks[-1][1])], 0.0

        def seconds() -> Seconds:
            found = dict.fromkeys(PARTS, 0.0)
            for (part, begin), (_, end) in pairwise(marks):
                found[part] += begin.elapsed_time(end) / 1e3 if self._is_cuda else end - begin
            # The device may compute while the host waits: only idle time is waiting for data.
            found["data"] = min(waited_s, found["other"])
            found["other"] -= found["data"]
            return found

        return seconds

    def _mark(self) -> Any:
        if not self._is_cuda:
            return self._now()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


@dataclass(frozen=True)
class TimedWorkers(Workers):
    """Workers whose collectives are measured as ``communication``."""

    clock: StepClock | None = None

    def sum(self, values: Tensor) -> Tensor:
        """See ``Workers.sum``."""
        with self._measured():
            return super().sum(values)

    def max(self, values: Tensor) -> Tensor:
        """See ``Workers.max``."""
        with self._measured():
            return super().max(values)

    def gather(self, rows_bD: Tensor, total: int) -> Callable[[], Tensor]:
        """See ``Workers.gather``."""
        return self._wait(super().gather(rows_bD, total))

    def reduce_scatter(self, rows_ND: Tensor) -> Callable[[], Tensor]:
        """See ``Workers.reduce_scatter``."""
        return self._wait(super().reduce_scatter(rows_ND))

    def _wait(self, wait: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def measured() -> Tensor:
            with self._measured():
                return wait()

        return measured

    def _measured(self) -> contextlib.AbstractContextManager[None]:
        if self.clock is None or self.count == 1:
            return contextlib.nullcontext()
        return self.clock.within("communication")


def mean_of(by_rank: Sequence[Seconds]) -> Seconds:
    """Return the mean of each part over the workers."""
    return {part: sum(each[part] for each in by_rank) / len(by_rank) for part in PARTS}


def busy_s(seconds: Seconds) -> float:
    """Return the duration of a step, excluding the time spent waiting for other workers."""
    return sum(seconds.values()) - seconds["communication"]


def slowest(by_rank: Sequence[Seconds]) -> int:
    """Return the rank with the most busy time, for which the others wait."""
    return max(range(len(by_rank)), key=lambda rank: busy_s(by_rank[rank]))


def lag(by_rank: Sequence[Seconds]) -> str | None:
    """Return which worker lags and in which part: ``slowest: rank 5, data 38%``; None if none."""
    rank, mean = slowest(by_rank), mean_of(by_rank)
    found, total = by_rank[rank], max(sum(mean.values()), 1e-9)
    if busy_s(found) - busy_s(mean) < LAG_SHARE * total:
        return None
    own = [part for part in PARTS if part != "communication"]
    part = max(own, key=lambda name: found[name] - mean[name])
    return f"slowest: rank {rank}, {part} {found[part] / max(sum(found.values()), 1e-9):.0%}"
