"""Ranks of matches where several images may share a text, computed in tiles.

Equal texts are one target. An image query searches for its text among the distinct texts; a text
query for any of its images, and its rank is that of the nearest one: the others are neither nearer
nor tied. If every text has one image, the ranks are those of ``metrics.places``.
"""

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark.metrics import TIE, MatchRanks
from biovl.models.precision import full_precision

# Shapes: N images, M texts, D embedding, q images and i texts of a tile.

_CPU_TILE, _GPU_TILE = 1_024, 8_192


def places(
    image_ND: np.ndarray, text_MD: np.ndarray, text_of_image_N: np.ndarray, *, device: str = "cpu"
) -> tuple[MatchRanks, MatchRanks]:
    """Return the ranks of all matches for image-to-text and for text-to-image retrieval.

    Args:
        image_ND: Unit rows without NaN.
        text_MD: Unit rows; each is the text of at least one image.
        text_of_image_N: Row of the text of each image.
        device: Device to compute on.

    Raises:
        ValueError: If there are no pairs, or a text has no image.
    """
    images, texts = torch.as_tensor(image_ND), torch.as_tensor(text_MD)
    images, texts = images.to(device).float(), texts.to(device).float()
    own_N = torch.as_tensor(text_of_image_N, dtype=torch.int64, device=device)
    counts_M = torch.bincount(own_N, minlength=len(texts))
    if not len(images) or len(counts_M) > len(texts) or bool((counts_M == 0).any()):
        raise ValueError(f"{len(images)} images do not have the {len(texts)} texts between them")
    tile = _CPU_TILE if device == "cpu" else _GPU_TILE
    with full_precision():
        match_N = torch.cat(
            [
                (images[start : start + tile] * texts[own_N[start : start + tile]]).sum(1)
                for start in range(0, len(images), tile)
            ]
        )
        best_M = torch.full((len(texts),), -torch.inf, device=device)
        best_M.scatter_reduce_(0, own_N, match_N, "amax")
        of_images, of_texts = _counted(images, texts, match_N, best_M, tile)
    # Do not count the match itself as tied, nor other images of the text tied with the best.
    is_tied_N = match_N >= best_M[own_N] - TIE
    own_tied_M = torch.zeros(len(texts), dtype=torch.int64, device=device)
    own_tied_M.scatter_add_(0, own_N, is_tied_N.long())
    return _placed(of_images, len(texts), 1), _placed(of_texts, len(images), own_tied_M)


def _counted(
    images: Tensor, texts: Tensor, match_N: Tensor, best_M: Tensor, tile: int
) -> tuple[Tensor, Tensor]:
    """Return the numbers of items farther than each match, and of items not nearer, both ways."""
    of_images = torch.zeros(2, len(images), dtype=torch.int64, device=images.device)
    of_texts = torch.zeros(2, len(texts), dtype=torch.int64, device=images.device)
    for row in range(0, len(images), tile):
        rows = slice(row, min(row + tile, len(images)))
        low_q1, high_q1 = match_N[rows, None] - TIE, match_N[rows, None] + TIE
        for column in range(0, len(texts), tile):
            columns = slice(column, min(column + tile, len(texts)))
            near_qi = images[rows] @ texts[columns].T
            low_i, high_i = best_M[columns] - TIE, best_M[columns] + TIE
            of_images[0, rows] += torch.count_nonzero(near_qi < low_q1, dim=1)
            of_images[1, rows] += torch.count_nonzero(near_qi <= high_q1, dim=1)
            of_texts[0, columns] += torch.count_nonzero(near_qi < low_i, dim=0)
            of_texts[1, columns] += torch.count_nonzero(near_qi <= high_i, dim=0)
    return of_images, of_texts


def _placed(counted: Tensor, items: int, own: Tensor | int) -> MatchRanks:
    farther, not_nearer = counted
    tied = (not_nearer - farther - own).clamp(min=0)
    return MatchRanks((items - not_nearer).cpu(), tied.cpu())


def hits(ranks: MatchRanks, k: int) -> np.ndarray:
    """Return for each query the probability that its match is among the k nearest.

    Ties are broken at random. The mean is ``metrics.recall_at_k``. float64, [N].
    """
    nearer_N, tied_N = ranks.nearer_N.numpy(), ranks.tied_N.numpy()
    hit_N: np.ndarray = np.clip((k - nearer_N) / (tied_N + 1), 0, 1)
    return hit_N


def reciprocal_ranks(ranks: MatchRanks) -> np.ndarray:
    """Return for each query the mean of 1 / rank over all orders of tied items. float64, [N]."""
    nearer_N, tied_N = ranks.nearer_N.numpy(), ranks.tied_N.numpy()
    most = int((nearer_N + tied_N).max()) + 1
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])
    mean_N: np.ndarray = (harmonic[nearer_N + tied_N + 1] - harmonic[nearer_N]) / (tied_N + 1)
    return mean_N
