"""Activation memory of a training step, measured in a forward pass without data.

The towers run on fake CUDA tensors (``FakeTensorMode``), which need no GPU, with the autocast rules
of a GPU: every tensor still alive after the forward pass is saved for the backward pass. Flash and
varlen attention are replaced by the tensors that their kernels save: query, key, value, output and
one float32 per token and head.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from open_clip.hf_model import HFTextEncoder
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from biovl.models.towers import ImageTower, TextTower, texts
from biovl.models.towers.attention import CaptionLayout
from biovl.models.towers.texts import TextCompute
from biovl.pretrain.flops import copied_to
from biovl.pretrain.prepare import blocks_of, checkpoint_activations

FEW, MORE = 2, 4
"""Images, or captions, of two forward passes; memory is extrapolated from their difference."""

CAPTION_TOKENS = 128
"""Most tokens of a counted caption; saved memory is linear in them."""

GRADIENTS_OF_A_BLOCK = 0.3
"""Temporary memory of a block's backward pass, per byte that the block saves (0.1 to 0.33 in the
towers of all recipes). A recomputed block adds its saved bytes."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes that a tower saves for the backward pass, a linear function of its input size."""

    each: float
    """Bytes per image, or per token."""

    weights: float = 0.0
    """Bytes of bfloat16 copies of the weights, made by autocast: independent of the input."""

    block: float
    """Bytes per image or token that one block saves."""

    recomputed: bool = False

    def bytes_of(self, count: float) -> float:
        """Return the bytes saved for ``count`` images or tokens, without copies of the weights."""
        return count * self.each

    def working_bytes_of(self, count: float) -> float:
        """Return the additional bytes that the backward pass of one block needs."""
        return count * self.block * (GRADIENTS_OF_A_BLOCK + self.recomputed)


@dataclass(frozen=True, kw_only=True)
class TowerActivations:
    """Activation memory of image and text tower."""

    image: Activations
    text: Activations


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

    def forward_of(copied: nn.Module) -> Callable[[int], Tensor]:
        # Moving a tower would replace its parameters.
        with torch.device("cuda"):
            tower = ImageTower(copied, [0.5] * 3, [0.5] * 3)
        return lambda count: tower(
            torch.zeros(count, image_size, image_size, 3, dtype=torch.uint8, device="cuda")
        )

    return _counted(
        visual, forward_of, size=1, autocast=autocast, recomputed=recomputed, masked=False
    )


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
    if compute == "chunked" and not isinstance(text, HFTextEncoder):
        tokens = context

    def forward_of(copied: nn.Module) -> Callable[[int], Tensor]:
        return functools.partial(_text_features, copied, compute, context, tokens)

    return _counted(
        text,
        forward_of,
        size=tokens,
        autocast=autocast,
        recomputed=recomputed,
        masked=compute != "packed" and isinstance(text, HFTextEncoder),
    )


def _counted(
    tower: nn.Module,
    forward_of: Callable[[nn.Module], Callable[[int], Tensor]],
    *,
    size: int,
    autocast: bool,
    recomputed: bool,
    masked: bool,
) -> Activations:
    linear = functools.partial(_linear, tower, forward_of, autocast=autocast, masked=masked)
    whole = kept = linear(recomputed=False)
    if recomputed:
        kept = linear(recomputed=True)
    return Activations(
        each=kept[0] / size,
        weights=kept[1],
        block=whole[0] / size / max(1, len(blocks_of(tower))),
        recomputed=recomputed,
    )


