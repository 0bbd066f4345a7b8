"""Prepare towers for training: locking, activation checkpointing and compilation."""

from typing import Any

import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.transformer import TextTransformer
from torch import nn

from biovl.core.errors import ConfigError
from biovl.models.builders.open_clip import Built
from biovl.models.towers import ImageTower, TextTower
from biovl.pretrain.compiling import compile_blocks, compile_text
from biovl.pretrain.config import OptimConfig, StepConfig
from biovl.pretrain.locking import lock
from biovl.pretrain.step import Towers


def towers_of(
    built: Built, step: StepConfig, device: torch.device, optim: OptimConfig | None = None
) -> Towers:
    """Return the towers of a model on a device, in training mode unless locked.

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


def check_pooled_token(built: Built, step: StepConfig) -> None:
    """Check that a model pools the same token of a text in training as when it is published.

    Packed texts are pooled at their last token. open_clip's own text tower, and with it every user
    of the published model, looks for a token by its id.

    Raises:
        ConfigError: If these are different tokens with this tokenizer.
    """
    text: Any = built.model.text
    if step.text != "packed" or not isinstance(text, TextTransformer):
        return
    tokenizer = built.tokenizer
    probes = tokenizer.encode(["", "A probe: of 2 words?"])
    ends = {int(ids[-1]) if len(ids) else None for ids in probes}
    end = ends.pop()
    if ends or end is None or any((ids[:-1] == end).any() for ids in probes):
        raise ConfigError(
            "step.text: packed pools the last token of a text, and the tokenizer does not end "
            "texts with a token of its own; choose padded, or another tokenizer"
        )
    if text.pool_type == "eos" and text.eos_id != end:
        pooled = f"eos pools the token {text.eos_id} (text_cfg.eos_id)"
    elif text.pool_type == "argmax" and end != tokenizer.vocab_size - 1:
        pooled = f"argmax pools the largest of {tokenizer.vocab_size} token ids"
    else:
        return
    raise ConfigError(
        f"text_cfg.pool_type {pooled}, and the tokenizer ends texts with {end}, which step.text="
        f"packed pools: set text_cfg.pool_type=eos and text_cfg.eos_id={end}"
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
