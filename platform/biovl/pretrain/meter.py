"""Progress of a run: log lines at intervals, and a record of each step."""

import math
import resource
import sys
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from biovl.pretrain.loop import StepReport
from biovl.pretrain.step_time import lag, mean_of, slowest

RECENT_LINES = 10
"""Number of log lines over which speed is averaged for the remaining time."""

Record = dict[str, float | int]
"""A row of ``metrics.jsonl``: plain numbers by name."""


class _Step(NamedTuple):
    """A step of the whole run, with tokens and FLOPs of all workers."""

    report: StepReport
    tokens: int
    flops: float


class Meter:
    """Speed, memory and remaining time of a run, updated step by step.

    Args:
        steps: Number of steps of the whole run.
        epochs: Number of epochs of the whole run.
        pairs: Number of pairs of the whole run, for the remaining time.
        pairs_done: Number of pairs before the first added step: more than 0 in a resumed run.
        workers: Number of workers.
        peak_flops: Peak operations per second of one worker's accelerator; None if unknown, and
            utilisation is then not reported.
        memory_bytes: Returns the memory of this worker, see ``memory_bytes``.
        every_s: Minimum seconds between two lines.
        clock: Returns seconds, such as ``time.monotonic``.
        unit: Name of a worker in log lines.
    """

    def __init__(
        self,
        *,
        steps: int,
        epochs: int,
        pairs: int,
        pairs_done: int = 0,
        workers: int,
        peak_flops: float | None,
        memory_bytes: Callable[[], float],
        every_s: float,
        clock: Callable[[], float],
        unit: str = "GPU",
    ) -> None:
        self._steps, self._epochs, self._pairs = steps, epochs, pairs
        self._pairs_done, self._workers = pairs_done, workers
        self._peak_flops = None if peak_flops is None else peak_flops * workers
        self._memory_bytes, self._every_s, self._clock = memory_bytes, every_s, clock
        self._unit = unit
        self._last_line_s: float | None = None
        self._since: list[_Step] = []
        self._lag: str | None = None
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT_LINES)
        """Pairs and seconds of the last lines."""

    def add(self, report: StepReport, *, tokens: int, flops: float) -> Record:
        """Add a step and return its record.

        Args:
            report: Report of the step.
            tokens: Tokens of all workers' captions, without padding.
            flops: FLOPs of the model on all workers, see ``flops.training_flops``.
        """
        pairs = report.place.batch_pairs
        self._since.append(_Step(report, tokens, flops))
        self._pairs_done += pairs
        seconds = max(report.seconds, 1e-9)
        record: Record = {
            "step": report.steps_done,
            "epoch": report.place.epoch,
            "pairs": pairs,
            "pairs_seen": self._pairs_done,
            "loss": report.loss,
            "lr": report.lr,
            "logit_scale": report.logit_scale,
            "grad_norm": report.grad_norm,
            "pairs_per_s": pairs / seconds,
            "pairs_per_s_per_worker": pairs / seconds / self._workers,
            "tokens_per_s": tokens / seconds,
            "wait_share": report.waited_s / seconds,
            "step_s": report.seconds,
            "memory_gb": self._memory_bytes() / 1e9,
        }
        if self._peak_flops is not None:
            record["mfu"] = flops / seconds / self._peak_flops
        if report.by_rank is not None:
            self._lag = lag(report.by_rank)
            mean = mean_of(report.by_rank)
            record |= {f"time/{part}_s": value for part, value in mean.items()}
            if len(report.by_rank) > 1:
                rank = slowest(report.by_rank)
                record["slowest/rank"] = rank
                record |= {f"slowest/{part}_s": v for part, v in report.by_rank[rank].items()}
        return record

    def line(self) -> str | None:
        """Return a log line about the steps since the last one; None if it is not due.

        The first and the last step of the run always have a line. It has at most 120 characters:
        epoch and step out of their totals, mean loss, learning rate, logit scale, speed of all
        workers and per worker, tokens without padding, share of the time spent waiting for data,
        memory, model FLOPs utilisation, remaining time. If a worker lags, its rank and the slow
        part replace tokens, speed per worker, waiting and utilisation: see ``step_time.lag``.
        """
        if not self._since:
            return None
        now, last = self._clock(), self._since[-1].report
        soon = self._last_line_s is not None and now - self._last_line_s < self._every_s
        if soon and last.steps_done < self._steps:
            return None
        pairs = sum(step.report.place.batch_pairs for step in self._since)
        seconds = max(sum(step.report.seconds for step in self._since), 1e-9)
        # The first step compiles, allocates and starts the data: it does not predict later ones.
        if self._last_line_s is not None:
            self._recent.append((pairs, seconds))
        line = self._written(pairs, seconds)
        self._last_line_s, self._since = now, []
        return line

    def seconds_left(self) -> float | None:
        """Return the remaining seconds at the recent speed; None at the start."""
        if not self._recent:
            return None
        pairs = sum(pairs for pairs, _ in self._recent)
        seconds = sum(seconds for _, seconds in self._recent)
        return (self._pairs - self._pairs_done) * seconds / pairs

    def _written(self, pairs: int, seconds: float) -> str:
        reports = [step.report for step in self._since]
        last = reports[-1]
        finite = [report.loss for report in reports if math.isfinite(report.loss)]
        loss = sum(finite) / len(finite) if finite else last.loss
        speed = [f"{short(pairs / seconds)} pairs/s"]
        if self._workers > 1 and self._lag is None:
            speed.append(f"{short(pairs / seconds / self._workers)}/{self._unit}")
        if self._lag is None:
            speed.append(f"{short(sum(step.tokens for step in self._since) / seconds)} tok/s")
            state = [f"wait {sum(report.waited_s for report in reports) / seconds:.0%}"]
        else:
            state = [self._lag]
        state.append(f"{short(self._memory_bytes() / 1e9)}GB")
        if self._peak_flops is not None and self._lag is None:
            used = sum(step.flops for step in self._since) / seconds / self._peak_flops
            state.append(f"MFU {used:.0%}")
        left = self.seconds_left()
        parts = [
            f"ep {last.place.epoch + 1}/{self._epochs} "
            f"{short(last.steps_done)}/{short(self._steps)}",
            f"loss {loss:.{3 if loss < 10 else 1}f} lr {_exponent(last.lr)} "
            f"scale {last.logit_scale:.3g}",
            " ".join(speed),
            " ".join(state),
            *([] if left is None else [f"{duration(left)} left"]),
        ]
        return "  ".join(parts)


def memory_bytes(device: torch.device) -> float:
    """Return this process's peak memory: of the GPU, or of the host."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return float(peak if sys.platform == "darwin" else peak * 1024)


def short(value: float) -> str:
    """Return a number in at most five characters: ``9876``, ``12.3k``, ``1.23M``, ``0.52``."""
    if value < 10:
        return f"{value:.3g}"
    if value < 9_999.5:
        return f"{value:.0f}"
    for factor, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if value < 999.5 * factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value / 1e12:.3g}T"


def duration(seconds: float) -> str:
    """Return a time in two units: ``45s``, ``12m05s``, ``6h12m``, ``3d04h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def _exponent(value: float) -> str:
    """Return a small number as ``4.9e-4``."""
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}"
