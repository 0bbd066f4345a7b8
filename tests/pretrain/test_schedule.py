"""Where a step stands, and its learning rate: by hand, and as open_clip has it."""

import pytest
import torch
from open_clip_train.scheduler import const_lr, cosine_lr

from biovl.core.errors import ConfigError
from biovl.pretrain.config import BatchConfig, OptimConfig
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
