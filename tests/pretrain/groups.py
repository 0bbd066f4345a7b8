"""Runs a function in several processes that form a gloo group, as training workers do."""

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def in_group(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what ``function(*arguments)`` returns in each of ``count`` workers, by rank."""
    # One server imports torch once; each worker is a fork of it and starts at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "biovl.pretrain.losses", "biovl.models.towers"])
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=_work, args=(rank, count, folder, function, arguments))
            for rank in range(count)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert [worker.exitcode for worker in workers] == [0] * count
        return [torch.load(Path(folder) / str(rank)) for rank in range(count)]


def _work(
    rank: int, count: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=count)
    torch.save(function(*arguments), Path(folder) / str(rank))
    dist.destroy_process_group()
