"""Warnings about models that are no better than chance on a task, or correct on all examples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from biovl.benchmark.report import TaskResult


def warnings_of(results: Sequence[TaskResult]) -> list[str]:
    """Return a warning for each model and task whose scores are not above chance, or all correct.

    A score is above chance if its 95 % interval in the report is above the chance level; by
    guessing, that happens in 2.5 % of cases. One such score of a task is enough. Tasks whose chance
    level is unknown (vqa) are not compared with chance. Warnings that a task itself reports are
    included.
    """
    return [warning for item in results for warning in _of_task(item)]


def _of_task(item: TaskResult) -> Iterator[str]:
    yield from (
        f"{item.model} on {item.task}: {one}" for one in (item.notes or {}).get("warnings", ())
    )
    for score in item.scores[:1]:
        if score["name"] == "accuracy" and score["low"] == score["value"] == 1:
            # The upper end of the exact interval, of which the bootstrap knows nothing.
            error = 1 - 0.05 ** (1 / score["count"])
            yield (
                f"{item.model} is correct on all {score['count']:,} examples of {item.task}: its "
                f"error rate may be up to {error:.1%} (95 % confidence)"
            )
    compared = list(_compared(item))
    if compared and all(score["low"] <= chance for score, chance in compared):
        scores = ", ".join(
            f"{score['name'].replace('_', ' ')} {score['value']:.2%} "
            f"({score['low']:.2%} to {score['high']:.2%}; chance {chance:.2%})"
            for score, chance in compared
        )
        yield (
            f"{item.model} is no better than chance on {item.task}, by its 95 % interval: {scores}"
        )


def _compared(item: TaskResult) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yield the scores of a task that have a known chance level, with this level."""
    notes = item.notes or {}
    chance = notes.get("chance")
    scores = {score["name"]: score for score in item.scores}
    if isinstance(chance, Mapping):
        for metric, level in chance.items():
            # Recall at k of a pool of at most k is 1, also by guessing.
            if metric in scores and level < 1:
                yield scores[metric], level
    elif "balanced_accuracy" in scores and notes.get("classes"):
        # Not the accuracy: a model that always answers the most frequent class exceeds 1 / classes.
        yield scores["balanced_accuracy"], 1 / len(notes["classes"])
    elif isinstance(chance, float) and item.scores:
        yield item.scores[0], chance
