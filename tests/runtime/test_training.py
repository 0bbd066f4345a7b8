"""One AdamW for the small models: its rates, its epochs, its states."""

import io
import math
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from biovl.core.errors import TrainingError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.training import (
    EpochTraining,
    ScheduledAdamW,
    StepLoss,
    decay_matrices,
    linear_decay,
)
from biovl.runtime.workers import Workers

X = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
Y = X @ torch.tensor([1.0, -2.0, 0.5])


def line() -> nn.Linear:
    """Return y = 0."""
    module = nn.Linear(3, 1)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def training(module: nn.Linear, *, lr: float = 0.1, epochs: int = 4) -> EpochTraining:
    def loss_of(rows: np.ndarray, step: int) -> StepLoss:
        loss = F.mse_loss(module(X[rows])[:, 0], Y[rows])
        return StepLoss(loss, loss.detach().double() * len(rows))

    return EpochTraining(
        {"line": module.state_dict()},
        decay_matrices(module.parameters(), lr, 0.1),
        np.arange(10),
        loss_of,
        **{"epochs": epochs, "batch": 4, "seed": 0, "warmup_share": 0.1, "lr_setting": "its.lr"},
    )


def test_the_rate_rises_for_a_tenth_and_falls_to_nothing() -> None:
    rates = [linear_decay(step, 20, 0.1) for step in range(20)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[-1] == pytest.approx(1 / 18)


def test_the_first_step_moves_by_the_rate_and_decays_matrices_alone() -> None:
    module = nn.Linear(1, 1)
    nn.init.ones_(module.weight)
    nn.init.ones_(module.bias)
    adamw = ScheduledAdamW(decay_matrices(module.parameters(), 0.1, 0.5), lambda step: 0.5)
    adamw.step(0, module(torch.ones(1, 1)).sum())
    # AdamW: p - lr * decay * p - lr * sign(gradient) in its first step.
    assert module.weight.item() == pytest.approx(1 - 0.05 * 0.5 - 0.05, abs=1e-6)
    assert module.bias.item() == pytest.approx(1 - 0.05, abs=1e-6)


@pytest.mark.parametrize(("largest", "seen"), [(None, 5.0), (1.0, 1.0), (10.0, 5.0)])
def test_gradients_are_clipped_to_a_norm(largest: float | None, seen: float) -> None:
    pair = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    adamw = ScheduledAdamW(decay_matrices(pair, 0.1, 0), lambda step: 1.0, clip_norm=largest)
    adamw.step(0, 3 * pair[0].sum() + 4 * pair[1].sum())
    assert math.hypot(*(float(one.grad) for one in pair)) == pytest.approx(seen, rel=1e-5)


def test_epochs_lower_the_loss() -> None:
    one = training(line(), epochs=60)
    losses = [one.epoch() for _ in range(60)]
    assert losses[0] > 1
    assert losses[-1] < losses[0] / 100


def test_what_goes_on_from_a_state_ends_in_the_same_weights() -> None:
    whole, first, second = line(), line(), line()
    losses = list(training(whole).remaining(Checkpoints("unused"), save_every_s=math.inf))
    begun = training(first)
    assert begun.epoch() == losses[0]
    state = deepcopy(begun.state())
    # What is kept is of this epoch, whatever comes after.
    begun.epoch()
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    again = training(second)
    again.load(torch.load(stream, weights_only=True))
    assert list(again.remaining(Checkpoints("unused"), save_every_s=math.inf)) == losses[1:]
    assert torch.equal(second.weight, whole.weight)


def test_checkpoints_are_written_between_epochs_and_not_after_the_last(tmp_path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=9)
    assert len(list(training(line()).remaining(checkpoints, save_every_s=0))) == 4
    assert checkpoints.steps() == [1, 2, 3]
    list(training(line(), epochs=6).remaining(checkpoints, save_every_s=0, saves=False))
    assert checkpoints.steps() == [1, 2, 3]


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    with pytest.raises(TrainingError, match=r"its\.lr"):
        list(training(line(), lr=1e30).remaining(Checkpoints("unused"), save_every_s=math.inf))


def test_workers_that_share_the_rows_step_as_one() -> None:
    class Pair(Workers):
        """Two workers, of which this one also brings what the other would."""

        def sum(self, values: torch.Tensor) -> torch.Tensor:
            return values + others.pop(0)

    alone, own, other = line(), line(), line()
    ScheduledAdamW(decay_matrices(alone.parameters(), 0.1, 0.1), lambda step: 1.0).step(
        0, F.mse_loss(alone(X)[:, 0], Y)
    )
    F.mse_loss(other(X[5:])[:, 0], Y[5:]).div(2).backward()
    others = [torch.cat([one.grad.flatten() for one in other.parameters()])]
    ScheduledAdamW(
        decay_matrices(own.parameters(), 0.1, 0.1), lambda step: 1.0, workers=Pair(0, 2)
    ).step(0, F.mse_loss(own(X[:5])[:, 0], Y[:5]) / 2)
    torch.testing.assert_close(own.weight, alone.weight)
    torch.testing.assert_close(own.bias, alone.bias)
