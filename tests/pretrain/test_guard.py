"""When a run is ended: curves of losses as runs have them, good and bad."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from biovl.core.errors import TrainingError
from biovl.pretrain.config import TroubleConfig
from biovl.pretrain.guard import Diverged, Guard, chance
from biovl.pretrain.schedule import StepPosition

N = 4096
LN_N = math.log(N)


def ended_after(
    losses: Iterable[float],
    *,
    pairs: int = N,
    warmup: int = 0,
    loss: str = "infonce",
    trouble: TroubleConfig | None = None,
) -> tuple[int, str] | None:
    """Return after how many steps a run with these losses is ended, and why; None if it is not."""
    guard = Guard(loss, warmup_pairs=warmup * pairs, warmup_steps=warmup)
    for step, value in enumerate(losses):
        place = StepPosition(epoch=0, step=step, pairs_before=step * pairs, batch_pairs=pairs)
        try:
            guard.add(float(value), place, trouble or TroubleConfig(), skipped=False)
        except TrainingError as error:
            return step + 1, str(error)
    return None


def noise(steps: int, spread: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, steps)


def falling(steps: int, start: float, end: float, half_life: float) -> np.ndarray:
    return end + (start - end) * 0.5 ** (np.arange(steps) / half_life)


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [(2, 9, N), (2, 9, 32_768), (0.3, 4, N), (1, 4, 1024), (2, LN_N, N), (0.5, 3, 256)],
)
@pytest.mark.parametrize("warmup", [0, 300])
def test_a_loss_that_jumps_and_stays_ends_the_run(
    before: float, after: float, pairs: int, warmup: int
) -> None:
    curve = np.concatenate([falling(700, before + 1, before, 80), np.full(200, after)])
    found = ended_after(curve + noise(len(curve), 0.1), pairs=pairs, warmup=warmup)
    assert found is not None
    steps, reason = found
    # As soon as half of a hundred steps are bad.
    assert 740 < steps < 800
    assert "diverged" in reason
    assert "trouble.diverged" in reason
    assert ended_after(curve, pairs=pairs, trouble=TroubleConfig(diverged=None)) is None


def test_one_that_jumps_in_warmup_ends_when_it_is_worse_than_chance() -> None:
    curve = np.concatenate([np.full(300, 2.0), np.full(300, 9.0)])
    found = ended_after(curve, warmup=2000)
    assert found is not None
    assert found[0] < 360


def test_one_that_forgets_in_warmup_and_does_not_learn_again_ends_with_warmup() -> None:
    curve = np.concatenate([np.full(1000, 2.0), np.full(2000, 7.0)])
    found = ended_after(curve + noise(3000, 0.1), warmup=2000)
    assert found is not None
    assert 2000 < found[0] <= 2100


@pytest.mark.parametrize(
    ("warmup", "pairs", "spread"),
    [(0, N, 0), (0, 8, 0.05), (100, 32, 1e-3), (100, 65_536, 0.05), (1500, N, 1e-3)],
)
def test_a_collapsed_model_ends_the_run(warmup: int, pairs: int, spread: float) -> None:
    curve = math.log(pairs) + noise(4000, spread)
    found = ended_after(curve, pairs=pairs, warmup=warmup)
    assert found is not None
    steps, reason = found
    assert warmup + max(1000, warmup) <= steps
    assert "learns nothing" in reason
    assert "trouble.collapsed" in reason
    assert ended_after(curve, pairs=pairs, trouble=TroubleConfig(collapsed=False)) is None


def test_one_that_collapses_in_warmup_ends_too() -> None:
    curve = np.concatenate([falling(300, LN_N, 6, 100), np.full(5000, LN_N)])
    found = ended_after(curve, warmup=500)
    assert found is not None
    assert "diverged" in found[1]


def test_one_that_stays_above_chance_ends_too() -> None:
    found = ended_after(np.full(5000, LN_N * 1.1), warmup=500)
    assert found is not None
    assert "learns nothing" in found[1]


def from_scratch(steps: int, plateau: int, pairs: int) -> np.ndarray:
    """Some hundred steps at chance, then slowly below it."""
    ln_n = math.log(pairs)
    return np.concatenate(
        [np.full(plateau, ln_n), falling(steps - plateau, ln_n, 0.3 * ln_n, 1500)]
    )


GOOD = {
    "from scratch, slowly": (from_scratch(6000, 800, N), N, 0),
    "from scratch, with a long warm-up": (from_scratch(6000, 1900, N), N, 1500),
    "from scratch, small batches": (from_scratch(6000, 600, 32) + noise(6000, 0.25), 32, 50),
    "towers that do not know each other yet": (falling(4000, LN_N + 3, 2, 800), N, 500),
    "a fine-tune": (falling(3000, 3, 1.2, 400) + noise(3000, 0.2), N, 200),
    "noise of a large spread": (falling(5000, 8, 3, 400) + noise(5000, 0.8, seed=3), N, 200),
    "noise with outliers": (
        falling(5000, 8, 3, 400) + np.random.default_rng(1).standard_t(1.5, 5000).clip(-2, 6) * 0.3,
        *(N, 200),
    ),
    "spikes of 40 steps": (
        falling(5000, 8, 2, 400) + 6.0 * (np.arange(5000) % 700 < 40) * (np.arange(5000) > 500),
        *(N, 200),
    ),
    "one that forgets while the rate grows, and learns again": (
        np.concatenate([np.full(300, 2.5), falling(3700, 5.2, 1.5, 600)]),
        *(N, 300),
    ),
    "epochs of easier and harder pairs": (
        2.0 + 0.4 * np.sin(np.arange(6000) / 200) + noise(6000, 0.2),
        *(N, 100),
    ),
    "few pairs, nearly learnt by heart": (
        falling(3000, 3.4, 0.05, 200) + np.abs(noise(3000, 0.05)),
        *(32, 10),
    ),
}


def guarded(
    losses: Iterable[float],
    norms: Iterable[float] | None = None,
    *,
    pairs: int = N,
    warmup: int = 0,
) -> tuple[Guard, dict[int, list[str]]]:
    """Return the guard after these steps, and the alarms by step, from 1."""
    guard, alarms = Guard("infonce", warmup_pairs=warmup * pairs, warmup_steps=warmup), {}
    losses = list(losses)
    for step, (loss, norm) in enumerate(zip(losses, norms or [1.0] * len(losses), strict=True)):
        place = StepPosition(epoch=0, step=step, pairs_before=step * pairs, batch_pairs=pairs)
        guard.add(float(loss), place, TroubleConfig(), skipped=False, grad_norm=float(norm))
        alarms[step + 1] = guard.take_alarms()
    return guard, {step: lines for step, lines in alarms.items() if lines}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_run_is_left_alone_and_has_no_alarms_but_of_spikes(name: str) -> None:
    curve, pairs, warmup = GOOD[name]
    _, alarms = guarded(curve, pairs=pairs, warmup=warmup)
    jumps = ("spikes of 40 steps", "one that forgets while the rate grows, and learns again")
    assert (len(alarms) > 0) == (name in jumps)


def test_a_spike_of_the_loss_is_reported_once_and_its_steps_counted() -> None:
    curve = 2.0 + noise(400, 0.1)
    curve[250] = curve[300] = curve[301] = 4.0
    guard, alarms = guarded(curve)
    assert list(alarms) == [251, 301]
    assert "4.000" in alarms[251][0]
    assert guard.spikes == {"loss": 3, "gradient": 0}


def test_a_spike_of_the_gradient_is_reported_once_and_its_steps_counted() -> None:
    norms = np.abs(0.5 + noise(400, 0.1))
    norms[200] = norms[201] = 20.0
    norms[300] = math.nan
    guard, alarms = guarded(np.full(400, 2.0), norms.tolist())
    assert list(alarms) == [201]
    assert "optim.clip_grad_norm" in alarms[201][0]
    assert guard.spikes == {"loss": 0, "gradient": 2}


def test_gradients_that_grow_tenfold_at_the_end_of_a_plateau_are_no_spike() -> None:
    norms = np.concatenate([np.full(300, 0.1), 0.1 * 100 ** (np.arange(100) / 100)])
    spread = np.random.default_rng(0).uniform(0.3, 3, len(norms))
    assert guarded(np.full(400, 8.0), (norms * spread).tolist())[1] == {}


def test_a_low_rank_of_features_is_reported_if_it_was_higher_and_stays_low() -> None:
    guard, _ = guarded([LN_N] * 10)
    alarms = []
    for ranks in [(30, 30), (300, 200), (29, 200), (300, 200), (29, 200), (29, 200), (20, 200)]:
        guard.add_ranks(*ranks)
        alarms.append(bool(guard.take_alarms()))
    assert alarms == [False] * 5 + [True, False]


def test_a_low_rank_at_the_start_is_no_alarm() -> None:
    for warmup, ranks in ((0, [1.2, 1.1, 1.3, 40]), (100, [300, 20, 20, 20])):
        guard, _ = guarded([LN_N] * 10, warmup=warmup)
        for rank in ranks:
            guard.add_ranks(rank, rank)
        assert guard.take_alarms() == []


@pytest.mark.parametrize("rise", [5, 400])
def test_divergence_says_how_long_ago_it_began(rise: int) -> None:
    # At once, and slowly: then earlier than the first step that alone is too high.
    climb = np.concatenate([np.full(300, 2.0), np.linspace(2, 8, rise), np.full(200, 8.0)])
    guard = Guard("infonce", warmup_pairs=0, warmup_steps=0)
    with pytest.raises(Diverged) as found:
        for step, loss in enumerate(climb + noise(len(climb), 0.05)):
            place = StepPosition(epoch=0, step=step, pairs_before=step * N, batch_pairs=N)
            guard.add(loss, place, TroubleConfig(), skipped=False)
    began = step + 1 - found.value.steps
    assert 290 <= began <= (305 if rise == 5 else 300 + rise / 3)
    assert found.value.loss_before == pytest.approx(2, abs=0.1)


def test_the_state_of_a_guard_has_its_spikes_and_ranks() -> None:
    curve, norms = 2.0 + noise(250, 0.1), np.full(250, 1.0)
    curve[240], norms[245] = 9, 99
    guard, _ = guarded(curve, norms.tolist())
    guard.add_ranks(100, 100)
    guard.add_ranks(1, 100)
    again = Guard("infonce", warmup_pairs=0, warmup_steps=0)
    again.load(guard.state())
    assert again.state() == guard.state()
    assert again.spikes == {"loss": 1, "gradient": 1}


def test_more_pairs_in_a_step_are_no_jump_and_fewer_are_another_run() -> None:
    for first, then in ((N, 65_536), (65_536, 512)):
        guard, trouble = Guard("infonce", warmup_pairs=0, warmup_steps=0), TroubleConfig()
        for step in range(600):
            pairs = first if step < 300 else then
            guard.add(
                math.log(pairs) * 0.6, StepPosition(0, step, pairs, step), trouble, skipped=False
            )


def test_a_loss_that_is_skipped_for_long_ends_the_run() -> None:
    guard = Guard("infonce", warmup_pairs=0, warmup_steps=0)
    with pytest.raises(TrainingError, match="100 steps"):
        for step in range(100):
            guard.add(math.nan, StepPosition(0, step, N, step), TroubleConfig(), skipped=True)


def test_the_chance_of_siglip_is_the_least_that_equal_logits_lose() -> None:
    for pairs in (2, 8, 1000):
        logits = np.linspace(-20, 10, 300_001)
        losses = np.log1p(np.exp(-logits)) + (pairs - 1) * np.log1p(np.exp(logits))
        assert chance("siglip", pairs) == pytest.approx(losses.min(), rel=1e-6)
        assert chance("infonce", pairs) == pytest.approx(-math.log(1 / pairs))
    curve = np.concatenate([falling(1000, 10, 2, 100), np.full(300, 8.0)])
    assert ended_after(curve, loss="siglip") is not None
    assert ended_after(falling(5000, 10, 1, 500), loss="siglip") is None
