"""The squares that towers read, against torchvision and open_clip."""

import numpy as np
import pytest
import torch
from open_clip.transform import image_transform
from PIL import Image
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms import functional as reference

from biovl.images.transforms import random_box, random_resized_crop, resize_center_crop

SCALE, RATIO = (0.9, 1.0), (3 / 4, 4 / 3)


def noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width * 10_000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize("size", [(709, 476), (288, 300), (40, 30), (9, 800), (1, 1)])
def test_a_random_crop_has_the_bytes_of_torchvision_for_the_same_box(size: tuple[int, int]) -> None:
    image = noise(*size)
    for seed in range(3):
        box = random_box(*size, (0.2, 1.0), RATIO, np.random.default_rng(seed))
        expected = reference.resized_crop(
            image, box.top, box.left, box.height, box.width, [64, 64], InterpolationMode.BICUBIC
        )
        found = random_resized_crop(image, 64, (0.2, 1.0), RATIO, np.random.default_rng(seed))
        assert np.array_equal(found, np.asarray(expected))


@pytest.mark.parametrize(
    ("size", "scale"), [((709, 476), SCALE), ((300, 300), (0.1, 1.0)), ((300, 280), (0.5, 0.6))]
)
def test_boxes_are_distributed_as_torchvisions(
    size: tuple[int, int], scale: tuple[float, float]
) -> None:
    image = Image.new("L", size)
    torch.manual_seed(0)
    # torchvision gives top, left, height, width.
    theirs = np.array(
        [RandomResizedCrop.get_params(image, [*scale], [*RATIO]) for _ in range(2_000)]
    )[:, [1, 0, 3, 2]]
    rng = np.random.default_rng(0)
    boxes = [random_box(*size, scale, RATIO, rng) for _ in range(2_000)]
    ours = np.array([(box.left, box.top, box.width, box.height) for box in boxes])
    for column in range(4):
        # Kolmogorov-Smirnov: 1.95 sqrt(2 / n) is passed by chance once in a thousand times.
        values = np.sort(np.concatenate([ours[:, column], theirs[:, column]]))
        shares = [
            np.searchsorted(np.sort(some[:, column]), values, side="right") / 2_000
            for some in (ours, theirs)
        ]
        assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(2 / 2_000)


@pytest.mark.parametrize("size", [(1000, 10), (10, 1000), (3, 1)])
def test_an_image_that_no_box_fits_is_cut_from_the_middle_as_by_torchvision(
    size: tuple[int, int],
) -> None:
    box = random_box(*size, SCALE, RATIO, np.random.default_rng(0))
    expected = RandomResizedCrop.get_params(Image.new("L", size), [*SCALE], [*RATIO])
    assert (box.top, box.left, box.height, box.width) == expected


@pytest.mark.parametrize(
    "size", [(709, 476), (476, 709), (224, 224), (225, 224), (100, 37), (301, 299), (1, 5)]
)
def test_the_middle_has_the_bytes_of_open_clip(size: tuple[int, int]) -> None:
    image = noise(*size)
    stock = image_transform(224, is_train=False, mean=(0.0,) * 3, std=(1.0,) * 3)
    expected = (stock(image) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    assert np.array_equal(resize_center_crop(image, 224), expected)


def test_an_endless_line_does_not_fill_the_memory() -> None:
    # Resized as it is, it would have 224 x 134 million pixels.
    line = Image.new("RGB", (600_000, 1), "red")
    assert resize_center_crop(line, 224).shape == (224, 224, 3)
    assert random_resized_crop(line, 224, SCALE, RATIO, np.random.default_rng(0)).min() == 0
