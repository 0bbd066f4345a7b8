"""What a training step holds in a GPU's memory: an estimate by rule, made before anything runs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from biovl.training.flops import ForwardCost, forward_cost, on_meta

# Shapes: B pairs on a worker, N pairs on all workers, D embedding.

STATE_BYTES = 16
"""Of a parameter: itself, its gradient and Adam's two moments, all float32."""

AUTOCAST_BYTES = 2
"""Of a parameter: the bfloat16 copy that autocast keeps during a step."""

RESERVE_BYTES = 1.5e9
"""The CUDA context, work space of the matrix library, buckets of gradients."""

USABLE = 0.92
"""The share of a GPU's memory that can be planned with; the rest is lost between blocks."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What estimates need to know of a model."""

    image_parameters: int
    text_parameters: int
    other_parameters: int
    """Such as ``logit_scale``."""

    cost: ForwardCost
    image_size: int
    """Pixels of a side."""

    context: int
    """Tokens at most, start and end token included."""

    embed_dim: int
    image_bytes: float
    """Activations of an image that wait for the backward pass."""

    token_bytes: float
    """Activations of a caption's token."""

    image_bytes_checkpointed: float
    token_bytes_checkpointed: float

    @property
    def parameters(self) -> int:
        """Of both towers and what is between them."""
        return self.image_parameters + self.text_parameters + self.other_parameters


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one worker at the height of a step."""

    weights: float
    """Weights, gradients, Adam's state, and the copies of autocast."""

    activations: float
    loss: float
    pixels: float
    reserve: float

    @property
    def total(self) -> float:
        """Return the sum."""
        return self.weights + self.activations + self.loss + self.pixels + self.reserve


def describe(model: nn.Module, *, image_size: int, context: int, embed_dim: int) -> ModelInfo:
    """Return what estimates need of an open_clip ``CustomTextCLIP``, on the meta device or not."""
    empty: Any = on_meta(model)
    image, image_checkpointed = _image_bytes(empty.visual, image_size)
    token, token_checkpointed = _block_bytes(_blocks(empty.text))
    of_image, of_text = _parameters(empty.visual), _parameters(empty.text)
    return ModelInfo(
        image_parameters=of_image,
        text_parameters=of_text,
        other_parameters=_parameters(empty) - of_image - of_text,
        cost=forward_cost(model),
        image_size=image_size,
        context=context,
        embed_dim=embed_dim,
        image_bytes=image,
        token_bytes=token,
        image_bytes_checkpointed=image_checkpointed,
        token_bytes_checkpointed=token_checkpointed,
    )


def memory(
    info: ModelInfo,
    *,
    batch: int,
    local: int,
    micro_batch: int,
    tokens: float,
    tile: int,
    autocast: bool,
    checkpointed: bool,
) -> Memory:
    """Return what a worker holds.

    Args:
        info: Of the model.
        batch: Pairs of all workers in a step, N.
        local: Pairs of this worker in a step, B.
        micro_batch: Pairs that go through the towers at a time, at most B.
        tokens: Computed for a caption on average, padding included.
        tile: Texts whose similarities are held at a time.
        autocast: Whether matrices are multiplied in bfloat16; otherwise activations take twice
            as much.
        checkpointed: Whether only the inputs of blocks are kept.
    """
    image = info.image_bytes_checkpointed if checkpointed else info.image_bytes
    token = info.token_bytes_checkpointed if checkpointed else info.token_bytes
    width = 1 if autocast else 2
    image_bytes = 3 * info.image_size**2
    # Micro-batches go backward through one tower after the other; a whole batch keeps both.
    held = image + token * tokens if micro_batch >= local else max(image, token * tokens)
    return Memory(
        weights=info.parameters * (STATE_BYTES + AUTOCAST_BYTES * autocast),
        activations=min(micro_batch, local) * width * held,
        loss=loss_bytes(batch=batch, local=local, embed_dim=info.embed_dim, tile=tile),
        # As uint8 for this step and the next; as float32 for those in the towers.
        pixels=image_bytes * (2 * local + 4 * min(micro_batch, local)),
        reserve=RESERVE_BYTES,
    )


def loss_bytes(*, batch: int, local: int, embed_dim: int, tile: int) -> float:
    """Return what the tiled loss holds, in bytes.

    All texts and their gradients, this worker's images and theirs, four tiles of similarities,
    and the sums of rows and columns; float32.
    """
    tile = min(tile, batch)
    return 8 * batch * embed_dim + 8 * local * embed_dim + 16 * local * tile + 4 * local + 8 * batch


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _blocks(tower: nn.Module) -> nn.Module:
    """Return the list of a transformer's blocks: most parameters in children of one class."""
    lists = [
        module
        for module in tower.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        and len({type(child) for child in module}) == 1
        and any(isinstance(part, nn.LayerNorm) for part in module[0].modules())
    ]
    return max(lists, key=_parameters)


def _block_bytes(blocks: Any) -> tuple[float, float]:
    """Return the bytes that a token leaves in all blocks, and when blocks are checkpointed.

    16 d around attention, with the flash kernel, and bfloat16 values before and after the MLP's
    activation: 32 d for an MLP of 4 d. An estimate for fused activations.
    """
    parts = list(blocks[0].modules())
    width = max(part.normalized_shape[0] for part in parts if isinstance(part, nn.LayerNorm))
    matrices = [(p.in_features, p.out_features) for p in parts if isinstance(p, nn.Linear)]
    inner = max((wide for wide, _ in matrices if wide != width), default=4 * width)
    gated = (width, 2 * inner) in matrices
    kept = 16 * width + 2 * (3 if gated else 2) * inner
    return float(len(blocks) * kept), float(len(blocks) * 2 * width + kept)


def _image_bytes(visual: nn.Module, image_size: int) -> tuple[float, float]:
    pixels_BCHW = torch.empty(1, 3, image_size, image_size, device="meta")
    seen: list[int] = []
    if any(isinstance(part, nn.BatchNorm2d) for part in visual.modules()):
        # A residual network keeps what goes into and what comes out of each normalisation.
        for part in visual.modules():
            if isinstance(part, nn.Conv2d | nn.BatchNorm2d):
                part.register_forward_hook(lambda _, __, out: seen.append(2 * out.numel()))
        with torch.no_grad(), torch.device("meta"):
            visual(pixels_BCHW)
        return float(sum(seen)), float(sum(seen))
    blocks: Any = _blocks(visual)
    # How many tokens come out of the patches, without those that patch dropout drops.
    blocks[0].register_forward_pre_hook(
        lambda _, inputs, named: seen.append((*inputs, *named.values())[0].shape[1]),
        with_kwargs=True,
    )
    with torch.no_grad(), torch.device("meta"):
        visual(pixels_BCHW)
    kept, checkpointed = _block_bytes(blocks)
    return seen[0] * kept, seen[0] * checkpointed
