"""Score a model in memory on benchmark tasks, in one process: for a model that is in training."""

import os
from collections.abc import Mapping

from biovl.benchmark import embedding
from biovl.benchmark.benchmarks import TASKS
from biovl.benchmark.encoders import BenchmarkModel
from biovl.benchmark.tasks import EmbeddedBenchmark, Task
from biovl.core import plugins
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.plugins import Plugin

KINDS = ("retrieval", "zero_shot")
"""Tasks that need no training, no selection and no other model."""

_BATCH = 64


def open_tasks(described: Mapping[str, Plugin], setting: str) -> dict[str, Task]:
    """Return the tasks by name, after opening their data. No image is decoded.

    Args:
        described: Tasks by name, with their settings as in benchmark.
        setting: Name of the setting that lists them, for messages.

    Raises:
        ConfigError: If a task is not in ``KINDS``, or a setting is unknown or does not fit.
        ArtifactError: If its data cannot be read.
    """
    tasks: dict[str, Task] = {}
    for name, plugin in described.items():
        if plugin.name not in KINDS:
            raise ConfigError(
                f"{setting}.{name}: {plugin.name} cannot be scored here; choose from "
                f"{', '.join(KINDS)}, or use benchmark"
            )
        # Intervals are not reported: each score is one of a curve.
        quick = Plugin(plugin.name, {"resamples": 1, **plugin.settings})
        try:
            tasks[name] = plugins.make(TASKS, quick)
            tasks[name].data()
        except BiovlError as error:
            raise type(error)(f"{setting}.{name}: {error}") from error
    return tasks


def evaluate_tasks(tasks: Mapping[str, Task], model: BenchmarkModel) -> dict[str, float]:
    """Return the scores of a model: ``TASK/METRIC``, and ``TASK/chance`` where it is known.

    They equal those of the job ``benchmark`` with the same precision.

    Raises:
        ArtifactError: If the data of a task cannot be read.
    """
    scores: dict[str, float] = {}
    for name, task in tasks.items():
        data = task.data()
        image_ND, unreadable = embedding.embed_images(
            model,
            data.images,
            0,
            len(data.images),
            batch=_BATCH,
            threads=os.cpu_count() or 1,
        )
        outcome = task.evaluate(
            data,
            EmbeddedBenchmark(
                image_ND=image_ND,
                unreadable=unreadable,
                text=lambda texts: embedding.embed_texts(model, texts, _BATCH),
                logit_scale=model.logit_scale,
                model=name,
                has_text=True,
                context=model.context,
                truncated=model.truncated,
            ),
        )
        # Scores of subsets have a slash.
        whole = {each.name: each.value for each in outcome.scores if "/" not in each.name}
        # Retrieval has a chance level for each of its scores, as of which the loss reports none.
        if isinstance(outcome.notes.get("chance"), float):
            whole["chance"] = outcome.notes["chance"]
        scores |= {f"{name}/{metric}": value for metric, value in whole.items()}
    return scores
