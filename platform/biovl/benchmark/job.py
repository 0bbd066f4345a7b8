"""Evaluate models on benchmarks and write ``report/``.

1. open     on the driver: read labels and texts of each task, no images
   select   for tasks whose data a model selects (proxy): embed, choose, label
2. embed    one model at a time: actors with a copy of it embed units of images and texts
3. learn    tasks that train before evaluation: vqa on Ray Train, fine_tune as Ray tasks
4. score    one Ray task per model and benchmark task
5. compare  on the driver: scores, pairwise comparisons of models, the table

Embeddings are cached by the fingerprints of model and data, and every step writes receipts: an
interrupted run resumes, and later runs embed only new data.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import ray

from biovl.benchmark import benchmarks, embedding, encoders, identity, report, report_files
from biovl.benchmark.benchmarks import TASKS
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.embed_job import embed
from biovl.benchmark.embedding import EmbeddingTask
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.report import TaskResult
from biovl.benchmark.selection_job import select
from biovl.benchmark.tasks import LearningRun, SelectsFirst, Task, TrainsFirst
from biovl.core import plugins
from biovl.core.artifacts import Draft, Manifest, refuse_overlap
from biovl.core.errors import (
    ArtifactError,
    BiovlError,
    ConfigError,
    StorageError,
    TrainingError,
    TrainingStopped,
)
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin
from biovl.runtime.connection import check_room, connect_ray
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress


@dataclass(frozen=True)
class PreparedTask:
    """A task of the run with its dataset."""

    name: str
    """Name of the task in the report."""
    plugin: Plugin
    """The task and its settings."""
    data: Any
    """Dataset of the task: result of ``Task.data``."""
    task: Task
    """The task itself."""

    @property
    def learns(self) -> TrainsFirst | None:
        """The task if it trains before evaluation."""
        return self.task if isinstance(self.task, TrainsFirst) else None


@entry_point
def benchmark(config: BenchmarkConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Evaluate models and publish the results.

        out/
          scores.json              every score with its interval; differences between models
          table.md                 the same as text, with skipped tasks and reasons
          plots/                   PNG
          selection/<task>.parquet               how the data of proxy was selected
          predictions/<model>/<task>.parquet     all predictions: scores can be recomputed from them
          leaks/<model>/<task>.parquet           near duplicates in the corpus of ``index``
          manifest.json            settings, fingerprints of models and data, versions

    Raises:
        ArtifactError: If a model, or the data of the only task, does not exist, or ``out``
            contains something else.
        ConfigError: If a task, benchmark or setting is unknown.
        StorageError: If a disk or bucket fails; run the job again to resume.
        BiovlError: If no task could be scored; the message gives the reasons.
    """
    say = Progress("benchmark", progress)
    known = {name: encoders.describe(uri) for name, uri in config.named_models().items()}
    described, skipped = benchmarks.resolve_tasks(config)
    asked, refused = _opened(described, say)
    if not asked:
        benchmarks.check_data_root(config)
        raise BiovlError(report_files.reasons([*skipped, *refused]))
    job = Job(
        out=config.out,
        kind=report_files.KIND,
        config=identity.settings(config, described),
        inputs=identity.inputs(config, known, {task.name: task.data for task in asked}),
        defaults=identity.defaults(config, described),
        output_format=report_files.FORMAT,
    )
    manifest = job.find_published()
    if manifest is None:
        refuse_overlap(config.out, _folders(config))
        with job.begin() as draft:
            with connect_ray():
                check_room(config.workers.cpus, config.workers.gpus, say.say)
                asked = _selected(config, draft, known, asked, say)
                wanted = _wanted(config, known, asked)
                for name in known:
                    mine = [
                        item
                        for (model, _), own in wanted.items()
                        if model == name
                        for item in own.all()
                    ]
                    embed(config, name, mine, say)
                _learn(config, draft, known, asked, wanted, say)
                judged = _judge(config, draft, known, asked, wanted, say)
            judged += [
                TaskResult(model="", task=task, skipped=why) for task, why in skipped + refused
            ]
            manifest = report_files.write_report(config, job, draft, judged)
            say.warn(manifest.warnings)
            draft.publish(manifest)
    whole, _, parts = Folder(config.out).read("table.md").decode().partition(report.BROKEN_DOWN)
    more = f"Broken down by parts: {config.out}/table.md\n" if parts else ""
    print(f"\n{whole}{more}", file=progress, flush=True)
    return manifest


def _folders(config: BenchmarkConfig) -> dict[str, str]:
    """Return the input data folders, by setting."""
    data = config.data
    path = data if isinstance(data, str) else str(data.settings.get("path", ""))
    named = {"corpus": config.corpus, "data": path, "data_root": config.data_root}
    return {name: uri for name, uri in named.items() if uri}


def _opened(
    described: Mapping[str, Plugin], say: Progress
) -> tuple[list[PreparedTask], list[tuple[str, str]]]:
    """Return the tasks whose data can be read, and the names of the others with the reason."""
    asked, refused = [], []
    say.stage("opening", len(described))
    for name, plugin in described.items():
        task: Task = plugins.make(TASKS, plugin)
        try:
            data = task.data()
        except (ArtifactError, OSError) as error:
            if len(described) == 1 or isinstance(error, StorageError):
                raise
            refused.append((name, str(error)))
        else:
            asked.append(PreparedTask(name, plugin, data, task))
        say.add(name)
    return asked, refused


