"""Models of recipes with their first blocks alone: the same kinds of blocks in less time."""

from torch import nn

from biovl.pretrain.tower_setup import blocks_of


def cut(model: nn.Module) -> None:
    """Delete all but the first two blocks of each tower; of ModernBERT's, all but four.

    Its fourth is the first that has a norm and no window.
    """
    for tower in (model.visual, model.text):
        blocks = blocks_of(tower)
        for part in tower.modules():
            if isinstance(part, nn.ModuleList | nn.Sequential) and list(part) == blocks:
                del part[4 if "ModernBert" in type(blocks[0]).__name__ else 2 :]
