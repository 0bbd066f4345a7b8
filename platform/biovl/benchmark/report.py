"""Results of a benchmark run as JSON, Markdown table and plots."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from biovl.benchmark import benchmarks
from biovl.benchmark.benchmark_table import BENCHMARKS
from biovl.core import markdown
from biovl.core.charts import INK, SERIES, plot_figure, png, style, two_lines

_RANKS = ("median_rank",)
_MARKERS = "osD^vP"
_MOST_LINES = 40

BROKEN_DOWN = "## Broken down"
"""Heading of the report's last section, with scores of subsets of the benchmarks."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """Results of one model on one task, JSON-serialisable."""

    model: str
    """Name of the model."""
    task: str
    """Name of the task."""
    scores: Sequence[Mapping[str, Any]] = ()
    """Metrics with their intervals."""
    notes: Mapping[str, Any] | None = None
    """Details of the evaluation: ``TaskOutcome.notes``."""
    skipped: str | None = None
    """Reason why there are no scores."""
    unreadable: Mapping[str, int] | None = None
    """Number of unreadable images, by reason."""


def averages(results: Sequence[TaskResult], names: Collection[str]) -> list[dict[str, Any]]:
    """Return the averages over published benchmarks, by model, suite and group.

    The metric of a benchmark is the one that its paper reports; without it, the benchmark is
    ignored.

    Args:
        results: Results of benchmarks and of a user's own tasks.
        names: The tasks that are benchmarks; another may have the name of one.
    """
    rows = []
    for model in dict.fromkeys(item.model for item in results):
        values = {}
        for item in results:
            if item.model == model and item.scores and item.task in names:
                metric = BENCHMARKS[item.task].metric or item.scores[0]["name"]
                named = {score["name"]: float(score["value"]) for score in item.scores}
                if metric in named:
                    values[item.task] = named[metric]
        rows += [{"model": model, **row} for row in benchmarks.averages(values)]
    return rows


def table(
    results: Sequence[TaskResult],
    differing: Sequence[Mapping[str, Any]],
    means: Sequence[Mapping[str, Any]],
) -> str:
    """Return all scores as Markdown, one column per model, with a list of skipped tasks.

    Args:
        results: Result of every model and task.
        differing: Differences between models, as ``comparison.compare_models`` returns them.
        means: Result of ``averages``.
    """
    models = list(dict.fromkeys(item.model for item in results if item.model))
    lines = ["# Benchmarks", "", "95 % intervals by bootstrap (BCa) in brackets.", ""]
    heads = ["task", "score", *models, "of"]
    lines += [markdown.table(heads, _rows(results, models))]
    if means:
        lines += ["", "## Averages", "", _averages(means, models)]
    if differing:
        lines += ["", "## Differences", "", _differences(differing)]
    protocol = _protocol(results)
    if protocol:
        lines += ["", "## Differences from the papers", "", *protocol]
    skipped = [item for item in results if item.skipped]
    if skipped:
        lines += ["", "## Not scored", ""]
        lines += [f"* {_where(item)}: {item.skipped}" for item in skipped]
    left_out = [_left_out(item) for item in results if _left_out(item)]
    if left_out:
        lines += ["", "## Left out", "", *left_out]
    leaks = [_leaks(item) for item in results if (item.notes or {}).get("leaks")]
    if leaks:
        lines += ["", "## Near duplicates in the training corpus", "", *leaks]
    parts = _rows(results, models, parts=True)
    if parts:
        lines += ["", BROKEN_DOWN, "", markdown.table(heads, parts)]
    return "\n".join(lines) + "\n"


def _rows(
    results: Sequence[TaskResult], models: Sequence[str], *, parts: bool = False
) -> list[list[Any]]:
    rows: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for item in results:
        for score in item.scores:
            if ("/" in score["name"]) == parts:
                rows.setdefault((item.task, score["name"]), {})[item.model] = score
    return [
        [
            task,
            name.replace("_", " "),
            *(_cell(name, found.get(model)) for model in models),
            max(int(score["count"]) for score in found.values()),
        ]
        for (task, name), found in rows.items()
    ]


def _cell(name: str, score: Mapping[str, Any] | None) -> str | None:
    if score is None:
        return None
    value, low, high = (_number(name, score[end]) for end in ("value", "low", "high"))
    return f"{value} ({low}–{high})"


def _number(name: str, value: float) -> str:
    if name.partition("/")[0].endswith(_RANKS):
        return f"{value:,.1f}".removesuffix(".0")
    return f"{100 * value:.2f}"


