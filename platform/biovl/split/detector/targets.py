"""Training targets of the network, and its loss.

Shapes: B figures, N boxes, H and W cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import generalized_box_iou_loss

from biovl.split.detector.config import STRIDE
from biovl.split.detector.model import Output

_SPREAD = 0.09
"""Standard deviation of the Gaussian around a centre, per panel side (TTFNet, arXiv:1909.00700)."""
_LEAST_SPREAD = 0.7
"""Cells."""
_NEAR = 0.3
"""Height of the Gaussian above which cells predict the sides."""
_SIDES = 2.0
"""Weight of the loss of the sides."""


@dataclass(frozen=True)
class Targets:
    """Training targets of a batch of figures."""

    centre_BHW: Tensor
    """Heat map of panel centres: 1 at the cell of a centre, a Gaussian around it."""
    boxes_BHW4: Tensor
    """Box of the panel with the nearest centre, in pixels of the input."""
    weight_BHW: Tensor
    """Weight of a cell's sides; the weights of each panel sum to 1."""


def targets_of(boxes: Sequence[np.ndarray], size_px: int) -> Targets:
    """Return the targets for the panels of figures, boxes [N, 4] each in pixels of the input."""
    made = [_of_one(torch.from_numpy(one), size_px // STRIDE) for one in boxes]
    centre, nearest, weight = zip(*made, strict=True)
    return Targets(torch.stack(centre), torch.stack(nearest), torch.stack(weight))


def _of_one(boxes_N4: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    if not len(boxes_N4):
        empty = torch.zeros(cells, cells)
        return empty, torch.zeros(cells, cells, 4), empty.clone()
    middle = ((boxes_N4[:, :2] + boxes_N4[:, 2:]) / 2 / STRIDE).floor().clamp(0, cells - 1)
    spread = (_SPREAD * (boxes_N4[:, 2:] - boxes_N4[:, :2]) / STRIDE).clamp(min=_LEAST_SPREAD)
    place = torch.arange(cells, dtype=torch.float32)
    x_NW = ((place[None] - middle[:, :1]) / spread[:, :1]) ** 2
    y_NH = ((place[None] - middle[:, 1:]) / spread[:, 1:]) ** 2
    bell_NHW = torch.exp(-(y_NH[:, :, None] + x_NW[:, None, :]) / 2)
    centre_HW, owner_HW = bell_NHW.max(0)
    weight_HW = torch.where(centre_HW >= _NEAR, centre_HW, 0.0)
    whole_N = torch.zeros(len(boxes_N4)).index_add_(0, owner_HW.flatten(), weight_HW.flatten())
    weight_HW = weight_HW / whole_N.clamp(min=1e-6)[owner_HW]
    return centre_HW, boxes_N4[owner_HW], weight_HW


def loss_of(output: Output, targets: Targets) -> Tensor:
    """Return the loss: focal loss of the centres, generalised IoU loss of the sides.

    It is a mean over panels, so figures with many panels weigh more. Computed in float32.

    Source:
        Law and Deng 2018, CornerNet, arXiv:1808.01244, equation 1; Rezatofighi et al. 2019,
        arXiv:1902.09630.
    """
    logits, truth = output.centre_BHW.float(), targets.centre_BHW
    panels = (truth == 1).sum().clamp(min=1)
    chance = logits.sigmoid()
    hit = -F.logsigmoid(logits) * (1 - chance) ** 2
    miss = -F.logsigmoid(-logits) * chance**2 * (1 - truth) ** 4
    centre = torch.where(truth == 1, hit, miss).sum() / panels
    counted = targets.weight_BHW > 0
    predicted = boxes_of(output.sides_B4HW.float()).permute(0, 2, 3, 1)[counted]
    apart = generalized_box_iou_loss(predicted, targets.boxes_BHW4[counted])
    sides = (apart * targets.weight_BHW[counted]).sum() / panels
    total: Tensor = centre + _SIDES * sides
    return total


def boxes_of(sides_B4HW: Tensor) -> Tensor:
    """Return the boxes predicted by cells, [B, 4, H, W] in pixels of the input."""
    height, width = sides_B4HW.shape[-2:]
    reach = sides_B4HW * (STRIDE * max(height, width))
    x = (torch.arange(width, device=reach.device) + 0.5) * STRIDE
    y = (torch.arange(height, device=reach.device) + 0.5) * STRIDE
    left, top, right, bottom = reach.unbind(1)
    x, y = x[None, None, :], y[None, :, None]
    return torch.stack([x - left, y - top, x + right, y + bottom], 1)
