"""Selection of the published interpolation, and the verdict on it: pure functions of scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap
from biovl.benchmark.config import name_of

Verdict = Literal["better", "not better", "worse"]

MRR = ("image_to_text_mrr", "text_to_image_mrr")
"""Metrics that select and judge: mean reciprocal rank, which is less coarse than recall at 1 on the
few hundred pairs of a small corpus."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Scores of one interpolation."""

    alpha: float
    on_val: float
    """Mean reciprocal rank on val, mean of both directions."""
    retained: Mapping[str, float]
    """First score of each retained task."""


_ROUNDING = 1e-9
"""0.80 - 0.79 is above 0.01 in floats."""

SIGNIFICANT = 0.05
"""Largest p-value that counts as a difference; with few pairs the interval alone is too narrow."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Comparison of the published model with the model before fine-tuning, on the test split."""

    verdict: Verdict
    """``better`` or ``worse`` if interval and p-value both show it, otherwise ``not better``."""
    before: float
    after: float
    """Mean reciprocal rank of the two models, over both directions."""
    difference: float
    """``after`` minus ``before``."""
    low: float
    high: float
    """95 % confidence interval of the difference."""
    p: float


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected interpolation."""

    alpha: float
    reason: str
    """Why, as a sentence."""


def points_of(
    scores: Sequence[Mapping[str, Any]], alphas: Sequence[float], val: str, retained: Sequence[str]
) -> list[Point]:
    """Return the scores of each interpolation, sorted by alpha.

    Args:
        scores: ``scores`` of a report's ``scores.json``.
        alphas: Interpolation coefficients of the report.
        val: Name of the retrieval task on val.
        retained: Names of the retained tasks, which all have scores.
    """
    found = []
    for alpha in sorted(set(alphas)):
        own = [score for score in scores if score["model"] == name_of(alpha)]
        values = {score["name"]: score["value"] for score in own if score["task"] == val}
        first = {
            task: next(score["value"] for score in own if score["task"] == task)
            for task in retained
        }
        on_val = sum(values[name] for name in MRR) / len(MRR)
        found.append(Point(alpha=alpha, on_val=on_val, retained=first))
    return found


def select(points: Sequence[Point], *, retained_loss: float, gain_share: float) -> Selection:
    """Return the interpolation to publish.

    Of those that lose at most ``retained_loss`` on every retained task, the smallest alpha that has
    ``gain_share`` of the largest gain on val; alpha 0, the given model, if none gains.

    Args:
        points: Scores by alpha, with alpha 0 first.
        retained_loss: Maximum loss of a retained task's score, absolute.
        gain_share: Share of the largest gain, in (0, 1].
    """
    given = points[0]
    allowed = [
        point
        for point in points
        if all(
            given.retained[task] - value <= retained_loss + _ROUNDING
            for task, value in point.retained.items()
        )
    ]
    gains = {point.alpha: point.on_val - given.on_val for point in allowed}
    best = max(gains.values())
    lost = len(points) - len(allowed)
    because = f"{lost} of {len(points)} alphas lose too much on retained tasks; " if lost else ""
    if best <= 0:
        return Selection(alpha=given.alpha, reason=f"{because}no alpha above 0 gains on val")
    alpha = min(alpha for alpha, gain in gains.items() if gain >= gain_share * best)
    return Selection(
        alpha=alpha,
        reason=f"{because}the smallest alpha with {gain_share:.0%} of the largest gain on val, "
        f"{best:+.3f}",
    )


def judge(before: pa.Table, after: pa.Table, *, resamples: int, seed: int) -> Judgement:
    """Return the difference of the mean reciprocal rank of two models, over both directions.

    The unit that is resampled is the pair: its reciprocal ranks as a query in both directions.

    Args:
        before: Predictions of the given model on test, as retrieval writes them.
        after: The same for the published model.
        resamples: Bootstrap resamples.
        seed: Seed of the resamples.
    """
    ranks_before, ranks_after = _by_pair(before), _by_pair(after)
    pairs = sorted(ranks_before.keys() & ranks_after.keys())
    ours = np.array([ranks_after[pair] for pair in pairs])
    theirs = np.array([ranks_before[pair] for pair in pairs])
    ahead = bootstrap.paired_difference(ours, theirs, resamples=resamples, seed=seed)
    is_shown = ahead.p < SIGNIFICANT
    verdict: Verdict = "not better"
    if is_shown and ahead.low > 0:
        verdict = "better"
    if is_shown and ahead.high < 0:
        verdict = "worse"
    return Judgement(
        verdict=verdict,
        before=float(theirs.mean()),
        after=float(ours.mean()),
        difference=ahead.value,
        low=ahead.low,
        high=ahead.high,
        p=ahead.p,
    )


def _by_pair(predictions: pa.Table) -> dict[str, float]:
    """Return the share of each pair in the score: their mean is that of both directions' means.

    A text of several pairs is one query, so fewer queries may be texts than images.
    """
    pair_Q = [query.partition("/")[2] for query in predictions["id"].to_pylist()]
    score_of = dict.fromkeys(pair_Q, 0.0)
    for name in MRR:
        ranks = zip(pair_Q, predictions[name].to_pylist(), strict=True)
        rank_of = {pair: rank for pair, rank in ranks if rank is not None}
        for pair, rank in rank_of.items():
            score_of[pair] += rank * len(score_of) / len(rank_of) / len(MRR)
    return score_of
