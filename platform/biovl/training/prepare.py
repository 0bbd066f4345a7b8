"""A built model made ready to train: its towers, as the settings of a step say."""

import torch
from open_clip.hf_model import HFTextEncoder
from torch import nn

from biovl.models.open_clip import Built
from biovl.towers import ImageTower, TextTower
from biovl.training.config import StepConfig
from biovl.training.step import Towers


def towers_of(built: Built, step: StepConfig, device: torch.device) -> Towers:
    """Return the towers of a model on a device, in training mode.

    Raises:
        ConfigError: If the text tower cannot be computed as ``step.text`` says.
    """
    model = built.model.to(device).train()
    if step.checkpoint_activations:
        model.visual.set_grad_checkpointing()
        if isinstance(model.text, HFTextEncoder):
            # The reentrant kind, which open_clip asks for, does not go with DDP.
            model.text.transformer.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            model.text.set_grad_checkpointing()
    if step.compile:
        for tower in (model.visual, model.text):
            for block in blocks_of(tower):
                # Without effect in TextTransformer where it is packed, see towers/texts.py.
                # Captions end to end are another length in every step.
                block.compile(dynamic=tower is model.text)
    return Towers(
        ImageTower(model.visual, built.mean, built.std).to(device),
        TextTower(model.text, step.text, built.context_length),
        model.logit_scale,
        model.logit_bias,
    )


def blocks_of(tower: nn.Module) -> list[nn.Module]:
    """Return the transformer blocks of a tower: the longest list of modules of one class."""
    lists = [
        list(module)
        for module in tower.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        and len({type(child) for child in module}) == 1
    ]
    return max(lists, key=len, default=[])