def saved_bytes(
    tower: nn.Module,
    forward_of: Callable[[nn.Module], Callable[[int], Tensor]],
    count: int,
    *,
    autocast: bool,
    recomputed: bool,
    masked: bool = False,
) -> int:
    """Return the bytes that a forward pass leaves alive for the backward pass.

    Args:
        tower: The tower; it is not changed, since a copy without data is run.
        forward_of: Given that copy, returns a function that runs it on a number of inputs.
        count: Images or captions.
        autocast: Whether matrix products run in bfloat16.
        recomputed: Whether activations are checkpointed.
        masked: Whether attention gets a padding mask.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), torch.random.fork_rng(devices=[]):
        copied = copied_to(tower, "cuda", requires_grad=True)
        if recomputed:
            checkpoint_activations(copied)
        forward = forward_of(copied)
        with _Alive() as alive, _flash_attention(padding_mask=masked), _cuda_autocast(autocast):
            result = forward(count)
        saved: int = alive.nbytes()
    # The result keeps the saved tensors alive.
    del result
    return saved


def _linear(
    tower: nn.Module,
    forward_of: Callable[[nn.Module], Callable[[int], Tensor]],
    *,
    autocast: bool,
    recomputed: bool,
    masked: bool,
) -> tuple[float, float]:
    """Return slope and intercept of the saved bytes, as a function of images or captions."""
    few, more = (
        saved_bytes(
            tower, forward_of, count, autocast=autocast, recomputed=recomputed, masked=masked
        )
        for count in (FEW, MORE)
    )
    slope = (more - few) / (MORE - FEW)
    return slope, few - FEW * slope


def _text_features(
    text: Any, compute: TextCompute, context: int, tokens: int, count: int
) -> Tensor:
    if compute == "packed":
        tower = TextTower(text, "packed", context)
        return tower.packed(
            torch.ones(count * tokens, dtype=torch.long, device="cuda"),
            CaptionLayout(
                [tokens] * count,
                tokens,
                torch.zeros(count + 1, dtype=torch.int32, device="cuda"),
                torch.zeros(count * tokens, dtype=torch.long, device="cuda"),
                torch.zeros(count, dtype=torch.int32),
            ),
        )
    tokens_BL = torch.ones(count, tokens, dtype=torch.long, device="cuda")
    if not isinstance(text, HFTextEncoder):
        features_BD: Tensor = text(tokens_BL)
        return F.normalize(features_BD, dim=-1)
    # Not through forward: transformers inspects the mask, which has no data here. The mask of
    # the kernel is counted with attention.
    hidden = text.transformer(input_ids=tokens_BL)
    pooled_BD: Tensor = text.proj(text.pooler(hidden, torch.ones_like(tokens_BL)))
    return F.normalize(pooled_BD.float(), dim=-1)


class _Alive(TorchDispatchMode):
    """Records the storages of all results of operations."""

    def __init__(self) -> None:
        untyped: Any = super().__init__
        untyped()
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run and record an operation."""
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor) and value.device.type == "cuda":
                storage = value.untyped_storage()
                self._storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return result

    def nbytes(self) -> int:
        """Return the bytes of the storages that are still alive."""
        return sum(size for storage, size in self._storages.values() if not storage.expired())


class _Flash(torch.autograd.Function):
    """Allocates and saves the tensors of a flash attention kernel, without computing."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return an uninitialized output."""
        attended = torch.empty_like(query)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, attended, sums, mask)
        return attended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Return uninitialized gradients of the right shapes."""
        return *(torch.empty_like(saved) for saved in ctx.saved_tensors[:3]), None


def _flash(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    # Casts of autocast for the arguments of attention.
    if torch.is_autocast_enabled("cuda"):
        query, key, value = (each.to(torch.bfloat16) for each in (query, key, value))
    attended: Tensor = _Flash.apply(query, key, value, mask)
    return attended


@contextlib.contextmanager
def _flash_attention(*, padding_mask: bool) -> Iterator[None]:
    """Replace attention by ``_Flash``.

    Args:
        padding_mask: Whether each layer saves a mask, as SDPA builds one in the dtype of the
            query from the caption lengths.
    """

    def masked(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        length = query.shape[-2]
        # Rows are aligned to 16 bytes.
        mask = query.new_empty(len(query), 1, length, 8 * math.ceil(length / 8))
        if torch.is_autocast_enabled("cuda"):
            mask = mask.to(torch.bfloat16)
        return _flash(query, key, value, mask)

    def unmasked(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        return _flash(query, key, value)

    replaced: Any = F
    towers: Any = texts
    before = replaced.scaled_dot_product_attention, towers.attend
    replaced.scaled_dot_product_attention = masked if padding_mask else unmasked
    towers.attend = unmasked
    try:
        yield
    finally:
        replaced.scaled_dot_product_attention, towers.attend = before


@contextlib.contextmanager
def _cuda_autocast(enabled: bool) -> Iterator[None]:
    # torch.autocast("cuda") is disabled on machines without a GPU.
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
