"""A run that diverges returns to earlier weights, skips the pairs that led to it, and goes on."""

import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biovl.core.artifacts import Draft
from biovl.core.errors import RestartNeeded, TrainingError
from biovl.models.builders.open_clip import Built
from biovl.pretrain import guard, rollback
from biovl.pretrain.batches import Batch
from biovl.pretrain.card_sections import rollbacks_section
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.guard import Diverged, Guard
from biovl.pretrain.run import Callbacks, read_failures, run
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import note_name, read_scores
from biovl.pretrain.tower_setup import towers_of as towers_for
from biovl.pretrain.trackers import read_metrics
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers, share
from tests.pretrain.groups import in_group
from tests.pretrain.test_run import SCORES, config
from tests.pretrain.tiny_clip import piece

PLAN = Plan([(4, 20)] * 4)
BAD = range(42, 48)
"""Steps, by the number of steps before each, whose captions belong to other images."""


def settings(out: Path, **changes: Any) -> PretrainConfig:
    values = {
        "epochs": 4,
        "optim.peak_lr": 3e-2,
        "optim.warmup_steps": 0,
        "save.every_steps": 7,
        "save.keep_last": 9,
        "trouble.on_divergence": "rollback",
        "trouble.not_finite": "rollback",
        **changes,
    }
    return config(out, **values)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the steps of a median to 8, and those skipped before divergence to 6."""
    monkeypatch.setattr(guard, "SMOOTHED_STEPS", 8)
    monkeypatch.setattr(guard, "LEAST_JUMP", 0.5)
    monkeypatch.setattr(rollback, "LEAD_STEPS", 6)


def batch_of(step: int) -> Batch:
    """Return the same four pairs in every step, but for the captions of bad steps."""
    rng = np.random.default_rng(0)
    captions = [np.array([49406, *rng.integers(0, 400, 3), 49407]) for _ in range(4)]
    pixels = rng.integers(0, 255, (4, 16, 16, 3), np.uint8)
    return Batch.of(pixels, captions[1:] + captions[:1] if step in BAD else captions)


class World:
    """Callbacks of a run, and what they were told."""

    def __init__(self, stop: int | None = None) -> None:
        self.drawn: list[int] = []
        self.lines: list[str] = []
        self.validated: list[tuple[int, int]] = []
        self._stop = stop

    def batches(
        self, built: Built, steps_done: int, while_waiting: Callable[[], None]
    ) -> Generator[Batch]:
        for step in range(steps_done, PLAN.steps):
            if step == self._stop:
                raise KeyboardInterrupt
            self.drawn.append(step)
            yield batch_of(step)

    def run(self, changed: PretrainConfig, every: int | None = None) -> None:
        callbacks = Callbacks(self.batches, self._validate, self.lines.append)
        run(changed, PLAN, every, callbacks, workers=Workers(), device=torch.device("cpu"))

    def _validate(self, epoch: int, steps_done: int) -> None:
        self.validated.append((epoch, steps_done))


def run_to_the_end(changed: PretrainConfig, every: int | None = None) -> int:
    """Restart a run as the driver does; return the number of restarts."""
    for restarts in range(9):
        try:
            World().run(changed, every)
        except RestartNeeded:
            continue
        return restarts
    raise AssertionError("too many restarts")


def weights(out: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = Checkpoints(str(out)).load(PLAN.steps)["model"]
    return found


def assert_equal_weights(out: Path, expected: dict[str, torch.Tensor]) -> None:
    actual = weights(out)
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that diverged at the bad steps and rolled back."""
    out = tmp_path_factory.mktemp("rolled_back")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten(monkeypatch)
        assert run_to_the_end(settings(out)) == 1
    return out


