"""Losses against their definitions in float64: alone, and shared by workers of uneven size."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from open_clip.loss import DistillClipLoss
from torch import Tensor

from biovl.pretrain.losses import LOSSES, Teacher, info_nce, sigmoid
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


def teacher_of(count: int, weight: float, dim: int = 3) -> Teacher:
    """A teacher of another dimension than the student, for one worker with all pairs."""
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(2, count, dim, generator=generator, dtype=torch.float64)
    image, text = F.normalize(rows, dim=2)
    return Teacher(image_bE=image, text_NE=text, temperature=0.2, weight=weight)


def distilled(
    teacher: Teacher, image: Tensor, text: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """(1 - w) * InfoNCE + w * KL with the whole matrices, and w times the teacher's entropy."""
    student = scale * image @ text.T
    given = teacher.image_bE @ teacher.text_NE.T / teacher.temperature
    kl = entropy = torch.zeros(()).double()
    for logits, targets in ((student, given), (student.T, given.T)):
        log_p, log_q = targets.log_softmax(1), logits.log_softmax(1)
        kl = kl + F.kl_div(log_q, log_p, reduction="batchmean", log_target=True) / 2
        entropy = entropy - (log_p.exp() * log_p).sum(1).mean() / 2
    hard = definition("infonce", image, text, scale, torch.zeros(()).double())
    return (1 - teacher.weight) * hard + teacher.weight * kl, teacher.weight * entropy


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("tile", [1, 3, 100])
def test_distillation_has_the_gradients_of_the_divergence(weight: float, tile: int) -> None:
    *leaves, _ = pairs(7)
    teacher = teacher_of(7, weight)
    divergence, entropy = distilled(teacher, *leaves)
    actual = info_nce(*(leaf.detach() for leaf in leaves), teacher=teacher, tile=tile)
    torch.testing.assert_close(actual.loss, (divergence + entropy).detach(), atol=1e-13, rtol=0)
    expected = torch.autograd.grad(divergence, leaves)
    gradients = (actual.image_bD, actual.text_ND, actual.scale)
    for a, e in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, e, atol=1e-13, rtol=0)


def test_half_a_teacher_is_half_of_open_clips_distillation() -> None:
    image, text, scale, _ = (leaf.detach() for leaf in pairs(7))
    teacher = teacher_of(7, 0.5)
    given = (teacher.image_bE, teacher.text_NE, 1 / teacher.temperature)
    contrastive, distillation = DistillClipLoss()(image, text, scale, *given)
    actual = info_nce(image, text, scale, teacher=teacher).loss
    torch.testing.assert_close(actual, (contrastive + distillation) / 2, atol=1e-13, rtol=0)


def shared_distillation(count: int, weight: float) -> dict[str, Tensor]:
    workers = Workers.current()
    image, text, scale, _ = (leaf.detach() for leaf in pairs(count))
    own = share(count, workers.rank, workers.count)
    teacher = teacher_of(count, weight)
    teacher = replace(teacher, image_bE=teacher.image_bE[own.start : own.stop])
    result = info_nce(
        *(image[own.start : own.stop], text, scale), teacher=teacher, workers=workers, tile=3
    )
    return {
        "loss": result.loss,
        "image": result.image_bD,
        "text": workers.reduce_scatter(result.text_ND)(),
        "scale": workers.sum(result.scale),
    }


def test_workers_that_share_a_distilled_batch_get_the_gradients_of_the_whole() -> None:
    *leaves, _ = pairs(13)
    divergence, entropy = distilled(teacher_of(13, 0.7), *leaves)
    image, text, scale = torch.autograd.grad(divergence, leaves)
    results = in_group(4, shared_distillation, 13, 0.7)
    exact = {"atol": 1e-13, "rtol": 0.0}
    torch.testing.assert_close(torch.cat([r["image"] for r in results]), image, **exact)
    torch.testing.assert_close(torch.cat([r["text"] for r in results]), text, **exact)
    for result in results:
        torch.testing.assert_close(result["loss"], (divergence + entropy).detach(), **exact)
        torch.testing.assert_close(result["scale"], scale, **exact)


def test_a_teacher_without_weight_changes_nothing() -> None:
    image, text, scale, _ = (leaf.detach() for leaf in pairs(9))
    plain = info_nce(image, text, scale, tile=4)
    weightless = info_nce(image, text, scale, teacher=teacher_of(9, 0.0), tile=4)
    for name, value in vars(plain).items():
        assert torch.equal(getattr(weightless, name), value), name


def test_a_student_that_equals_its_teacher_has_no_gradient() -> None:
    image, text, scale, _ = (leaf.detach() for leaf in pairs(9))
    teacher = Teacher(image_bE=image, text_NE=text, temperature=1 / scale.item(), weight=1.0)
    result = info_nce(image, text, scale, teacher=teacher, tile=4)
    for gradient in (result.image_bD, result.text_ND, result.scale):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-13, rtol=0)
    # The loss is then the teacher's entropy.
    assert 0 < result.loss < math.log(9)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_chance_is_the_log_of_the_batch_for_any_weight_of_a_teacher(weight: float) -> None:
    same = torch.ones(8, 4).double() / 2
    loss = info_nce(same, same, torch.tensor(10.0).double(), teacher=teacher_of(8, weight)).loss
    assert loss.item() == pytest.approx(math.log(8))


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
