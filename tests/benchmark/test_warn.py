"""Warnings about tasks on which models guess."""

from typing import Any

import pytest

from biovl.benchmark.report import TaskResult
from biovl.benchmark.warn import warnings_of


def score(name: str, low: float, value: float, high: float) -> dict[str, Any]:
    return {"name": name, "low": low, "value": value, "high": high, "count": 100, "note": ""}


def warned(notes: dict[str, Any], *scores: dict[str, Any]) -> list[str]:
    return warnings_of([TaskResult(model="a", task="t", scores=scores, notes=notes)])


def test_an_interval_that_includes_chance_is_warned_about() -> None:
    (warning,) = warned({"chance": 0.25}, score("accuracy", 0.2, 0.28, 0.36))
    assert warning == (
        "a is no better than chance on t, by its 95 % interval: accuracy 28.00% "
        "(20.00% to 36.00%; chance 25.00%)"
    )
    assert warned({"chance": 0.25}, score("accuracy", 0.26, 0.3, 0.36)) == []
    # Worse than chance is not better.
    assert len(warned({"chance": 0.25}, score("accuracy", 0.0, 0.0, 0.0))) == 1


def test_an_accuracy_of_one_is_told_with_the_errors_that_its_examples_allow() -> None:
    (warning,) = warned({}, {**score("accuracy", 1.0, 1.0, 1.0), "count": 5})
    assert warning.startswith("a is correct on all 5 examples of t")
    # 0.549 ** 5 = 0.05
    assert "45.1%" in warning
    assert warned({}, score("accuracy", 0.98, 0.99, 1.0)) == []


def test_always_answering_the_most_frequent_class_is_no_better_than_chance() -> None:
    scores = [score("accuracy", 0.85, 0.9, 0.94), score("balanced_accuracy", 0.5, 0.5, 0.5)]
    (warning,) = warned({"chance": 0.5, "classes": ["no", "yes"]}, *scores)
    assert "balanced accuracy 50.00%" in warning
    # Probes do not note a chance level, only their classes.
    assert len(warned({"classes": ["no", "yes"]}, *scores)) == 1


def test_one_recall_above_chance_is_enough() -> None:
    levels = {"recall_at_1": 0.01, "recall_at_10": 0.1, "recall_at_100": 1.0}
    ways = ("image_to_text", "text_to_image")
    notes = {"chance": {f"{way}_{name}": level for way in ways for name, level in levels.items()}}
    at_chance = [
        score("image_to_text_recall_at_1", 0.0, 0.01, 0.03),
        score("text_to_image_recall_at_1", 0.0, 0.02, 0.05),
        score("text_to_image_recall_at_100", 1.0, 1.0, 1.0),
    ]
    (warning,) = warned(notes, *at_chance)
    assert "recall at 100" not in warning
    better = score("text_to_image_recall_at_10", 0.11, 0.2, 0.3)
    assert warned(notes, *at_chance, better) == []


@pytest.mark.parametrize("notes", [{}, {"chance": None}, {"left_out": {}}])
def test_a_task_without_known_chance_is_left_out(notes: dict[str, Any]) -> None:
    assert warned(notes, score("accuracy", 0.0, 0.0, 0.0)) == []
    assert warnings_of([TaskResult(model="a", task="t", skipped="no data")]) == []
