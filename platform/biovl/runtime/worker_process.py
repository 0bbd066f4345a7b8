"""Setup hook of worker processes. Imports as little as possible, since all of them run it."""

import contextlib
import gc
import logging
import os

import ray

_YOUNG_COLLECTIONS = 100
"""Of the second generation, before the garbage collector looks at all objects; Python's is 10."""

ALLOC_CONF = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables with the settings of PyTorch's GPU allocator, which reads them on its first use: the
current name, and a deprecated one."""

WORKING_FOLDER = "BIOVL_WORKING_FOLDER"
"""Variable of workers: the folder in which the command runs, to which its paths are relative."""

_CLEANER = "ray.train.v2._internal.execution.controller.placement_group_cleaner"


def begin() -> None:
    """Run full garbage collections less often, and connect Ray Train's cleaner to this Ray.

    Enters the command's folder and sets up PyTorch's GPU allocator, too: see
    ``enter_working_folder`` and ``set_gpu_allocator``.

    Importing PyTorch and open_clip creates a million objects that are never freed. Each full
    collection traverses them in 0.25 s; together, these took a fifth of a worker's start-up time.

    Ray Train's placement group cleaner checks every second whether its controller is alive.
    Without an address it queries any Ray on this machine that has a dashboard; another Ray does not
    know the controller, and the cleaner then ends the workers of a healthy run. Without a dashboard
    it logs an error each time.
    """
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNG_COLLECTIONS)
    if os.environ.get("RAY_ADDRESS", "") in ("", "auto", "local"):
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    logging.getLogger(_CLEANER).setLevel(logging.ERROR)
    set_gpu_allocator()
    enter_working_folder()


def enter_working_folder() -> None:
    """Enter the folder in which the command runs, if this machine has it.

    Workers start in the folder in which Ray was started, which may be another one. Relative paths
    in settings would then refer to the wrong files.
    """
    with contextlib.suppress(OSError):
        os.chdir(os.environ.get(WORKING_FOLDER, "."))


def set_gpu_allocator() -> None:
    """Let PyTorch's GPU allocator grow its segments, unless the user configured the allocator.

    Batches differ in their number of tokens. Blocks of fixed size then fragment: memory is free,
    but no block is large enough.

    Source:
        https://docs.pytorch.org/docs/stable/notes/cuda.html, ``expandable_segments``.
    """
    if not any(name in os.environ for name in ALLOC_CONF):
        os.environ[ALLOC_CONF[0]] = "expandable_segments:True"
