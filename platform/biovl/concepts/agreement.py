"""Agreement of reviewers: disagreement in percent, and Krippendorff's alpha."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from biovl.concepts.votes import ReviewVote

FIELDS = ("panel", "global_concepts", "local_concepts")
"""The questions of a review."""


def answer(vote: ReviewVote, field: str) -> Hashable:
    """Return the answer of a vote to a question; several concepts are one hashable value."""
    if field == "panel":
        return vote.panel_type, vote.panel_subtype
    return frozenset(getattr(vote, field))


def disagreement(answers: Sequence[Hashable]) -> float:
    """Return the percentage of voters who do not give the most frequent answer.

    0 if all agree, 33.3 for two against one, 50 for one against one, 66.7 for three answers of
    three voters, 75 for four of four. A different number of concepts is a different answer.

    Source:
        BIOMEDICA, arXiv 2501.07171, table 9, which has no formula; its 0, 33.33, 50 and 66.66 are
        these. Its 75.00 requires four voters, but the paper has at most three: it may count named
        concepts instead of voters.
    """
    return 100 * (1 - max(Counter(answers).values()) / len(answers))


def summary(votes_of_clusters: Iterable[Sequence[ReviewVote]]) -> dict[str, dict[str, Any]]:
    """Return the statistics of table 9 for each question, and alpha.

    Clusters with one vote are skipped: they cannot have disagreement.

    Args:
        votes_of_clusters: For each cluster, one vote per reviewer.

    Returns:
        By field: clusters; min, max, mean, median and iqr (third minus first quartile, linear
        interpolation) of the disagreement in percent, None without clusters; alpha.
    """
    several = [votes for votes in votes_of_clusters if len(votes) > 1]
    return {field: _of_field(field, several) for field in FIELDS}


def _of_field(field: str, clusters: Sequence[Sequence[ReviewVote]]) -> dict[str, Any]:
    answers = [[answer(vote, field) for vote in votes] for votes in clusters]
    names = ("min", "max", "mean", "median", "iqr")
    found: dict[str, Any] = dict.fromkeys(names)
    if answers:
        percent = np.array([disagreement(of_cluster) for of_cluster in answers])
        first, third = np.percentile(percent, [25, 75])
        values = percent.min(), percent.max(), percent.mean(), np.median(percent), third - first
        found = {name: round(float(value), 2) for name, value in zip(names, values, strict=True)}
    alpha = krippendorff_alpha(answers)
    return {
        "clusters": len(answers),
        **found,
        "alpha": None if alpha is None else round(alpha, 4),
    }


def krippendorff_alpha(units: Iterable[Sequence[Hashable]]) -> float | None:
    """Return Krippendorff's alpha for nominal values: 1 for agreement, 0 for chance level.

    Args:
        units: Values of each unit; a unit with a single value is ignored.

    Returns:
        None if undefined: no unit has two values, or all values are equal.

    Source:
        K. Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section C:
        ``1 - (n - 1) sum(o_ck) / sum(n_c n_k)`` over pairs of different values c, k, where o_ck are
        the coincidences within units, each worth 1 / (m - 1) with m values in its unit.
    """
    observed, totals = 0.0, Counter[Hashable]()
    for values in units:
        if len(values) < 2:
            continue
        counts = Counter(values)
        totals.update(counts)
        same = sum(count * (count - 1) for count in counts.values())
        observed += (len(values) * (len(values) - 1) - same) / (len(values) - 1)
    n = totals.total()
    expected = n**2 - sum(count**2 for count in totals.values())
    return 1 - (n - 1) * observed / expected if expected else None
