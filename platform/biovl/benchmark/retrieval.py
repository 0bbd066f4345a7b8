"""Retrieval metrics and loss of a model on a pool of image-text pairs.

Every query has one match, the other half of its pair; another pair with the same text or image is
not a match, but tied with it.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark import ranks
from biovl.models.precision import full_precision

# Shapes: N pairs of the pool, D embedding, q queries of a tile, k pairs of a block.

KS = (1, 5, 10)
"""Values of k in the papers' tables."""

LOSS_BLOCK = 1_024
"""Batch size of the validation loss. Fixed, so that the losses of all runs are comparable."""

_LOSS_ROWS = 1_024


def evaluate_retrieval(
    image_ND: np.ndarray | Tensor,
    text_ND: np.ndarray | Tensor,
    logit_scale: float,
    *,
    ks: Sequence[int] = KS,
    loss_block: int = LOSS_BLOCK,
) -> dict[str, float]:
    """Return retrieval metrics and loss on a pool, with their chance levels.

        image_to_text_recall_at_1 …   share of images whose own text is the nearest …
        text_to_image_recall_at_1 …   share of texts whose own image is the nearest …
        chance_recall_at_1 …          k / pairs
        image_to_text_median_rank     counted from 1; text_to_image_median_rank
        loss                          InfoNCE over batches of loss_block pairs
        chance_loss                   ln(loss_block)
        loss_block, pairs             a pool smaller than a block is one batch

    Recall depends on the size of the pool: the fewer pairs, the higher. For ties see ``ranks``.

    Args:
        image_ND: Unit rows, on any device; the match of row n is row n of the texts.
        text_ND: Unit rows.
        logit_scale: The factor on similarities, 1 / temperature; not its logarithm.
        ks: Values of k for recall@k, each in 1..N.
        loss_block: Pairs per batch of the loss.

    Raises:
        ValueError: If the shapes differ, there are no pairs, or a k is not in 1..N.
    """
    images, texts = torch.as_tensor(image_ND), torch.as_tensor(text_ND)
    texts, pairs = texts.to(images.device), len(images)
    _check(images, texts)
    wrong = [k for k in ks if not 1 <= k <= pairs]
    if wrong:
        raise ValueError(f"k must be in 1..{pairs}, the pairs of the pool, got {wrong[-1]}")
    scores: dict[str, float] = {}
    directions = ("image_to_text", "text_to_image")
    for name, found in zip(directions, ranks.places(images, texts), strict=True):
        scores |= {f"{name}_recall_at_{k}": float(ranks.hits(found, k).mean()) for k in ks}
        scores[f"{name}_median_rank"] = float(np.median(ranks.expected_ranks(found)))
    block = min(loss_block, pairs)
    return scores | {
        **{f"chance_recall_at_{k}": k / pairs for k in ks},
        "loss": info_nce(images, texts, logit_scale, block=loss_block),
        "chance_loss": math.log(block),
        "loss_block": block,
        "pairs": pairs,
    }


def mean_recall_at_1(scores: dict[str, float]) -> float:
    """Return the mean R@1 of both directions: the metric by which models are selected."""
    return (scores["image_to_text_recall_at_1"] + scores["text_to_image_recall_at_1"]) / 2


def info_nce(
    image_ND: Tensor, text_ND: Tensor, logit_scale: float, *, block: int = LOSS_BLOCK
) -> float:
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
