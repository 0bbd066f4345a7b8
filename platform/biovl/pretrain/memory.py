"""GPU memory of a training step: activations measured on a fake GPU, and sizes of the rest.

A step has phases with different tensors: the backward pass of the images, that of the texts, and
the update. The peak is that of the largest.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from biovl.models.builders.open_clip import Described
from biovl.models.towers.texts import TextCompute
from biovl.pretrain.activation_memory import (
    Activations,
    TowerActivations,
    image_activations,
    text_activations,
)
from biovl.pretrain.config import OptimConfig
from biovl.pretrain.flops import ForwardCost, copied_to, forward_cost
from biovl.pretrain.optimizer import ADAM_BYTES, state_bytes

# Shapes: B pairs on a worker, N pairs on all workers, D embedding.

PARAMETER_BYTES = 4
"""Bytes of a parameter, and of its gradient: float32."""

RESERVE_BYTES = 1.5e9
"""The CUDA context, and workspaces of cuBLAS, cuDNN and NCCL."""

USABLE = 0.92
"""Usable share of a GPU's memory; the rest is lost to fragmentation."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Sizes of a model, for estimates of memory and compute."""

    image_parameters: int
    text_parameters: int
    other_parameters: int
    """Parameters outside the towers, such as ``logit_scale``."""

    locked_parameters: int = 0
    """Parameters that are not trained, which are among those above."""

    locked_image_parameters: int = 0
    """Those of the image tower."""

    optimizer_bytes: float = ADAM_BYTES
    """Bytes of the optimizer's state per trained parameter."""

    cost: ForwardCost
    image_size: int
    """Side of the input image in pixels."""

    context: int
    """Context length in tokens, with start and end token."""

    embed_dim: int

    activations: Callable[[TextCompute, bool, bool], TowerActivations]
    """Function that returns the activation memory of the towers, given how the text tower handles
    padding, whether matrix products run in bfloat16, and whether activations are checkpointed."""

    @property
    def parameters(self) -> int:
        """Number of parameters of the whole model."""
        return self.image_parameters + self.text_parameters + self.other_parameters


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak memory of one worker in a step, by purpose, in bytes."""

    weights: float
    """Weights, the optimizer's state, and the gradients that exist at the peak."""

    activations: float
    """Tensors saved for the backward pass, with the copies of weights made by autocast."""

    working: float
    """Temporary memory of the backward pass."""

    loss: float
    pixels: float
    reserve: float

    @property
    def total(self) -> float:
        """Sum of all parts, in bytes."""
        step = self.activations + self.working + self.loss + self.pixels
        return self.weights + step + self.reserve


def model_info(described: Described, optim: OptimConfig | None = None) -> ModelInfo:
    """Return the description of a model at the image size and context that it is built for.

    Args:
        described: The model, on any device, also ``meta``.
        optim: The optimizer, for its state; None: AdamW.
    """
    model, context = described.model, described.context_length
    # With trainable parameters: the saved tensors depend on them.
    empty: Any = copied_to(model, "meta", requires_grad=True)
    of_image, of_text = _parameters(empty.visual), _parameters(empty.text)

    @functools.cache
    def image(autocast: bool, recomputed: bool) -> Activations:
        return image_activations(
            empty.visual, image_size=described.image_size, autocast=autocast, recomputed=recomputed
        )

    @functools.cache
    def text(compute: TextCompute, autocast: bool, recomputed: bool) -> Activations:
        return text_activations(
            empty.text, context=context, compute=compute, autocast=autocast, recomputed=recomputed
        )

    def activations(compute: TextCompute, autocast: bool, recomputed: bool) -> TowerActivations:
        return TowerActivations(
            image=image(autocast, recomputed), text=text(compute, autocast, recomputed)
        )

    return ModelInfo(
        image_parameters=of_image,
        text_parameters=of_text,
        other_parameters=_parameters(empty) - of_image - of_text,
        locked_parameters=_locked(empty),
        locked_image_parameters=_locked(empty.visual),
        optimizer_bytes=state_bytes(model, optim or OptimConfig()),
        cost=forward_cost(model),
        image_size=described.image_size,
        context=context,
        embed_dim=described.model_cfg["embed_dim"],
        activations=activations,
    )


