"""Ranks of matches where images share texts, or have several, computed in tiles.

Equal texts are one target. An image query searches for any of its texts among the distinct texts, a
text query for any of its images, and the rank is that of the nearest one: the others are neither
nearer nor tied. If every image has one text and every text one image, the ranks are those of
``metrics.places``.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark.metrics import TIE, MatchRanks
from biovl.models.precision import full_precision

# Shapes: N images, M texts, D embedding, q images and i texts of a tile.

_CPU_TILE, _GPU_TILE = 1_024, 8_192


def places(
    image_ND: np.ndarray,
    text_MD: np.ndarray,
    text_of_image_N: np.ndarray,
    further_F2: np.ndarray | None = None,
    *,
    device: str = "cpu",
) -> tuple[MatchRanks, MatchRanks]:
    """Return the ranks of all matches for image-to-text and for text-to-image retrieval.

    Args:
        image_ND: Unit rows without NaN.
        text_MD: Unit rows; each is the text of at least one image.
        text_of_image_N: Row of the text of each image.
        further_F2: Rows of image and text of every further correct pair; no pair is repeated.
        device: Device to compute on.

    Raises:
        ValueError: If there are no pairs, or a text has no image.
    """
    images, texts = torch.as_tensor(image_ND), torch.as_tensor(text_MD)
    images, texts = images.to(device).float(), texts.to(device).float()
    further_F2 = np.zeros((0, 2), np.int64) if further_F2 is None else further_F2
    first_N2 = np.stack([np.arange(len(images)), np.asarray(text_of_image_N)], axis=1)
    pair_P2 = torch.as_tensor(np.concatenate([first_N2, further_F2]), device=device).long()
    image_P, text_P = pair_P2[:, 0], pair_P2[:, 1]
    counts_M = torch.bincount(text_P, minlength=len(texts))
    if not len(images) or len(counts_M) > len(texts) or bool((counts_M == 0).any()):
        raise ValueError(f"{len(images)} images do not have the {len(texts)} texts between them")
    tile = _CPU_TILE if device == "cpu" else _GPU_TILE
    with full_precision():
        match_P = torch.cat(
            [
                (images[rows_P2[:, 0]] * texts[rows_P2[:, 1]]).sum(1)
                for rows_P2 in pair_P2.split(tile)
            ]
        )
        best_N, best_M = _best(match_P, image_P, images), _best(match_P, text_P, texts)
        of_images, of_texts = _counted(images, texts, best_N, best_M, tile)
    own_N = _own_tied(match_P, image_P, best_N)
    own_M = _own_tied(match_P, text_P, best_M)
    return _placed(of_images, len(texts), own_N), _placed(of_texts, len(images), own_M)


def _best(match_P: Tensor, item_P: Tensor, items: Tensor) -> Tensor:
    """Return the similarity of each query's nearest match."""
    best = torch.full((len(items),), -torch.inf, device=items.device)
    return best.scatter_reduce_(0, item_P, match_P, "amax")


def _own_tied(match_P: Tensor, item_P: Tensor, best: Tensor) -> Tensor:
    """Return for each query how many of its matches are tied as the nearest, at least 1."""
    own = torch.zeros(len(best), dtype=torch.int64, device=best.device)
    return own.scatter_add_(0, item_P, (match_P >= best[item_P] - TIE).long()).clamp_(min=1)


def _counted(
    images: Tensor, texts: Tensor, best_N: Tensor, best_M: Tensor, tile: int
) -> tuple[Tensor, Tensor]:
    """Return the numbers of items farther than each match, and of items not nearer, both ways."""
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


def _placed(counted: Tensor, items: int, own: Tensor) -> MatchRanks:
    farther, not_nearer = counted
    tied = (not_nearer - farther - own).clamp(min=0)
    return MatchRanks((items - not_nearer).cpu(), tied.cpu(), own.cpu())


def guessed(matches: np.ndarray, items: int) -> MatchRanks:
    """Return the ranks of a model that scores all items equally: its metrics are the chance level.

    Args:
        matches: Number of correct items of each query.
        items: Number of items.
    """
    own_N = torch.as_tensor(matches, dtype=torch.int64)
    return MatchRanks(torch.zeros_like(own_N), items - own_N, own_N)


def hits(ranks: MatchRanks, k: int) -> np.ndarray:
    """Return for each query the probability that one of its matches is among the k nearest.

    Ties are broken at random. With one match per query, the mean is ``metrics.recall_at_k``.
    float64, [N].
    """
    nearer_N, tied_N, own_N = _numbers(ranks)
    hit_N: np.ndarray = np.clip((k - nearer_N) / (tied_N + 1), 0, 1)
    for rows, (nearer, tied, own) in _with_several(nearer_N, tied_N, own_N):
        hit_N[rows] = first_match(tied, own)[: max(k - nearer, 0)].sum()
    return hit_N


def reciprocal_ranks(ranks: MatchRanks) -> np.ndarray:
    """Return for each query the mean of 1 / rank over all orders of tied items. float64, [N]."""
    nearer_N, tied_N, own_N = _numbers(ranks)
    most = int((nearer_N + tied_N).max()) + 1
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])
    mean_N: np.ndarray = (harmonic[nearer_N + tied_N + 1] - harmonic[nearer_N]) / (tied_N + 1)
    for rows, (nearer, tied, own) in _with_several(nearer_N, tied_N, own_N):
        mean_N[rows] = (first_match(tied, own) / (nearer + 1 + np.arange(tied + 1))).sum()
    return mean_N


def ndcg(ranks: MatchRanks, k: int) -> np.ndarray:
    """Return nDCG at k of queries with one match, as the mean over all orders of tied items.

    With one relevant item it is 1 / log2(1 + rank) up to rank k, and 0 after it. float64, [N].

    Source:
        Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418; trec_eval's ``ndcg_cut``.
    """
    nearer_N, tied_N, _ = _numbers(ranks)
    gain = np.zeros(int((nearer_N + tied_N).max()) + 2)
    gain[1 : k + 1] = (1 / np.log2(np.arange(2, k + 2)))[: len(gain) - 1]
    summed = np.cumsum(gain)
    mean_N: np.ndarray = (summed[nearer_N + tied_N + 1] - summed[nearer_N]) / (tied_N + 1)
    return mean_N


def expected_ranks(ranks: MatchRanks) -> np.ndarray:
    """Return for each query the mean rank, from 1, over all orders of tied items. float64, [N]."""
    nearer_N, tied_N, own_N = _numbers(ranks)
    rank_N: np.ndarray = nearer_N + (tied_N + own_N + 1) / (own_N + 1)
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


def _numbers(ranks: MatchRanks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nearer_N, tied_N = ranks.nearer_N.numpy(), ranks.tied_N.numpy()
    return nearer_N, tied_N, np.ones_like(tied_N) if ranks.own_N is None else ranks.own_N.numpy()


def _with_several(
    nearer_N: np.ndarray, tied_N: np.ndarray, own_N: np.ndarray
) -> Iterator[tuple[np.ndarray, tuple[int, int, int]]]:
    """Yield the queries of which several matches are tied with others, by equal numbers."""
    several = np.flatnonzero((own_N > 1) & (tied_N > 0))
    numbers = np.stack([nearer_N[several], tied_N[several], own_N[several]], axis=1)
    distinct, group = np.unique(numbers, axis=0, return_inverse=True)
    for number, (nearer, tied, own) in enumerate(distinct.tolist()):
        yield several[group.reshape(-1) == number], (nearer, tied, own)
