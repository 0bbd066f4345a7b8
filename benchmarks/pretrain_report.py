"""What the parts of the benchmark of pretraining print: Markdown, and where it was measured."""

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Table:
    """A Markdown table that appears line by line, as it is measured."""

    def __init__(self, title: str, columns: Sequence[str], note: str = "") -> None:
        print(f"\n### {title}\n")
        if note:
            print(f"{note}\n")
        self._widths = [max(len(column), 8) for column in columns]
        self._widths[0] = max(self._widths[0], 40)
        self.row(*columns)
        left, *right = ["-" * width for width in self._widths]
        print(f"| {left} | " + " | ".join(f"{line[1:]}:" for line in right) + " |", flush=True)

    def row(self, *cells: str) -> None:
        """Print a line; cells that are not given are empty."""
        rest = [*cells[1:], *[""] * (len(self._widths) - len(cells))]
        padded = [cell.rjust(width) for cell, width in zip(rest, self._widths[1:], strict=True)]
        print("| " + " | ".join([cells[0].ljust(self._widths[0]), *padded]) + " |", flush=True)


def machine(device: torch.device) -> dict[str, Any]:
    """Return where this runs."""
    import open_clip
    import transformers

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "open_clip": open_clip.__version__,
    }


def in_turn(
    works: dict[str, Callable[[], None]], clock: Callable[[], float], rounds: int
) -> dict[str, list[float]]:
    """Return the time that each work takes in each round; a round does each once, in turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = clock()
            work()
            times[name].append(clock() - started)
    return times


def median(values: Sequence[float]) -> float:
    """Return the middle value; the lower one of two."""
    return sorted(values)[(len(values) - 1) // 2]


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Return least, median and largest of the ratios round by round."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return min(ratios), median(ratios), max(ratios)


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.machine()
