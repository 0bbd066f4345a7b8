"""Rankings: selection of the best scores, rank fusion, and consistent pagination.

A ranking consists of rows and scores, best first. Ties are ordered by row, so that the same query
has the same results for any page size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

# Shapes: K results, M items.

FIRST_LEVEL, LEVEL_FACTOR = 100, 20
_RRF = 60
"""Constant of reciprocal rank fusion: Cormack et al. 2009 (SIGIR), k = 60."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """A ranking: rows, int64, and scores, float32 or float64; best first. Shape [K] each."""

    rows_K: np.ndarray
    scores_K: np.ndarray

    def cut(self, first: int, end: int) -> "Ranking":
        """Return the results from ``first`` to ``end`` (excluded)."""
        return Ranking(self.rows_K[first:end], self.scores_K[first:end])

    def with_more(self, rows_M: np.ndarray, scores_M: np.ndarray, k: int) -> "Ranking":
        """Return the ``k`` best of these results and of others, in any order; ties by row."""
        rows = np.concatenate([self.rows_K, rows_M])
        scores = np.concatenate([self.scores_K, scores_M])
        order = np.lexsort((rows, -scores))[:k]
        return Ranking(rows[order], scores[order])


def largest(scores_M: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the ``k`` largest scores, largest first; ties by position."""
    if k >= len(scores_M):
        return np.argsort(-scores_M, kind="stable")
    if k <= 0:
        return np.empty(0, np.int64)
    least = np.partition(scores_M, len(scores_M) - k)[len(scores_M) - k]
    above = np.flatnonzero(scores_M > least)
    equal = np.flatnonzero(scores_M == least)[: k - len(above)]
    places = np.sort(np.concatenate([above, equal]))
    return places[np.argsort(-scores_M[places], kind="stable")]


def fuse_rankings(rankings: Mapping[str, Ranking]) -> Ranking:
    """Return the reciprocal rank fusion of rankings: sums of ``1 / (60 + rank)``.

    Source:
        Cormack et al. 2009, SIGIR, "Reciprocal rank fusion".
    """
    rows = np.concatenate([ranking.rows_K for ranking in rankings.values()])
    gains = np.concatenate(
        [1 / (_RRF + np.arange(1, len(ranking.rows_K) + 1)) for ranking in rankings.values()]
    )
    distinct, place = np.unique(rows, return_inverse=True)
    scores = np.bincount(place, gains, minlength=len(distinct))
    best = largest(scores, len(distinct))
    return Ranking(distinct[best], scores[best])


def level_end(depth: int) -> int:
    """Return the last rank of the level that a depth is in; see ``deepening``."""
    level = FIRST_LEVEL
    while level < depth:
        level *= LEVEL_FACTOR
    return level


def deepening(rank: Callable[[int], Ranking], depth: int) -> Ranking:
    """Return the first ``depth`` results of a ranking; smaller depths return a prefix of these.

    The first results of approximate and fused rankings depend slightly on the depth to which they
    are computed. They are therefore computed to fixed depths only (100, then 2,000 and so on), and
    each level omits the results of the previous one. Pages of any size are then consistent. Scores
    of an approximate ranking decrease only within a level: a deeper level may find better results.

    Args:
        rank: Computes a ranking to a depth; shorter only if there are no more results.
        depth: Number of results requested.
    """
    level = FIRST_LEVEL
    whole = rank(level).cut(0, level)
    while len(whole.rows_K) < depth and len(whole.rows_K) == level:
        level *= LEVEL_FACTOR
        deeper = rank(level)
        is_new = ~np.isin(deeper.rows_K, whole.rows_K)
        whole = Ranking(
            np.concatenate([whole.rows_K, deeper.rows_K[is_new]])[:level],
            np.concatenate([whole.scores_K, deeper.scores_K[is_new]])[:level],
        )
    return whole.cut(0, depth)
