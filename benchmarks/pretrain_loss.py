"""Our InfoNCE against open_clip's ``ClipLoss``: memory beyond the features, and time.

Each measurement is a process of its own, so that none profits from memory another left behind.
Forward and backward, in fp32 on all threads; the gradients of the features count as extra, the
features do not.
"""

import contextlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pretrain_report import Table

DIM = 512
GOAL_GIB = 0.7


def loss(quick: bool) -> dict[str, Any]:
    """Print a table and return its numbers."""
    sizes = (1_024, 2_048, 4_096) if quick else (8_192, 16_384, 32_768)
    table = Table(
        f"Loss: forward and backward at d={DIM}, fp32, one process",
        [
            "",
            "N",
            "GiB",
            "wall s",
            "CPU s",
            "GiB ClipLoss/ours",
            "s ClipLoss/ours",
            "goal",
            "loss diff",
        ],
        "GiB is peak resident memory beyond the features. ClipLoss at the largest N is by its "
        "formula, 16 N² bytes, which the measured ones bear out.",
    )
    found: dict[str, Any] = {}
    for number, size in enumerate(sizes):
        is_largest = number == len(sizes) - 1
        clip = None if is_largest else _in_process("clip", size, 0)
        clip_gib = 16 * size**2 / 2**30 if clip is None else clip["gib"]
        if clip is None:
            table.row("open_clip ClipLoss (by formula)", f"{size:,}", f"{clip_gib:.2f}")
        else:
            table.row(
                "open_clip ClipLoss",
                f"{size:,}",
                f"{clip_gib:.2f}",
                f"{clip['wall_s']:.1f}",
                f"{clip['cpu_s']:.1f}",
            )
        found[f"clip/{size}"] = clip or {"gib": clip_gib}
        for tile in (256, 1_024):
            ours = _in_process("ours", size, tile)
            found[f"ours/{size}/{tile}"] = ours
            table.row(
                f"ours, tile {tile}",
                f"{size:,}",
                f"{ours['gib']:.2f}",
                f"{ours['wall_s']:.1f}",
                f"{ours['cpu_s']:.1f}",
                f"{clip_gib / ours['gib']:.1f}",
                "" if clip is None else f"{clip['wall_s'] / ours['wall_s']:.2f}",
                f"<= {GOAL_GIB} GiB" if is_largest and not quick else "",
                "" if clip is None else f"{abs(ours['loss'] / clip['loss'] - 1):.0e}",
            )
    return found


def _in_process(method: str, size: int, tile: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, Path(__file__), method, str(size), str(tile)],
        stdout=subprocess.PIPE,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _measure(method: str, size: int, tile: int) -> dict[str, float]:
    work = {"clip": _clip, "ours": _ours}[method]
    work(*_features(64), tile)  # libraries take their own memory at first use
    images, texts = _features(size)
    before = _reset_peak()
    wall, cpu = time.monotonic(), time.process_time()
    value = work(images, texts, tile)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return {
        "gib": (_peak_bytes() - before) / 2**30,
        "wall_s": wall,
        "cpu_s": cpu,
        "loss": value,
    }


def _features(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    # Pairs that are half alike, as in training.
    numbers = torch.Generator().manual_seed(0)
    images = torch.randn(size, DIM, generator=numbers)
    texts = torch.randn(size, DIM, generator=numbers).add_(images)
    normalize = torch.nn.functional.normalize
    return normalize(images, dim=-1), normalize(texts, dim=-1)


def _ours(images: torch.Tensor, texts: torch.Tensor, tile: int) -> float:
    from biovl.pretrain.losses import info_nce

    return info_nce(images, texts, torch.tensor(1 / 0.07), tile=tile).loss.item()


def _clip(images: torch.Tensor, texts: torch.Tensor, _: int) -> float:
    from open_clip import ClipLoss

    images, texts = images.requires_grad_(), texts.requires_grad_()
    value = ClipLoss()(images, texts, torch.tensor(1 / 0.07, requires_grad=True))
    value.backward()
    return value.item()


def _reset_peak() -> int:
    """Let the peak of resident memory begin anew where that can be, and return it. Bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
