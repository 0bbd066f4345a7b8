"""Effective rank of features: it falls when embeddings collapse, long before the loss shows it."""

import torch
from torch import Tensor

RANK_PAIRS = 1_024
"""Pairs of a batch whose features are measured: the rank depends on their number."""


def effective_rank(features_bD: Tensor) -> Tensor:
    """Return the effective rank of features: exp of the entropy of their singular values.

    It is between 1, if all features are equal, and the smaller of pairs and dimensions, if they
    spread evenly. Shape [], float64.

    Args:
        features_bD: Unit features. Shape [b, D].

    Source:
        RankMe: Garrido et al. 2023, arXiv:2210.02885, equations 1 and 2.
    """
    features = features_bD.detach().double()
    # The smaller Gram matrix has the same nonzero eigenvalues, and is faster than an SVD.
    if features.shape[0] > features.shape[1]:
        features = features.T
    singular = torch.linalg.eigvalsh(features @ features.T).clamp(min=0).sqrt()
    rank: Tensor = torch.special.entr(singular / singular.sum()).sum().exp()
    return rank


class FeatureRanks:
    """Effective ranks of the image and text features of some steps.

    Args:
        every_steps: Steps from one measurement to the next; None: no measurements.
    """

    def __init__(self, every_steps: int | None) -> None:
        self._every_steps = every_steps
        self._measured: dict[int, Tensor] = {}

    def observe(self, step: int, image_bD: Tensor, text_bD: Tensor) -> None:
        """Compute the effective ranks of a step's features, on their device, if due at this step.

        Args:
            step: Number of the step, from 1.
            image_bD: Unit features of images. Shape [b, D].
            text_bD: Unit features of texts. Shape [b, D].
        """
        if self._every_steps is None or step % self._every_steps != 0:
            return
        # A step is not finite if its features are not; LAPACK would raise an error.
        if not (image_bD.isfinite().all() and text_bD.isfinite().all()):
            return
        self._measured[step] = torch.stack(
            [effective_rank(image_bD[:RANK_PAIRS]), effective_rank(text_bD[:RANK_PAIRS])]
        )

    def take(self, step: int) -> tuple[float, float] | None:
        """Remove and return the effective ranks of the image and text features of a step.

        None if they were not measured.
        """
        ranks = self._measured.pop(step, None)
        if ranks is None:
            return None
        image, text = ranks.tolist()
        return image, text
