"""The gradient of a step: the same in one piece or many, on one worker or many."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from biovl.pretrain import step
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import DistillConfig
from biovl.pretrain.losses import LOSSES
from biovl.pretrain.step import gradients, seed_of
from biovl.runtime.workers import Workers, share
from tests.pretrain.groups import in_group
from tests.pretrain.tiny_clip import gradients_of, pairs, piece, tiny_model, towers_of

EXACT = {"atol": 1e-13, "rtol": 1e-12}


def step_gradients(
    batch: Batch,
    *,
    total: int | None = None,
    loss: str = "infonce",
    micro_batch: int | None = None,
    dropout: float = 0.0,
    steps: int = 1,
    exchanged: str = "fp32",
    distill: DistillConfig | None = None,
) -> dict[str, Tensor]:
    model = tiny_model(dropout=dropout, bias=-5.0 if loss == "siglip" else None).double().train()
    workers = Workers.current()
    towers = towers_of(model).distributed(workers, exchanged)
    for number in range(steps):
        value = gradients(
            towers,
            batch,
            total or len(batch),
            LOSSES[loss],
            workers=workers,
            micro_batch=micro_batch,
            tile=4,
            seed=(3, number),
            distill=distill,
        )
    return {**gradients_of(model), "loss": value}


def shared_step(count: int, loss: str, micro_batch: int | None) -> dict[str, Tensor]:
    workers = Workers.current()
    own = share(count, workers.rank, workers.count)
    batch = piece(pairs(count), own.start, own.stop)
    return step_gradients(batch, total=count, loss=loss, micro_batch=micro_batch)


def shared_step_in(precision: str) -> dict[str, Tensor]:
    workers = Workers.current()
    own = share(10, workers.rank, workers.count)
    return step_gradients(
        piece(pairs(10), own.start, own.stop), total=10, micro_batch=3, exchanged=precision
    )


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, **EXACT, msg=name)


def test_the_gradient_is_that_of_the_whole_loss_through_autograd() -> None:
    batch = pairs(9)
    model = tiny_model().double()
    towers = towers_of(model)
    similarity = (
        model.logit_scale.exp()
        * towers.image(batch.pixels_BHWC)
        @ towers.text(batch.tokens_T, batch.lengths_B).T
    )
    same = torch.arange(9)
    loss = (F.cross_entropy(similarity, same) + F.cross_entropy(similarity.T, same)) / 2
    loss.backward()
    assert_equal(step_gradients(batch), {**gradients_of(model), "loss": loss.detach()})


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("micro_batch", [1, 4, 8])
def test_micro_batches_give_the_gradient_of_the_whole_batch(loss: str, micro_batch: int) -> None:
    batch = pairs(9)
    assert_equal(
        step_gradients(batch, loss=loss, micro_batch=micro_batch), step_gradients(batch, loss=loss)
    )


def test_dropout_falls_the_same_in_both_passes_of_a_micro_batch() -> None:
    # By hand: the features that the first pass saw, differentiated as one graph.
    batch = pairs(8)
    model = tiny_model(dropout=0.4).double().train()
    towers = towers_of(model)
    texts, images = [], []
    for number, part in enumerate(batch.split(3)):
        torch.manual_seed(seed_of(3, 0, 0, number))
        texts.append(towers.text(part.tokens_T, part.lengths_B))
        torch.manual_seed(seed_of(3, 0, 1, number))
        images.append(towers.image(part.pixels_BHWC))
    similarity = model.logit_scale.exp() * torch.cat(images) @ torch.cat(texts).T
    same = torch.arange(8)
    loss = (F.cross_entropy(similarity, same) + F.cross_entropy(similarity.T, same)) / 2
    loss.backward()
    actual = step_gradients(batch, micro_batch=3, dropout=0.4)
    assert_equal(actual, {**gradients_of(model), "loss": loss.detach()})
    again = step_gradients(batch, micro_batch=3, dropout=0.4)
    assert_equal(again, actual)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("workers", "micro_batch"), [(2, None), (3, 2)])
def test_workers_give_the_gradient_of_one_worker_with_the_whole_batch(
    loss: str, workers: int, micro_batch: int | None
) -> None:
    expected = step_gradients(pairs(10), loss=loss)
    for actual in in_group(workers, shared_step, 10, loss, micro_batch):
        assert_equal(actual, expected)


DISTILL = DistillConfig(weight=0.6, temperature=0.1)


def taught(start: int, stop: int) -> Batch:
    """Pairs of a batch of 10, with random embeddings of a teacher."""
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(10, 2, 5, generator=generator).half()
    return replace(piece(pairs(10), start, stop), teacher_B2E=given[start:stop])


def shared_distillation() -> dict[str, Tensor]:
    workers = Workers.current()
    own = share(10, workers.rank, workers.count)
    batch = taught(own.start, own.stop)
    return step_gradients(batch, total=10, micro_batch=2, distill=DISTILL)


def test_a_distilled_step_is_the_same_in_micro_batches_and_on_workers() -> None:
    batch = taught(0, 10)
    expected = step_gradients(batch, distill=DISTILL)
    assert_equal(step_gradients(batch, micro_batch=3, distill=DISTILL), expected)
    for actual in in_group(4, shared_distillation):
        assert_equal(actual, expected)
    assert not torch.equal(step_gradients(batch)["logit_scale"], expected["logit_scale"])


def test_a_weight_of_zero_needs_no_teacher() -> None:
    off = step_gradients(pairs(9), distill=DistillConfig())
    for name, value in step_gradients(pairs(9)).items():
        assert torch.equal(off[name], value)


def test_gradients_exchanged_in_bf16_are_those_of_fp32_but_for_rounding() -> None:
    exact, rounded = in_group(2, shared_step_in, "fp32"), in_group(2, shared_step_in, "bf16")
    assert_equal(rounded[1], rounded[0])
    differs = False
    for name, value in exact[0].items():
        # Each worker's part is rounded to 8 significant bits, and so is their sum.
        largest = value.abs().max().item()
        torch.testing.assert_close(rounded[0][name], value, atol=2**-7 * largest, rtol=0, msg=name)
        differs |= not torch.equal(rounded[0][name], value)
    assert differs
    # Outside the towers nothing is compressed.
    assert torch.equal(rounded[0]["logit_scale"], exact[0]["logit_scale"])


def test_lengths_stay_on_the_host_whatever_the_device() -> None:
    # With device_ids, DDP copies all inputs to the GPU; shapes are decided from these lengths.
    for device_ids in in_group(2, device_ids_of_towers):
        assert device_ids == [None, None]


def device_ids_of_towers() -> list[object]:
    model = tiny_model()
    asked: list[object] = []

    class OnGpu(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
            asked.append(settings.get("device_ids"))
            super().__init__(module, **settings)

    step.DistributedDataParallel = OnGpu
    towers_of(model).distributed(Workers.current())
    return asked


def test_seeds_differ_with_every_number_they_are_made_of() -> None:
    seeds = [seed_of(*numbers) for numbers in [(0, 1), (1, 0), (0, 1, 0), (0, 2), (1, 1)]]
    assert len(set(seeds)) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_batch_norm_counts_a_batch_once_that_goes_forward_twice() -> None:
    from open_clip.model import CustomTextCLIP

    def model() -> CustomTextCLIP:
        torch.manual_seed(0)
        return CustomTextCLIP(
            embed_dim=6,
            vision_cfg={"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8},
            text_cfg={"context_length": 12, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1},
        ).train()

    batch = pairs(8)
    batch = Batch(batch.pixels_BHWC.repeat(1, 4, 4, 1), batch.tokens_T, batch.lengths_B)
    once, twice = model(), model()
    for part in batch.split(4):
        once.visual(towers_of(once).image.mean_C11 * 0 + _normalised(part))
    gradients(
        towers_of(twice), batch, 8, LOSSES["infonce"], workers=Workers(), micro_batch=4, seed=(0,)
    )
    torch.testing.assert_close(once.visual.bn1.running_mean, twice.visual.bn1.running_mean)


def _normalised(batch: Batch) -> Tensor:
    return (batch.pixels_BHWC.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
