"""Rollback after divergence: earlier weights, and the pairs that led to it are skipped.

PaLM's recipe (Chowdhery et al. 2022, arXiv:2204.02311, section 5.1): restart about 100 steps before
a spike, and skip the 200 to 500 batches seen before and during it. The same pairs do not make
another state of the model diverge.

    step     1 ........ 900 ...... 1,000 ........ 1,060 ........
                         |           |              +-- divergence is noticed
                         |           +-- the loss begins to rise
                         +-- the run continues from here with step 1,061; 901 to 1,060 are skipped

Skipped steps count as done: learning rate, epochs and the pairs of all later steps are those of the
plan. The draft records every rollback. The workers restart as after a failure, from the last
checkpoint that is no later than the first skipped step; the steps from there on are repeated.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from biovl.core.artifacts import Draft
from biovl.pretrain.guard import SMOOTHED_STEPS, Diverged
from biovl.pretrain.journal import discard_scores
from biovl.pretrain.lineage import first_step, read_lineage
from biovl.pretrain.schedule import Plan
from biovl.runtime.checkpoints import Checkpoints

LEAD_STEPS = 100
"""Steps before the divergence began that are skipped, too: PaLM's number."""

_KEPT_STEPS = LEAD_STEPS + 2 * SMOOTHED_STEPS
"""Divergence is noticed within so many steps after the last step to return to, unless the loss
rises slowly."""

MOST_KEPT = 2
"""Maximum number of checkpoints retained for a rollback, see ``steps_to_keep``."""

_NOTE = "rollback"


def record_rollback(
    draft: Draft, plan: Plan, error: Diverged, *, steps_done: int
) -> dict[str, Any]:
    """Record that the run returns to earlier weights, and return the record.

    Args:
        draft: Draft of the run; its checkpoints are discarded by ``apply_rollbacks``.
        plan: The steps of the run.
        error: The divergence.
        steps_done: Completed steps when it was noticed. A step whose loss is NaN is not completed.
    """
    skipped = skipped_steps(read_rollbacks(draft))
    first = _steps_before(steps_done, error.steps + LEAD_STEPS, skipped)
    # A fork has no steps before its first one to return to.
    first = max(first, first_step(read_lineage(draft)))
    # A step that was NaN is not completed, and skipped, too.
    end = steps_done + 1 if error.steps == 0 else steps_done
    record = {
        "reason": error.what,
        "loss_before": error.loss_before,
        "loss_after": error.loss_after,
        "skipped_steps": [first + 1, end],
        "skipped_pairs": plan.pairs_before(end) - plan.pairs_before(first),
        "epochs": _ranges(plan, first, end),
    }
    names = draft.note_names(_NOTE)
    draft.note(f"{_NOTE}/{len(names):03d}", {**record, "is_applied": False})
    return record


def apply_rollbacks(draft: Draft, checkpoints: Checkpoints, plan: Plan) -> None:
    """Delete the checkpoints and scores of rolled-back steps, unless that was done before.

    Called by the process that writes checkpoints, before it loads the last one.
    """
    for name in draft.note_names(_NOTE):
        note = draft.read_note(name) or {}
        if note["is_applied"]:
            continue
        steps_kept = note["skipped_steps"][0] - 1
        checkpoints.discard_after(steps_kept)
        discard_scores(draft, plan, after=steps_kept)
        draft.note(name, {**note, "is_applied": True})


def read_rollbacks(draft: Draft) -> list[dict[str, Any]]:
    """Return the recorded rollbacks, in order.

    Each has the keys

        reason                    description of the divergence
        loss_before, loss_after   median losses; null if unknown or NaN
        skipped_steps             the first and the last, from 1
        skipped_pairs             pairs of all steps in this range, also those skipped earlier
        epochs                    positions of the pairs in the order of each epoch, from 0:
                                  [{"epoch": 2, "first": 4096, "end": 8192}]
    """
    notes = [draft.read_note(name) or {} for name in draft.note_names(_NOTE)]
    return [{key: value for key, value in note.items() if key != "is_applied"} for note in notes]


def skipped_steps(rollbacks: Iterable[Mapping[str, Any]]) -> list[range]:
    """Return the numbers of steps done before each skipped step, as sorted, disjoint ranges."""
    joined: list[range] = []
    for first, last in sorted(record["skipped_steps"] for record in rollbacks):
        if joined and first - 1 <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, last))
        else:
            joined.append(range(first - 1, last))
    return joined


def trained_steps(plan: Plan, skipped: Sequence[range], steps_done: int) -> list[range]:
    """Return the steps left to train, numbered from 0, as ranges that omit the skipped steps."""
    ranges = []
    for gap in (*skipped, range(plan.steps, plan.steps)):
        if gap.start > steps_done:
            ranges.append(range(steps_done, gap.start))
        steps_done = max(steps_done, gap.stop)
    return ranges


def skipped_pairs(plan: Plan, skipped: Sequence[range], steps_done: int) -> int:
    """Return the number of pairs of the skipped steps among the first ``steps_done`` steps."""
    return sum(
        plan.pairs_before(min(each.stop, steps_done)) - plan.pairs_before(each.start)
        for each in skipped
        if each.start < steps_done
    )


def steps_to_keep(
    steps: Sequence[int], *, since_good: int = 0, skipped: Sequence[range] = ()
) -> list[int]:
    """Return the steps of the checkpoints to retain for a rollback.

    They are the last one that precedes any divergence that may still be undetected, and the one
    after it, which will be that one later. Without it, frequent checkpoints would all be deleted
    before they are old enough.

    Args:
        steps: Steps of all checkpoints, ascending.
        since_good: Steps since the loss was close to its minimum: a slow rise since then may end in
            a rollback to before it.
        skipped: Steps that earlier rollbacks skipped; they are not counted.
    """
    reach = _steps_before(max(steps, default=0), _KEPT_STEPS + since_good, skipped)
    following = bisect.bisect_right(steps, reach)
    return list(steps[max(0, following - 1) : following + 1])


def _steps_before(steps_done: int, count: int, skipped: Sequence[range]) -> int:
    """Return the number of steps done ``count`` trained steps before ``steps_done``, or 0."""
    # Steps before those of an earlier rollback are repeated from the last checkpoint, and may fail.
    for gap in reversed([gap for gap in skipped if gap.start < steps_done]):
        if steps_done - count >= gap.stop:
            break
        count -= steps_done - gap.stop
        steps_done = gap.start
    return max(0, steps_done - count)


def _ranges(plan: Plan, first: int, end: int) -> list[dict[str, int]]:
    """Return the positions of the pairs of steps in the order of each epoch."""
    ranges, begin = [], 0
    for epoch, (size, steps) in enumerate(plan.epochs):
        low, high = max(first - begin, 0), min(end - begin, steps)
        if low < high:
            ranges.append({"epoch": epoch, "first": low * size, "end": high * size})
        begin += steps
    return ranges
