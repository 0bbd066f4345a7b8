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
    """Return half of the widest 95 % interval of a share of ``count`` examples, at a share of 0.5.

    This is the normal approximation, 1.96 standard errors.
    """
    return 0.98 / math.sqrt(count)


def exceeds_chance(hits: int, count: int, chance: float) -> bool:
    """Return whether so many hits are rarer than ``LEVEL`` if each is one with probability chance.

    This is the exact binomial test. If few items are the nearest of most queries, hits vary less
    than binomially, so that the test is rather too strict than too lax.

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
    """Return a warning if a model retrieves no better than chance; None if it does, or is unknown.

    Args:
        scores: ``text_to_image_recall_at_1`` … or both directions, ``chance_recall_at_1`` …, and
            ``pairs``, as returned by ``benchmark.retrieval.evaluate_retrieval``.
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
