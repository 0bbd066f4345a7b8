"""Image preprocessing of DINOv2, shared by columns, benchmarks and fine-tuning.

It equals that of DINOv2's evaluation and of its ``preprocessor_config.json`` on the Hugging Face
hub, with Pillow: other resizing (torchvision on tensors) changes vectors by up to 0.006 in cosine.
"""

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from biovl.images.transforms import resize_center_crop

# PyTorch is imported lazily: workers that only decode start seconds sooner without it.
if TYPE_CHECKING:
    from torch import Tensor

# Shapes: B images, H and W of the model's square input, C channels.

RESIZE_PX = 256
"""The shorter side before the crop, in pixels."""
SIZE_PX = 224
"""The side of the square, in pixels."""

# ImageNet mean and std, for RGB in 0..1, with which all DINOv2 models were trained.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def crop(
    pixels_HWC: np.ndarray, *, resize_px: int = RESIZE_PX, size_px: int = SIZE_PX
) -> np.ndarray:
    """Return the center crop of an RGB image, uint8, shape [size_px, size_px, 3].

    Args:
        pixels_HWC: RGB image, uint8.
        resize_px: The shorter side before the crop, at least ``size_px``.
        size_px: The side of the square.
    """
    square_HWC = resize_center_crop(Image.fromarray(pixels_HWC), resize_px)
    edge = round((resize_px - size_px) / 2)
    return np.ascontiguousarray(square_HWC[edge : edge + size_px, edge : edge + size_px])


def normalize(pixels_BHWC: "Tensor") -> "Tensor":
    """Return normalized uint8 squares, float32, shape [B, C, H, W], on the same device."""
    image_BCHW = pixels_BHWC.permute(0, 3, 1, 2).contiguous().float().div_(255)
    mean_C11 = image_BCHW.new_tensor(MEAN)[:, None, None]
    std_C11 = image_BCHW.new_tensor(STD)[:, None, None]
    return image_BCHW.sub_(mean_C11).div_(std_C11)
