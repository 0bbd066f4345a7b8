"""Attention within packed captions: each token attends to the tokens of its own caption.

GPUs from Ampere on compute it in one kernel, without masks and without padding (``varlen_attn``, in
bf16 and fp16). In fp32, and on earlier GPUs, captions of similar length are padded to the longest
of a chunk: one launch per chunk instead of one per caption. CPUs compute caption by caption.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

# Shapes: B captions, T tokens of all captions, L tokens of one, C captions of a chunk, H heads, d
# of a head.

CHUNK_CAPTIONS = 64
"""Captions of similar length that are padded together."""

_allowed: list[SDPBackend] = [SDPBackend.FLASH_ATTENTION]
"""Kernels of ``varlen_attn`` in this process. torch takes the first in its own order (cuDNN, flash)
that supports the call."""


def allow_kernels(kernels: list[SDPBackend]) -> None:
    """Restrict ``varlen_attn`` to some kernels in this process. Call before compiling a tower."""
    global _allowed
    _allowed = kernels


@dataclass(frozen=True)
class Chunk:
    """Captions of similar length, padded to the longest of them."""

    places_CL: Tensor
    """Index of each token in the packed sequence; padding repeats the last token of its caption.
    int64."""

    is_token_CL: Tensor
    """Whether it is a token, not padding. bool."""


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

    lengths_B: Tensor
    """``lengths`` as a tensor on the host: compiled graphs do not depend on its values. int32."""

    @classmethod
    def of(cls, lengths_B: Tensor, device: torch.device) -> "CaptionLayout":
        """Return the layout of captions from their lengths, int32 on the host."""
        bounds = F.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
        tokens = torch.arange(int(bounds[-1]))
        positions = tokens - bounds[:-1].long().repeat_interleave(lengths_B)
        if device.type == "cuda":
            # From other memory, the host would wait until the device has done all earlier work.
            bounds, positions = bounds.pin_memory(), positions.pin_memory()
        return cls(
            lengths_B.tolist(),
            int(lengths_B.max()),
            to_device(bounds, device),
            to_device(positions, device),
            lengths_B,
        )

    @cached_property
    def chunks(self) -> tuple[list[Chunk], Tensor]:
        """Chunks of all captions, and the index of each packed token in the concatenated chunks.

        Chunks are flattened with their padding before concatenation. Index: int64, shape [T].
        """
        return _chunks(self.lengths_B, self.bounds.device)

    @property
    def first(self) -> Tensor:
        """Index of the first token of each caption. Shape [B]."""
        return self.bounds[:-1].long()

    @property
    def last(self) -> Tensor:
        """Index of the last token of each caption. Shape [B]."""
        return self.bounds[1:].long() - 1


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a host tensor on a device; copies to a GPU are asynchronous.

    Without pinned memory CUDA may wait for all work queued before the copy.
    """
    # Memory estimates use a fake GPU, where nothing can be pinned.
    if device.type == "cuda" and torch.cuda.is_available():
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


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

    Uses one kernel for all captions on CUDA from Ampere on, in bf16 and fp16; otherwise padded
    chunks on GPUs, and caption by caption on CPUs. Attention weights have no dropout, because the
    kernel does not support it.

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
    if has_varlen_kernel(query_THd.device, query_THd.dtype):
        side = -1 if reach is None else reach
        # By default torch selects cuDNN for attention without a window, which builds a new plan for
        # every number of tokens, and that differs in each batch: see ``kernels``.
        with sdpa_kernel(_allowed):
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
        attended: Tensor = _attend_in_graph(
            *(query_THd, key_THd, value_THd, layout.lengths_B),
            scale if scale is not None else query_THd.shape[-1] ** -0.5,
            causal,
            -1 if reach is None else reach,
        )
        return attended
    if query_THd.device.type == "cuda":
        return _by_chunks(
            *(query_THd, key_THd, value_THd, *layout.chunks),
            scale=scale,
            causal=causal,
            reach=reach,
        )
    return _one_by_one(
        *(query_THd, key_THd, value_THd, layout.lengths, layout.longest),
        scale=scale,
        causal=causal,
        reach=reach,
    )


def _chunks(lengths_B: Tensor, device: torch.device) -> tuple[list[Chunk], Tensor]:
    starts_B = lengths_B.cumsum(0) - lengths_B
    chunks, place_T, padded = list[Chunk](), torch.empty(int(lengths_B.sum()), dtype=torch.long), 0
    for captions in torch.argsort(lengths_B, stable=True).split(CHUNK_CAPTIONS):
        lengths_C1 = lengths_B[captions, None].long()
        positions_L = torch.arange(int(lengths_C1[-1]))
        is_token_CL = positions_L < lengths_C1
        places_CL = starts_B[captions, None] + torch.minimum(positions_L, lengths_C1 - 1)
        place_T[places_CL[is_token_CL]] = padded + is_token_CL.flatten().nonzero()[:, 0]
        padded += places_CL.numel()
        chunks.append(Chunk(to_device(places_CL, device), to_device(is_token_CL, device)))
    return chunks, to_device(place_T, device)