def _selected(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, ModelDescription],
    asked: Sequence[PreparedTask],
    say: Progress,
) -> list[PreparedTask]:
    """Return the tasks with the data that they select."""
    found = []
    for item in asked:
        if isinstance(item.task, SelectsFirst):
            data = select(config, draft, known, item.name, item.task, item.data, say)
            item = dataclasses.replace(item, data=data)
        found.append(item)
    return found


def _wanted(
    config: BenchmarkConfig, known: Mapping[str, ModelDescription], asked: Sequence[PreparedTask]
) -> dict[tuple[str, str], "_Vectors"]:
    """Return the embeddings needed for each model and task."""
    found = {}
    for name, model in known.items():
        for task in asked:
            if task.task.needs_text and not model.has_text:
                continue
            if task.learns is not None and not task.learns.needs_vectors:
                found[name, task.name] = _Vectors([], None)
                continue
            parts = embedding.tasks_of(config, model, task.data.images)
            texts = list(getattr(task.data, "texts", ())) if task.task.needs_text else []
            of_texts = embedding.text_task(parts[0], texts) if texts else None
            found[name, task.name] = _Vectors(parts, of_texts)
    return found


@dataclass(frozen=True)
class _Vectors:
    """Embeddings of one model that a task needs."""

    images: list[EmbeddingTask]
    texts: EmbeddingTask | None

    def all(self) -> list[EmbeddingTask]:
        return [*self.images, *([self.texts] if self.texts is not None else [])]


def _learn(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, ModelDescription],
    asked: Sequence[PreparedTask],
    wanted: Mapping[tuple[str, str], "_Vectors"],
    say: Progress,
) -> None:
    """Train the models of tasks that need training, one after the other; store their outcomes."""
    for name, model in known.items():
        for task in asked:
            receipt = f"judged/{name}/{task.name}"
            if task.learns is None or (name, task.name) not in wanted or draft.read_note(receipt):
                continue
            place = _place(draft, name, task.name)

            def tell(line: str, what: str = f"{name} {task.name}") -> None:
                say.say(f"{what}: {line}")

            try:
                task.learns.learn(
                    LearningRun(
                        data=task.data,
                        model=model,
                        images=wanted[name, task.name].images,
                        workers=config.workers,
                        precision=config.precision,
                        place=place,
                    ),
                    tell,
                )
                if task.learns.needs_vectors:
                    continue
                outcome = task.learns.evaluate_learnt(task.data, None, place)
                kept = report_files.write_task_files(
                    config,
                    draft.folder,
                    outcome,
                    task.data,
                    None,
                    name,
                    model.fingerprint,
                    task.name,
                )
            # Its cause may be gone when the same command is run again.
            except TrainingStopped:
                raise
            except (ArtifactError, ConfigError, TrainingError) as error:
                kept = {"skipped": str(error)}
            draft.note(receipt, kept)


def _place(draft: Draft, model: str, task: str) -> str:
    """Return the folder in which a model is trained for a task."""
    return below(draft.folder.uri, f".draft/learning/{model}/{task}")


def _judge(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, ModelDescription],
    asked: Sequence[PreparedTask],
    wanted: Mapping[tuple[str, str], _Vectors],
    say: Progress,
) -> list[TaskResult]:
    """Evaluate every model on every task, one Ray task each; return the results in order."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    running: dict[Any, tuple[str, str]] = {}
    say.stage("scoring", len(known) * len(asked))
    work = ray.remote(num_cpus=1)(_judged)
    for task in asked:
        shared = None
        for name in known:
            key = (name, task.name)
            kept = draft.read_note(f"judged/{name}/{task.name}")
            if key not in wanted:
                why = f"{name} has no text tower, which {task.plugin.name} needs"
                found[key] = {"skipped": why}
            elif kept is not None:
                found[key] = kept
            else:
                shared = shared or ray.put(task.data)
                images = wanted[key].images
                arguments = (config, task.name, task.plugin, shared, name, images)
                running[work.remote(*arguments)] = key
    for _ in found:
        say.add()
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        key = running.pop(ready)
        found[key] = dict(raise_task_error(ray.get(ready)))
        say.add(" ".join(key))
    return [
        TaskResult(model=name, task=task.name, **found[name, task.name])
        for task in asked
        for name in known
    ]


def _judged(
    config: BenchmarkConfig,
    name: str,
    plugin: Plugin,
    data: Any,
    model: str,
    images: list[EmbeddingTask],
) -> dict[str, Any]:
    """Evaluate one model on one task in a worker; write predictions, plots and the receipt."""

    def judge() -> dict[str, Any]:
        task: Task = plugins.make(TASKS, plugin)
        vectors = embedding.cached_embeddings(model, images)
        draft = Draft(config.out)
        try:
            if isinstance(task, TrainsFirst):
                outcome = task.evaluate_learnt(data, vectors, _place(draft, model, name))
            else:
                outcome = task.evaluate(data, vectors)
            fingerprint = images[0].model.fingerprint
            receipt = report_files.write_task_files(
                config, draft.folder, outcome, data, vectors, model, fingerprint, name
            )
        except StorageError:
            raise
        except BiovlError as error:
            receipt = {"skipped": str(error)}
        draft.note(f"judged/{model}/{name}", receipt)
        noted: dict[str, Any] = draft.read_note(f"judged/{model}/{name}") or {}
        return noted

    return run_task(config.out, judge)
