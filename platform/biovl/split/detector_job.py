"""Drawn figures to ``detector/``: one process trains, on a GPU if there is one; all CPUs draw.

Reads no folder. Checkpoints in the draft are what a killed job goes on from.
"""

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import ray

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, find_published
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.leases import acquire_lease
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import explain_resume, raise_task_error
from biovl.runtime.progress import Progress
from biovl.split.detector.config import KIND, DetectorConfig
from biovl.split.detector.figures import CHUNK, Drawer, draw
from biovl.split.detector.fitting import Fitted

FORMAT = 1
"""Of the published bytes; raise it when a change makes others. See ``Draft.begin``."""


def train_detector(config: DetectorConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Train a detector of panels on drawn figures and publish it.

        out/
          model.safetensors   the weights
          config.json         the design, and the score from which on a box is believed
          metrics.json        F1 and mAP at 0.5 on figures held out, of all and by stratum
          README.md           the card
          manifest.json       how it was trained, its scores, and the weights' SHA-256

    Raises:
        ConfigError: If timm has no such backbone, or there is no such GPU.
        ArtifactError: If ``out`` holds something else or is being made by another process.
        StorageError: If a disk or bucket does not do its work; the job can be run again.
    """
    with explain_resume(config.out):
        return _train_detector(config, Progress("detector", progress))


def _train_detector(config: DetectorConfig, report: Progress) -> Manifest:
    plain = configs.to_plain(config)
    # Where it is published, who works, and when it is saved say nothing of what is learned.
    del plain["out"], plain["workers"], plain["save_every"]
    done = find_published(config.out, KIND, plain, defaults=configs.defaults(DetectorConfig))
    if done is not None:
        return done
    with acquire_lease(config.out) as lease:
        draft = Draft.begin(
            config.out, KIND, plain, defaults=configs.defaults(DetectorConfig), output_format=FORMAT
        )
        with connect_ray():
            found = _followed(config, report)
        manifest = Manifest(
            kind=KIND,
            config=plain,
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
        lease.check()
        return draft.publish(manifest)


def _followed(config: DetectorConfig, report: Progress) -> Mapping[str, Any]:
    """Have it trained by a worker, say how far it is, and return what came of it."""
    check_gpus(config.workers.gpus)
    workers = config.workers
    # A task that waits for others gives its CPUs back: one core can train and draw by turns.
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
    """Refuse where this machine alone has not so many GPUs: Ray would wait for ever.

    Raises:
        ConfigError: If it has not.
    """
    there = ray.cluster_resources().get("GPU", 0)
    if gpus > there and len(ray.nodes()) == 1:
        raise ConfigError(
            f"workers.gpus={gpus:g}, and Ray here has {there:g} GPUs: "
            "workers.gpus=0 computes on the CPU, or submit the job to a cluster that has one"
        )


def _rows(config: DetectorConfig) -> Iterator[dict[str, Any]]:
    """Train; yield a row after each step, and at the end what came of it."""
    try:
        yield from train(config, drawn_by_ray)
    except BiovlError as error:
        yield {"failed": pickle.dumps(error)}


def train(config: DetectorConfig, drawer: Drawer) -> Iterator[dict[str, Any]]:
    """Train, and write all of the folder but its manifest. The last row has what that needs."""
    # PyTorch is of no use to those that draw.
    from biovl.split.detector.publishing import write
    from biovl.split.detector.training import Trainer

    trainer = Trainer(config, drawer)
    yield {"before": trainer.steps}
    for passed in trainer.run():
        note = f"loss {passed.loss:.3f}"
        if passed.scores:
            note += f", F1 {passed.scores['f1']:.3f}, mAP {passed.scores['map']:.3f} held out"
        yield {"note": note}
    yield write(trainer)


def drawn_by_ray(figures: Sequence[tuple[int, str]], size_px: int) -> Callable[[], list[Fitted]]:
    """Begin to draw on whatever CPUs are free."""
    task = ray.remote(num_cpus=1)(draw)
    chunks = [
        task.remote(figures[first : first + CHUNK], size_px)
        for first in range(0, len(figures), CHUNK)
    ]
    return lambda: [figure for chunk in chunks for figure in ray.get(chunk)]