def _differences(differing: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for row in differing:
        value, low, high = (f"{100 * row[end]:+.2f}" for end in ("value", "low", "high"))
        name = row["score"].replace("_", " ")
        p = f"{row['p']:.3f}"
        rows.append(
            [row["task"], name, row["model"], row["ahead_of"], f"{value} ({low} to {high})", p]
        )
    return markdown.table(["task", "score", "model", "ahead of", "by (points)", "p"], rows)


def _averages(means: Sequence[Mapping[str, Any]], models: Sequence[str]) -> str:
    rows: dict[str, dict[str, Any]] = {}
    for mean in means:
        rows.setdefault(mean["name"], {})[mean["model"]] = mean
    listed = []
    for name, row in rows.items():
        values = [None if m not in row else f"{100 * row[m]['value']:.2f}" for m in models]
        numbers = dict.fromkeys(row[m]["of"] for m in models if m in row)
        if len(numbers) > 1:
            # A mean over fewer benchmarks says so beside it.
            values = [v and f"{v} ({row[m]['of']})" for m, v in zip(models, values, strict=True)]
        listed.append([name, *values, next(iter(numbers)) if len(numbers) == 1 else "differ"])
    return markdown.table(["average", *models, "benchmarks"], listed)


def _where(item: TaskResult) -> str:
    return f"{item.task}, {item.model}" if item.model else item.task


def _protocol(results: Sequence[TaskResult]) -> list[str]:
    """Return lines with the notes on protocols, and the tasks that each is about."""
    tasks_of: dict[str, dict[str, None]] = {}
    for item in results:
        for note in (item.notes or {}).get("protocol", ()):
            tasks_of.setdefault(note, {})[item.task] = None
    return [f"* {', '.join(tasks)}: {note}" for note, tasks in tasks_of.items()]


def _left_out(item: TaskResult) -> str:
    reasons = {**((item.notes or {}).get("left_out") or {}), **(item.unreadable or {})}
    if not reasons:
        return ""
    counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    return f"* {_where(item)}: {counts}"


def _leaks(item: TaskResult) -> str:
    counts = (item.notes or {})["leaks"]
    by = ", ".join(f"{count:,} by {name}" for name, count in sorted(counts["leaked"].items()))
    similar = f"{counts['corpus_images']:,} images of the corpus"
    elsewhere = f"{counts['elsewhere']:,} more only near figures that are not in train"
    whole = f"of {counts['images']:,} images {by}; {similar} are near them; {elsewhere}"
    return f"* {_where(item)}: {whole}"


def plot(results: Sequence[TaskResult]) -> bytes:
    """Return a PNG of the first metric of each task by model, with confidence intervals."""
    models = list(dict.fromkeys(item.model for item in results if item.scores))
    tasks = list(dict.fromkeys(item.task for item in results if item.scores))[:_MOST_LINES]
    with style():
        drawn = plot_figure(8, 1.8 + 0.34 * max(1, len(tasks)) * max(1, len(models)) ** 0.5)
        axes = drawn.subplots()
        axes.set_title("First score of each task, 95 % interval")
        for number, model in enumerate(models):
            for item in results:
                if item.model != model or not item.scores or item.task not in tasks:
                    continue
                score = item.scores[0]
                at = tasks.index(item.task) + 0.6 * ((number + 0.5) / len(models) - 0.5)
                colour = SERIES[number % len(SERIES)]
                axes.plot([score["low"], score["high"]], [at, at], color=colour, linewidth=2)
                axes.plot(score["value"], at, _MARKERS[number % 6], color=colour, markersize=6)
                chance = (item.notes or {}).get("chance")
                if isinstance(chance, float) and number == 0:
                    y = tasks.index(item.task)
                    axes.plot([chance, chance], [y - 0.4, y + 0.4], ":", color=INK, linewidth=1)
            axes.plot(
                [],
                [],
                _MARKERS[number % 6],
                color=SERIES[number % len(SERIES)],
                label=two_lines(model, 30),
            )
        first = {item.task: item.scores[0]["name"] for item in results if item.scores}
        names = [two_lines(f"{task}: {first[task]}".replace("_", " "), 44) for task in tasks]
        axes.set_yticks(range(len(tasks)), names)
        axes.set_ylim(len(tasks) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        drawn.legend(loc="outside upper right", ncols=min(4, max(1, len(models))))
        return png(drawn)


def breakdown_plot(item: TaskResult) -> bytes | None:
    """Return a PNG of R@1 by text length, in both directions; None if there is no breakdown."""
    points: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for score in item.scores:
        name, _, part = score["name"].partition("/")
        if part.startswith("tokens ") and name.endswith("_recall_at_1"):
            points.setdefault(name, []).append((part.removeprefix("tokens "), score))
    if not points:
        return None
    with style():
        drawn = plot_figure(8, 4.2)
        axes = drawn.subplots()
        axes.set_title(f"{item.task}, {item.model}: recall at 1 by length of text")
        parts = list(dict.fromkeys(part for rows in points.values() for part, _ in rows))
        for number, (name, rows) in enumerate(points.items()):
            at = np.array([parts.index(part) for part, _ in rows]) + 0.12 * (2 * number - 1)
            value = np.array([score["value"] for _, score in rows])
            ends = np.array([[score["low"], score["high"]] for _, score in rows]).T
            label = name.removesuffix("_recall_at_1").replace("_to_", "→")
            axes.errorbar(
                at,
                value,
                yerr=np.abs(ends - value),
                fmt=_MARKERS[number],
                color=SERIES[number],
                capsize=3,
                label=label,
            )
        counts = {part: score["count"] for rows in points.values() for part, score in rows}
        axes.set_xticks(range(len(parts)), [f"{part}\n{counts[part]:,}" for part in parts])
        axes.set_xlabel("CLIP tokens; below, how many texts")
        axes.set_ylabel("recall at 1")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_ylim(0)
        axes.set_xlim(-0.5, len(parts) - 0.5)
        axes.grid(axis="y")
        drawn.legend(loc="outside upper right", ncols=2)
        return png(drawn)