def test_the_record_says_what_was_skipped_and_why(rolled_back: Path) -> None:
    (record,) = rollback.read_rollbacks(Draft(str(rolled_back)))
    first, last = record["skipped_steps"]
    # Six steps before the first bad one, to a bad one half a median later.
    assert first == BAD.start - 6 + 1
    assert BAD.start + 4 <= last <= BAD.stop
    assert record["skipped_pairs"] == 4 * (last - first + 1)
    assert record["epochs"] == [
        {"epoch": 1, "first": 4 * (first - 1 - 20), "end": 80},
        {"epoch": 2, "first": 0, "end": 4 * (last - 40)},
    ]
    assert record["loss_after"] > record["loss_before"] + 0.5
    assert "diverged" in record["reason"]
    card = rollbacks_section([record])
    assert f"{first} to {last}" in card
    assert "epoch 2: 64 to 79, epoch 3: 0 to" in card
    assert rollbacks_section([]) == ""


def test_rows_of_the_log_are_the_trained_steps_and_their_pairs(rolled_back: Path) -> None:
    rows = read_metrics(rolled_back / "metrics.jsonl")
    (record,) = rollback.read_rollbacks(Draft(str(rolled_back)))
    first, last = record["skipped_steps"]
    trained = [*range(1, first), *range(last + 1, 81)]
    assert [row["step"] for row in rows] == trained
    assert [row["pairs_seen"] for row in rows] == [4 * n for n in range(1, len(trained) + 1)]
    assert {row["epoch"] for row in rows} == {0, 1, 2, 3}


def test_it_ends_as_a_run_that_knew_from_the_beginning_what_to_skip(
    rolled_back: Path, tmp_path: Path
) -> None:
    (record,) = rollback.read_rollbacks(Draft(str(rolled_back)))
    Draft(str(tmp_path)).note("rollback/000", {**record, "is_applied": True})
    world = World()
    world.run(settings(tmp_path))
    first, last = record["skipped_steps"]
    assert set(world.drawn) == set(range(80)) - set(range(first - 1, last))
    assert_equal_weights(tmp_path, weights(rolled_back))


@pytest.mark.parametrize("stop", [35, 52])
def test_interrupted_after_the_rollback_it_ends_in_the_same_weights(
    rolled_back: Path, tmp_path: Path, stop: int
) -> None:
    with pytest.raises(RestartNeeded):
        World().run(settings(tmp_path))
    # Between the record and the restart nothing was discarded yet.
    (record,) = rollback.read_rollbacks(Draft(str(tmp_path)))
    assert max(Checkpoints(str(tmp_path)).steps()) > record["skipped_steps"][0]
    with pytest.raises(KeyboardInterrupt):
        World(stop).run(settings(tmp_path))
    assert run_to_the_end(settings(tmp_path)) == 0
    assert_equal_weights(tmp_path, weights(rolled_back))
    assert rollback.read_rollbacks(Draft(str(tmp_path))) == [record]


def test_checkpoints_and_scores_of_skipped_steps_are_discarded_and_made_again(
    tmp_path: Path,
) -> None:
    first, changed = World(), settings(tmp_path, **{"save.every_steps": 6})
    with pytest.raises(RestartNeeded):
        first.run(changed, 1)
    draft = Draft(str(tmp_path))
    for epoch, _ in first.validated:
        draft.note(note_name(epoch), SCORES)
    assert first.validated == [(0, 20), (1, 40)]
    second = World()
    second.run(changed, 1)
    # The second epoch ends among the skipped steps: its checkpoint has the weights before.
    assert second.validated == [(1, 40), (2, 60), (3, 80)]
    assert list(read_scores(draft)) == [0]
    checkpoints = Checkpoints(str(tmp_path))
    before, at_end = (checkpoints.load(steps)["model"] for steps in (36, 40))
    assert all(torch.equal(at_end[name], value) for name, value in before.items())


def test_a_run_that_starts_again_for_want_of_a_checkpoint_warns(tmp_path: Path) -> None:
    changed = settings(tmp_path, **{"save.every_steps": 80, "save.every_minutes": None})
    first, second = World(), World()
    with pytest.raises(RestartNeeded, match="Rolls back to step 36"):
        first.run(changed)
    for steps in (20, 40):
        (tmp_path / f".draft/checkpoints/{steps:09d}.pt").unlink(missing_ok=True)
    second.run(changed)
    (line,) = [line for line in second.lines if line.startswith("warning")]
    assert "no checkpoint from before the rollback is left: trains again from step 1 to 36" in line
    assert second.drawn[0] == 0
    assert not [line for line in first.lines if line.startswith("warning")]


