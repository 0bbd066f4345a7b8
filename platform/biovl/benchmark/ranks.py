"""Ranks of matches in retrieval, computed in tiles: a whole matrix may not fit in memory.

Equal texts are one target, and an image may have several texts. An image query searches for any of
its texts among the distinct texts, a text query for any of its images, and the rank is that of the
nearest one: the others are neither nearer nor tied. Metrics are averaged over all orders of tied
items: a model with equal similarities for all items scores like guessing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from biovl.models.precision import full_precision

# Shapes: N images, M texts, D embedding, P correct pairs, q images and i texts of a tile.

TIE = 1e-6
"""Tolerance for ties: float32 similarities of equal vectors differ by less than this, depending on
the tile."""

_CPU_TILE, _GPU_TILE = 1_024, 8_192
"""Rows and columns of a tile of similarities. 1,024 fit the caches of a CPU (measured: half the
time of 4,096); 8,192 take 256 MB on a GPU."""


@dataclass(frozen=True)
class MatchRanks:
    """Rank of each query's nearest match among all items."""

    nearer_N: np.ndarray
    """Number of items nearer to the query than its match. int64."""

    tied_N: np.ndarray
    """Number of other items tied with the match. int64."""

    own_N: np.ndarray
    """Number of correct items tied as the nearest one, at least 1. int64."""


def places(
    image_ND: np.ndarray | Tensor,
    text_MD: np.ndarray | Tensor,
    text_of_image_N: np.ndarray | None = None,
    further_F2: np.ndarray | None = None,
) -> tuple[MatchRanks, MatchRanks]:
    """Return the ranks of all matches for image-to-text and for text-to-image retrieval.

    Similarities are float32, computed once for both directions, on the device of the images. A
    query with NaN features has all items before its match.

    Args:
        image_ND: Unit rows.
        text_MD: Unit rows; each is the text of at least one image.
        text_of_image_N: Row of the text of each image; None: row n.
        further_F2: Rows of image and text of every further correct pair; no pair is repeated.

    Raises:
        ValueError: If there are no pairs, or a text has no image.
    """
    images = torch.as_tensor(image_ND).float()
    texts = torch.as_tensor(text_MD).to(images.device).float()
    rows_N = np.arange(len(images))
    first_N2 = np.stack([rows_N, rows_N if text_of_image_N is None else text_of_image_N], axis=1)
    further_F2 = np.zeros((0, 2), np.int64) if further_F2 is None else further_F2
    pair_P2 = torch.from_numpy(np.concatenate([first_N2, further_F2]).astype(np.int64))
    image_P, text_P = pair_P2[:, 0], pair_P2[:, 1]
    counts_M = torch.bincount(text_P, minlength=len(texts))
    if not len(images) or len(counts_M) > len(texts) or bool((counts_M == 0).any()):
        raise ValueError(f"{len(images)} images do not have the {len(texts)} texts between them")
    tile = _CPU_TILE if images.device.type == "cpu" else _GPU_TILE
    with full_precision():
        match_P = torch.cat(
            [
                (images[rows_P2[:, 0]] * texts[rows_P2[:, 1]]).sum(1).cpu()
                for rows_P2 in pair_P2.split(tile)
            ]
        )
        # On the CPU, where all of this is deterministic.
        best_N, best_M = _best(match_P, image_P, len(images)), _best(match_P, text_P, len(texts))
        best = best_N.to(images.device), best_M.to(images.device)
        of_images, of_texts = _counted(images, texts, *best, tile)
    return (
        _ranks(of_images, len(texts), _own_tied(match_P, image_P, best_N)),
        _ranks(of_texts, len(images), _own_tied(match_P, text_P, best_M)),
    )


def _best(match_P: Tensor, item_P: Tensor, items: int) -> Tensor:
    """Return the similarity of each query's nearest match."""
    best = torch.full((items,), -torch.inf)
    return best.scatter_reduce_(0, item_P, match_P, "amax")


def _own_tied(match_P: Tensor, item_P: Tensor, best: Tensor) -> Tensor:
    """Return for each query how many of its matches are tied as the nearest, at least 1."""
    own = torch.zeros(len(best), dtype=torch.int64)
    return own.scatter_add_(0, item_P, (match_P >= best[item_P] - TIE).long()).clamp_(min=1)


