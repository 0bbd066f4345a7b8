"""Losses against their definitions in float64: alone, and shared by workers of uneven size."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from biovl.pretrain.losses import LOSSES, info_nce, sigmoid
from biovl.runtime.workers import Workers, share
from tests.pretrain.groups import in_group


def pairs(count: int, dim: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit images and texts, a scale and a bias, all of which want gradients."""
    torch.manual_seed(count)
    image, text = (F.normalize(torch.randn(count, dim).double(), dim=1) for _ in range(2))
    leaves = (image, text, torch.tensor(14.3).double(), torch.tensor(-4.0).double())
    return tuple(leaf.requires_grad_() for leaf in leaves)  # type: ignore[return-value]


def definition(name: str, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """The papers' equations with the whole matrix of similarities."""
    similarity = scale * image @ text.T
    if name == "infonce":
        to_text = similarity.softmax(1).diagonal().log()
        to_image = similarity.softmax(0).diagonal().log()
        return -(to_text.mean() + to_image.mean()) / 2 + 0 * bias
    sign = 2 * torch.eye(len(image)).double() - 1
    return -F.logsigmoid(sign * (similarity + bias)).sum() / len(image)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tile", [1, 3, 7, 100])
def test_a_loss_and_its_gradients_are_those_of_its_definition(name: str, tile: int) -> None:
    leaves = pairs(7)
    expected = definition(name, *leaves)
    actual = LOSSES[name](*(leaf.detach() for leaf in leaves), tile=tile)
    torch.testing.assert_close(actual.loss, expected.detach(), atol=1e-13, rtol=0)
    gradients = (actual.image_bD, actual.text_ND, actual.scale, actual.bias)
    for a, e in zip(gradients, torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, e, atol=1e-13, rtol=0)


def shared_gradients(name: str, count: int, tile: int) -> dict[str, Tensor]:
    """What one worker computes of its share: the loss and its gradients, summed where shared."""
    workers = Workers.current()
    image, text, scale, bias = (leaf.detach() for leaf in pairs(count))
    own = share(count, workers.rank, workers.count)
    result = LOSSES[name](
        image[own.start : own.stop], text, scale, bias, workers=workers, tile=tile
    )
    return {
        "loss": result.loss,
        "image": result.image_bD,
        "text": workers.reduce_scatter(result.text_ND)(),
        "scale": workers.sum(result.scale),
        "bias": workers.sum(result.bias),
    }


@pytest.mark.parametrize(("workers", "count"), [(2, 8), (3, 8), (4, 13)])
@pytest.mark.parametrize("name", LOSSES)
def test_workers_that_share_a_batch_get_the_gradients_of_the_whole(
    name: str, workers: int, count: int
) -> None:
    leaves = pairs(count)
    expected = definition(name, *leaves)
    image, text, scale, bias = torch.autograd.grad(expected, leaves)
    results = in_group(workers, shared_gradients, name, count, 3)
    exact = {"atol": 1e-13, "rtol": 0.0}
    torch.testing.assert_close(torch.cat([r["image"] for r in results]), image, **exact)
    torch.testing.assert_close(torch.cat([r["text"] for r in results]), text, **exact)
    for result in results:
        torch.testing.assert_close(result["loss"], expected.detach(), **exact)
        torch.testing.assert_close(result["scale"], scale, **exact)
        torch.testing.assert_close(result["bias"], bias, **exact)


def test_info_nce_of_a_model_that_knows_nothing_is_the_log_of_the_batch() -> None:
    same = torch.ones(8, 4) / 2
    assert info_nce(same, same, torch.tensor(10.0)).loss.item() == pytest.approx(math.log(8))


def test_a_scale_of_a_hundred_neither_overflows_nor_loses_the_gradient() -> None:
    image, text, _, _ = pairs(64, 8)
    scale = torch.tensor(100.0).double()
    wide = info_nce(image.detach(), text.detach(), scale)
    narrow = info_nce(image.detach().float(), text.detach().float(), scale.float())
    assert narrow.image_bD.isfinite().all()
    error = (narrow.image_bD - wide.image_bD).norm() / wide.image_bD.norm()
    assert error < 3e-6


def test_autocast_does_not_reach_into_the_loss() -> None:
    image, text, scale, _ = (leaf.detach().float() for leaf in pairs(32, 16))
    expected = info_nce(image, text, scale)
    with torch.autocast("cpu", torch.bfloat16):
        actual = info_nce(image, text, scale)
    assert actual.image_bD.dtype == torch.float32
    torch.testing.assert_close(actual.image_bD, expected.image_bD, atol=0, rtol=0)


@pytest.mark.parametrize("loss", [info_nce, sigmoid])
def test_rows_that_are_not_the_workers_share_are_refused(loss: object) -> None:
    image, text, scale, _ = pairs(8)
    with pytest.raises(ValueError, match=r"0 of 1 .*8 of 8 .* 7 "):
        loss(image[:7], text, scale)  # type: ignore[operator]


def test_shares_are_consecutive_and_even_to_within_one() -> None:
    assert [list(share(7, rank, 3)) for rank in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [len(share(2, rank, 4)) for rank in range(4)] == [0, 1, 0, 1]


MEMORY = """
import resource, torch
from biovl.pretrain.losses import info_nce
torch.set_num_threads(1)
def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
rows = torch.nn.functional.normalize(torch.randn(8192, 64), dim=1)
info_nce(rows[:512], rows[:512], torch.tensor(10.0), tile=64)
before = used()
info_nce(rows, rows.flip(0), torch.tensor(10.0), tile=256)
print(used() - before)
"""


def test_similarities_of_the_whole_batch_are_never_held() -> None:
    # 8,192 x 8,192 numbers are 256 MiB; blocks of 8,192 x 256 are 8.
    grown = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    assert float(grown.stdout) < 80
