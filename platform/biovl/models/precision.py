"""Arithmetic that must be exact where models compute in bf16."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute in the precision of the tensors: no autocast, no TF32, no graph.

    At a scale of 100, similarities in bf16 are half a unit apart, which makes ties of what is not
    equal and a gradient of the scale that is wrong by a part in a thousand.
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