def test_a_run_that_diverges_too_often_ends_with_the_reason(tmp_path: Path) -> None:
    changed = settings(tmp_path, **{"optim.peak_lr": 1e30, "trouble.rollbacks": 2})
    restarts = 0
    with pytest.raises(TrainingError, match=r"optim\.peak_lr"):
        while restarts < 5:
            try:
                World().run(changed)
            except RestartNeeded:
                restarts += 1
    assert restarts == 2
    assert len(read_failures(Draft(str(tmp_path)))) == 1


def test_a_loss_that_is_nan_rolls_back_and_skips_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(built: Built, *others: Any) -> Any:
        towers = towers_for(built, *others)

        def poison(_: Any, inputs: Any, features_bD: torch.Tensor) -> torch.Tensor | None:
            # The captions of bad steps begin with another word.
            is_bad = int(inputs[0][1]) != int(batch_of(0).tokens_T[1])
            return features_bD * math.nan if is_bad else None

        towers.text.register_forward_hook(poison)
        return towers

    bad = range(42, 44)
    monkeypatch.setitem(globals(), "BAD", bad)
    monkeypatch.setattr("biovl.pretrain.run.towers_of", poisoned)
    monkeypatch.setattr(rollback, "LEAD_STEPS", 3)
    assert run_to_the_end(settings(tmp_path, **{"trouble.rollbacks": 2})) == len(bad)
    records = rollback.read_rollbacks(Draft(str(tmp_path)))
    # Each returns three trained steps further, as the last one did not help.
    assert [record["skipped_steps"] for record in records] == [
        [40, 43],
        [37, 44],
    ]
    assert all(record["loss_after"] is None for record in records)
    assert rollback.skipped_steps(records) == [range(36, 44)]
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


def attempts(out: str) -> list[str]:
    """Train on one of several workers until the end; return the reasons of the restarts."""
    workers, reasons = Workers.current(), list[str]()

    def own_share(built: Built, done: int, wait: Callable[[], None]) -> Generator[Batch]:
        own = share(4, workers.rank, workers.count)
        for batch in World().batches(built, done, wait):
            yield piece(batch, own.start, own.stop)

    callbacks = Callbacks(own_share, lambda epoch, steps: None, lambda line: None)
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten(monkeypatch)
        while len(reasons) < 3:
            try:
                run(
                    settings(Path(out)),
                    *(PLAN, None, callbacks),
                    workers=workers,
                    device=torch.device("cpu"),
                )
            except RestartNeeded as error:
                reasons.append(str(error))
            else:
                break
    return reasons


def test_all_workers_roll_back_together(tmp_path: Path) -> None:
    first, second = in_group(2, attempts, str(tmp_path))
    assert first == second
    assert len(first) == 1
    assert len(rollback.read_rollbacks(Draft(str(tmp_path)))) == 1
    assert Checkpoints(str(tmp_path)).steps()[-1] == PLAN.steps


@pytest.mark.parametrize(
    ("steps_done", "steps", "known", "expected"),
    [
        (500, 0, [], [401, 501]),
        (500, 60, [], [341, 500]),
        (50, 0, [], [1, 51]),
        # 20 trained steps after the skipped ones, 80 before them.
        (520, 0, [range(300, 500)], [221, 521]),
        (900, 0, [range(300, 500)], [801, 901]),
        (520, 0, [range(240, 400), range(450, 500)], [211, 521]),
        # Steps that are repeated in front of the skipped ones.
        (700, 0, [range(900, 1_060)], [601, 701]),
        (900, 0, [range(900, 1_060)], [801, 901]),
    ],
)
def test_steps_before_are_counted_without_skipped_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps_done: int,
    steps: int,
    known: list[range],
    expected: list[int],
) -> None:
    monkeypatch.setattr(rollback, "LEAD_STEPS", 100)
    draft, plan = Draft(str(tmp_path)), Plan([(4, 300)] * 5)
    for number, each in enumerate(known):
        bounds = [each.start + 1, each.stop]
        draft.note(f"rollback/{number:03d}", {"skipped_steps": bounds, "is_applied": True})
    error = Diverged("the loss is NaN", "", steps=steps)
    record = rollback.record_rollback(draft, plan, error, steps_done=steps_done)
    assert record["skipped_steps"] == expected


