"""AdamW as in the papers, with weight decay for matrices only, and gradient clipping.

For fine-tuning, a tower can be locked, and early blocks can have lower learning rates.
"""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from biovl.core.errors import ConfigError
from biovl.pretrain.config import OptimConfig
from biovl.pretrain.step import MAX_LOGIT_SCALE, Towers

_NEVER_DECAYED = ("bn", "ln", "bias", "logit_scale")
_EMBEDDINGS = (
    "cls_token",
    "class_embedding",
    "pos_embed",
    "positional_embedding",
    "position_embeddings",
    "token_type_embeddings",
)

_BLOCK = re.compile(r"\.(?:resblocks|blocks|layers?)\.(\d+)\.")
"""Number of a transformer block in the name of a parameter: open_clip, timm, transformers."""

_INPUT = (
    *("conv1", "patch_embed", "cls_token", "class_embedding", "pos_embed", "positional_embedding"),
    *("token_embedding", "embeddings", "ln_pre", "norm_pre"),
)
"""Parts of names of parameters in front of the first block."""

LR_SCALE = "lr_scale"
"""Entry of a parameter group: factor on the learning rate of the step."""


def lock(model: Any, optim: OptimConfig) -> None:
    """Freeze the parameters of the locked tower of an open_clip ``CustomTextCLIP``.

    To call again after ``model.train()``, which would turn its dropout on.
    """
    if optim.locked != "none":
        tower = model.visual if optim.locked == "image" else model.text
        tower.requires_grad_(False).eval()


def layer_scales(model: nn.Module, optim: OptimConfig) -> dict[str, float]:
    """Return the factor on the learning rate of every trainable parameter, by name.

    Raises:
        ConfigError: If a tower has no numbered blocks, so that ``layer_decay`` has no meaning.
    """
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if optim.layer_decay == 1:
        return dict.fromkeys(names, 1.0)
    scales: dict[str, float] = {}
    for tower in ("visual.", "text."):
        own = [name for name in names if name.startswith(tower)]
        found = [match for name in own if (match := _BLOCK.search(name))]
        blocks = [int(match[1]) for match in found]
        stages = {match.string[: match.start(1)] for match in found}
        if own and len(stages) != 1:
            raise ConfigError(
                f"optim.layer_decay={optim.layer_decay:g}: the tower {tower.rstrip('.')!r} has no "
                "single row of transformer blocks; set optim.layer_decay=1"
            )
        depth = max(blocks, default=-1) + 1
        for name in own:
            scales[name] = optim.layer_decay ** (depth - _layer(name, depth))
    return {name: scales.get(name, 1.0) for name in names}


def _layer(name: str, depth: int) -> int:
    """Return the position of a parameter in its tower: 0 in front of all blocks, then 1 to depth.

    What follows the last block has the position of that block.
    """
    block = _BLOCK.search(name)
    if block is not None:
        return int(block[1]) + 1
    return 0 if any(part in name for part in _INPUT) else depth


def decays(name: str, parameter: nn.Parameter, optim: OptimConfig) -> bool:
    """Return whether weight decay applies: to matrices; not to biases, norms and ``logit_scale``.

    Source:
        open_clip 3.3.0, ``open_clip_train/main.py``; its main branch also excludes embeddings of
        positions and classes (``decay_embeddings: false``).
    """
    if parameter.ndim < 2 or any(part in name for part in _NEVER_DECAYED):
        return False
    return optim.decay_embeddings or not any(part in name for part in _EMBEDDINGS)


def make_optimizer(model: nn.Module, optim: OptimConfig) -> torch.optim.AdamW:
    """Return AdamW over the trainable parameters, in the order of their names.

    A group for each factor on the learning rate, with and without weight decay.
    """
    scales = layer_scales(model, optim)
    named = [(name, p) for name, p in sorted(model.named_parameters()) if p.requires_grad]
    groups: list[dict[str, Any]] = []
    for scale in sorted(set(scales.values()), reverse=True):
        own = [(name, p) for name, p in named if scales[name] == scale]
        decayed = [p for name, p in own if decays(name, p, optim)]
        others = [p for name, p in own if not decays(name, p, optim)]
        groups += [
            {"params": decayed, "weight_decay": optim.weight_decay, LR_SCALE: scale},
            {"params": others, "weight_decay": 0.0, LR_SCALE: scale},
        ]
    return torch.optim.AdamW(groups, lr=optim.peak_lr, betas=optim.betas, eps=optim.eps, fused=True)


def clip(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Clip gradients to a maximum norm, and return the norm before clipping. Shape []."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm


@torch.no_grad()
def clamp_logit_scale(towers: Towers) -> None:
    """Clamp the scale on similarities to 1 … 100."""
    towers.logit_scale.clamp_(0, MAX_LOGIT_SCALE)
