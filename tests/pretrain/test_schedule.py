"""Where a step stands, and its learning rate: by hand, and as open_clip has it."""

from dataclasses import replace

import pytest
import torch
from open_clip_train.scheduler import const_lr, const_lr_cooldown, cosine_lr

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.pretrain.config import BatchConfig, OptimConfig, tiny
from biovl.pretrain.schedule import Plan, StepPosition, learning_rate


def test_a_plan_leaves_out_what_is_no_whole_batch() -> None:
    plan = Plan.of(103, BatchConfig(pairs=10, later={2: 40}), epochs=4)
    assert plan.epochs == [(10, 10), (10, 10), (40, 2), (40, 2)]
    assert (plan.steps, plan.pairs) == (24, 360)
    assert plan.ends() == [10, 20, 22, 24]


def test_the_steps_done_say_where_a_run_is() -> None:
    plan = Plan.of(103, BatchConfig(pairs=10, later={2: 40}), epochs=4)
    assert plan.place(0) == StepPosition(epoch=0, step=0, batch_pairs=10, pairs_before=0)
    assert plan.place(13) == StepPosition(epoch=1, step=3, batch_pairs=10, pairs_before=130)
    assert plan.place(20) == StepPosition(epoch=2, step=0, batch_pairs=40, pairs_before=200)
    assert plan.place(23) == StepPosition(epoch=3, step=1, batch_pairs=40, pairs_before=320)


def test_a_corpus_smaller_than_a_batch_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"batch\.pairs: .*\b40\b.*\b39\b"):
        Plan.of(39, BatchConfig(pairs=10, later={1: 40}), epochs=2)


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_learning_rate_is_that_of_open_clip(schedule: str) -> None:
    optim = OptimConfig(peak_lr=0.3, warmup_steps=7, schedule=schedule)  # type: ignore[arg-type]
    plan = Plan.of(100, BatchConfig(pairs=10), epochs=3)
    optimizer = torch.optim.SGD([torch.zeros(1)])
    theirs = (cosine_lr if schedule == "cosine" else const_lr)(optimizer, 0.3, 7, 30)
    ours = [learning_rate(optim, plan, plan.place(step)) for step in range(30)]
    assert ours == pytest.approx([theirs(step) for step in range(30)], rel=1e-12)


@pytest.mark.parametrize("power", [1.0, 2.5])
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_the_cooldown_is_that_of_open_clip(epochs: int, power: float) -> None:
    optim = OptimConfig(
        peak_lr=0.3,
        warmup_steps=7,
        schedule="cooldown",
        cooldown_epochs=epochs,
        cooldown_power=power,
        final_lr=0.02,
    )
    plan = Plan.of(100, BatchConfig(pairs=10), epochs=3)
    optimizer = torch.optim.SGD([torch.zeros(1)])
    theirs = const_lr_cooldown(optimizer, 0.3, 7, 30, 10 * epochs, power, 0.02)
    ours = [learning_rate(optim, plan, plan.place(step)) for step in range(30)]
    assert ours == pytest.approx([theirs(step) for step in range(30)], rel=1e-12)


def test_a_cosine_ends_at_the_final_rate() -> None:
    plan = Plan.of(100, BatchConfig(pairs=10), epochs=3)
    place = replace(plan.place(29), pairs_before=plan.pairs)
    optim = OptimConfig(peak_lr=0.3, warmup_steps=0, final_lr=0.1)
    assert learning_rate(optim, plan, plan.place(15)) == pytest.approx(0.2)
    assert learning_rate(optim, plan, place) == pytest.approx(0.1)


def test_a_cooldown_of_larger_batches_begins_with_its_epochs() -> None:
    optim = OptimConfig(peak_lr=1.0, warmup_steps=0, schedule="cooldown", cooldown_epochs=2)
    plan = Plan.of(80, BatchConfig(pairs=10, later={2: 40}), epochs=4)
    rates = [learning_rate(optim, plan, plan.place(step)) for step in range(plan.steps)]
    assert rates == pytest.approx([1.0] * 16 + [1.0, 0.75, 0.5, 0.25])


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": "cooldown"},
        {"cooldown_epochs": 1},
        {"schedule": "cooldown", "cooldown_epochs": 0},
        {"schedule": "cooldown", "cooldown_epochs": 1, "cooldown_power": 0.0},
        {"schedule": "constant", "final_lr": 1e-5},
        {"final_lr": 1.0},
        {"image_lr_factor": 0.0},
        {"name": "lion"},
        {"settings": {"betas": [0.9, 0.99]}},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        configs.build(OptimConfig, wrong)


def test_a_cooldown_is_not_longer_than_the_run() -> None:
    optim = OptimConfig(schedule="cooldown", cooldown_epochs=5)
    with pytest.raises(ValueError, match="cooldown_epochs"):
        replace(tiny(), epochs=4, optim=optim)


def test_a_larger_batch_later_goes_down_the_same_curve_of_pairs_seen() -> None:
    optim = OptimConfig(peak_lr=1.0, warmup_steps=4)
    small = Plan.of(80, BatchConfig(pairs=10), epochs=4)
    grown = Plan.of(80, BatchConfig(pairs=10, later={2: 40}), epochs=4)
    rates = {
        small.place(s).pairs_before: learning_rate(optim, small, small.place(s)) for s in range(32)
    }
    for step in range(grown.steps):
        place = grown.place(step)
        assert learning_rate(optim, grown, place) == pytest.approx(rates[place.pairs_before])


def test_without_warm_up_a_run_starts_at_its_peak() -> None:
    plan = Plan.of(80, BatchConfig(pairs=10), epochs=1)
    assert learning_rate(OptimConfig(peak_lr=0.5, warmup_steps=0), plan, plan.place(0)) == 0.5
