"""Retrieval metrics of a model on a pool of image-text pairs."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark import metrics

# Shapes: N pairs of the pool, D embedding.

KS = (1, 5, 10)
"""Values of k in the papers' tables."""

LOSS_BLOCK = 1_024
"""Batch size of the validation loss. Fixed, so that the losses of all runs are comparable."""


def evaluate_retrieval(
    image_ND: np.ndarray | Tensor,
    text_ND: np.ndarray | Tensor,
    logit_scale: float,
    *,
    ks: Sequence[int] = KS,
    tile: int | None = None,
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

    Recall depends on the size of the pool: the fewer pairs, the higher. For ties see ``metrics``.

    Args:
        image_ND: Unit rows, on any device; the match of row n is row n of the texts.
        text_ND: Unit rows.
        logit_scale: The factor on similarities, 1 / temperature; not its logarithm.
        ks: Values of k for recall@k, each in 1..N.
        tile: Rows and columns of a tile of similarities; None: chosen for the device.
        loss_block: Pairs per batch of the loss.

    Raises:
        ValueError: If the shapes differ, there are no pairs, or a k is not in 1..N.
    """
    images, texts = torch.as_tensor(image_ND), torch.as_tensor(text_ND)
    pairs = len(images)
    if ks and max(ks) > pairs:
        raise ValueError(f"k must be in 1..{pairs}, the pairs of the pool, got {max(ks)}")
    of_images, of_texts = metrics.places(images, texts.to(images.device), tile=tile)
    scores: dict[str, float] = {}
    for name, ranks in (("image_to_text", of_images), ("text_to_image", of_texts)):
        scores |= {f"{name}_recall_at_{k}": metrics.recall_at_k(ranks, k) for k in ks}
        scores[f"{name}_median_rank"] = metrics.median_rank(ranks)
    block = min(loss_block, pairs)
    return scores | {
        **{f"chance_recall_at_{k}": k / pairs for k in ks},
        "loss": metrics.info_nce(images, texts.to(images.device), logit_scale, block=loss_block),
        "chance_loss": math.log(block),
        "loss_block": block,
        "pairs": pairs,
    }


def mean_recall_at_1(scores: dict[str, float]) -> float:
    """Return the mean R@1 of both directions: the metric by which models are selected."""
    return (scores["image_to_text_recall_at_1"] + scores["text_to_image_recall_at_1"]) / 2
