"""Validation scores in the draft of a run: the best epoch, and epochs still to be validated."""

from collections.abc import Mapping
from typing import Any

from biovl.benchmark.retrieval import mean_recall_at_1
from biovl.core.artifacts import Draft
from biovl.pretrain.schedule import Plan

_TOLERANCE = 0.01


def note_name(epoch: int) -> str:
    """Return the name of the draft's note with the scores of an epoch."""
    return f"validation/{epoch:04d}"


def read_scores(draft: Draft) -> dict[int, dict[str, Any]]:
    """Return the recorded scores of the validated epochs, by epoch from 0."""
    names = draft.note_names("validation")
    return {int(name.rpartition("/")[2]): draft.read_note(name) or {} for name in names}


def best_epoch(scores: dict[int, dict[str, Any]]) -> int | None:
    """Return the epoch with the best mean of both recalls at 1.

    Ties, which are frequent with few pairs: the lowest loss, then the first epoch. Epochs that are
    not ``comparable`` are ignored.
    """

    def goodness(epoch: int) -> tuple[float, float]:
        return mean_recall_at_1(scores[epoch]), -scores[epoch].get("loss", 0.0)

    return max(comparable(scores), key=goodness, default=None)


def comparable(scores: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """Return the epochs validated on as many pairs as the last one, within one percent.

    Pairs that could not be read in one validation change its recalls less than that.
    """
    pairs = scores[max(scores)].get("pairs", 0) if scores else 0
    return [
        epoch
        for epoch in sorted(scores)
        if abs(scores[epoch].get("pairs", 0) - pairs) <= _TOLERANCE * pairs
    ]


def epoch_to_publish(scores: dict[int, dict[str, Any]], choice: str, epochs: int) -> int:
    """Return the epoch, from 0, whose weights are published: the best, or the last.

    Args:
        scores: Scores of the validated epochs.
        choice: ``best``, which is the last epoch if none was validated, or ``last``.
        epochs: Number of epochs of the run.
    """
    best = best_epoch(scores) if choice == "best" else None
    return epochs - 1 if best is None else best


def in_history(steps_done: int, plan: Plan, every: int | str | None) -> bool:
    """Return whether the checkpoint after ``steps_done`` steps is published, see ``keep_every``."""
    if every is None or steps_done == plan.steps:
        return every is not None
    if isinstance(every, int):
        return steps_done % every == 0
    return steps_done in plan.ends()


def is_validated(epoch: int, plan: Plan, every: int | None) -> bool:
    """Return whether an epoch is validated: every ``every``-th epoch, and the last."""
    return every is not None and ((epoch + 1) % every == 0 or epoch + 1 == len(plan.epochs))


def steps_waiting(draft: Draft, plan: Plan, every: int | None) -> dict[int, int]:
    """Return the epochs whose validation is pending, by number of steps at the end of the epoch."""
    return _waiting(read_scores(draft), plan, every)


def steps_to_keep(draft: Draft, plan: Plan, every: int | None) -> list[int]:
    """Return the steps whose checkpoints are needed: of the best epoch, and of pending ones."""
    # Read once: scores that arrive between two reads could hide an epoch from both lists.
    scores = read_scores(draft)
    best = best_epoch(scores)
    return [*_waiting(scores, plan, every), *([] if best is None else [plan.ends()[best]])]


def _waiting(scores: Mapping[int, Any], plan: Plan, every: int | None) -> dict[int, int]:
    return {
        steps: epoch
        for epoch, steps in enumerate(plan.ends())
        if is_validated(epoch, plan, every) and epoch not in scores
    }
