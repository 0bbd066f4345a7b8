"""What Ray Train costs: the same training under it and under torchrun, seconds of a step.

Both run ``biovl.pretrain.run.run`` in two gloo workers on the same batches in memory, with what
each adds to the loop: under Ray the question whether a node is about to go, and lines through a
queue. Start-up, the first steps and the last checkpoint are left out.

Beside wall time stands what a busy machine disturbs less: CPU time of a worker, and that of all
other processes of Ray meanwhile, which is what they take from workers that use every core.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from pretrain_report import Table, median, ratio

from biovl.core import config as configs
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.run import Callbacks, run
from biovl.pretrain.schedule import Plan
from biovl.runtime.workers import Workers

WORKERS = 2
PAIRS = 32
"""Of both workers in one step, which then takes half a second: real ones take longer."""
SKIPPED = 5
"""Steps at the start that do not count."""
GOAL = 0.05
NICE = 15
"""Priority of Ray's workers. Those of torchrun get it too, or a busy machine would prefer them."""

_MODEL = {
    "name": "open_clip",
    "embed_dim": 128,
    "vision_cfg": {"layers": 3, "width": 256, "head_width": 64, "patch_size": 16},
    "text_cfg": {"layers": 3, "width": 256, "heads": 4},
    "image_size": 128,
    "context_length": 77,
}


def ray_train(quick: bool, rounds: int) -> dict[str, Any]:
    """Print a table and return its numbers."""
    steps = 20 if quick else 45
    table = Table(
        f"Ray Train against torchrun: {WORKERS} gloo workers, one thread each",
        ["", "round", "wall ms", "quickest 10 %", "CPU ms", "Ray's CPU ms", "start s"],
        f"Of a step: medians of {steps - SKIPPED - 1} in each of {rounds} rounds in turn, of "
        "worker 0. Ray's CPU: of all its processes but the workers. Start: from the command until "
        "the workers begin.",
    )
    ways: dict[str, Callable[[Path, int], None]] = {
        "torchrun": _under_torchrun,
        "Ray Train": _under_ray,
    }
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        # Each is first in turn, should the machine become slower or faster.
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                began = time.time()
                ways[name](Path(folder), steps)
                result = _read(Path(folder), began)
            seen[name].append(result)
            table.row(
                name,
                str(number + 1),
                f"{result['wall_s'] * 1e3:.0f}",
                f"{result['quick_s'] * 1e3:.0f}",
                f"{result['cpu_s'] * 1e3:.0f}",
                f"{result['beside_s'] * 1e3:.1f}",
                f"{result['start_s']:.1f}",
            )
    ours, bare = seen["Ray Train"], seen["torchrun"]
    for run_ in seen.values():
        for result in run_:
            result["all_cpu_s"] = WORKERS * result["cpu_s"] + result["beside_s"]
    found: dict[str, Any] = dict(seen)
    for what, title in (
        ("wall_s", f"wall, median (goal <= {GOAL:.0%})"),
        ("quick_s", "wall, quickest 10 %"),
        ("cpu_s", "CPU of a worker"),
        ("all_cpu_s", "CPU of the workers and of Ray"),
    ):
        low, middle, high = (
            value - 1 for value in ratio([r[what] for r in ours], [r[what] for r in bare])
        )
        least = min(r[what] for r in ours) / min(r[what] for r in bare) - 1
        found[f"overhead_{what}"] = {"median": middle, "least": least}
        table.row(
            f"**overhead, {title}**: median {middle:+.1%} ({low:+.1%} to {high:+.1%}), "
            f"of the least {least:+.1%}"
        )
    return found


