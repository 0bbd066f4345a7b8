"""AdamW as in the papers, or a timm optimizer; weight decay of matrices only; gradient clipping.

Towers can have different learning rates, and early blocks lower ones.
"""

import inspect
import re
from collections.abc import Iterable
from typing import Any

import torch
from timm.optim import (  # type: ignore[attr-defined]
    create_optimizer_v2,
    get_optimizer_class,
    list_optimizers,
)
from torch import Tensor, nn

from biovl.core.config import nearest
from biovl.core.errors import ConfigError
from biovl.pretrain.config import OptimConfig
from biovl.pretrain.flops import copied_to
from biovl.pretrain.step import MAX_LOGIT_SCALE, Towers

_NEVER_DECAYED = ("bn", "ln", "bias", "logit_scale")
_EMBEDDINGS = (
    "cls_token",
    "reg_token",
    "dist_token",
    "class_embedding",
    "pos_embed",
    "positional_embedding",
    "position_embeddings",
    "token_type_embeddings",
)

_BLOCK = re.compile(r"\.(?:resblocks|blocks|layers?)\.(\d+)\.")
"""Number of a transformer block in the name of a parameter: open_clip, timm, transformers."""

_INPUT = (
    *("conv1", "patch_embed", "cls_token", "reg_token", "dist_token", "class_embedding"),
    *("pos_embed", "positional_embedding", "token_embedding", "embeddings", "ln_pre", "norm_pre"),
)
"""Parts of names of parameters in front of the first block."""

ADAM_BYTES = 8
"""Bytes of AdamW's state per parameter: two moments, float32."""

LR_SCALE = "lr_scale"
"""Entry of a parameter group: factor on the learning rate of the step."""


def layer_scales(model: nn.Module, optim: OptimConfig) -> dict[str, float]:
    """Return the factor on the learning rate of every trainable parameter, by name.

    A factor is that of the tower, times ``layer_decay`` for each later block of the tower.

    Raises:
        ConfigError: If a tower has no numbered blocks, so that ``layer_decay`` has no meaning.
    """
    trained = {name: p.requires_grad for name, p in model.named_parameters()}
    scales: dict[str, float] = {}
    for tower, factor, decay in zip(
        ("visual.", "text."),
        (optim.image_lr_factor, optim.text_lr_factor),
        optim.layer_decays,
        strict=True,
    ):
        own = [name for name in trained if name.startswith(tower)]
        if decay == 1 or not any(trained[name] for name in own):
            scales |= dict.fromkeys(own, factor)
            continue
        found = [match for name in own if (match := _BLOCK.search(name))]
        blocks = [int(match[1]) for match in found]
        if len({match.string[: match.start(1)] for match in found}) != 1:
            raise ConfigError(
                f"optim.layer_decay={decay:g}: the tower {tower.rstrip('.')!r} has no "
                "single row of transformer blocks; set optim.layer_decay=1"
            )
        depth = max(blocks) + 1
        for name in own:
            scales[name] = factor * decay ** (depth - _layer(name, depth))
    return {name: scales.get(name, 1.0) for name in trained if trained[name]}


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
        open_clip 3.3.0, ``open_clip_train/main.py``; its main branch also excludes
        positional and class embeddings (``decay_embeddings: false``).
    """
    if parameter.ndim < 2 or any(part in name for part in _NEVER_DECAYED):
        return False
    return optim.decay_embeddings or not any(part in name for part in _EMBEDDINGS)


def make_optimizer(model: nn.Module, optim: OptimConfig) -> torch.optim.Optimizer:
    """Return the optimizer of the trainable parameters, in the order of their names.

    There are two parameter groups per learning rate factor: with and without weight decay.

    Raises:
        ConfigError: If timm has no such optimizer, or it has no such settings.
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
    if optim.name == "adamw":
        return torch.optim.AdamW(
            groups, lr=optim.peak_lr, betas=optim.betas, eps=optim.eps, fused=True
        )
    return _timm_optimizer(groups, optim)


def _timm_optimizer(groups: list[dict[str, Any]], optim: OptimConfig) -> torch.optim.Optimizer:
    name = optim.name.removeprefix("timm/")
    known = [str(other) for other in list_optimizers() if _is_supported(str(other))]
    if name not in known:
        raise ConfigError(
            f"optim.name: there is no optimizer {optim.name}; choose adamw, or timm/ and one of "
            f"{', '.join(known)}{nearest(name, known)}"
        )
    # timm ignores some names that an optimizer does not have.
    parameters = inspect.signature(get_optimizer_class(name, bind_defaults=False)).parameters
    allowed = parameters.keys() - {"params", "lr", "weight_decay"}
    for setting in optim.settings.keys() - allowed:
        raise ConfigError(
            f"optim.settings: {optim.name} has no {setting}; choose from "
            f"{', '.join(sorted(allowed))}{nearest(setting, allowed)}"
        )
    try:
        return create_optimizer_v2(groups, name, lr=optim.peak_lr, **optim.settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optim.settings of {optim.name}: {error}") from error


def state_bytes(model: nn.Module, optim: OptimConfig) -> float:
    """Return the bytes of the optimizer's state per trained parameter. The model is not changed.

    Measured with one step on the device ``meta``. For optimizers that read values in a step (AdamP,
    NovoGrad), which fails there, the size of AdamW's state is assumed.
    """
    if optim.name == "adamw":
        return ADAM_BYTES
    empty = copied_to(model, "meta", requires_grad=True)
    optimizer = make_optimizer(empty, optim)
    trained = [parameter for parameter in empty.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    try:
        optimizer.step()
    except RuntimeError:
        return ADAM_BYTES
    tensors = [t for state in optimizer.state.values() for t in state.values()]
    stored = sum(t.nbytes for t in tensors if isinstance(t, Tensor))
    return stored / sum(parameter.numel() for parameter in trained)


def _is_supported(name: str) -> bool:
    # Kron draws random numbers that are not in its state, so that it cannot resume; AdaHessian
    # needs second derivatives; the others need apex or bitsandbytes.
    return not name.startswith(("kron", "adahessian", "fused", "bnb"))


def parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of the optimizer's parameters, by their number in its ``state_dict``."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[each] for group in optimizer.param_groups for each in group["params"]]


def clip(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Clip gradients to a maximum norm, and return the norm before clipping. Shape []."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm


def apply_update(optimizer: torch.optim.Optimizer, is_finite: Tensor) -> None:
    """Update the weights if ``is_finite`` is true; otherwise change neither them nor the state.

    A fused optimizer decides on the device; for others the host waits for the device.

    Args:
        optimizer: Its parameters have gradients.
        is_finite: Whether loss and gradient are finite. Shape [], bool, on the device.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        # As torch.amp.GradScaler does.
        optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif is_finite:
        optimizer.step()


@torch.no_grad()
def clamp_logit_scale(towers: Towers, is_finite: Tensor) -> None:
    """Clamp the scale on similarities to 1 … 100, if ``is_finite`` (bool, shape []) is true."""
    scale = towers.logit_scale
    scale.copy_(torch.where(is_finite, scale.clamp(0, MAX_LOGIT_SCALE), scale))
