"""Input of one worker in one training step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Shapes: B pairs on this worker, H height, W width, T tokens of all captions end to end, E
# embedding of a teacher.


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

    teacher_B2E: Tensor | None = None
    """Embeddings of each image and of its text by a teacher; None without distillation. float16,
    shape [B, 2, E]."""

    @classmethod
    def of(
        cls,
        pixels_BHWC: np.ndarray,
        captions: list[np.ndarray],
        teacher_B2E: np.ndarray | None = None,
    ) -> "Batch":
        """Return a batch from an image array and one token array per caption."""
        return cls(
            torch.from_numpy(pixels_BHWC),
            torch.from_numpy(np.concatenate(captions).astype(np.int32)),
            torch.tensor([len(tokens) for tokens in captions], dtype=torch.int32),
            None if teacher_B2E is None else torch.from_numpy(teacher_B2E),
        )

    def __len__(self) -> int:
        return len(self.lengths_B)

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; copies to a GPU are asynchronous.

        Lengths stay on the host, where shapes are computed.
        """
        return self._moved(lambda values: values.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """Return the batch in pinned memory, for asynchronous copies to a GPU.

        Tensors that are already pinned are not copied.
        """
        return self._moved(lambda values: values.pin_memory())

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        teacher = None if self.teacher_B2E is None else move(self.teacher_B2E)
        return Batch(move(self.pixels_BHWC), move(self.tokens_T), self.lengths_B, teacher)

    def split(self, pairs: int) -> list["Batch"]:
        """Return the batch as consecutive parts of at most ``pairs`` pairs."""
        lengths = self.lengths_B.split(pairs)
        tokens = self.tokens_T.split([int(piece.sum()) for piece in lengths])
        pixels = self.pixels_BHWC.split(pairs)
        teacher = (
            [None] * len(lengths) if self.teacher_B2E is None else self.teacher_B2E.split(pairs)
        )
        return [Batch(*piece) for piece in zip(pixels, tokens, lengths, teacher, strict=True)]


class Copier:
    """Copies batches to a GPU on a separate CUDA stream while the GPU computes; no-op on the CPU.

    Args:
        device: Device of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, batch: Batch) -> Batch:
        """Start to copy a batch, and return the copy, for ``wait``."""
        if self._stream is None:
            return batch
        # Pinned memory is reused only after the copy: PyTorch records it with the stream.
        with torch.cuda.stream(self._stream):
            return batch.pinned().to(self._device)

    def wait(self, batch: Batch) -> None:
        """Let the computation that follows wait for the copy; the host does not wait."""
        if self._stream is None:
            return
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for values in (batch.pixels_BHWC, batch.tokens_T, batch.teacher_B2E):
            # Its memory is not reused for another copy before the computation has used it.
            if values is not None:
                values.record_stream(computing)
