"""Files of a benchmark report: predictions and plots per model and task, and the summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from biovl.benchmark import benchmarks, comparison, differences, leak_report, report
from biovl.benchmark.config import BenchmarkConfig, WiseFt, name_of
from biovl.benchmark.merge_plots import between_plot
from biovl.benchmark.report import TaskResult
from biovl.benchmark.tasks import EmbeddedBenchmark, TaskOutcome
from biovl.benchmark.warn import warnings_of
from biovl.core.artifacts import Draft, Manifest, to_json
from biovl.core.errors import NothingUsable
from biovl.core.folders import Folder
from biovl.core.tables import read_table, write_table
from biovl.runtime.job import Job

KIND = "report"
FORMAT = 8
"""Version of the published bytes; increase it when they change. See ``Draft.begin``."""


def predictions(model: str, task: str) -> str:
    """Return the path of a model's predictions on a task, relative to the report."""
    return f"predictions/{model}/{task}.parquet"


def leaks(model: str, task: str) -> str:
    """Return the path of the near duplicates of a task's images in a model's training corpus.

    Relative to the report.
    """
    return f"leaks/{model}/{task}.parquet"


def write_task_files(
    config: BenchmarkConfig,
    folder: Folder,
    outcome: TaskOutcome,
    data: Any,
    vectors: EmbeddedBenchmark | None,
    model: str,
    fingerprint: str,
    task: str,
) -> dict[str, Any]:
    """Write the files of a task, and return the receipt.

    These are predictions, plots and, with ``index``, the near duplicates in the training corpus:
    the receipt also has the metrics without them.
    """
    scores, notes = list(outcome.scores), dict(outcome.notes)
    if config.index:
        leaked = leak_report.leaks_of(data, vectors, config.index, config.figures, fingerprint)
        write_table(folder, leaks(model, task), leaked.pairs)
        scores += leak_report.scores_without(
            data, outcome.predictions, leaked, resamples=config.resamples, seed=config.seed
        )
        notes["leaks"] = dict(leaked.counts)
    write_table(folder, predictions(model, task), outcome.predictions)
    for plot, png in outcome.plots.items():
        folder.write(f"plots/{model}/{task}-{plot}.png", png)
    unreadable = notes.get("unreadable_images", {}) if vectors is None else vectors.unreadable
    return {
        "scores": [asdict(score) for score in scores],
        "notes": notes,
        "unreadable": dict(Counter(unreadable.values())),
    }


def _read(folder: Folder, name: str) -> tuple[pa.Table, dict[str, int]]:
    """Return a table, and the entry of its file in the manifest."""
    table = read_table(folder, name)
    size = folder.filesystem.get_file_info(folder.at(name)).size
    return table, {"rows": len(table), "size_bytes": size}


def write_report(
    config: BenchmarkConfig, job: Job, draft: Draft, results: Sequence[TaskResult]
) -> Manifest:
    """Write all files of the report except the manifest, and return the manifest.

    Raises:
        NothingUsable: If there are no scores.
    """
    results = [_with_protocol(config, item) for item in results]
    scored = [item for item in results if item.scores]
    if not scored:
        raise NothingUsable(reasons([(item.task, item.skipped or "") for item in results]))
    folder, tables, files = draft.folder, dict[str, dict[str, pa.Table]](), {}
    for item in scored:
        name = predictions(item.model, item.task)
        answers, files[name] = _read(folder, name)
        tables.setdefault(item.task, {})[item.model] = answers
        leaked = leaks(item.model, item.task)
        if folder.exists(leaked):
            _, files[leaked] = _read(folder, leaked)
    if config.wise_ft is not None:
        # Compare only the two ends: all pairs of eleven interpolated models would be too many.
        ends = {
            name_of(alpha) for alpha in (min(config.wise_ft.alphas), max(config.wise_ft.alphas))
        }
        tables = {
            task: {model: answers for model, answers in by.items() if model in ends}
            for task, by in tables.items()
        }
    differing = comparison.compare_models(tables, resamples=config.resamples, seed=config.seed)
    names = {item.name for item in benchmarks.expand_suites(config.benchmarks)}
    means = report.averages(results, names)
    scores = _scores(results, differing, means)
    folder.write("scores.json", to_json(scores))
    files |= {name: {"size_bytes": size} for name, size in folder.sizes(["scores.json"]).items()}
    folder.write("table.md", report.table(results, differing, means).encode())
    folder.write("plots/scores.png", report.plot(results))
    for item in scored:
        plot = report.breakdown_plot(item)
        if plot is not None:
            folder.write(f"plots/{item.model}/{item.task}-lengths.png", plot)
    if config.wise_ft is not None:
        folder.write("plots/wise_ft.png", between_plot(_by_alpha(config.wise_ft, scored)))
    first: dict[str, dict[str, float]] = {}
    for item in scored:
        first.setdefault(item.model, {})[item.task] = round(item.scores[0]["value"], 4)
    return job.manifest(
        counts={
            "tasks": len({item.task for item in scored}),
            "models": len(first),
            "skipped": len(scores["skipped"]),
            "unreadable": sum(sum((item.unreadable or {}).values()) for item in scored),
            "first_scores": first,
        },
        files=files,
        notes={"versions": {name: version(name) for name in _VERSIONS}},
        warnings=warnings_of(scored),
    )


def _with_protocol(config: BenchmarkConfig, item: TaskResult) -> TaskResult:
    """Add how the evaluation of a published benchmark differs from the paper's to its notes."""
    evaluated_as = {
        one.name: one.task or config.benchmarks_as
        for one in benchmarks.expand_suites(config.benchmarks)
    }
    result = item.notes or {}
    if not item.scores or item.task not in evaluated_as:
        return item
    protocol = [*result.get("protocol", ())]
    protocol += differences.notes(item.task, evaluated_as[item.task], result)
    protocol += differences.class_notes(item.task, result)
    return replace(item, notes={**result, "protocol": protocol}) if protocol else item


def _scores(
    results: Sequence[TaskResult],
    differing: Sequence[Mapping[str, Any]],
    means: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the contents of ``scores.json``."""
    scored = [item for item in results if item.scores]
    return {
        "scores": [
            {"model": item.model, "task": item.task, **score}
            for item in scored
            for score in item.scores
        ],
        "differences": differing,
        "averages": means,
        "notes": [
            {"model": item.model, "task": item.task, "unreadable": item.unreadable, **item.notes}
            for item in scored
            if item.notes is not None
        ],
        "skipped": [
            {"model": item.model, "task": item.task, "reason": item.skipped}
            for item in results
            if item.skipped
        ],
    }


def _by_alpha(
    wise_ft: WiseFt, scored: Sequence[TaskResult]
) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return the first metric of each task by alpha."""
    alphas = {name_of(alpha): alpha for alpha in wise_ft.alphas}
    points: dict[str, list[tuple[float, float, float, float]]] = {}
    for item in sorted(scored, key=lambda item: alphas[item.model]):
        score = item.scores[0]
        point = (alphas[item.model], score["value"], score["low"], score["high"])
        points.setdefault(item.task, []).append(point)
    return points


def reasons(skipped: Sequence[tuple[str, str]]) -> str:
    """Return an error message that lists why each task was skipped."""
    return "nothing was scored:\n" + "\n".join(f"  {task}: {why}" for task, why in skipped)


_VERSIONS = ("numpy", "open_clip_torch", "pillow", "pyarrow", "torch", "transformers")
