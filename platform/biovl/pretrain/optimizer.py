"""AdamW as in the papers, with weight decay for matrices only, and gradient clipping."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

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
    """Return AdamW over the trainable parameters, in the order of their names."""
    named = [(name, p) for name, p in sorted(model.named_parameters()) if p.requires_grad]
    groups = [
        {
            "params": [p for n, p in named if decays(n, p, optim)],
            "weight_decay": optim.weight_decay,
        },
        {"params": [p for n, p in named if not decays(n, p, optim)], "weight_decay": 0.0},
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
