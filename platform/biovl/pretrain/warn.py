"""Warnings about a trained model: no better than chance, overfitted, not validated."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from biovl.core.chance import retrieval_warning
from biovl.pretrain.guard import chance

LEAST_RISE = 0.05
"""Rise of the validation loss, in nats, that counts as overfitting: the mean probability of the
right caption falls by a twentieth. Runs that differ in the seed alone differ by less."""


def warnings_of(
    scores: Mapping[int, Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    loss: str,
    published: int,
    val_pairs: int,
) -> list[str]:
    """Return warnings about a run.

    Args:
        scores: Validation scores by epoch, from 0.
        rows: Rows of ``metrics.jsonl``.
        loss: The training loss: ``infonce`` or ``siglip``.
        published: Epoch whose weights are published, from 0.
        val_pairs: Number of pairs in the split val.
    """
    if not scores:
        return [f"no epoch was validated: the corpus has {val_pairs} pairs in val"]
    at_chance = retrieval_warning(scores[published], "of val") if published in scores else None
    return [*([at_chance] if at_chance else []), *_overfits(scores, rows, loss)]


def _overfits(
    scores: Mapping[int, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], loss: str
) -> Iterator[str]:
    """Yield a warning if the validation loss rises while the training loss falls."""
    last = max(scores)
    best = min(sorted(scores), key=lambda epoch: float(scores[epoch]["loss"]))
    val = {epoch: float(scores[epoch]["loss"]) for epoch in (best, last)}
    # The loss of a single pair changes by some half a nat from epoch to epoch, in either direction:
    # the mean of few pairs by chance, with this as two standard errors.
    least = max(LEAST_RISE, 1 / math.sqrt(scores[last]["pairs"]))
    train = {epoch: _mean_loss(rows, epoch, loss) for epoch in (best, last)}
    before, after = train[best], train[last]
    if before is None or after is None or after >= before or val[last] - val[best] < least:
        return
    yield (
        f"the model overfits: from epoch {best + 1} to {last + 1} the validation loss rises from "
        f"{val[best]:.3f} to {val[last]:.3f}, and the training loss falls by {before - after:.3f}. "
        "Train fewer epochs, or on more pairs"
    )


def _mean_loss(rows: Sequence[Mapping[str, Any]], epoch: int, loss: str) -> float | None:
    """Return the mean training loss of an epoch above chance, which depends on the batch size."""
    losses = [
        row["loss"] - chance(loss, row["pairs"])
        for row in rows
        if row["epoch"] == epoch and isinstance(row["loss"], float) and math.isfinite(row["loss"])
    ]
    return fmean(losses) if losses else None
