"""A trace of some steps: what the host and the GPU do in them, for a trace viewer."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from biovl.core.folders import Folder

WAIT_STEPS, WARMUP_STEPS = 3, 2
"""Steps of a process before a trace: the first ones allocate memory and compile, and the first
ones under a profiler are slower."""


@contextlib.contextmanager
def profile_steps(
    count: int, folder: Folder, device: torch.device, say: Callable[[str], None]
) -> Iterator[Callable[[int], None]]:
    """Record a trace of the steps that follow the first five, and write it once.

        profile/steps-000123-000126.json.gz    Chrome's trace format

    Recording starts when the step before the first recorded one is reported, and ends when the last
    recorded step is reported. On the CPU the trace covers exactly these steps. On a GPU a step is
    reported while the next one is running (``loop.train``): the trace has the updates of the
    recorded steps, but the forward and backward passes of the steps that follow each. If the run
    ends early, the trace has fewer steps or is not written; if the block raises, it is not written.

    Args:
        count: Steps to record; 0: none.
        folder: The folder of the run. A trace of the same steps is replaced.
        device: Device of the model.
        say: Logs where the trace is.

    Yields:
        A function to call with the completed steps after the report of each step.
    """
    if not count:
        yield lambda steps_done: None
        return
    recorded: list[int] = []

    def write(profiler: profile) -> None:
        if not recorded:
            return
        name = f"profile/steps-{recorded[0]:06d}-{recorded[-1]:06d}.json.gz"
        with tempfile.TemporaryDirectory() as local:
            path = Path(local, "trace.json.gz")
            profiler.export_chrome_trace(str(path))
            folder.write(name, path.read_bytes())
        # Frees the events.
        profiler.profiler = None
        say(
            f"trace of steps {recorded[0]:,} to {recorded[-1]:,}: {folder.described}/{name}. "
            "Open it on https://ui.perfetto.dev or chrome://tracing"
        )

    activities = {ProfilerActivity.CPU}
    if device.type == "cuda":
        activities.add(ProfilerActivity.CUDA)
    profiler = profile(
        activities=activities,
        schedule=schedule(wait=WAIT_STEPS, warmup=WARMUP_STEPS, active=count, repeat=1),
        on_trace_ready=write,
        record_shapes=True,
    )

    def after(steps_done: int) -> None:
        if len(recorded) == count:
            return
        if profiler.step_num >= WAIT_STEPS + WARMUP_STEPS:
            recorded.append(steps_done)
        profiler.step()

    profiler.start()
    try:
        yield after
    except BaseException:
        recorded.clear()
        raise
    finally:
        profiler.stop()
