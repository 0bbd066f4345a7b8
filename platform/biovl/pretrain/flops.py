"""What a pair costs: the floating-point operations of both towers, counted and not computed.

PyTorch counts them on copies without data ("meta"), for any tower that open_clip builds. A
multiply-add is two operations; norms, activations and softmax are left out, as in the tables of
open_clip and in the peaks of hardware vendors' data sheets. The loss is left out too: it is less
than 1 % of a step.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from open_clip.hf_model import HFTextEncoder
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

TRAINING_PER_FORWARD = 3
"""The backward pass multiplies every matrix twice. What is computed a second time to save memory
does not count: it is work of ours, not of the model."""


@dataclass(frozen=True)
class Window:
    """Layers in which a token sees its neighbours only, and not the whole caption."""

    reach: int
    """Tokens seen on either side."""

    flops_per_pair_of_tokens: int
    """Operations of all these layers for each query and key."""


@dataclass(frozen=True)
class TextCost:
    """Operations of a caption's forward pass, by its length."""

    constant: float
    linear: float
    quadratic: float
    """Of layers that compare all tokens with all others."""

    windows: tuple[Window, ...] = ()

    def __call__(self, lengths_B: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the operations of each caption. Shape [B], float64.

        Args:
            lengths_B: Tokens of each caption with start and end token; padding counts where it
                is computed. Shape [B].
        """
        tokens = np.asarray(lengths_B, np.float64)
        flops = self.constant + self.linear * tokens + self.quadratic * tokens**2
        for window in self.windows:
            flops = flops + window.flops_per_pair_of_tokens * seen_pairs(tokens, window.reach)
        return np.asarray(flops)


@dataclass(frozen=True)
class ForwardCost:
    """Operations of a model's forward pass in training: patch dropout is on."""

    image: int
    """Of an image."""

    text: TextCost


def seen_pairs(tokens_B: np.ndarray, reach: int) -> np.ndarray:
    """Return how many pairs of tokens of a caption are at most ``reach`` apart. Shape [B]."""
    reach_B = np.minimum(reach, np.maximum(tokens_B - 1, 0))
    # Of all tokens with 2 reach + 1 neighbours, those near an end lack 1, 2, … reach of them.
    return np.asarray(tokens_B * (2 * reach_B + 1) - reach_B * (reach_B + 1))


def forward_cost(model: nn.Module) -> ForwardCost:
    """Return what a forward pass of an open_clip ``CustomTextCLIP`` costs; the model stays as is.

    Causal attention counts whole, as usual, although half of it is masked.
    """
    # In training mode: patch dropout drops, and attention takes no path that is not counted.
    counted: Any = on_meta(model)
    return ForwardCost(image_cost(counted.visual), text_cost(counted.text))


def training_flops(cost: ForwardCost, lengths_B: np.ndarray | Sequence[int]) -> float:
    """Return the operations of a training step on pairs whose captions have these lengths."""
    texts = float(cost.text(lengths_B).sum())
    return TRAINING_PER_FORWARD * (cost.image * len(lengths_B) + texts)


def training_flops_per_pair(cost: ForwardCost, lengths_B: np.ndarray | Sequence[int]) -> float:
    """Return the mean of ``training_flops`` over pairs: captions of these lengths, one or more."""
    return training_flops(cost, lengths_B) / len(lengths_B)


def image_cost(visual: Any) -> int:
    """Return the operations of one image's forward pass; the tower is what ``on_meta`` returned."""
    size = visual.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    pixels_BCHW = torch.empty(1, 3, int(height), int(width), device="meta")
    return _counted(lambda: visual(pixels_BCHW))


def text_cost(text: Any) -> TextCost:
    """Return the operations of a caption by its length; the tower is what ``on_meta`` returned."""
    context = _context(text)
    points = [(length, _text_flops(text, length)) for length in _three_lengths(context)]
    constant, linear, quadratic = _parabola(points)
    windows = _windows(text)
    # Counted as if these layers saw everything: PyTorch computes all and masks it.
    whole = sum(window.flops_per_pair_of_tokens for window in windows)
    return TextCost(float(constant), float(linear), float(quadratic) - whole, windows)


def on_meta(module: nn.Module) -> nn.Module:
    """Return a copy without data, in training mode; nothing is copied on the way."""
    return copied_to(module, "meta", requires_grad=False)


def copied_to(module: nn.Module, device: str, *, requires_grad: bool) -> nn.Module:
    """Return a copy in training mode whose tensors are uninitialised, on another device.

    Args:
        module: Stays as it is.
        device: ``meta``, or any under ``FakeTensorMode``.
        requires_grad: Whether parameters of the copy that were trained still are.
    """
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    empty = {id(t): torch.empty_like(t, device=device, requires_grad=False) for t in tensors}
    for tensor in tensors:
        if isinstance(tensor, nn.Parameter):
            wanted = requires_grad and tensor.requires_grad
            empty[id(tensor)] = nn.Parameter(empty[id(tensor)], requires_grad=wanted)
    return copy.deepcopy(module, empty).train()


def _counted(forward: Callable[[], object]) -> int:
    counter = FlopCounterMode(display=False)
    # Positions and masks that a tower makes on its way belong on the same device.
    with torch.no_grad(), torch.device("meta"), counter:
        forward()
    return int(counter.get_total_flops())


def _text_flops(text: Any, length: int) -> int:
    tokens_BT = torch.ones(1, length, dtype=torch.long, device="meta")
    if isinstance(text, HFTextEncoder):
        # Attention as PyTorch has it, whatever the tower was set to. And not through forward:
        # transformers looks into the mask, which has no data here.
        text.transformer.set_attn_implementation("sdpa")

        def forward() -> None:
            hidden = text.transformer(input_ids=tokens_BT)
            text.proj(text.pooler(hidden, torch.ones_like(tokens_BT)))

        return _counted(forward)
    mask_TT = getattr(text, "attn_mask", None)
    if mask_TT is not None:
        # open_clip's tower takes captions of its full context only.
        text.attn_mask = mask_TT[:length, :length]
    try:
        return _counted(lambda: text(tokens_BT))
    finally:
        if mask_TT is not None:
            text.attn_mask = mask_TT


def _context(text: Any) -> int:
    if isinstance(text, HFTextEncoder):
        return int(text.config.max_position_embeddings)
    return int(text.context_length)


def _three_lengths(context: int) -> tuple[int, int, int]:
    # Any three give the same parabola; short ones are counted sooner.
    longest = max(3, min(context, 64))
    return longest, max(2, longest // 2), max(1, longest // 4)


def _parabola(points: Sequence[tuple[int, int]]) -> tuple[Fraction, Fraction, Fraction]:
    """Return constant, linear and quadratic coefficient of the parabola through three points."""
    (x0, y0), (x1, y1), (x2, y2) = points
    first, second = Fraction(y1 - y0, x1 - x0), Fraction(y2 - y1, x2 - x1)
    quadratic = (second - first) / (x2 - x0)
    linear = first - quadratic * (x0 + x1)
    return y0 - linear * x0 - quadratic * x0**2, linear, quadratic


def _windows(text: Any) -> tuple[Window, ...]:
    """Return the layers of ModernBERT and its like that see neighbours only."""
    config = getattr(text, "config", None)
    kinds = getattr(config, "layer_types", None) or ()
    layers = sum(kind == "sliding_attention" for kind in kinds)
    if config is None or not layers:
        return ()
    # Similarities, then the weighted sum: a multiply-add each for every channel.
    return (Window(int(config.sliding_window), layers * 4 * int(config.hidden_size)),)
