"""Whether recall is better than chance, and how uncertain a score of few pairs is."""

import math
import re
from collections.abc import Mapping

LEVEL = 0.01
"""Probability with which chance alone reaches a recall that counts as better than chance. Up to six
recalls of a model are tested (three values of k, two directions), so chance passes one of them in
at most 6 % of cases."""

LEAST_PAIRS = 4
"""Pools with fewer pairs allow no statement: a perfect R@1 among three is chance in 1 of 27 cases,
among four in 1 of 256."""

_RECALL = re.compile(r"(image_to_text|text_to_image)_recall_at_(\d+)")


def half_width(count: int) -> float:
    """Return the half-width of the 95 % confidence interval of a fraction of ``count`` examples.

    For a fraction of 0.5, where it is widest; normal approximation, 1.96 standard errors.
    """
    return 0.98 / math.sqrt(count)


def exceeds_chance(hits: int, count: int, chance: float) -> bool:
    """Return whether the number of hits is significantly above chance, at level ``LEVEL``.

    This is the one-sided exact binomial test. If few items are the nearest of most queries, hits
    vary less than binomially, so that the test is conservative.

    Args:
        hits: Successes, 0..count.
        count: Trials, at least 1.
        chance: Probability of a success by guessing, in (0, 1].
    """
    if hits <= count * chance:
        return False
    logarithm = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    logarithm += hits * math.log(chance) + (count - hits) * math.log1p(-chance)
    term = total = math.exp(logarithm)
    for successes in range(hits, count):
        # Above the mean the terms fall faster than geometrically.
        term *= (count - successes) / (successes + 1) * chance / (1 - chance)
        total += term
        if term < 1e-9 * total:
            break
    return total < LEVEL


def retrieval_warning(scores: Mapping[str, float], pool: str) -> str | None:
    """Return a warning if a model retrieves no better than chance, else None.

    Also None with fewer than ``LEAST_PAIRS`` pairs, or if chance recall is 1 at every k.

    Args:
        scores: Recalls of one or both directions, such as ``text_to_image_recall_at_1``, with
            ``chance_recall_at_1`` …, and ``pairs``, as returned by
            ``benchmark.retrieval.evaluate_retrieval``.
        pool: The pairs, for the message, such as ``of val``.
    """
    pairs = int(scores["pairs"])
    recalls = {
        name: match
        for name in scores
        # Recall at k among k items is 1, also by guessing.
        if (match := _RECALL.fullmatch(name)) and scores[f"chance_recall_at_{match[2]}"] < 1
    }
    if pairs < LEAST_PAIRS or not recalls:
        return None
    parts = []
    for name, match in sorted(recalls.items()):
        chance = scores[f"chance_recall_at_{match[2]}"]
        # Recall counts ties by fractions of a hit.
        if exceeds_chance(math.floor(scores[name] * pairs + 1e-6), pairs, chance):
            return None
        direction = match[1].replace("_", " ")
        parts.append(f"{direction} R@{match[2]} {scores[name]:.2%} (chance {chance:.2%})")
    return (
        f"the model is no better than chance on the {pairs:,} pairs {pool}: {', '.join(parts)}. "
        "Look at some pairs of the corpus, and at the loss of the training"
    )
