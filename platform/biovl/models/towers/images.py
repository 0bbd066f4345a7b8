"""The image tower: uint8 pixels to unit features, normalized on the model's device."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Shapes: B images, H height, W width, C channels, D embedding.


class ImageTower(nn.Module):
    """Image tower: ``visual`` of an open_clip model after normalization of the pixels.

    Args:
        visual: Module from images [B, C, H, W] to features [B, D].
        mean: Mean of each channel, for pixels in [0, 1].
        std: Standard deviation of each channel, for pixels in [0, 1].
    """

    mean_C11: Tensor
    std_C11: Tensor

    def __init__(self, visual: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.visual = visual
        self.register_buffer("mean_C11", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std_C11", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, pixels_BHWC: Tensor) -> Tensor:
        """Return unit features of RGB images in uint8, float32 or wider. Shape [B, D]."""
        pixels_BCHW = pixels_BHWC.permute(0, 3, 1, 2).to(self.mean_C11.dtype)
        pixels_BCHW = pixels_BCHW.div_(255).sub_(self.mean_C11).div_(self.std_C11)
        return unit_rows(self.visual(pixels_BCHW))


def unit_rows(features_BD: Tensor) -> Tensor:
    """Return rows normalized to length 1, in float32 if autocast made them narrower."""
    if features_BD.dtype in (torch.bfloat16, torch.float16):
        features_BD = features_BD.float()
    return F.normalize(features_BD, dim=-1)
