"""The loop: it learns, goes on bit for bit where it was, and ends when it is not worth it."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from biovl.core.errors import TrainingError
from biovl.core.plugins import Plugin
from biovl.models.precision import full_precision
from biovl.pretrain import guard
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import (
    BatchConfig,
    OptimConfig,
    PretrainConfig,
    StepConfig,
    TroubleConfig,
)
from biovl.pretrain.loop import StepReport, Trainer, allow_tf32, train
from biovl.pretrain.optimizer import decays
from biovl.pretrain.schedule import Plan, StepPosition
from biovl.runtime.workers import Workers
from tests.pretrain.tiny_clip import pairs, tiny_model, towers_of

CONFIG = PretrainConfig(
    corpus="",
    out="",
    model=Plugin("open_clip"),
    epochs=2,
    batch=BatchConfig(pairs=8),
    optim=OptimConfig(peak_lr=3e-3, warmup_steps=5, clip_grad_norm=1.0),
)


def trainer(config: PretrainConfig = CONFIG, dropout: float = 0.0) -> Trainer:
    model = tiny_model(dropout=dropout).train()
    plan = Plan.of(160, config.batch, config.epochs)
    return Trainer(
        towers_of(model), model, config, plan, device=torch.device("cpu"), workers=Workers()
    )


def stream(start: int = 0, stop: int = 40) -> Iterator[Batch]:
    return (pairs(8, seed=number) for number in range(start, stop))


def run(
    loop: Trainer, batches: Iterator[Batch], config: PretrainConfig = CONFIG
) -> list[StepReport]:
    return list(train(loop, batches, config.trouble))


def test_a_model_learns_which_caption_belongs_to_which_image() -> None:
    config = replace(CONFIG, epochs=8)
    reports = run(trainer(config), stream(0, 160), config)
    # A model that knows nothing has ln 8 = 2.08.
    assert sum(report.loss for report in reports[-10:]) / 10 < 1.2
    assert [report.steps_done for report in reports] == list(range(1, 161))
    assert {len(report.lengths_B) for report in reports} == {8}


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("killed_after", [1, 19, 20, 33])
def test_a_run_that_goes_on_ends_in_the_same_bits(
    killed_after: int, micro_batch: int | None
) -> None:
    config = replace(CONFIG, step=StepConfig(micro_batch=micro_batch))
    undisturbed = trainer(config, dropout=0.2)
    run(undisturbed, stream())
    first = trainer(config, dropout=0.2)
    run(first, stream(0, killed_after))
    second = trainer(config, dropout=0.2)
    second.load(first.state())
    assert second.steps_done == killed_after
    run(second, stream(killed_after))
    for name, value in undisturbed.state()["model"].items():
        assert torch.equal(value, second.state()["model"][name]), name


def test_a_state_does_not_change_with_later_steps() -> None:
    loop = trainer()
    run(loop, stream(0, 2))
    state = loop.state()
    before = {name: value.clone() for name, value in state["model"].items()}
    run(loop, stream(2, 4))
    assert all(torch.equal(state["model"][name], value) for name, value in before.items())


def test_a_loss_that_is_no_number_ends_the_run_with_the_step_named() -> None:
    loop = trainer()
    with torch.no_grad():
        loop._model.visual.conv1.weight.fill_(math.nan)  # type: ignore[union-attr,operator]
    with pytest.raises(TrainingError, match=r"step 1 of 40: .*nan.*optim\.peak_lr"):
        run(loop, stream())


def test_a_loss_that_is_no_number_is_passed_over_where_asked() -> None:
    config = replace(CONFIG, trouble=TroubleConfig(not_finite="skip"))
    loop = trainer(config)
    before = loop.state()["model"]
    with torch.no_grad():
        loop._towers.logit_scale.fill_(math.nan)
    reports = run(loop, stream(0, 3), config)
    assert [report.skipped for report in reports] == [True] * 3
    assert loop.steps_done == 3
    after = loop.state()["model"]
    assert all(torch.equal(after[n], before[n]) for n in before if n != "logit_scale")


def test_a_run_whose_every_step_is_passed_over_ends() -> None:
    config = replace(CONFIG, epochs=8, trouble=TroubleConfig(not_finite="skip"))
    loop = trainer(config)
    with torch.no_grad():
        loop._towers.logit_scale.fill_(math.nan)
    with pytest.raises(TrainingError, match="100 steps"):
        run(loop, stream(0, 160), config)


def shuffled(batch: Batch, by: int) -> Batch:
    """Captions that belong to other images: nothing can be learnt."""
    return Batch(batch.pixels_BHWC.roll(by, 0), batch.tokens_T, batch.lengths_B)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_run_that_does_no_better_than_guessing_ends(
    micro_batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 1,000, so that the test is short: the chance of 8 pairs is the same in micro-batches.
    monkeypatch.setattr(guard, "CHANCE_STEPS", 120)
    config = replace(CONFIG, epochs=8, step=StepConfig(micro_batch=micro_batch))
    batches = [shuffled(pairs(8, seed=n), 1 + n % 7) for n in range(160)]
    with pytest.raises(TrainingError, match=r"\b8 .*2\.079"):
        run(trainer(config), iter(batches), config)
    patient = replace(config, trouble=TroubleConfig(collapsed=False))
    assert len(run(trainer(patient), iter(batches), patient)) == 160


def test_a_run_that_was_killed_after_its_loss_jumped_is_compared_with_what_it_was() -> None:
    loop, place = trainer(), StepPosition(epoch=0, step=9, batch_pairs=4096, pairs_before=9 * 4096)
    for step in range(300):
        loop.guard.add(1.0 + 0.01 * (step % 7), place, CONFIG.trouble, skipped=False)
    resumed = trainer()
    resumed.load(loop.state())
    with pytest.raises(TrainingError, match=r"\b1\.03\b"):
        for _ in range(60):
            resumed.guard.add(6.0, place, CONFIG.trouble, skipped=False)


@pytest.mark.parametrize(("precision", "products"), [("fp32", "tf32"), ("bf16", None)])
def test_fp32_on_gpus_is_that_of_open_clip_but_for_the_loss(
    precision: str, products: str | None
) -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        allow_tf32(precision, torch.device("cpu"))
        assert matmul.fp32_precision == before
        allow_tf32(precision, torch.device("cuda"))
        assert matmul.fp32_precision == (products or before)
        with full_precision():
            assert matmul.fp32_precision == "ieee"
    finally:
        matmul.fp32_precision = before


def test_the_scale_on_similarities_stays_between_1_and_100() -> None:
    config = replace(CONFIG, optim=replace(CONFIG.optim, peak_lr=3.0, warmup_steps=0))
    config = replace(config, trouble=TroubleConfig(diverged=None))
    scales = [report.logit_scale for report in run(trainer(config), stream(), config)]
    assert 1 <= min(scales) <= max(scales) <= 100.001


@pytest.mark.parametrize(
    ("name", "shape", "settings", "decayed"),
    [
        ("visual.conv1.weight", (4, 3, 2, 2), {}, True),
        ("visual.ln_pre.weight", (4,), {}, False),
        ("text.transformer.encoder.layer.0.output.dense.bias", (4,), {}, False),
        ("logit_scale", (), {}, False),
        ("visual.trunk.pos_embed", (1, 4, 4), {}, True),
        ("visual.trunk.pos_embed", (1, 4, 4), {"decay_embeddings": False}, False),
        (
            "text.transformer.embeddings.word_embeddings.weight",
            (4, 4),
            {"decay_embeddings": False},
            True,
        ),
    ],
)
def test_matrices_decay_and_the_rest_does_not(
    name: str, shape: tuple[int, ...], settings: dict[str, Any], decayed: bool
) -> None:
    parameter = torch.nn.Parameter(torch.zeros(shape))
    assert decays(name, parameter, OptimConfig(**settings)) == decayed


def test_the_scale_that_is_reported_is_the_one_in_the_loss() -> None:
    config = replace(CONFIG, optim=replace(CONFIG.optim, peak_lr=0.1, warmup_steps=0))
    loop = trainer(config)
    before = float(loop.state()["model"]["logit_scale"].exp())
    (report,) = run(loop, stream(0, 1), config)
    assert report.logit_scale == pytest.approx(before)
    assert report.logit_scale != pytest.approx(float(loop.state()["model"]["logit_scale"].exp()))
