"""The network: a backbone of timm, its features brought together at stride 8, and two heads.

One head says of each cell how much it is the centre of a panel, the other how far the panel's
sides are. There are no anchors.

Shapes: B figures, C channels, H and W cells of eight pixels.

Source:
    Zhou et al. 2019, Objects as points, arXiv:1904.07850; sides in place of sizes as in Tian et al.
    2019, FCOS, arXiv:1904.01355.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biovl.core.errors import ArtifactError, ConfigError
from biovl.split.detector.config import STRIDE, Design
from biovl.split.detector.fitting import AROUND

_STRIDES = (STRIDE, 2 * STRIDE, 4 * STRIDE)
_RARE = 0.02
"""Share of cells that are believed to be centres at first: a loss that does not begin huge."""

_USUAL = 0.15
"""Of the input's side: how far sides are believed to be at first."""


class Output(NamedTuple):
    """What the network says of figures."""

    centre_BHW: Tensor
    """Logits."""
    sides_B4HW: Tensor
    """Left, top, right, bottom: how far each is from the cell's middle, as a share of the input's
    side, 0..1."""


class PanelNetwork(nn.Module):
    """Finds panels in figures."""

    def __init__(self, design: Design, *, pretrained: bool = False) -> None:
        """Build it.

        Raises:
            ConfigError: If timm has no such backbone, or not at these strides.
            ArtifactError: If the backbone's weights are asked for and cannot be had.
        """
        super().__init__()
        self.backbone, self.levels, widths = _backbone(design.backbone, pretrained=pretrained)
        c = design.channels
        self.lateral = nn.ModuleList(nn.Conv2d(width, c, 1) for width in widths)
        self.context = nn.Linear(c, c)
        self.mixed = nn.ModuleList(_block(c) for _ in self.levels)
        self.centre = _head(c, 1, _RARE)
        self.sides = _head(c, 4, _USUAL)

    def forward(self, pixels_BCHW: Tensor) -> Output:
        """Look at figures whose height and width are multiples of 32 pixels."""
        features = self.backbone(pixels_BCHW)
        coarse: Tensor | None = None
        for level, lateral, mixed in reversed(
            list(zip(self.levels, self.lateral, self.mixed, strict=True))
        ):
            own = lateral(features[level])
            if coarse is None:
                # How many panels there are and how large shows in the whole figure alone.
                own = own + self.context(own.mean((2, 3)))[:, :, None, None]
            else:
                own = own + F.interpolate(coarse, size=own.shape[-2:], mode="nearest")
            coarse = mixed(own)
        return Output(self.centre(coarse)[:, 0], self.sides(coarse).sigmoid())


def _head(channels: int, outputs: int, first: float) -> nn.Sequential:
    """Return a head that says ``first`` of everything before it has learned, after a sigmoid."""
    last = nn.Conv2d(channels, outputs, 1)
    nn.init.normal_(last.weight, std=0.01)
    if last.bias is not None:
        nn.init.constant_(last.bias, math.log(first / (1 - first)))
    return nn.Sequential(_block(channels), last)


def _block(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.GroupNorm(8, channels),
        nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.GroupNorm(8, channels),
        nn.SiLU(),
    )


def _backbone(name: str, *, pretrained: bool) -> tuple[nn.Module, list[int], list[int]]:
    """Return a backbone, and which of its features are needed and how wide they are."""
    try:
        backbone: Any = timm.create_model(name, pretrained=pretrained, features_only=True)
        reductions = backbone.feature_info.reduction()
        widths = backbone.feature_info.channels()
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"timm's weights of {name!r} cannot be had ({error}); pretrained=false begins without"
        ) from error
    except (RuntimeError, AttributeError) as error:
        raise ConfigError(
            f"timm has no backbone {name!r} that gives features: {error}; "
            "timm.list_models() names those there are"
        ) from error
    if not set(_STRIDES) <= set(reductions):
        raise ConfigError(f"{name!r} has features at strides {reductions}, needed: {_STRIDES}")
    levels = [reductions.index(stride) for stride in _STRIDES]
    return backbone, levels, [widths[level] for level in levels]


def parameters(network: nn.Module) -> int:
    """Return how many numbers are learned."""
    return sum(parameter.numel() for parameter in network.parameters())


def to_tensor(pages: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Return squares, each RGB uint8 [H, W, 3], as the network sees them: [B, 3, H, W], -2..2."""
    pixels_BHWC = torch.from_numpy(np.stack(pages)).to(device)
    return (pixels_BHWC.permute(0, 3, 1, 2).float() - AROUND) / 64


def device_for(gpus: float) -> torch.device:
    """Return where to compute.

    Raises:
        ConfigError: If a GPU is asked for and PyTorch finds none.
    """
    if gpus and not torch.cuda.is_available():
        raise ConfigError(
            f"workers.gpus={gpus:g}, and PyTorch {torch.__version__} finds no GPU that it can "
            "use: install a PyTorch for this GPU, or set workers.gpus=0"
        )
    return torch.device("cuda" if gpus else "cpu")
