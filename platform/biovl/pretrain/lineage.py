"""The checkpoints of other runs that a run descends from: see ``fork``."""

from collections.abc import Mapping, Sequence
from typing import Any

from biovl.core.artifacts import Draft
from biovl.pretrain.schedule import Plan

LINEAGE = "lineage"
"""Name of the draft's note, and of the manifest's, with the checkpoints that a run descends from,
the oldest first."""


def read_lineage(draft: Draft) -> list[dict[str, Any]]:
    """Return the checkpoints that a run descends from, the oldest first; empty if not a fork."""
    return draft.read_note(LINEAGE) or []


def first_step(lineage: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of steps of a run's plan that precede its start; 0 if not a fork."""
    return int(lineage[-1]["steps_done"]) if lineage else 0


def seen_val_warning(entry: Mapping[str, Any]) -> str | None:
    """Return a warning if the initial weights were, or may have been, trained on data of val.

    Args:
        entry: The checkpoint that a run starts from, the last entry of its lineage.
    """
    seen, corpora = entry.get("seen_val", 0), ", ".join(entry.get("corpora", ()))
    if seen is None:
        return (
            "the initial weights may have been trained on data of val, and validation scores be "
            f"too high: the corpora that they were trained on cannot be read ({corpora})"
        )
    if not seen:
        return None
    return (
        f"the initial weights were trained on data of {seen:,} val pairs, and validation scores "
        f"are too high: the article, group or image of these pairs is in train of {corpora}"
    )


def pairs_seen(lineage: Sequence[Mapping[str, Any]], plan: Plan, steps_done: int) -> int:
    """Return the number of pairs that the weights of a run were trained on after some steps.

    Those of the runs that it descends from are included; pairs that a rollback of the run itself
    skips are not subtracted.
    """
    before = int(lineage[-1]["pairs"]) if lineage else 0
    return before + plan.pairs_before(steps_done) - plan.pairs_before(first_step(lineage))