def memory(
    info: ModelInfo,
    *,
    batch: int,
    local: int,
    micro_batch: int,
    tokens: float,
    tile: int,
    compute: TextCompute,
    autocast: bool,
    checkpointed: bool,
    distilled: bool = False,
) -> Memory:
    """Return the peak memory of a worker in a step.

    Args:
        info: Description of the model.
        batch: Pairs of all workers in a step, N.
        local: Pairs of this worker in a step, B.
        micro_batch: Pairs per forward pass of a tower, at most B.
        tokens: Mean tokens computed per caption, padding included.
        tile: Texts whose similarities are in memory at a time.
        compute: The text tower's mode of handling padding.
        autocast: Whether matrix products run in bfloat16.
        checkpointed: Whether activations are checkpointed.
        distilled: Whether the loss distills a teacher; its embeddings are assumed to have the
            model's dimension.
    """
    towers = info.activations(compute, autocast, checkpointed)
    pairs = min(micro_batch, local)
    image, text = _of_tower(towers.image, pairs), _of_tower(towers.text, pairs * tokens)
    trained = info.parameters - info.locked_parameters
    gradients = PARAMETER_BYTES * trained
    of_images = PARAMETER_BYTES * (info.image_parameters - info.locked_image_parameters)
    # Gradients, activations and temporary memory of each phase. Images go backward first. With
    # several workers the gradients are in DDP's buckets, which are never freed.
    update = _Phase(gradients, 0.0, 0.0)
    if micro_batch >= local:
        phases = [
            _Phase(0, image.activations + text.activations, image.working),
            _Phase(of_images, text.activations, text.working),
            update,
        ]
    else:
        phases = [
            _Phase(of_images, image.activations, image.working),
            _Phase(gradients, text.activations, text.working),
            update,
        ]
    if local < batch:
        phases = [phase._replace(gradients=gradients) for phase in phases]
    peak = max(phases, key=sum)
    loss = loss_bytes(batch=batch, local=local, embed_dim=info.embed_dim, tile=tile)
    if distilled:
        loss += distill_bytes(batch=batch, local=local, embed_dim=info.embed_dim, tile=tile)
    if local < batch:
        loss += exchange_bytes(batch=batch, embed_dim=info.embed_dim)
    return Memory(
        weights=PARAMETER_BYTES * info.parameters + info.optimizer_bytes * trained + peak.gradients,
        activations=peak.activations,
        working=peak.working,
        loss=loss,
        # uint8 pixels of this step and the next; the converted pixels are activations.
        pixels=2 * local * 3 * info.image_size**2,
        reserve=RESERVE_BYTES,
    )


class _Phase(NamedTuple):
    """Bytes in a phase of a step."""

    gradients: float
    activations: float
    working: float


def _of_tower(tower: Activations, count: float) -> _Phase:
    """Return the memory of a tower in its backward pass, without gradients."""
    return _Phase(0, count * tower.each + tower.weights, count * tower.working)


def exchange_bytes(*, batch: int, embed_dim: int) -> int:
    """Return the bytes of gathered texts and their gradients, in addition to the loss."""
    return 8 * batch * embed_dim


def loss_bytes(*, batch: int, local: int, embed_dim: int, tile: int) -> float:
    """Return the memory of the tiled loss, in bytes.

    All texts and their gradients, this worker's images and theirs, four tiles of similarities,
    and the sums of rows and columns; float32.
    """
    tile = min(tile, batch)
    return 8 * batch * embed_dim + 8 * local * embed_dim + 16 * local * tile + 4 * local + 8 * batch


def distill_bytes(*, batch: int, local: int, embed_dim: int, tile: int) -> float:
    """Return the memory in bytes that a teacher adds to ``loss_bytes`` in the tiled loss.

    It holds the texts of all workers (gathered and selected copies); this worker's embeddings in
    float16 for this step and the next, in float32, and scaled; one tile of similarities; and the
    sums of rows and columns.
    """
    tile = min(tile, batch)
    texts = (8 if local < batch else 0) * batch * embed_dim
    own = (2 * 4 + 8 + 8 + 4) * local * embed_dim
    return texts + own + 4 * local * tile + 4 * local + 8 * batch


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _locked(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if not p.requires_grad)
