"""How well a model finds the text of an image and the image of a text, within a pool of pairs."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark import metrics

# Shapes: N pairs of the pool, D embedding.

KS = (1, 5, 10)
"""Of the papers' tables."""

LOSS_BLOCK = 1_024
"""Pairs of a batch of the validation loss. Fixed, so that losses of any two runs compare."""


def evaluate_retrieval(
    image_ND: np.ndarray | Tensor,
    text_ND: np.ndarray | Tensor,
    logit_scale: float,
    *,
    ks: Sequence[int] = KS,
    tile: int | None = None,
    loss_block: int = LOSS_BLOCK,
) -> dict[str, float]:
    """Return the scores of a pool, and beside them those of guessing.

        image_to_text_recall_at_1 …   the share of images whose own text is nearest …
        text_to_image_recall_at_1 …   and of texts whose own image is
        chance_recall_at_1 …          k / pairs
        image_to_text_median_rank     counted from 1; text_to_image_median_rank
        loss                          InfoNCE over batches of loss_block pairs
        chance_loss                   ln(loss_block)
        loss_block, pairs             a pool smaller than a block is one batch

    Recall is that of this pool: among fewer pairs it is higher. ``metrics`` says what ties are.

    Args:
        image_ND: Unit rows, on any device; the match of row n is row n of the texts.
        text_ND: Unit rows.
        logit_scale: The factor on similarities, 1 / temperature; not its logarithm.
        ks: How many items a query may retrieve, each in 1..N.
        tile: Queries and items whose similarities are held at a time; None fits the device.
        loss_block: Pairs of a batch of the loss.

    Raises:
        ValueError: If the shapes differ, there are no pairs, or a k is not in 1..N.
    """
    images, texts = torch.as_tensor(image_ND), torch.as_tensor(text_ND)
    pairs = len(images)
    if ks and max(ks) > pairs:
        raise ValueError(f"k must be in 1..{pairs}, the pairs of the pool, got {max(ks)}")
    of_images, of_texts = metrics.places(images, texts.to(images.device), tile=tile)
    scores: dict[str, float] = {}
    for name, found in (("image_to_text", of_images), ("text_to_image", of_texts)):
        scores |= {f"{name}_recall_at_{k}": metrics.recall_at_k(found, k) for k in ks}
        scores[f"{name}_median_rank"] = metrics.median_rank(found)
    block = min(loss_block, pairs)
    return scores | {
        **{f"chance_recall_at_{k}": k / pairs for k in ks},
        "loss": metrics.info_nce(images, texts.to(images.device), logit_scale, block=loss_block),
        "chance_loss": math.log(block),
        "loss_block": block,
        "pairs": pairs,
    }


def mean_recall_at_1(scores: dict[str, float]) -> float:
    """Return the mean of both directions: the one number by which models are chosen."""
    return (scores["image_to_text_recall_at_1"] + scores["text_to_image_recall_at_1"]) / 2
