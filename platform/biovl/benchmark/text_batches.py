"""Texts through a model of transformers, in batches of similar length."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Shapes: N texts, B texts of a batch, L outputs.


class BatchedTexts:
    """A tokenizer with the context length of its model.

    Args:
        tokenizer: Tokenizer of transformers.
        length: Context length in tokens, special ones included.
        device: Device of the model.
    """

    def __init__(self, tokenizer: Any, length: int, device: str) -> None:
        self._tokenizer, self._length, self._device = tokenizer, length, device

    def truncated(self, texts: Sequence[str]) -> int:
        """Return the number of texts that exceed the context length."""
        return int((self._lengths(texts) > self._length).sum()) if texts else 0

    def outputs(
        self, texts: Sequence[str], model: Callable[[Any], Tensor], batch: int
    ) -> np.ndarray:
        """Return the outputs of a model for each text, in their order. Shape [N, L].

        Args:
            texts: The texts; their ends are cut to the context length.
            model: Called with token ids and attention mask of B texts; returns [B, L].
            batch: Texts per forward pass.
        """
        # Sorted by length, since a batch is padded to its longest text.
        order = np.argsort(self._lengths(texts), kind="stable")
        rows: list[np.ndarray] = []
        with torch.inference_mode():
            for first in range(0, len(order), batch):
                some = [texts[row] for row in order[first : first + batch]]
                tokens = self._tokenizer(
                    some,
                    truncation=True,
                    max_length=self._length,
                    padding=True,
                    return_tensors="pt",
                )
                rows.append(model(tokens.to(self._device)).float().cpu().numpy())
        found_NL = np.concatenate(rows)
        placed_NL = np.empty_like(found_NL)
        placed_NL[order] = found_NL
        return placed_NL

    def _lengths(self, texts: Sequence[str]) -> np.ndarray:
        # verbose=False: texts beyond the context length are counted here, not warned of.
        ids = self._tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return np.array([len(row) for row in ids], np.int64)
