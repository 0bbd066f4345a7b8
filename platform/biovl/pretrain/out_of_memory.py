"""Micro-batches that were halved because memory ran out, recorded in the draft of a run."""

from typing import Any

from biovl.core.artifacts import Draft

_NOTE = "micro_batch"


def record_halving(
    draft: Draft, configured: int | None, *, step: int, before: int, after: int
) -> None:
    """Record that a step ran out of memory, and the micro-batch that the run uses from now on.

    Args:
        draft: Draft of the run. Any worker may write, since only one runs out of memory at a time;
            if two do, they record the same size, or one that differs by one pair.
        configured: ``step.micro_batch`` of the run.
        step: Number of the step, from 1.
        before: Pairs per forward pass of a worker that did not fit.
        after: Pairs per forward pass from now on.
    """
    halving = {"step": step, "before": before, "after": after}
    draft.note(
        _NOTE,
        {
            "configured": configured,
            "micro_batch": after,
            "halvings": [*read_halvings(draft), halving],
        },
    )


def read_micro_batch(draft: Draft, configured: int | None) -> int | None:
    """Return the pairs per forward pass of a worker; None: all of its pairs.

    It is the size after the last halving, or ``configured`` if there was none or if
    ``step.micro_batch`` has changed since.
    """
    noted = draft.read_note(_NOTE)
    if noted is None or noted["configured"] != configured:
        return configured
    size: int = noted["micro_batch"]
    return size


def read_halvings(draft: Draft) -> list[dict[str, Any]]:
    """Return the recorded halvings: the step, and the pairs of a micro-batch before and after."""
    noted = draft.read_note(_NOTE) or {}
    return list(noted.get("halvings", []))
