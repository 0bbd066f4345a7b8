"""Train ``detector/`` in one process, on synthetic figures that Ray tasks draw on free CPUs.

Reads no input folder. An interrupted job resumes from the checkpoints in its draft.
"""

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

import ray

from biovl.core.artifacts import Manifest
from biovl.core.errors import BiovlError, ConfigError
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import raise_task_error
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.split.detector.config import KIND, DetectorConfig
from biovl.split.detector.figures import CHUNK, Drawer, Figures, draw
from biovl.split.detector.fitting import Fitted

FORMAT = 2
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""


@entry_point
def train_detector(config: DetectorConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Train a panel detector on synthetic figures and publish it.

        out/
          model.onnx          the network, for ONNX Runtime
          config.json         side of its input, score threshold, factor on scores
          metrics.json        F1 and mAP on held-out figures, overall and by stratum
          README.md           the card
          manifest.json       settings, scores, and the SHA-256 of model.onnx

    Raises:
        ConfigError: If ``workers.gpus`` exceeds this machine's GPUs, or PyTorch cannot use them.
        ArtifactError: If ``out`` holds another artifact or is being written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    report = Progress("detector", progress)
    # Output folder, workers and intervals do not affect the trained weights.
    job = Job.of(config, KIND, output_format=FORMAT, without=["workers", "save_every"])
    published = job.find_published()
    if published is not None:
        return published
    with job.begin() as draft:
        with connect_ray():
            found = _run_training(config, report)
        manifest = job.manifest(
            counts={
                "steps": config.optim.steps,
                "parameters": found["parameters"],
                "f1": found["scores"]["f1"],
                "map": found["scores"]["map"],
            },
            notes={
                "weights_sha256": found["weights_sha256"],
                "scores": "F1 and mAP at IoU 0.5 on drawn figures held out",
            },
        )
        return draft.publish(manifest)


def _run_training(config: DetectorConfig, report: Progress) -> Mapping[str, Any]:
    """Train on a worker, report progress, and return the results."""
    check_gpus(config.workers.gpus)
    workers = config.workers
    # A task that waits for others releases its CPUs: one core can train and draw in turns.
    task: Any = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus, max_retries=0)(_rows)
    row: Mapping[str, Any] = {}
    for reference in task.options(num_returns="streaming").remote(config):
        row = raise_task_error(ray.get(reference))
        if "before" in row:
            report.stage("training step", config.optim.steps, done_before=row["before"])
        if "note" in row:
            report.add(row["note"])
    return row


def check_gpus(gpus: float) -> None:
    """Check that this machine has the requested GPUs: Ray would wait for them indefinitely.

    Clusters of several machines are not checked: they may grow.

    Raises:
        ConfigError: If it has fewer.
    """
    available = ray.cluster_resources().get("GPU", 0)
    if gpus > available and len(ray.nodes()) == 1:
        raise ConfigError(
            f"workers.gpus={gpus:g}, and Ray here has {available:g} GPUs: "
            "workers.gpus=0 computes on the CPU, or submit the job to a cluster that has one"
        )


def _rows(config: DetectorConfig) -> Iterator[dict[str, Any]]:
    """Train; yield a row after each step, and finally the results."""
    try:
        yield from train(config, draw_with_ray)
    except BiovlError as error:
        yield {"failed": pickle.dumps(error)}


def train(config: DetectorConfig, drawer: Drawer) -> Iterator[dict[str, Any]]:
    """Train, and write the folder without its manifest; yield progress.

    The last row has the manifest's content.
    """
    # Drawing workers do not need PyTorch.
    from biovl.split.detector.publishing import write
    from biovl.split.detector.training import DetectorTrainer

    trainer = DetectorTrainer(config, drawer)
    yield {"before": trainer.steps}
    for result in trainer.run():
        note = f"loss {result.loss:.3f}"
        if result.scores:
            note += f", F1 {result.scores['f1']:.3f}, mAP {result.scores['map']:.3f} held out"
        yield {"note": note}
    yield write(trainer)


def draw_with_ray(
    figures: Figures, config: DetectorConfig, number: int | None
) -> Callable[[], list[Fitted]]:
    """Start to draw figures in Ray tasks on free CPUs; the returned function waits for them."""
    task = ray.remote(num_cpus=1)(draw)
    chunks = [
        task.remote(figures[first : first + CHUNK], config, number)
        for first in range(0, len(figures), CHUNK)
    ]
    return lambda: [figure for chunk in chunks for figure in ray.get(chunk)]
