"""Checks before a run starts: whether its settings fit the corpus and each other."""

from collections.abc import Mapping
from typing import Any

from biovl.benchmark import in_memory
from biovl.core.errors import ConfigError
from biovl.pretrain.config import PretrainConfig, PretrainWorkers
from biovl.pretrain.image_size import check_resolution
from biovl.pretrain.mixture import Mixture, find_teacher
from biovl.pretrain.models import check_weights
from biovl.pretrain.schedule import Plan
from biovl.pretrain.trackers import check_trackers
from biovl.pretrain.validation import TASKS
from biovl.runtime.checkpoints import Checkpoints


def check_run(config: PretrainConfig, mixture: Mixture, *, image_px: int) -> Plan:
    """Check the settings of a run against its corpora, and return its plan.

    Args:
        config: Configuration of the run.
        mixture: Its corpora.
        image_px: Input side of the model, in pixels.

    Raises:
        ConfigError: If settings do not fit.
        ArtifactError: If pretrained weights do not exist, or data of a task cannot be read.
    """
    plan = Plan.of(mixture.draws, config.batch, config.epochs)
    _check_workers(config.workers, plan)
    in_memory.open_tasks(config.validation.tasks, TASKS)
    assembled = {part.uri: part.manifest.config for part in mixture.parts}
    check_settings(config, assembled, image_px=image_px)
    find_teacher(config.step.distill, config.corpora)
    return plan


def check_settings(
    config: PretrainConfig, assembled: Mapping[str, Mapping[str, Any]], *, image_px: int
) -> None:
    """Check the settings that can be checked without the pairs of the corpora.

    Args:
        config: Configuration of the run.
        assembled: The configuration that each corpus is, or will be, assembled with, by folder.
        image_px: Input side of the model, in pixels.

    Raises:
        ConfigError: If settings do not fit.
        ArtifactError: If pretrained weights do not exist.
    """
    check_trackers(config.trackers)
    # A run that resumes from a checkpoint, or forks another, does not read the pretrained weights.
    if not config.from_ and not Checkpoints(config.out).steps():
        check_weights(config.model, ask_hub=False)
    if config.data.small_images == "stop":
        for uri, settings in assembled.items():
            check_resolution(uri, settings, image_px=image_px, data=config.data)


def _check_workers(workers: PretrainWorkers, plan: Plan) -> None:
    smallest = min(pairs for pairs, _ in plan.epochs)
    _, most = workers.bounds
    if most > smallest:
        raise ConfigError(
            f"workers.count: a step has {smallest} pairs for {most} workers: each needs one"
        )
