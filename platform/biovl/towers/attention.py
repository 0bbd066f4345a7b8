"""Attention within captions that lie end to end, without a mask and without padding."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

# Shapes: B captions, T tokens of all captions, L tokens of one, H heads, d of a head.


@dataclass(frozen=True)
class Layout:
    """Where the captions are in their run of tokens."""

    lengths: list[int]
    """Tokens of each caption, on the host: shapes are decided there."""

    longest: int
    """Tokens of the longest."""

    bounds: Tensor
    """int32 [B + 1]: where each caption begins, and where the last one ends."""

    positions_T: Tensor
    """int64: the place of each token in its own caption, from 0."""

    @classmethod
    def of(cls, lengths_B: Tensor, device: torch.device) -> "Layout":
        """Return the layout of captions of these lengths, int32 on the host."""
        bounds = F.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
        tokens = torch.arange(int(bounds[-1]))
        positions = tokens - bounds[:-1].long().repeat_interleave(lengths_B)
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
    layout: Layout,
    *,
    scale: float | None = None,
    causal: bool = False,
    reach: int | None = None,
) -> Tensor:
    """Return scaled dot-product attention, every token within its own caption. Shape [T, H, d].

    One flash kernel for all captions on CUDA from Ampere on, in bf16 and fp16; else caption by
    caption. Both without dropout of attention weights, which that kernel does not have.

    Args:
        query_THd: Of each token and head; keys and values likewise.
        key_THd: See there.
        value_THd: See there.
        layout: Where the captions are.
        scale: Of the products; None is 1 / sqrt(d).
        causal: Whether a token sees only itself and those before it.
        reach: How far a token sees to both sides; None is the whole caption.
    """
    if _has_flash(query_THd):
        side = -1 if reach is None else reach
        # Left to itself torch takes cuDNN where there is no window, which plans anew for every
        # number of tokens: here each batch has another.
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
    parts = [
        tensor.transpose(0, 1).split(layout.lengths, dim=1)
        for tensor in (query_THd, key_THd, value_THd)
    ]
    # A band mask keeps SDPA off its fast kernel: captions that it would not touch go without.
    band = None
    if reach is not None and layout.longest > reach + 1:
        band = _band(layout.longest, reach, query_THd.device)
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
        for query_HLd, key_HLd, value_HLd, length in zip(*parts, layout.lengths, strict=True)
    ]
    return torch.cat(attended, dim=1).transpose(0, 1)


def _has_flash(query_THd: Tensor) -> bool:
    return (
        query_THd.is_cuda
        and query_THd.dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(query_THd.device) >= (8, 0)
    )


def _band(length: int, reach: int, device: torch.device) -> Tensor:
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() <= reach


def segment_mean(rows_TD: Tensor, layout: Layout) -> Tensor:
    """Return the mean of the rows of each caption. Shape [B, D]."""
    count = len(layout.lengths)
    lengths_B = layout.bounds.diff()
    owner_T = torch.repeat_interleave(
        torch.arange(count, device=rows_TD.device),
        lengths_B,
        output_size=sum(layout.lengths),
    )
    # bf16 has 8 bits: a sum over hundreds of tokens would lose most of them.
    wide_TD = rows_TD.float() if rows_TD.dtype in (torch.bfloat16, torch.float16) else rows_TD
    sums_BD = wide_TD.new_zeros(count, rows_TD.shape[1]).index_add_(0, owner_T, wide_TD)
    return (sums_BD / lengths_B[:, None]).to(rows_TD.dtype)