def _counted(
    images: Tensor, texts: Tensor, best_N: Tensor, best_M: Tensor, tile: int
) -> tuple[Tensor, Tensor]:
    """Return the numbers of items farther than each match, and of items not nearer, both ways.

    These are counted, and not nearer items: comparisons with NaN are false, so NaN ranks last.
    """
    of_images = torch.zeros(2, len(images), dtype=torch.int64, device=images.device)
    of_texts = torch.zeros(2, len(texts), dtype=torch.int64, device=images.device)
    for row in range(0, len(images), tile):
        rows = slice(row, min(row + tile, len(images)))
        low_q1, high_q1 = best_N[rows, None] - TIE, best_N[rows, None] + TIE
        for column in range(0, len(texts), tile):
            columns = slice(column, min(column + tile, len(texts)))
            near_qi = images[rows] @ texts[columns].T
            low_i, high_i = best_M[columns] - TIE, best_M[columns] + TIE
            of_images[0, rows] += torch.count_nonzero(near_qi < low_q1, dim=1)
            of_images[1, rows] += torch.count_nonzero(near_qi <= high_q1, dim=1)
            of_texts[0, columns] += torch.count_nonzero(near_qi < low_i, dim=0)
            of_texts[1, columns] += torch.count_nonzero(near_qi <= high_i, dim=0)
    return of_images, of_texts


def _ranks(counted: Tensor, items: int, own: Tensor) -> MatchRanks:
    farther, not_nearer = counted.cpu()
    tied = (not_nearer - farther - own).clamp(min=0)
    return MatchRanks(*(part.numpy() for part in (items - not_nearer, tied, own)))


def chance_ranks(matches: np.ndarray, items: int) -> MatchRanks:
    """Return the ranks of a model that scores all items equally: its metrics are the chance level.

    Args:
        matches: Number of correct items of each query.
        items: Number of items.
    """
    return MatchRanks(np.zeros_like(matches), items - matches, matches)


def hits(ranks: MatchRanks, k: int) -> np.ndarray:
    """Return for each query the probability that one of its matches is among the k nearest.

    The mean is recall at k. Ties are broken at random: with one match, t tied and m nearer items,
    the probability is (k - m) / (t + 1), clamped to [0, 1]. float64, [N].

    Source:
        Radford et al. 2021, arXiv:2103.00020, section 3, which does not define ties.
    """
    hit_N: np.ndarray = np.clip((k - ranks.nearer_N) / (ranks.tied_N + 1), 0, 1)
    for rows, (nearer, tied, own) in _with_several(ranks):
        hit_N[rows] = first_match(tied, own)[: max(k - nearer, 0)].sum()
    return hit_N


def reciprocal_ranks(ranks: MatchRanks) -> np.ndarray:
    """Return for each query the mean of 1 / rank over all orders of tied items. float64, [N]."""
    nearer_N, tied_N = ranks.nearer_N, ranks.tied_N
    most = int((nearer_N + tied_N).max()) + 1
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])
    mean_N: np.ndarray = (harmonic[nearer_N + tied_N + 1] - harmonic[nearer_N]) / (tied_N + 1)
    for rows, (nearer, tied, own) in _with_several(ranks):
        mean_N[rows] = (first_match(tied, own) / (nearer + 1 + np.arange(tied + 1))).sum()
    return mean_N


def ndcg(ranks: MatchRanks, k: int) -> np.ndarray:
    """Return nDCG at k of queries with one match, as the mean over all orders of tied items.

    With one relevant item it is 1 / log2(1 + rank) up to rank k, and 0 after it. float64, [N].

    Source:
        Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418; trec_eval's ``ndcg_cut``.
    """
    nearer_N, tied_N = ranks.nearer_N, ranks.tied_N
    gain = np.zeros(int((nearer_N + tied_N).max()) + 2)
    gain[1 : k + 1] = (1 / np.log2(np.arange(2, k + 2)))[: len(gain) - 1]
    summed = np.cumsum(gain)
    mean_N: np.ndarray = (summed[nearer_N + tied_N + 1] - summed[nearer_N]) / (tied_N + 1)
    return mean_N


def expected_ranks(ranks: MatchRanks) -> np.ndarray:
    """Return for each query the mean rank, from 1, over all orders of tied items. float64, [N]."""
    own_N = ranks.own_N
    rank_N: np.ndarray = ranks.nearer_N + (ranks.tied_N + own_N + 1) / (own_N + 1)
    return rank_N


def first_match(tied: int, own: int) -> np.ndarray:
    """Return the probabilities that the first match is at each position among tied items.

    Args:
        tied: Number of tied items that are no match.
        own: Number of tied matches.

    Returns:
        float64, [tied + 1].
    """
    position = np.arange(tied)
    steps = (tied - position) / (tied + own - 1 - position)
    first: np.ndarray = np.cumprod(np.concatenate([[own / (tied + own)], steps]))
    return first


def _with_several(ranks: MatchRanks) -> Iterator[tuple[np.ndarray, tuple[int, int, int]]]:
    """Yield the queries of which several matches are tied with others, by equal numbers."""
    several = np.flatnonzero((ranks.own_N > 1) & (ranks.tied_N > 0))
    numbers = np.stack([ranks.nearer_N, ranks.tied_N, ranks.own_N], axis=1)[several]
    distinct, group = np.unique(numbers, axis=0, return_inverse=True)
    for number, (nearer, tied, own) in enumerate(distinct.tolist()):
        yield several[group.reshape(-1) == number], (nearer, tied, own)
