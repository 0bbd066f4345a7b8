"""Towers prepared for training, as configured by the settings of a step."""

from typing import Any

import torch
from open_clip.hf_model import HFTextEncoder
from torch import nn

from biovl.models.builders.open_clip import Built
from biovl.models.towers import ImageTower, TextTower
from biovl.pretrain.compiling import compile_blocks, compile_text
from biovl.pretrain.config import OptimConfig, StepConfig
from biovl.pretrain.locking import lock
from biovl.pretrain.step import Towers


def towers_of(
    built: Built, step: StepConfig, device: torch.device, optim: OptimConfig | None = None
) -> Towers:
    """Return the towers of a model on a device, in training mode but for a locked one.

    They are compiled with ``step.compile=true``; ``auto`` is for the caller to decide.

    Raises:
        ConfigError: If the text tower does not support ``step.text``.
    """
    model = built.model.to(device).train()
    lock(model, optim or OptimConfig())
    if step.checkpoint_activations:
        checkpoint_activations(model.visual)
        checkpoint_activations(model.text)
    text = TextTower(model.text, step.text, built.context_length)
    if step.compile is True:
        compile_blocks(_compiled_blocks(model.visual), dynamic=False)
        compile_text(text, blocks_of(model.text))
    return Towers(
        ImageTower(model.visual, built.mean, built.std).to(device),
        text,
        model.logit_scale,
        model.logit_bias,
    )


def checkpoint_activations(tower: Any) -> None:
    """Enable activation checkpointing in the blocks of a tower."""
    if isinstance(tower, HFTextEncoder):
        # open_clip uses the reentrant variant, which is incompatible with DDP.
        tower.transformer.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        tower.set_grad_checkpointing()


def _compiled_blocks(tower: nn.Module) -> list[nn.Module]:
    """Return all blocks of the class of ``blocks_of``: a ResNet has them in several stages."""
    kinds = {type(block) for block in blocks_of(tower)}
    return [module for module in tower.modules() if type(module) in kinds]


def blocks_of(tower: nn.Module) -> list[nn.Module]:
    """Return the transformer blocks of a tower: the longest list of modules of one class."""
    lists = [
        list(module)
        for module in tower.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        and len({type(child) for child in module}) == 1
    ]
    return max(lists, key=len, default=[])
