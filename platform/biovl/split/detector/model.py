"""The network: a small residual backbone, features merged at stride 8, and heads on every cell.

Each cell has a score, the expected overlap of its box with a panel, and the distances to the sides
of the panel it is in. There are two auxiliary outputs: the panels' edges, which teach the backbone
what separates panels, and whether the figure is compound. There are no anchors.

Dense 3 x 3 convolutions: on CPUs with bfloat16 units they train three times as fast as depthwise
convolutions with a quarter of the FLOPs.

Shapes: B figures, C channels, H and W cells of eight pixels.

Source:
    Tian et al. 2019, FCOS, arXiv:1904.01355; Li et al. 2020, generalized focal loss,
    arXiv:2006.04388 (scores that are overlaps); He et al. 2015, arXiv:1512.03385 (blocks).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biovl.core.errors import ConfigError
from biovl.split.detector.config import STRIDE, Design
from biovl.split.detector.fitting import AROUND

_RARE = 0.05
"""Initial score, so that the loss does not start huge."""

_REACH_PX = 32.0
"""Unit of the distances to the sides."""


class Output(NamedTuple):
    """Output of the network for a batch of figures."""

    score_BHW: Tensor
    """Logits: expected overlap of a cell's box with a panel, 0 away from panel centres."""
    sides_B4HW: Tensor
    """Distances of the left, top, right and bottom side from the cell's centre, in pixels of the
    input, above 0. Shape [B, 4, H, W]."""
    edges_B4HW: Tensor
    """Logits: whether a left, top, right or bottom side of a panel is in a cell."""
    compound_B: Tensor
    """Logit: whether the figure has several panels."""


class PanelNetwork(nn.Module):
    """Network that predicts panel boxes in figures."""

    def __init__(self, design: Design) -> None:
        """Build the network with random weights."""
        super().__init__()
        self.stages = nn.ModuleList()
        before = 3
        for width, depth in zip(design.widths, design.depths, strict=True):
            blocks = [_Residual(width) for _ in range(depth)]
            self.stages.append(nn.Sequential(_conv(before, width, 2), *blocks))
            before = width
        c = design.channels
        self.lateral = nn.ModuleList(nn.Conv2d(width, c, 1) for width in design.widths[-3:])
        # Number and size of panels depend on the whole figure.
        self.context = nn.Linear(2 * design.widths[-1], c)
        self.mixed = nn.ModuleList(_Residual(c) for _ in range(3))
        self.last = nn.Sequential(_Residual(c), _conv(c, 2 * c))
        self.heads = nn.Conv2d(2 * c, 9, 1)
        self.compound = nn.Linear(2 * design.widths[-1], 1)
        nn.init.normal_(self.heads.weight, std=0.01)
        if self.heads.bias is not None:
            nn.init.constant_(self.heads.bias, math.log(_RARE / (1 - _RARE)))
            nn.init.constant_(self.heads.bias[1:5], 1.5)

    def forward(self, pixels_BCHW: Tensor) -> Output:
        """Run the network on figures whose height and width are multiples of 32 pixels."""
        features: list[Tensor] = []
        x = pixels_BCHW
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        whole = torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)
        x = self.mixed[0](self.lateral[2](x) + self.context(whole)[:, :, None, None])
        for level in (1, 0):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = self.mixed[2 - level](self.lateral[level](features[level - 3]) + x)
        x = self.last(x)
        with torch.autocast(x.device.type, enabled=False):
            # Eight bits are too few for the sides.
            out = self.heads(x.float())
            compound = self.compound(whole.float())[:, 0]
        return Output(out[:, 0], F.softplus(out[:, 1:5]) * _REACH_PX, out[:, 5:], compound)


class _Residual(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _conv(channels, channels)
        self.second = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(self.first(x)))


def _conv(before: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, 1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )


def boxes_of(sides_B4HW: Tensor) -> Tensor:
    """Return the boxes predicted by cells, [B, 4, H, W] in pixels of the input."""
    height, width = sides_B4HW.shape[-2:]
    x = ((torch.arange(width, device=sides_B4HW.device) + 0.5) * STRIDE)[None, None, :]
    y = ((torch.arange(height, device=sides_B4HW.device) + 0.5) * STRIDE)[None, :, None]
    left, top, right, bottom = sides_B4HW.unbind(1)
    return torch.stack([x - left, y - top, x + right, y + bottom], 1)


def parameters(network: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def to_tensor(pages: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Return images, each RGB uint8 [H, W, 3], as network input: [B, 3, H, W], -2..2."""
    pixels_BHWC = torch.from_numpy(np.stack(pages)).to(device)
    return normalised(pixels_BHWC)


def normalised(pixels_BHWC: Tensor) -> Tensor:
    """Return uint8 images as network input, channels last."""
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
