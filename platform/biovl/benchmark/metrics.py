"""Retrieval metrics, computed in tiles for pools whose N x N matrix does not fit in memory.

Every query of a pool of N pairs has one match: the other half of its pair. Another pair with the
same text or image is not a match but tied with it, and ranks are averaged over ties.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from biovl.models.precision import full_precision

# Shapes: N pairs of the pool, D embedding, q queries of a tile, i items of a tile, k pairs of a
# block.

TIE = 1e-6
"""Tolerance for ties: float32 similarities of equal vectors differ by less than this, depending on
the tile."""

_LOSS_ROWS = 1_024


@dataclass(frozen=True)
class MatchRanks:
    """Rank of each query's match among all items."""

    nearer_N: Tensor
    """Number of items nearer to the query than its match. int64, on the CPU."""

    tied_N: Tensor
    """Number of other items tied with the match. int64, on the CPU."""

    own_N: Tensor | None = None
    """Number of correct items tied as the nearest one, if a query has several; None: 1 each. int64,
    on the CPU."""


def places(
    image_ND: Tensor, text_ND: Tensor, *, tile: int | None = None
) -> tuple[MatchRanks, MatchRanks]:
    """Return the ranks of all matches for image-to-text and for text-to-image retrieval.

    Similarities are float32, computed once for both directions and ``tile x tile`` at a time.
    A query with NaN features has all items before its match.

    Args:
        image_ND: Unit rows; the match of row n is row n of the texts.
        text_ND: Unit rows, on the same device.
        tile: Rows and columns of a tile of similarities. None: 1,024 on a CPU, which fits its
            caches (measured: half the time of 4,096), and 8,192 (256 MB) on a GPU.

    Raises:
        ValueError: If the shapes differ, or there are no pairs.
    """
    _check(image_ND, text_ND)
    image_ND, text_ND = image_ND.float(), text_ND.float()
    total, device = len(image_ND), image_ND.device
    tile = tile or (1_024 if device.type == "cpu" else 8_192)
    # Count farther and not nearer items: comparisons with NaN are false, so NaN ranks last.
    farther_2N = torch.zeros(2, total, dtype=torch.int64, device=device)
    not_nearer_2N = torch.zeros_like(farther_2N)
    with full_precision():
        match_N = (image_ND * text_ND).sum(1)
        low_N, high_N = match_N - TIE, match_N + TIE
        for rows in _tiles(total, tile):
            for columns in _tiles(total, tile):
                near_qi = image_ND[rows] @ text_ND[columns].T
                farther_2N[0, rows] += (near_qi < low_N[rows, None]).sum(1)
                farther_2N[1, columns] += (near_qi < low_N[columns]).sum(0)
                not_nearer_2N[0, rows] += (near_qi <= high_N[rows, None]).sum(1)
                not_nearer_2N[1, columns] += (near_qi <= high_N[columns]).sum(0)
    nearer_2N = (total - not_nearer_2N).cpu()
    # The match itself is neither farther nor nearer.
    tied_2N = (not_nearer_2N - farther_2N - 1).clamp_(min=0).cpu()
    return MatchRanks(nearer_2N[0], tied_2N[0]), MatchRanks(nearer_2N[1], tied_2N[1])


def recall_at_k(ranks: MatchRanks, k: int) -> float:
    """Return the share of queries whose match is among the ``k`` nearest items.

    Ties are broken at random, and the expectation over all orders is returned: with t tied and m
    nearer items, the match is among the k nearest with probability (k - m) / (t + 1), clamped to
    [0, 1]. A model with equal similarities for all items therefore scores k / N, like guessing.

    Raises:
        ValueError: If ``k`` is not in 1..N.

    Source:
        Radford et al. 2021, arXiv:2103.00020, section 3, which does not define ties.
    """
    items = len(ranks.nearer_N)
    if not 1 <= k <= items:
        raise ValueError(f"k must be in 1..{items}, got {k}")
    hit_N = ((k - ranks.nearer_N).double() / (ranks.tied_N + 1)).clamp_(0, 1)
    return float(hit_N.mean())


def median_rank(ranks: MatchRanks) -> float:
    """Return the median of the expected ranks of all matches, counted from 1.

    Half of the items tied with a match rank before it. For an even number of queries it is the mean
    of the middle two.
    """
    rank_N = 1 + ranks.nearer_N + ranks.tied_N.double() / 2
    return float(np.median(rank_N.numpy()))


def info_nce(image_ND: Tensor, text_ND: Tensor, logit_scale: float, *, block: int = 1_024) -> float:
    """Return symmetric InfoNCE over batches of equal size, as the mean over all pairs.

    The loss of a batch grows with its size (guessing has ln ``block``): compare only values with
    the same ``block``. Batches are consecutive pairs; the remaining pairs are evaluated in a batch
    of the last ``block`` pairs, so that every pair counts once and against ``block`` - 1 others. A
    smaller pool is one batch.

    Similarities are float32, sums float64. Memory is ``block`` x 1,024 similarities.

    Args:
        image_ND: Unit rows; the match of row n is row n of the texts.
        text_ND: Unit rows, on the same device.
        logit_scale: The factor on similarities, 1 / temperature; not its logarithm.
        block: Pairs per batch, at least 2.

    Raises:
        ValueError: If the shapes differ, there are no pairs, or the block is too small.

    Source:
        Radford et al. 2021, arXiv:2103.00020, figure 3; BiomedCLIP (arXiv:2303.00915), equation 1.
    """
    _check(image_ND, text_ND)
    if block < 2:
        raise ValueError(f"block must be at least 2, got {block}")
    image_ND, text_ND = image_ND.float(), text_ND.float()
    total = len(image_ND)
    size = min(block, total)
    summed = torch.zeros((), dtype=torch.float64, device=image_ND.device)
    with full_precision():
        for counted in _tiles(total, size):
            batch = slice(counted.stop - size, counted.stop) if counted.stop > size else counted
            image_kD, text_kD = image_ND[batch], text_ND[batch]
            first = counted.start - batch.start
            for one_kD, other_kD in ((image_kD, text_kD), (text_kD, image_kD)):
                for rows in _tiles(size - first, _LOSS_ROWS):
                    own = slice(first + rows.start, first + rows.stop)
                    logit_qk = (one_kD[own] @ other_kD.T).double() * logit_scale
                    summed += logit_qk.logsumexp(1).sum() - logit_qk[:, own].diagonal().sum()
    return float(summed) / (2 * total)


def _check(image_ND: Tensor, text_ND: Tensor) -> None:
    if image_ND.shape != text_ND.shape or image_ND.ndim != 2:
        raise ValueError(
            f"images {tuple(image_ND.shape)} and texts {tuple(text_ND.shape)} must be rows of pairs"
        )
    if not len(image_ND):
        raise ValueError("there are no pairs")


def _tiles(total: int, tile: int) -> Iterator[slice]:
    for start in range(0, total, tile):
        yield slice(start, min(start + tile, total))
