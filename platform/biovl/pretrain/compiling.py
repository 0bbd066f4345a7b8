"""``torch.compile`` for the blocks of both towers, with one graph for all identical blocks."""

import logging
from collections import Counter
from typing import Any

import torch
import torch._dynamo
from open_clip.transformer import TextTransformer
from timm.layers.drop import DropPath
from torch import Tensor, nn
from torch._dynamo.utils import counters

from biovl.models.towers import TextTower

RECOMPILES = 64
"""Limit of graphs per block: with and without gradients, the sizes of a last micro-batch and of
later epochs, kinds of layers. PyTorch's default is 8, and all blocks count together."""

ALL_RECOMPILES = 1_024

_GIVEN_UP = "torch._dynamo.convert_frame"


class DropPathByTensor(nn.Module):
    """timm's ``DropPath`` with its rate in a tensor, so that a graph does not depend on the value.

    A Python number is a constant of the graph, and each block would compile a separate graph.
    """

    keep: Tensor

    def __init__(self, drop: DropPath) -> None:
        super().__init__()
        self.scale_by_keep = drop.scale_by_keep
        self.register_buffer("keep", torch.tensor(1.0 - drop.drop_prob), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows, some of them set to zero at random in training."""
        if not self.training:
            return rows
        shape = (rows.shape[0],) + (1,) * (rows.ndim - 1)
        mask = (torch.rand(shape, device=rows.device) < self.keep).to(rows.dtype)
        if self.scale_by_keep:
            mask = mask / self.keep.to(rows.dtype)
        return rows * mask


def compile_blocks(blocks: list[nn.Module], *, dynamic: bool | None) -> None:
    """Make each block compile on its first call.

    Args:
        blocks: The blocks of one tower.
        dynamic: Whether sizes change between calls; None detects it.
    """
    raise_limits()
    for block in blocks:
        for name, part in list(block.named_children()):
            if isinstance(part, DropPath):
                own = DropPathByTensor(part).train(part.training)
                weight = next(block.parameters(), None)
                setattr(block, name, own if weight is None else own.to(weight.device))
        block.compile(dynamic=dynamic)


def compile_text(tower: TextTower, blocks: list[nn.Module]) -> None:
    """Make the blocks of a text tower compile for inputs whose length differs in every step."""
    if tower.compute == "packed" and isinstance(tower.text, TextTransformer):
        # The parts of a packed block are called separately.
        raise_limits()
        tower.compile_packed_block()
    else:
        compile_blocks(blocks, dynamic=True)


def raise_limits() -> None:
    """Raise PyTorch's recompile limits to the number of graphs that towers need."""
    own: Any = torch._dynamo.config
    own.recompile_limit = max(own.recompile_limit, RECOMPILES)
    own.accumulated_recompile_limit = max(own.accumulated_recompile_limit, ALL_RECOMPILES)


class CompileWatch(logging.Handler):
    """Log handler that collects PyTorch's messages about blocks that run in eager mode."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._given_up: list[str] = []
        self._breaks_before: Counter[str] = Counter(counters["graph_break"])
        logging.getLogger(_GIVEN_UP).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a message of PyTorch, if it reports a fallback."""
        message = record.getMessage()
        if "recompile_limit" in message:
            self._given_up.append(" ".join(message.split())[:300])

    def messages(self) -> list[str]:
        """Return a line for each new fallback to eager mode since the last call."""
        breaks: Counter[str] = Counter(counters["graph_break"])
        lines = [
            f"step.compile: a block runs in eager mode from here on, and slower: {message}"
            for message in dict.fromkeys(self._given_up)
        ] + [
            f"step.compile: a block is compiled in pieces: {' '.join(reason.split())[:300]}"
            for reason in breaks - self._breaks_before
        ]
        self._given_up, self._breaks_before = [], breaks
        return lines

    def close(self) -> None:
        """Remove the log handler."""
        logging.getLogger(_GIVEN_UP).removeHandler(self)
        super().close()
