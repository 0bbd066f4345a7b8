"""FLOPs per pair: floating-point operations of both towers, counted without computing.

PyTorch counts them on copies on the device ``meta``, for any tower that open_clip builds. A
multiply-add is two operations; norms, activations and softmax are ignored, as in open_clip's tables
and in the peak FLOP/s of vendors' data sheets. The loss is ignored too: it is less than 1 % of a
step.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from open_clip.hf_model import HFTextEncoder
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PretrainedConfig

TRAINING_PER_FORWARD = 3
"""The backward pass multiplies every matrix twice. Recomputation to save memory does not count: it
is not work of the model. Locked layers have no backward pass."""


@dataclass(frozen=True)
class Window:
    """Layers with local attention of one window size."""

    reach: int
    """Number of visible tokens on either side."""

    flops_per_pair_of_tokens: int
    """FLOPs of all these layers per pair of query and key."""


@dataclass(frozen=True)
class TextCost:
    """FLOPs of a caption's forward pass, as a function of its length."""

    constant: float
    """FLOPs independent of the length."""
    linear: float
    """FLOPs per token of the caption."""
    quadratic: float
    """FLOPs per squared token, from layers with global attention."""

    windows: tuple[Window, ...] = ()

    def __call__(self, lengths_B: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the FLOPs of each caption's forward pass. Shape [B], float64.

        Args:
            lengths_B: Tokens of each caption with start and end token; padding counts if it is
                computed. Shape [B].
        """
        tokens = np.asarray(lengths_B, np.float64)
        flops = self.constant + self.linear * tokens + self.quadratic * tokens**2
        for window in self.windows:
            flops = flops + window.flops_per_pair_of_tokens * seen_pairs(tokens, window.reach)
        return np.asarray(flops)


@dataclass(frozen=True)
class ForwardCost:
    """FLOPs of a model's forward pass in training mode, with patch dropout."""

    image: int
    """FLOPs per image of the batch."""

    text: TextCost

    image_passes: float = TRAINING_PER_FORWARD
    text_passes: float = TRAINING_PER_FORWARD
    """FLOPs of a training step of the tower, as a multiple of its forward pass."""

    def training(self, lengths_B: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the FLOPs of a training step on pairs with these caption lengths. Shape [B]."""
        return self.image_passes * self.image + self.text_passes * self.text(lengths_B)


def seen_pairs(tokens_B: np.ndarray, reach: int) -> np.ndarray:
    """Return the number of token pairs at most ``reach`` apart in a caption. Shape [B]."""
    reach_B = np.minimum(reach, np.maximum(tokens_B - 1, 0))
    # Each token has 2 reach + 1 neighbours, minus 1, 2, … reach near either end.
    return np.asarray(tokens_B * (2 * reach_B + 1) - reach_B * (reach_B + 1))


def forward_cost(model: nn.Module) -> ForwardCost:
    """Return the forward FLOPs of an open_clip ``CustomTextCLIP``; the model is not changed.

    Causal attention counts in full, as usual, although half of it is masked.
    """
    # In training mode: patch dropout is on, and attention uses no fused path that is not counted.
    counted: Any = on_meta(model)
    towers: Any = model
    return ForwardCost(
        image_cost(counted.visual),
        text_cost(counted.text),
        image_passes=_passes(towers.visual),
        text_passes=_passes(towers.text),
    )


def _passes(tower: nn.Module) -> float:
    """Return the cost of a training step: less for locked layers, by their share of the weights."""
    looked_up = {
        id(part.weight) for part in tower.modules() if isinstance(part, nn.Embedding)
    }  # They multiply nothing.
    weights = [p for p in tower.parameters() if p.ndim > 1 and id(p) not in looked_up]
    trained = sum(p.numel() for p in weights if p.requires_grad)
    share = trained / max(sum(p.numel() for p in weights), 1)
    return 1 + (TRAINING_PER_FORWARD - 1) * share


def training_flops(cost: ForwardCost, lengths_B: np.ndarray | Sequence[int]) -> float:
    """Return the FLOPs of a training step on pairs with these caption lengths."""
    return float(cost.training(lengths_B).sum())


def structure(module: nn.Module) -> str:
    """Return a hash of a module's structure: everything that affects its cost, but no weights.

    Modules of equal structure need the same FLOPs and the same memory. The hash is a cache
    key: counting takes seconds, and models that are compared share most towers.
    """
    plain = (bool, int, float, str, tuple, type(None), torch.dtype)
    parts: list[Any] = [
        (name, tensor.shape, tensor.dtype, tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    for name, part in module.named_modules():
        values = {key: value for key, value in vars(part).items() if isinstance(value, plain)}
        settings = getattr(part, "config", None)
        if isinstance(settings, PretrainedConfig):
            values["config"] = settings.to_json_string(use_diff=False)
        parts.append((name, type(part).__qualname__, sorted(values.items())))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_image_costs: dict[tuple[str, object], int] = {}
_text_costs: dict[str, TextCost] = {}


def image_cost(visual: Any) -> int:
    """Return the FLOPs of one image's forward pass; ``visual`` is a copy from ``on_meta``."""
    size = visual.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    key = structure(visual), (height, width)
    if key not in _image_costs:
        pixels_BCHW = torch.empty(1, 3, int(height), int(width), device="meta")
        _image_costs[key] = _counted(lambda: visual(pixels_BCHW))
    return _image_costs[key]


def text_cost(text: Any) -> TextCost:
    """Return a caption's forward FLOPs as a function of its length.

    Args:
        text: A copy of the text tower from ``on_meta``.
    """
    key = structure(text)
    if key not in _text_costs:
        _text_costs[key] = _text_cost(text)
    return _text_costs[key]


def _text_cost(text: Any) -> TextCost:
    context = _context(text)
    points = [(length, _text_flops(text, length)) for length in _three_lengths(context)]
    constant, linear, quadratic = _parabola(points)
    windows = _windows(text)
    # Counted as global attention first: PyTorch computes everything and masks.
    whole = sum(window.flops_per_pair_of_tokens for window in windows)
    return TextCost(float(constant), float(linear), float(quadratic) - whole, windows)


def on_meta(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the device ``meta``, in training mode, without copying data."""
    return copied_to(module, "meta", requires_grad=False)


def copied_to(module: nn.Module, device: str, *, requires_grad: bool) -> nn.Module:
    """Return a copy of a module in training mode, with uninitialized tensors, on another device.

    Args:
        module: The module; it is not changed.
        device: ``meta``, or any device under ``FakeTensorMode``.
        requires_grad: Whether trainable parameters stay trainable in the copy.
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
    # Positions and masks created in the forward pass belong on the same device.
    with torch.no_grad(), torch.device("meta"), counter:
        forward()
    return int(counter.get_total_flops())


def _text_flops(text: Any, length: int) -> int:
    tokens_BT = torch.ones(1, length, dtype=torch.long, device="meta")
    if isinstance(text, HFTextEncoder):
        # Default attention, whatever the tower was configured for. Not through forward:
        # transformers inspects the mask, which has no data here.
        text.transformer.set_attn_implementation("sdpa")

        def forward() -> None:
            hidden = text.transformer(input_ids=tokens_BT)
            text.proj(text.pooler(hidden, torch.ones_like(tokens_BT)))

        return _counted(forward)
    mask_TT = getattr(text, "attn_mask", None)
    if mask_TT is not None:
        # open_clip's text tower accepts the full context only.
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
    # Any three lengths give the same parabola; short ones are faster.
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
    """Return the layers with local attention, as in ModernBERT."""
    config = getattr(text, "config", None)
    kinds = getattr(config, "layer_types", None) or ()
    layers = sum(kind == "sliding_attention" for kind in kinds)
    if config is None or not layers:
        return ()
    # Similarities, then the weighted sum: one multiply-add each per channel.
    return (Window(int(config.sliding_window), layers * 4 * int(config.hidden_size)),)
