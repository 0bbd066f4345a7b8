"""The network: a timm backbone, features merged at stride 8, and two heads.

One head scores each cell as the centre of a panel, the other predicts the distances to the panel's
sides. There are no anchors.

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
"""Initial probability of a centre, so that the loss does not start huge."""

_USUAL = 0.15
"""Initial distance to the sides, as a fraction of the input's side."""


class Output(NamedTuple):
    """Output of the network for a batch of figures."""

    centre_BHW: Tensor
    """Logits: whether a cell is the centre of a panel. Shape [B, H, W]."""
    sides_B4HW: Tensor
    """Distances of the left, top, right and bottom side from the cell's centre, as fractions of the
    input's side, 0..1. Shape [B, 4, H, W]."""


class PanelNetwork(nn.Module):
    """Network that predicts panel boxes in figures: a backbone with two heads."""

    def __init__(self, design: Design, *, pretrained: bool = False) -> None:
        """Build the network.

        Raises:
            ConfigError: If timm has no such backbone, or not with these strides.
            ArtifactError: If pretrained weights are requested and unavailable.
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
        """Run the network on figures whose height and width are multiples of 32 pixels."""
        features = self.backbone(pixels_BCHW)
        coarse: Tensor | None = None
        for level, lateral, mixed in reversed(
            list(zip(self.levels, self.lateral, self.mixed, strict=True))
        ):
            own = lateral(features[level])
            if coarse is None:
                # Number and size of panels depend on the whole figure.
                own = own + self.context(own.mean((2, 3)))[:, :, None, None]
            else:
                own = own + F.interpolate(coarse, size=own.shape[-2:], mode="nearest")
            coarse = mixed(own)
        return Output(self.centre(coarse)[:, 0], self.sides(coarse).sigmoid())


def _head(channels: int, outputs: int, first: float) -> nn.Sequential:
    """Return a head whose output after a sigmoid is initially ``first`` everywhere."""
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
    """Return a backbone, and indices and channels of the features that are used."""
    try:
        backbone: Any = timm.create_model(name, pretrained=pretrained, features_only=True)
        reductions = backbone.feature_info.reduction()
        widths = backbone.feature_info.channels()
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"timm's weights of {name!r} are unavailable ({error}); pretrained=false starts without"
        ) from error
    except (RuntimeError, AttributeError) as error:
        raise ConfigError(
            f"timm has no backbone {name!r} with features: {error}; "
            "timm.list_models() lists the available models"
        ) from error
    if not set(_STRIDES) <= set(reductions):
        raise ConfigError(f"{name!r} has features at strides {reductions}, expected {_STRIDES}")
    levels = [reductions.index(stride) for stride in _STRIDES]
    return backbone, levels, [widths[level] for level in levels]


def parameters(network: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def to_tensor(pages: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Return images, each RGB uint8 [H, W, 3], as network input: [B, 3, H, W], -2..2."""
    pixels_BHWC = torch.from_numpy(np.stack(pages)).to(device)
    return (pixels_BHWC.permute(0, 3, 1, 2).float() - AROUND) / 64


def device_for(gpus: float) -> torch.device:
    """Return a GPU if ``gpus`` is not 0, else the CPU.

    Raises:
        ConfigError: If a GPU is requested and PyTorch finds none.
    """
    if gpus and not torch.cuda.is_available():
        raise ConfigError(
            f"workers.gpus={gpus:g}, and PyTorch {torch.__version__} finds no GPU that it can "
            "use: install a PyTorch for this GPU, or set workers.gpus=0"
        )
    return torch.device("cuda" if gpus else "cpu")