def _by_chunks(
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    chunks: list[Chunk],
    place_T: Tensor,
    *,
    scale: float | None,
    causal: bool,
    reach: int | None,
) -> Tensor:
    attended = []
    for chunk in chunks:
        # Without a window, causal attention needs no mask: padding is behind all tokens.
        mask = None if causal and reach is None else _visible(chunk.is_token_CL, causal, reach)
        attended_CHLd = F.scaled_dot_product_attention(
            _pad(query_THd, chunk),
            _pad(key_THd, chunk),
            _pad(value_THd, chunk),
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
        )
        attended.append(attended_CHLd.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended).index_select(0, place_T)


def _pad(packed_THd: Tensor, chunk: Chunk) -> Tensor:
    """Return the rows of a chunk, padded. Shape [C, H, L, d]."""
    padded = packed_THd.index_select(0, chunk.places_CL.flatten())
    padded_CLHd: Tensor = padded.unflatten(0, chunk.places_CL.shape)
    return padded_CLHd.transpose(1, 2)


def _visible(is_token_CL: Tensor, causal: bool, reach: int | None) -> Tensor:
    """Return which keys a query attends to. bool, shape [C, 1, 1 or L, L]."""
    visible = is_token_CL[:, None, None, :]
    places = torch.arange(is_token_CL.shape[1], device=is_token_CL.device)
    apart = places[:, None] - places
    if reach is not None:
        visible = visible & (apart.abs() <= reach)
    if causal:
        visible = visible & (apart >= 0)
    if reach is not None or causal:
        # Padding attends to everything: a row without any key would be NaN.
        visible = visible | ~is_token_CL[:, None, :, None]
    return visible


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


@torch.library.custom_op("biovl::attend_in_graph", mutates_args=())
def _attend_in_graph(
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    lengths_B: Tensor,
    scale: float,
    causal: bool,
    reach: int,
) -> Tensor:
    inputs, window = (query_THd, key_THd, value_THd), None if reach < 0 else reach
    if query_THd.device.type == "cuda":
        chunks = _chunks(lengths_B, query_THd.device)
        return _by_chunks(*inputs, *chunks, scale=scale, causal=causal, reach=window)
    lengths = lengths_B.tolist()
    return _one_by_one(
        *(*inputs, lengths, max(lengths)), scale=scale, causal=causal, reach=window
    ).contiguous()


@_attend_in_graph.register_fake
def _(query_THd: Tensor, *_: object) -> Tensor:
    return query_THd.new_empty(query_THd.shape)


@torch.library.custom_op("biovl::attend_in_graph_backward", mutates_args=())
def _attend_in_graph_backward(
    grad_THd: Tensor,
    query_THd: Tensor,
    key_THd: Tensor,
    value_THd: Tensor,
    lengths_B: Tensor,
    scale: float,
    causal: bool,
    reach: int,
) -> list[Tensor]:
    # Written out, because autograd does not run inside a custom operation.
    grads: list[list[Tensor]] = [[], [], []]
    chunks, place_T = _chunks(lengths_B, query_THd.device)
    for chunk in chunks:
        grad, query, key, value = (
            _pad(packed, chunk) for packed in (grad_THd, query_THd, key_THd, value_THd)
        )
        grad = grad * chunk.is_token_CL[:, None, :, None]
        visible = _visible(chunk.is_token_CL, causal, None if reach < 0 else reach)
        scores = (scale * query @ key.mT).masked_fill(~visible, float("-inf"))
        weights = scores.softmax(-1)
        of_weights = grad @ value.mT
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
        grads[0].append(scale * of_scores @ key)
        grads[1].append(scale * of_scores.mT @ query)
        grads[2].append(weights.mT @ grad)
    return [
        torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts]).index_select(0, place_T)
        for parts in grads
    ]


@_attend_in_graph_backward.register_fake
def _(grad_THd: Tensor, *_: object) -> list[Tensor]:
    return [grad_THd.new_empty(grad_THd.shape) for _ in range(3)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scale, ctx.causal, ctx.reach = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad_THd: Tensor) -> tuple[Tensor | None, ...]:
    grads = _attend_in_graph_backward(
        grad_THd, *ctx.saved_tensors, ctx.scale, ctx.causal, ctx.reach
    )
    return *grads, None, None, None, None


_attend_in_graph.register_autograd(_gradients, setup_context=_remember)


def has_varlen_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether one kernel computes the attention of all captions of a batch.

    That is the case on CUDA from Ampere (compute capability 8.0) on, in bfloat16 and float16.
    """
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and _capability(device) >= (8, 0)
    )


# The compiler would break the graph at this call.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


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