def _read(folder: Path, began: float) -> dict[str, float]:
    marks = json.loads((folder / "marks.json").read_text())
    spans = {
        clock: [after - before for before, after in itertools.pairwise(marks[clock][SKIPPED:])]
        for clock in ("wall", "cpu")
    }
    return {
        "wall_s": median(spans["wall"]),
        "quick_s": sorted(spans["wall"])[len(spans["wall"]) // 10],
        "cpu_s": median(spans["cpu"]),
        "beside_s": (marks["beside"][-1] - marks["beside"][0]) / len(spans["wall"]),
        "start_s": marks["began"] - began,
    }


# --- what a worker does, whoever started it ---------------------------------------------------


def _train(
    folder: str, steps: int, say: Callable[[str], None], preempted: Callable[[], bool]
) -> None:
    torch.set_num_threads(1)
    os.nice(max(0, NICE - os.nice(0)))
    workers = Workers.current()
    config = configs.build(
        PretrainConfig,
        {
            "corpus": "",
            "out": f"{folder}/model",
            "model": _MODEL,
            "batch.pairs": PAIRS,
            "trackers": [],
            "trouble.diverged": None,
            "save.every_steps": None,
            "save.every_minutes": None,
        },
    )
    marks: dict[str, Any] = {"wall": [], "cpu": [], "beside": [], "began": time.time()}

    def batches(built: Any, steps_done: int, _: Callable[[], None]) -> Generator[Batch]:
        from pretrain_peers import batch_of

        some = [batch_of(built, "A", PAIRS // WORKERS, seed) for seed in range(4)]
        for number in range(steps_done, steps):
            if workers.rank == 0 and number in (SKIPPED, steps - 1):
                marks["beside"].append(_cpu_s_of_ray(folder))
            marks["wall"].append(time.perf_counter())
            marks["cpu"].append(time.process_time())
            yield some[number % len(some)]

    callbacks = Callbacks(
        batches=batches,
        validate=lambda epoch, steps_done: None,
        say=say,
        preempted=preempted,
    )
    run(
        config,
        Plan([(PAIRS, steps)]),
        None,
        callbacks,
        workers=workers,
        device=torch.device("cpu"),
    )
    if workers.rank == 0:
        Path(folder, "marks.json").write_text(json.dumps(marks))


def _cpu_s_of_ray(folder: str) -> float:
    """Return the CPU seconds so far of all processes of a Ray but its training workers."""
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"RAY_TMPDIR={folder}".encode() not in (process / "environ").read_bytes():
                continue
            name = (process / "cmdline").read_bytes()
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if b"RayTrainWorker" not in name:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _under_torchrun(folder: Path, steps: int) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={WORKERS}", __file__, str(folder), str(steps)]
    _quietly(command)


def _under_ray(folder: Path, steps: int) -> None:
    _quietly([sys.executable, __file__, str(folder), str(steps), "ray"])


def _quietly(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


def _with_torchrun(folder: str, steps: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    _train(folder, steps, say=lambda line: None, preempted=lambda: False)
    dist.destroy_process_group()


def _with_ray(folder: str, steps: int) -> None:
    """Train as ``biovl.pretrain.job`` does, but for where batches come from."""
    # Workers import this file by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    # A Ray of its own, also beside one that is running: that one's load is not what is asked.
    os.environ.pop("RAY_ADDRESS", None)
    os.environ["RAY_TMPDIR"] = folder
    import pretrain_ray
    import ray.train
    import ray.train.torch
    import ray.util.queue

    from biovl.runtime.connection import connect_ray
    from biovl.runtime.ray_train import COLLECTIVES_TIMEOUT_S

    train: Any = ray.train
    with connect_ray():
        trainer = train.torch.TorchTrainer(
            pretrain_ray.in_a_ray_worker,
            train_loop_config={
                "folder": folder,
                "steps": steps,
                "queue": ray.util.queue.Queue(actor_options={"num_cpus": 0}),
            },
            torch_config=train.torch.TorchConfig(backend="gloo", timeout_s=COLLECTIVES_TIMEOUT_S),
            scaling_config=train.ScalingConfig(
                num_workers=WORKERS, resources_per_worker={"CPU": 1}
            ),
            run_config=train.RunConfig(name="train", storage_path=folder),
        )
        trainer.fit()


def in_a_ray_worker(arguments: dict[str, Any]) -> None:
    """What each worker of Ray Train runs."""
    import ray.train

    _train(
        arguments["folder"],
        arguments["steps"],
        say=lambda line: arguments["queue"].put(("say", line)),
        preempted=lambda: ray.train.get_preemption_info() is not None,
    )


if __name__ == "__main__":
    under = _with_ray if "ray" in sys.argv[3:] else _with_torchrun
    under(sys.argv[1], int(sys.argv[2]))
