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
from biovl.split.detector.model import Output, boxes_of

_CENTRAL = 0.25
"""Cells nearer to a panel's centre than this fraction of its sides have a score."""
_OUTER = 0.25
"""Weight of the box of a panel's other cells: seeing them, too, the network learns faster."""
_SCORE, _BOX, _SIDE, _EDGES, _COMPOUND = 1.0, 2.0, 2.0, 0.5, 0.2
"""Weights of the losses."""
_EDGE_IS_RARE = 3.0
"""Weight of cells with an edge over cells without."""


@dataclass(frozen=True)
class Targets:
    """Training targets of a batch of figures."""

    boxes_BHW4: Tensor
    """Box of the smallest panel that contains the cell, in pixels of the input."""
    weight_BHW: Tensor
    """Weight of a cell's box; the weights of each panel sum to 1, outside panels they are 0."""
    central_BHW: Tensor
    """Weight of a cell's score near the centre of its panel; 0 for all other cells."""
    edges_B4HW: Tensor
    """1 for cells with a left, top, right or bottom side of a panel."""
    compound_B: Tensor
    """1 for figures with several panels."""


def targets_of(boxes: Sequence[np.ndarray], size_px: int) -> Targets:
    """Return the training targets for a batch of figures.

    Args:
        boxes: Panel boxes of each figure, [N, 4]: x0, y0, x1, y1 in pixels of the input.
        size_px: Side of the input.
    """
    made = [_of_one(torch.from_numpy(one), size_px // STRIDE) for one in boxes]
    compound = torch.tensor([float(len(one) > 1) for one in boxes])
    nearest, weight, central, edges = zip(*made, strict=True)
    return Targets(
        torch.stack(nearest),
        torch.stack(weight),
        torch.stack(central),
        torch.stack(edges),
        compound,
    )


def _of_one(boxes_N4: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    edges = torch.zeros(4, cells, cells)
    if not len(boxes_N4):
        empty = torch.zeros(cells, cells)
        return torch.zeros(cells, cells, 4), empty, empty.clone(), edges
    place = (torch.arange(cells, dtype=torch.float32) + 0.5) * STRIDE
    x0, y0, x1, y1 = (one[:, None] for one in boxes_N4.unbind(1))
    across, down = ((place - x0) / (x1 - x0) - 0.5), ((place - y0) / (y1 - y0) - 0.5)
    far_NHW = torch.maximum(across.abs()[:, None, :], down.abs()[:, :, None])
    area_N = (boxes_N4[:, 2:] - boxes_N4[:, :2]).prod(1)
    # The smallest panel around a cell owns it: an inset, not the panel around.
    area_NHW = torch.where(far_NHW <= 0.5, area_N[:, None, None], torch.inf)
    smallest_HW, owner_HW = area_NHW.min(0)
    is_inside = smallest_HW < torch.inf
    far_HW = far_NHW.gather(0, owner_HW[None])[0]
    is_central = is_inside & (far_HW <= _CENTRAL)
    middle = ((boxes_N4[:, :2] + boxes_N4[:, 2:]) / 2 / STRIDE).long().clamp(0, cells - 1)
    for number, (x, y) in enumerate(middle.tolist()):
        if not is_central[y, x]:
            # A panel smaller than a cell, or whose centre is an inset's.
            owner_HW[y, x], is_inside[y, x], is_central[y, x] = number, True, True
    weight_HW = torch.where(is_central, 1.0, _OUTER) * is_inside
    number_N = torch.zeros(len(boxes_N4))
    whole_N = number_N.index_add(0, owner_HW.flatten(), weight_HW.flatten()).clamp(min=1e-6)
    central_N = number_N.index_add(0, owner_HW.flatten(), is_central.float().flatten())
    # A large panel counts more, but not by its area.
    central_HW = is_central * central_N.clamp(min=1).rsqrt()[owner_HW]
    for side, (first, low, high) in enumerate(
        ((x0, y0, y1), (y0, x0, x1), (x1, y0, y1), (y1, x0, x1))
    ):
        at = (first[:, 0] / STRIDE).long().clamp(0, cells - 1)
        along_NM = ((place >= low) & (place <= high)).float()
        lines = torch.zeros(cells, cells).index_add(0, at, along_NM).clamp(max=1)
        edges[side] = lines if side % 2 else lines.T
    return boxes_N4[owner_HW], weight_HW / whole_N[owner_HW], central_HW, edges


def loss_of(output: Output, targets: Targets) -> Tensor:
    """Return the loss: scores, boxes, edges, and whether the figure is compound.

    The target score of a central cell is the IoU of its box with the panel. The box loss is the
    generalised IoU loss plus the distances of the sides relative to the panel's size. Both are
    means over all panels, so figures with many panels weigh more. Computed in float32.

    Source:
        Li et al. 2020, arXiv:2006.04388, equation 2; Rezatofighi et al. 2019, arXiv:1902.09630.
    """
    logits = output.score_BHW.float()
    panels = targets.weight_BHW.sum().clamp(min=1)
    predicted_BHW4 = boxes_of(output.sides_B4HW.float()).permute(0, 2, 3, 1)
    counted = targets.weight_BHW > 0
    predicted, true = predicted_BHW4[counted], targets.boxes_BHW4[counted]
    weight = targets.weight_BHW[counted]
    apart = generalized_box_iou_loss(predicted, true, reduction="none")
    size = torch.cat([true[:, 2:] - true[:, :2]] * 2, 1).clamp(min=STRIDE)
    sides = ((predicted - true).abs() / size).clamp(max=1).mean(1)
    box = ((_BOX * apart + _SIDE * sides) * weight).sum() / panels

    is_central = targets.central_BHW > 0
    overlap = torch.zeros_like(logits)
    overlap[counted] = _overlaps(predicted.detach(), true)
    expected = torch.where(is_central, overlap, 0.0)
    focus = (expected - logits.sigmoid()).square()
    each = focus * F.binary_cross_entropy_with_logits(logits, expected, reduction="none")
    score = (each * torch.where(is_central, targets.central_BHW, 0.25)).sum() / panels

    edge_weight = 1 + (_EDGE_IS_RARE - 1) * targets.edges_B4HW
    edges = F.binary_cross_entropy_with_logits(
        output.edges_B4HW.float(), targets.edges_B4HW, edge_weight
    )
    compound = F.binary_cross_entropy_with_logits(output.compound_B.float(), targets.compound_B)
    total: Tensor = _SCORE * score + box + _EDGES * edges + _COMPOUND * compound
    return total


def _overlaps(first_N4: Tensor, second_N4: Tensor) -> Tensor:
    """Return the intersection over union of boxes, pair by pair."""
    low, high = torch.maximum(first_N4, second_N4), torch.minimum(first_N4, second_N4)
    shared = (high[:, 2:] - low[:, :2]).clamp(min=0).prod(1)
    areas = (first_N4[:, 2:] - first_N4[:, :2]).prod(1) + (
        second_N4[:, 2:] - second_N4[:, :2]
    ).prod(1)
    return shared / (areas - shared).clamp(min=1e-6)
