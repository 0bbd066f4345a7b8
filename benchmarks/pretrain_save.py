"""Checkpoints: for how long a save holds up a step, and what writing does to the steps meanwhile.

The state is of the size of a model with AdamW, in tensors of ViT-L's matrices. A step is a product
of matrices that takes some 20 ms on a core; the one that saves is compared with the others.
"""

import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from pretrain_report import Table, median

from biovl.runtime.checkpoints import Checkpoints


def save(quick: bool, device: torch.device) -> dict[str, Any]:
    """Print a table and return its numbers."""
    tensors = 10 if quick else 100
    weights = {f"{n}": torch.randn(1_024, 4_096, device=device) for n in range(tensors)}
    size_gb = tensors * 1_024 * 4_096 * 4 / 1e9
    left, right = torch.randn(2, 512, 2_048, device=device)

    def take_step() -> float:
        started = time.perf_counter()
        float((left @ right.T).sum())
        return time.perf_counter() - started

    table = Table(
        f"Saving {size_gb:.2f} GB of {device.type} tensors",
        ["", "wall s", "CPU s", "s per GB"],
        "A fresh copy is what a save would take without memory of its own. CPU is of the whole "
        "process: until it is written also that of the steps.",
    )
    measured: dict[str, Any] = {"gb": size_gb}

    def report(name: str, started: tuple[float, float]) -> None:
        wall_s, cpu_s = time.perf_counter() - started[0], time.process_time() - started[1]
        measured[name] = {"wall_s": wall_s, "cpu_s": cpu_s}
        table.row(name, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{wall_s / size_gb:.2f}")

    def now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    started = now()
    fresh = {name: tensor.to("cpu", copy=True) for name, tensor in weights.items()}
    report("fresh copy", started)
    del fresh
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    checkpoints = Checkpoints(str(folder), keep_last=1)
    alone = [take_step() for _ in range(50)]
    during: list[float] = []
    try:
        for number, name in enumerate(("first save, until it returns", "later save")):
            checkpoints.wait()
            started = now()
            checkpoints.save({"steps_done": number + 1, "model": weights})
            report(name, started)
            while checkpoints.is_writing():
                during.append(take_step())
            report(f"the same, until it is written ({number + 1})", started)
        started = now()
        checkpoints.load(2)
        report("load", started)
    finally:
        shutil.rmtree(folder)
    measured["step_ms"] = [median(alone) * 1e3, median(during) * 1e3, max(during) * 1e3]
    print(
        "\nA step alone, while a checkpoint is written, and the slowest of these: "
        + ", ".join(f"{ms:.0f} ms" for ms in measured["step_ms"])
    )
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 / 1e9
    measured["peak_gb"] = peak_gb
    print(f"Peak memory of the process, with the state: {peak_gb:.1f} GB")
    return measured
