"""Attention within packed captions, without masks and without padding."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

# Shapes: B captions, T tokens of all captions, L tokens of one, H heads, d of a head.


@dataclass(frozen=True)
class CaptionLayout:
    """Boundaries of captions packed into one sequence of T tokens. B captions."""

    lengths: list[int]
    """Tokens of each caption, on the host, where shapes are computed."""

    longest: int
    """Tokens of the longest caption."""

    bounds: Tensor
    """Cumulative lengths: the start of each caption and the end of the last one. int32, shape [B +
    1]."""

    positions_T: Tensor
    """Position of each token in its own caption, from 0. int64."""

    @classmethod
    def of(cls, lengths_B: Tensor, device: torch.device) -> "CaptionLayout":
        """Return the layout of captions with some lengths, int32 on the host."""
        bounds = F.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
        tokens = torch.arange(int(bounds[-1]))
        positions = tokens - bounds[:-1].long().repeat_interleave(lengths_B)
        if device.type == "cuda":
            # From other memory, the host would wait until the device has done all earlier work.
            bounds, positions = bounds.pin_memory(), positions.pin_memory()
        return cls(
            lengths_B.tolist(),
            int(lengths_B.max()),
            bounds.to(device, non_blocking=True),
            positions.to(device, non_blocking=True),
        )

    @property
    def first(self) -> Tensor:
        """Index of the first token of each caption. Shape [B]."""
        return self.bounds[:-1].long()

    @property
    def last(self) -> Tensor:
        """Index of the last token of each caption. Shape [B]."""
        return self.bounds[1:].long() - 1


def attend(
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    layout: CaptionLayout,
    *,
    scale: float | None = None,
    causal: bool = False,
    reach: int | None = None,
) -> Tensor:
    """Return scaled dot-product attention, every token within its own caption. Shape [T, H, d].

    Uses one FlashAttention kernel for all captions on CUDA from Ampere on, in bf16 and fp16;
    otherwise computes caption by caption. Neither has dropout of attention weights, which the
    kernel does not support.

    Args:
        query_THd: Query of each token and head, T tokens of all captions; keys and values have the
            same shape.
        key_THd: See ``query_THd``.
        value_THd: See ``query_THd``.
        layout: Boundaries of the captions.
        scale: Factor on the products; None is 1 / sqrt(d).
        causal: Whether a token attends only to itself and preceding tokens.
        reach: Window size to both sides in tokens; None is the whole caption.
    """
    if _has_flash(query_THd):
        side = -1 if reach is None else reach
        # By default torch selects cuDNN for attention without a window, which builds a new plan for
        # every number of tokens, and that differs in each batch.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            result = varlen_attn(
                query_THd,
                key_THd,
                value_THd,
                layout.bounds,
                layout.bounds,
                layout.longest,
                layout.longest,
                scale=scale,
                window_size=(side, 0 if causal else side),
            )
        assert isinstance(result, Tensor)
        return result
    if torch.compiler.is_compiling():
        # The compiler treats lengths as constants and would recompile for each batch.
        attended: Tensor = _attend_one_by_one(
            *(query_THd, key_THd, value_THd, layout.bounds),
            scale if scale is not None else query_THd.shape[-1] ** -0.5,
            causal,
            -1 if reach is None else reach,
        )
        return attended
    return _one_by_one(
        *(query_THd, key_THd, value_THd, layout.lengths, layout.longest),
        scale=scale,
        causal=causal,
        reach=reach,
    )


def _one_by_one(
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    lengths: list[int],
    longest: int,
    *,
    scale: float | None,
    causal: bool,
    reach: int | None,
) -> Tensor:
    parts = [
        tensor.transpose(0, 1).split(lengths, dim=1) for tensor in (query_THd, key_THd, value_THd)
    ]
    # A band mask keeps SDPA from using its fast kernel: captions shorter than the window need none.
    band = None
    if reach is not None and longest > reach + 1:
        band = _band(longest, reach, query_THd.device)
    attended = [
        F.scaled_dot_product_attention(
            query_HLd,
            key_HLd,
            value_HLd,
            attn_mask=band[:length, :length]
            if band is not None and reach is not None and length > reach + 1
            else None,
            is_causal=causal,
            scale=scale,
        )
        for query_HLd, key_HLd, value_HLd, length in zip(*parts, lengths, strict=True)
    ]
    return torch.cat(attended, dim=1).transpose(0, 1)


@torch.library.custom_op("biovl::attend_one_by_one", mutates_args=())
def _attend_one_by_one(
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    bounds: Tensor,
    scale: float,
    causal: bool,
    reach: int,
) -> Tensor:
    lengths = bounds.diff().tolist()
    return _one_by_one(
        *(query_THd, key_THd, value_THd, lengths, max(lengths)),
        scale=scale,
        causal=causal,
        reach=None if reach < 0 else reach,
    ).contiguous()


@_attend_one_by_one.register_fake
def _(query_THd: Tensor, *_: object) -> Tensor:
    return query_THd.new_empty(query_THd.shape)


@torch.library.custom_op("biovl::attend_one_by_one_backward", mutates_args=())
def _attend_one_by_one_backward(
    grad_THd: Tensor,
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    bounds: Tensor,
    scale: float,
    causal: bool,
    reach: int,
) -> list[Tensor]:
    # Written out, because autograd does not run inside a custom operation.
    lengths = bounds.diff().tolist()
    parts = [
        tensor.transpose(0, 1).split(lengths, dim=1)
        for tensor in (grad_THd, query_THd, key_THd, value_THd)
    ]
    grads: list[list[Tensor]] = [[], [], []]
    for grad, query, key, value in zip(*parts, strict=True):
        places = torch.arange(grad.shape[1], device=grad.device)
        apart = places[:, None] - places
        hidden = (apart < 0) & causal
        if reach >= 0:
            hidden = hidden | (apart.abs() > reach)
        scores = (scale * query @ key.mT).masked_fill(hidden, float("-inf"))
        weights = scores.softmax(-1)
        of_weights = grad @ value.mT
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
        grads[0].append(scale * of_scores @ key)
        grads[1].append(scale * of_scores.mT @ query)
        grads[2].append(weights.mT @ grad)
    return [torch.cat(each, dim=1).transpose(0, 1).contiguous() for each in grads]


@_attend_one_by_one_backward.register_fake
def _(grad_THd: Tensor, *_: object) -> list[Tensor]:
    return [grad_THd.new_empty(grad_THd.shape) for _ in range(3)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scale, ctx.causal, ctx.reach = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad_THd: Tensor) -> tuple[Tensor | None, ...]:
    grads = _attend_one_by_one_backward(
        grad_THd, *ctx.saved_tensors, ctx.scale, ctx.causal, ctx.reach
    )
    return *grads, None, None, None, None


_attend_one_by_one.register_autograd(_gradients, setup_context=_remember)


def _has_flash(query_THd: Tensor) -> bool:
    return (
        query_THd.is_cuda
        and query_THd.dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(query_THd.device) >= (8, 0)
    )


def _band(length: int, reach: int, device: torch.device) -> Tensor:
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() <= reach


def segment_mean(rows_TD: Tensor, layout: CaptionLayout) -> Tensor:
    """Return the mean of the rows of each caption. Shape [B, D]."""
    count = len(layout.lengths)
    lengths_B = layout.bounds.diff()
    owner_T = torch.repeat_interleave(
        torch.arange(count, device=rows_TD.device),
        lengths_B,
        output_size=sum(layout.lengths),
    )
    # bf16 has a significand of 8 bits: a sum over hundreds of tokens would lose most of them.
    wide_TD = rows_TD.float() if rows_TD.dtype in (torch.bfloat16, torch.float16) else rows_TD
    sums_BD = wide_TD.new_zeros(count, rows_TD.shape[1]).index_add_(0, owner_T, wide_TD)
    return (sums_BD / lengths_B[:, None]).to(rows_TD.dtype)
