"""Progress messages of a job on standard error."""

import time
from collections.abc import Iterable
from typing import TextIO


class Progress:
    """Progress of a job: finished units per stage, logged at most every two seconds."""

    def __init__(self, job: str, stream: TextIO) -> None:
        self._job, self._stream = job, stream
        self._name, self._total, self._done = "", 0, 0
        self._started = self._last = time.monotonic()

    def stage(self, name: str, total: int, *, done_before: int = 0) -> None:
        """Start a stage with ``total`` units of work.

        Args:
            name: Begins every message and ends with the name of a unit: ``embedding: batch`` gives
                ``embedding: batch 3/40``.
            total: Number of units.
            done_before: Units that an interrupted job has finished.
        """
        self._name, self._total, self._done = name, total, done_before
        self._started = self._last = time.monotonic()
        if done_before:
            self._say(f"{done_before} of {total} were done before")

    def add(self, note: str = "") -> None:
        """Count a finished unit; ``note`` is appended to the message."""
        self._done += 1
        now = time.monotonic()
        if now - self._last < 2 and self._done < self._total:
            return
        self._last = now
        self._say(f"{self._done}/{self._total}{', ' if note else ''}{note}")

    def say(self, text: str) -> None:
        """Log an additional message at once."""
        print(f"{self._job}: {text}", file=self._stream, flush=True)

    def warn(self, warnings: Iterable[str]) -> None:
        """Log warnings about the result, which the manifest also lists."""
        for warning in warnings:
            self.say(f"warning: {warning}")

    @property
    def stage_name(self) -> str:
        """Name of the current stage, as given to ``stage``."""
        return self._name

    @property
    def seconds(self) -> float:
        """Seconds since the stage began, never zero."""
        return max(time.monotonic() - self._started, 1e-3)

    def _say(self, text: str) -> None:
        self.say(f"{self._name} {text}")
