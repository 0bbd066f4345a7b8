"""``torch.compile`` of the blocks of both towers, with one graph for all blocks that are alike."""

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
"""Graphs of a block at most: with and without gradients, the sizes of a last micro-batch and of
later epochs, kinds of layers. PyTorch gives up after 8, and all blocks count together."""

ALL_RECOMPILES = 1_024

_GIVEN_UP = "torch._dynamo.convert_frame"


class DropPathByTensor(nn.Module):
    """timm's ``DropPath`` with its rate in a tensor: a graph does not depend on its value.

    As a number it is a constant of the graph, and each block would have a graph of its own.
    """

    keep: Tensor

    def __init__(self, drop: DropPath) -> None:
        super().__init__()
        self.scale_by_keep = drop.scale_by_keep
        self.register_buffer("keep", torch.tensor(1.0 - drop.drop_prob), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows of which some are zero, by chance, in training."""
        if not self.training:
            return rows
        shape = (rows.shape[0],) + (1,) * (rows.ndim - 1)
        kept = (torch.rand(shape, device=rows.device) < self.keep).to(rows.dtype)
        if self.scale_by_keep:
            kept = kept / self.keep.to(rows.dtype)
        return rows * kept


def compile_blocks(blocks: list[nn.Module], *, dynamic: bool | None) -> None:
    """Compile each block when it is first called.

    Args:
        blocks: Of one tower.
        dynamic: Whether sizes change from call to call; None finds out.
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
    """Compile the blocks of a text tower: captions end to end are another length in every step."""
    if tower.compute == "packed" and isinstance(tower.text, TextTransformer):
        # Its blocks are called part by part.
        raise_limits()
        tower.compile_packed_block()
    else:
        compile_blocks(blocks, dynamic=True)


def raise_limits() -> None:
    """Let PyTorch keep as many graphs as towers need."""
    own: Any = torch._dynamo.config
    own.recompile_limit = max(own.recompile_limit, RECOMPILES)
    own.accumulated_recompile_limit = max(own.accumulated_recompile_limit, ALL_RECOMPILES)


class CompileWatch(logging.Handler):
    """Collects what runs eager although it was to be compiled: PyTorch only logs it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._given_up: list[str] = []
        self._breaks_before: Counter[str] = Counter(counters["graph_break"])
        logging.getLogger(_GIVEN_UP).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take in a warning of PyTorch."""
        said = record.getMessage()
        if "recompile_limit" in said:
            self._given_up.append(" ".join(said.split())[:300])

    def news(self) -> list[str]:
        """Return a line for each thing that was not reported yet."""
        breaks: Counter[str] = Counter(counters["graph_break"])
        lines = [
            f"step.compile: a block runs eager from here on, and slower: {said}"
            for said in dict.fromkeys(self._given_up)
        ] + [
            f"step.compile: a block is compiled in pieces: {' '.join(reason.split())[:300]}"
            for reason in breaks - self._breaks_before
        ]
        self._given_up, self._breaks_before = [], breaks
        return lines

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger(_GIVEN_UP).removeHandler(self)
        super().close()
