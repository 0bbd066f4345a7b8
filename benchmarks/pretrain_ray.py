"""What Ray Train costs: the same training under it and under torchrun, seconds of a step.

Both run ``biovl.training.run.run`` in two gloo workers on the same batches in memory, with what
each adds to the loop: under Ray the question whether a node is about to go, and lines through a
queue. Start-up, the first steps and the last checkpoint are left out.
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

from biovl import config as configs
from biovl.training.batches import Batch
from biovl.training.config import PretrainConfig
from biovl.training.run import Surroundings, run
from biovl.training.schedule import Plan
from biovl.training.workers import Workers

WORKERS = 2
PAIRS = 32
"""Of both workers in one step, which then takes half a second: real ones take longer."""
SKIPPED = 5
"""Steps at the start that do not count."""
GOAL = 0.05

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
        ["", "round", "step ms", "CPU ms", "start s"],
        f"Seconds of a step: median of {steps - SKIPPED} in each of {rounds} rounds in turn, of "
        "worker 0. Start: from the command until the workers begin.",
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
                f"{result['step_s'] * 1e3:.1f}",
                f"{result['cpu_s'] * 1e3:.1f}",
                f"{result['start_s']:.1f}",
            )
    found: dict[str, Any] = dict(seen)
    for what, title in (("step_s", "wall"), ("cpu_s", "CPU of the worker")):
        over, under = ([r[what] for r in seen[n]] for n in ("Ray Train", "torchrun"))
        low, middle, high = (value - 1 for value in ratio(over, under))
        found[f"overhead_{what}"] = middle
        aim = f", goal <= {GOAL:.0%}" if what == "step_s" else ""
        table.row(f"**overhead, {title}: {middle:+.1%}** ({low:+.1%} to {high:+.1%}{aim})")
    return found


def _read(folder: Path, began: float) -> dict[str, float]:
    marks = json.loads((folder / "marks.json").read_text())

    def of_a_step(clock: str) -> float:
        times = marks[clock][SKIPPED:]
        return median([after - before for before, after in itertools.pairwise(times)])

    return {
        "step_s": of_a_step("wall"),
        "cpu_s": of_a_step("cpu"),
        "start_s": marks["began"] - began,
    }


# --- what a worker does, whoever started it ---------------------------------------------------


def _train(
    folder: str, steps: int, say: Callable[[str], None], preempted: Callable[[], bool]
) -> None:
    torch.set_num_threads(1)
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
    marks: dict[str, Any] = {"wall": [], "cpu": [], "began": time.time()}

    def batches(built: Any, steps_done: int) -> Generator[Batch]:
        from pretrain_peers import batch_of

        some = [batch_of(built, "A", PAIRS // WORKERS, seed) for seed in range(4)]
        for batch in itertools.islice(itertools.cycle(some), steps - steps_done):
            marks["wall"].append(time.perf_counter())
            marks["cpu"].append(time.process_time())
            yield batch

    surroundings = Surroundings(
        batches=batches,
        validate=lambda epoch, steps_done: None,
        say=say,
        preempted=preempted,
    )
    run(
        config,
        Plan([(PAIRS, steps)]),
        None,
        surroundings,
        workers=workers,
        device=torch.device("cpu"),
    )
    if workers.rank == 0:
        Path(folder, "marks.json").write_text(json.dumps(marks))


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
    """Train as ``biovl.jobs.pretrain`` does, but for where batches come from."""
    # Workers import this file by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    # A Ray of its own, also beside one that is running: that one's load is not what is asked.
    os.environ.pop("RAY_ADDRESS", None)
    os.environ["RAY_TMPDIR"] = folder
    import pretrain_ray
    import ray.train
    import ray.train.torch
    import ray.util.queue

    from biovl.jobs.cluster import connected
    from biovl.jobs.pretrain import COLLECTIVES_TIMEOUT_S

    train: Any = ray.train
    with connected():
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