def test_trained_steps_and_skipped_pairs_complete_the_plan() -> None:
    plan = Plan([(4, 10), (8, 10)])
    skipped = rollback.skipped_steps(
        [{"skipped_steps": [3, 5]}, {"skipped_steps": [5, 7]}, {"skipped_steps": [9, 12]}]
    )
    assert skipped == [range(2, 7), range(8, 12)]
    assert rollback.trained_steps(plan, skipped, 0) == [range(2), range(7, 8), range(12, 20)]
    # Resumed at the end of an epoch, which is among the skipped steps.
    assert rollback.trained_steps(plan, skipped, 10) == [range(12, 20)]
    assert rollback.trained_steps(plan, [range(15, 20)], 3) == [range(3, 15)]
    assert rollback.skipped_pairs(plan, skipped, 20) == 5 * 4 + 2 * 4 + 2 * 8
    assert rollback.skipped_pairs(plan, skipped, 9) == 5 * 4 + 4
    assert rollback.skipped_pairs(plan, skipped, 2) == 0


def test_a_checkpoint_from_before_is_retained() -> None:
    assert rollback.steps_to_keep([]) == []
    assert rollback.steps_to_keep([1000, 1100]) == [1000]
    steps = [500, 700, 1000, 1100, 1200]
    assert rollback.steps_to_keep(steps) == [700, 1000]
    # The loss has been rising for 400 steps, or steps in between were skipped.
    assert rollback.steps_to_keep(steps, since_good=400) == [500, 700]
    assert rollback.steps_to_keep(steps, skipped=[range(650, 950)]) == [500, 700]


@pytest.mark.parametrize("every", [40, 100, 250, 1_000])
@pytest.mark.parametrize("lags", [(0,), (5, 150, 30)])
def test_there_is_always_a_checkpoint_from_before(every: int, lags: tuple[int, ...]) -> None:
    """Checkpoints of any frequency, of which the last two are retained anyway.

    The loss begins to rise at step 3,100. While a checkpoint is being written, training goes on.
    """
    steps: list[int] = []
    for number, done in enumerate(range(every, 6_001, every)):
        since_good = max(0, done + lags[number % len(lags)] - 3_100)
        steps.append(done)
        kept = rollback.steps_to_keep(steps, since_good=since_good)
        assert len(kept) <= rollback.MOST_KEPT
        steps = sorted({*kept, *steps[-2:]})
        assert steps[0] <= max(every, min(done, 3_100) - 300)
    # The run returns to step 3,000, and repeats few steps from the checkpoint on.
    assert 3_000 - max(800, 2 * every) <= max(s for s in steps if s <= 3_000)


def test_the_checkpoint_before_a_slow_rise_of_the_loss_is_retained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Guard.add

    def rising(self: Guard, *values: Any, **named: Any) -> None:
        add(self, *values, **named)
        # Since step 30.
        self.since_good = max(0, int(values[1].pairs_before / 4) - 30)

    monkeypatch.setattr(Guard, "add", rising)
    monkeypatch.setattr(rollback, "_KEPT_STEPS", 6)
    monkeypatch.setitem(globals(), "BAD", range(0))
    changed = settings(tmp_path, **{"save.keep_last": 1})
    with pytest.raises(KeyboardInterrupt):
        World(stop=72).run(changed)
    earliest, *later = Checkpoints(str(tmp_path)).steps()
    assert earliest <= 30 - 6
    assert later[-1] >= 40
