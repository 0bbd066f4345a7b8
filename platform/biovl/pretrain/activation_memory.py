"""Activation memory of a training step, measured on a fake GPU (see ``fake_gpu``).

Each tower runs forward and backward as in training. All of its memory except the parameters is
linear in the number of images or tokens, so measurements at two sizes determine it for any size.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from biovl.models.towers import ImageTower, TextTower
from biovl.models.towers.texts import TextCompute
from biovl.pretrain.fake_gpu import fake_gpu
from biovl.pretrain.flops import copied_to, structure
from biovl.pretrain.loop import autocast as autocast_of
from biovl.pretrain.tower_setup import checkpoint_activations

MORE = 128
"""Images, or captions, of the larger size; the other is half of it. So many cost no time, and need
more memory than the gradient of any weight."""

MORE_FP32 = 32
"""The same without bfloat16, where attention of packed captions runs caption by caption."""

CAPTION_TOKENS = 128
"""Maximum tokens of these captions."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Memory of a tower in a step without its parameters, a linear function of its input size."""

    each: float
    """Bytes saved for the backward pass, per image or token; 0 if the tower is locked."""

    weights: float = 0.0
    """Bytes of bfloat16 copies of the weights, made by autocast: independent of the input."""

    working: float
    """Additional temporary bytes at the peak of the backward pass, per image or token; of the
    forward pass if the tower is locked."""


@dataclass(frozen=True, kw_only=True)
class TowerActivations:
    """Activation memory of image and text tower."""

    image: Activations
    text: Activations


_measured: dict[tuple[object, ...], Activations] = {}
"""By structure of the tower and settings."""


def image_activations(
    visual: nn.Module, *, image_size: int, autocast: bool, recomputed: bool
) -> Activations:
    """Return the activation memory of an image tower per image. The tower is not changed.

    Args:
        visual: Image tower of an open_clip ``CustomTextCLIP``, on any device, also ``meta``.
        image_size: Side in pixels.
        autocast: Whether matrix products run in bfloat16.
        recomputed: Whether activations are checkpointed.
    """

    def forward_of(copied: nn.Module, count: int) -> Callable[[], Tensor]:
        tower = ImageTower(copied, [0.5] * 3, [0.5] * 3).to(torch.device("cuda:0"))
        pixels_BHWC = torch.zeros(
            count, image_size, image_size, 3, dtype=torch.uint8, device="cuda:0"
        )
        return lambda: tower(pixels_BHWC)

    key = structure(visual), image_size, autocast, recomputed
    if key not in _measured:
        _measured[key] = _measure(
            visual, forward_of, size=1, autocast=autocast, recomputed=recomputed
        )
    return _measured[key]


def text_activations(
    text: nn.Module, *, context: int, compute: TextCompute, autocast: bool, recomputed: bool
) -> Activations:
    """Return the activation memory of a text tower per token. The tower is not changed.

    Args:
        text: Text tower of an open_clip ``CustomTextCLIP``, on any device, also ``meta``.
        context: Context length, to which ``padded`` pads.
        compute: Mode of handling padding.
        autocast: Whether matrix products run in bfloat16.
        recomputed: Whether activations are checkpointed.
    """
    tokens = context if compute == "padded" else min(context, CAPTION_TOKENS)

    def forward_of(copied: nn.Module, count: int) -> Callable[[], Tensor]:
        tower = TextTower(copied, compute, context)
        lengths_B = torch.full((count,), tokens, dtype=torch.int32)
        tokens_T = torch.zeros(count * tokens, dtype=torch.int32, device="cuda:0")
        return lambda: tower(tokens_T, lengths_B)

    # Packed captions are computed as they are, whatever the context is.
    padding = None if compute == "packed" else context
    key = structure(text), compute, tokens, padding, autocast, recomputed
    if key not in _measured:
        _measured[key] = _measure(
            text, forward_of, size=tokens, autocast=autocast, recomputed=recomputed
        )
    return _measured[key]


def _measure(
    tower: nn.Module,
    forward_of: Callable[[nn.Module, int], Callable[[], Tensor]],
    *,
    size: int,
    autocast: bool,
    recomputed: bool,
) -> Activations:
    is_locked = not any(parameter.requires_grad for parameter in tower.parameters())
    saved, peak = {}, 0
    more = MORE if autocast else MORE_FP32
    with fake_gpu() as trace:
        copied = copied_to(tower, "cuda:0", requires_grad=True)
        if recomputed:
            checkpoint_activations(copied)
        for parameter in copied.parameters():
            # Gradients are counted elsewhere: they accumulate in these.
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        for count in (more // 2, more):
            forward = forward_of(copied, count)
            before = trace.peak = trace.alive
            with (
                torch.no_grad() if is_locked else contextlib.nullcontext(),
                autocast_of("bf16" if autocast else "fp32", torch.device("cuda:0")),
            ):
                features_BD = forward()
            saved[count] = trace.alive - before
            if count == more:
                if not is_locked:
                    features_BD.backward(torch.empty_like(features_BD))
                peak = trace.peak - before
            del features_BD, forward
    if is_locked:
        return Activations(each=0.0, working=peak / more / size)
    slope = (saved[more] - saved[more // 2]) / (more - more // 2)
    return Activations(
        each=slope / size,
        weights=saved[more] - more * slope,
        working=(peak - saved[more]) / more / size,
    )
