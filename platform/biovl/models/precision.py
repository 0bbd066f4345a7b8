"""Arithmetic in float32 for models that compute in bf16."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute in the dtype of the tensors: no autocast, no TF32, no gradients.

    At a scale of 100, similarities in bf16 have steps of 0.5, which creates false ties and a
    relative error of 0.1 % in the gradient of the scale.
    """
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        with (
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            yield
    finally:
        matmul.fp32_precision = before
