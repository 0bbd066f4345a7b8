"""``torch.compile`` for the blocks of both towers, with one graph for all identical blocks."""

import logging
from collections import Counter
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
from open_clip.transformer import TextTransformer
from timm.layers.drop import DropPath
from torch import Tensor, nn
from torch._dynamo.utils import counters

from biovl.models.towers import TextTower

RECOMPILES = 64
"""Limit of graphs per block: with and without gradients, the sizes of a last micro-batch and of
later epochs, kinds of layers. PyTorch's default is 8, and all blocks count together."""

ALL_RECOMPILES = 1_024

_REPORTS = "torch._dynamo.convert_frame"
"""PyTorch's logger of blocks that run in eager mode."""

_FAILED = "WON'T CONVERT"


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
    configure()
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
        configure()
        tower.compile_packed_block()
    else:
        compile_blocks(blocks, dynamic=True)


def configure() -> None:
    """Raise PyTorch's recompile limits to the number of graphs that towers need.

    Under DDP, PyTorch would cut each graph where a bucket of gradients ends. Blocks are separate
    graphs, whose gradients are exchanged while others are computed.

    A block that cannot be compiled runs in eager mode. Its backward pass is compiled with its
    forward pass, so that both are known to compile before the step continues.
    """
    own: Any = torch._dynamo.config
    own.recompile_limit = max(own.recompile_limit, RECOMPILES)
    own.accumulated_recompile_limit = max(own.accumulated_recompile_limit, ALL_RECOMPILES)
    own.suppress_errors = True
    own.optimize_ddp = False
    backward: Any = torch._functorch.config
    backward.force_non_lazy_backward_lowering = True


class CompileWatch(logging.Filter):
    """Log filter that collects PyTorch's messages about blocks that run in eager mode.

    The messages, with their long tracebacks, are removed from PyTorch's log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._given_up: list[str] = []
        self._reported: set[str] = set()
        self._breaks_before: Counter[str] = Counter(counters["graph_break"])
        logging.getLogger(_REPORTS).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Collect a message of PyTorch, if it reports a fallback; return whether to log it."""
        message = record.getMessage()
        if _FAILED in message and record.exc_info and record.exc_info[1] is not None:
            # PyTorch then tries the parts of the block, which fail for the same reason.
            message = str(record.exc_info[1]).partition("\n\n")[0]
        elif "recompile_limit" not in message:
            return True
        self._given_up.append(" ".join(message.split())[:300])
        return False

    def messages(self) -> list[str]:
        """Return a line for each new fallback to eager mode since the last call."""
        breaks: Counter[str] = Counter(counters["graph_break"])
        lines = [
            f"step.compile: a block runs in eager mode from here on, and slower: {message}"
            for message in dict.fromkeys(self._given_up)
            if message not in self._reported
        ] + [
            f"step.compile: a block is compiled in pieces: {' '.join(reason.split())[:300]}"
            for reason in breaks - self._breaks_before
        ]
        self._reported.update(self._given_up)
        self._given_up, self._breaks_before = [], breaks
        return lines

    def close(self) -> None:
        """Remove the log filter."""
        logging.getLogger(_REPORTS).removeFilter(self)
