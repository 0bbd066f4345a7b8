"""Which way to look for the nearest: through cells, or at every vector that fits.

Never afterwards: a filter is applied while searching. Measured at 200,000 vectors, taking what does
not fit out of a thousand nearest finds 8 % where one figure in a thousand fits; here it is 98 %.
"""

from collections.abc import Mapping

import numpy as np

from biovl.retrieval.filters import Selection
from biovl.retrieval.ranking import Ranking
from biovl.retrieval.vectors import VectorIndex, checked_queries, compared

# Shapes: N vectors, B of them at a time, K results, D dimensions.

EXACT_ROWS = 20_000
"""So few vectors that fit are all compared where cells would miss some: at most 7 ms."""
FEW_ROWS = 2_000
"""So few are compared in any case: under a millisecond, and nothing is missed."""
MOST_SCALED = 16
"""By how much more cells are looked into for a filter, at the most."""
_COMPARED = 1_000
"""So many that fit are expected in the cells looked into, at least; else all are compared."""
_HEAD, _STEP = 10, 4
_BLOCK = 16_384


def nearest(
    index: VectorIndex,
    vectors_ND: np.ndarray,
    query_D: np.ndarray,
    k: int,
    selection: Selection,
    *,
    settings: Mapping[str, int],
    exact: bool = False,
) -> tuple[Ranking, str]:
    """Return the nearest vectors that fit, and how they were found.

    Always ``min(k, selection.count)``: where looking into some cells finds fewer, more are looked
    into, and at last all.

    Args:
        index: Of the vectors.
        vectors_ND: The same vectors, float16, for exact comparison.
        query_D: Unit length.
        k: How many.
        selection: Which rows may be found.
        settings: ``nprobe`` and ``k_factor``, as chosen without a filter.
        exact: Whether to compare with every vector that fits.

    Raises:
        BiovlError: If the query is not finite or has another length.
    """
    query_D = checked_queries(query_D, index.dim)[0]
    k = min(k, selection.count)
    if k <= 0:
        return Ranking(np.empty(0, np.int64), np.empty(0, np.float32)), "nothing fits"
    by_hand = f"exact over {selection.count} rows"
    share = selection.count / index.count
    nprobe = scaled(settings.get("nprobe", 1), index.cells, share)
    is_filtered = selection.bitmap is not None
    if exact or (is_filtered and _is_better_exact(nprobe, index.cells, selection)):
        return exact_nearest(vectors_ND, query_D, k, selection), by_hand
    if is_filtered and index.cells:
        found, nprobe = _settled(index, query_D, k, selection, nprobe, settings)
    else:
        found = _searched(index, query_D, k, selection, nprobe, settings)
    while len(found.rows_K) < k:
        if nprobe >= index.cells:
            return exact_nearest(vectors_ND, query_D, k, selection), by_hand
        nprobe = min(4 * nprobe, index.cells)
        found = _searched(index, query_D, k, selection, nprobe, settings)
    plan = f"ivf nprobe={nprobe}" if index.cells else by_hand
    if index.refines:
        plan += f" k_factor={settings.get('k_factor', 1)}"
    return found, plan


def _settled(
    index: VectorIndex,
    query_D: np.ndarray,
    k: int,
    selection: Selection,
    nprobe: int,
    settings: Mapping[str, int],
) -> tuple[Ranking, int]:
    """Search within a filter, in more cells until the nearest ten are the same; say in how many.

    How many cells it takes depends on where what fits lies: a filter for photographs, asked with
    a radiograph, has its nearest in cells that are far. Measured with half of 200,000 vectors
    fitting, chosen by cluster: 83 % of the nearest are found without this.
    """
    most = max(nprobe, min(MOST_SCALED * nprobe, index.cells // 2))
    found = _searched(index, query_D, k, selection, nprobe, settings)
    if nprobe == most:
        return found, nprobe
    before = _searched(index, query_D, k, selection, max(1, nprobe // 2), settings)
    while True:
        same = np.isin(found.rows_K[:_HEAD], before.rows_K[:_HEAD]).sum()
        if nprobe >= most or same >= min(_HEAD, k) - 1:
            return found, nprobe
        before, nprobe = found, min(_STEP * nprobe, most)
        found = _searched(index, query_D, k, selection, nprobe, settings)


def _searched(
    index: VectorIndex,
    query_D: np.ndarray,
    k: int,
    selection: Selection,
    nprobe: int,
    settings: Mapping[str, int],
) -> Ranking:
    scores_QK, rows_QK = index.search(
        query_D, k, nprobe=nprobe, k_factor=settings.get("k_factor"), rows=selection.bitmap
    )
    is_found = rows_QK[0] >= 0
    rows_K, scores_K = rows_QK[0][is_found], scores_QK[0][is_found]
    order = np.lexsort((rows_K, -scores_K))
    return Ranking(rows_K[order], scores_K[order])


def scaled(nprobe: int, cells: int, share: float) -> int:
    """Return how many cells to look into where only a share of the vectors fits.

    What does not fit is passed over before it is compared, so that more cells cost the same.
    """
    if share >= 1:
        return min(nprobe, cells)
    most = max(nprobe, cells // 2)
    return min(round(nprobe * min(1 / share, MOST_SCALED)), most, cells)


def _is_better_exact(nprobe: int, cells: int, selection: Selection) -> bool:
    if selection.count <= FEW_ROWS:
        return True
    expected = selection.count * nprobe / max(cells, 1)
    return bool(cells) and selection.count <= EXACT_ROWS and expected < _COMPARED


def exact_nearest(
    vectors_ND: np.ndarray, query_D: np.ndarray, k: int, selection: Selection
) -> Ranking:
    """Return the nearest of all vectors that fit, comparing with each.

    Args:
        vectors_ND: float16.
        query_D: float32.
        k: How many.
        selection: Which rows may be found.
    """
    rows_M = selection.rows()
    count = len(vectors_ND) if rows_M is None else len(rows_M)
    best_rows = np.empty(0, np.int64)
    best_scores = np.empty(0, np.float32)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        rows_B = np.arange(start, end) if rows_M is None else rows_M[start:end]
        block_BD = vectors_ND[start:end] if rows_M is None else vectors_ND[rows_B]
        scores_K, places_K = compared(block_BD, query_D[None], min(k, len(block_BD)))
        best_rows = np.concatenate([best_rows, rows_B[places_K[0]]])
        best_scores = np.concatenate([best_scores, scores_K[0]])
        order = np.lexsort((best_rows, -best_scores))[:k]
        best_rows, best_scores = best_rows[order], best_scores[order]
    return Ranking(best_rows, best_scores)
