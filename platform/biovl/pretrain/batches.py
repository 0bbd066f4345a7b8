"""Input of one worker in one training step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Shapes: B pairs on this worker, H height, W width, T tokens of all captions end to end.


@dataclass(frozen=True)
class Batch:
    """Images and captions of the same pairs, in the same order; captions are concatenated."""

    pixels_BHWC: Tensor
    """RGB images, uint8, shape [B, H, W, 3]."""

    tokens_T: Tensor
    """Token ids of all captions, each with start and end, cut to the context length, without
    padding. int32."""

    lengths_B: Tensor
    """Tokens of each caption, at least 1. int32, on the host."""

    @classmethod
    def of(cls, pixels_BHWC: np.ndarray, captions: list[np.ndarray]) -> "Batch":
        """Return a batch from an image array and one token array per caption."""
        return cls(
            torch.from_numpy(pixels_BHWC),
            torch.from_numpy(np.concatenate(captions).astype(np.int32)),
            torch.tensor([len(tokens) for tokens in captions], dtype=torch.int32),
        )

    def __len__(self) -> int:
        return len(self.lengths_B)

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; copies to a GPU are asynchronous.

        Lengths stay on the host, where shapes are computed.
        """
        return Batch(
            self.pixels_BHWC.to(device, non_blocking=True),
            self.tokens_T.to(device, non_blocking=True),
            self.lengths_B,
        )

    def pinned(self) -> "Batch":
        """Return the batch in pinned memory, for asynchronous copies to a GPU."""
        return Batch(self.pixels_BHWC.pin_memory(), self.tokens_T.pin_memory(), self.lengths_B)

    def split(self, pairs: int) -> list["Batch"]:
        """Return the batch as consecutive parts of at most ``pairs`` pairs."""
        lengths = self.lengths_B.split(pairs)
        tokens = self.tokens_T.split([int(piece.sum()) for piece in lengths])
        pixels = self.pixels_BHWC.split(pairs)
        return [Batch(*piece) for piece in zip(pixels, tokens, lengths, strict=True)]
