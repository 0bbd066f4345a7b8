"""Locked towers: which parameters of a model are not trained.

A tower is locked as a whole, or except for its last layer groups, as defined by open_clip.
"""

import warnings
from typing import Any

from open_clip.hf_model import HFTextEncoder
from torch import nn

from biovl.core.errors import ConfigError
from biovl.pretrain.config import OptimConfig


def lock(model: Any, optim: OptimConfig) -> None:
    """Freeze the locked parameters of an open_clip ``CustomTextCLIP``.

    Layers without trained parameters are set to evaluation mode: no dropout, fixed batch-norm
    statistics. Call this again after ``model.train()``, which undoes that.

    Raises:
        ConfigError: If a tower has no groups, or so few that nothing would be locked.
    """
    if optim.locked in ("image", "both"):
        _lock_image(model.visual, optim.image_unlocked_groups)
        _evaluate(model.visual)
    if optim.locked in ("text", "both"):
        _lock_text(model.text, optim.text_unlocked_layers, norms=optim.lock_layer_norm)
        _evaluate(model.text)


def _lock_image(tower: Any, unlocked: int | None) -> None:
    if unlocked is None:
        tower.requires_grad_(False)
        return
    try:
        with warnings.catch_warnings():
            # open_clip imports from a deprecated module of timm.
            warnings.simplefilter("ignore", FutureWarning)
            tower.lock(unlocked_groups=unlocked)
    # A ResNet of open_clip has no groups.
    except AssertionError as error:
        raise ConfigError(
            f"optim.image_unlocked_groups={unlocked}: open_clip cannot lock a part of this tower; "
            "leave it out to lock all of it"
        ) from error
    _check_locked(tower, f"optim.image_unlocked_groups={unlocked}")


def _lock_text(tower: Any, unlocked: int | None, *, norms: bool) -> None:
    if unlocked is None:
        tower.requires_grad_(False)
        return
    name = f"optim.text_unlocked_layers={unlocked}"
    if isinstance(tower, HFTextEncoder):
        _lock_transformer(tower.transformer, unlocked, norms=norms)
    elif norms:
        tower.lock(unlocked_layers=unlocked)
    else:
        raise ConfigError("optim.lock_layer_norm=false is for a transformers text tower")
    _check_locked(tower, name)


def _lock_transformer(transformer: Any, unlocked: int, *, norms: bool) -> None:
    """Freeze the embeddings and all but the last layers of a transformers tower.

    Its projection is trained, and what follows the last layer unless ``unlocked`` is 0.

    Source:
        open_clip 3.3.0, ``HFTextEncoder.lock``, which fails for the layers of BERT and ModernBERT.
    """
    layers = next(part for part in transformer.modules() if isinstance(part, nn.ModuleList))
    groups = [transformer.embeddings, *layers]
    for group in groups[:-unlocked] if unlocked else [transformer]:
        group.requires_grad_(False)
        if not norms:
            for part in group.modules():
                if isinstance(part, nn.LayerNorm):
                    part.requires_grad_(True)


def _check_locked(tower: nn.Module, setting: str) -> None:
    if all(parameter.requires_grad for parameter in tower.parameters()):
        raise ConfigError(f"{setting} locks nothing: the tower does not have more groups of layers")


def _evaluate(tower: nn.Module) -> None:
    """Put layers without trained parameters in evaluation mode."""
    for part in tower.modules():
        parameters = list(part.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            part.eval()
