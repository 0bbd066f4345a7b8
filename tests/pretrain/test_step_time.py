"""The parts of a step's time, on one worker and on two."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from biovl.pretrain.batches import Batch
from biovl.pretrain.config import BatchConfig
from biovl.pretrain.loop import GATHER_STEPS, StepReport, Trainer, train
from biovl.pretrain.schedule import Plan
from biovl.pretrain.step_time import PARTS, StepClock, lag, slowest
from biovl.runtime.workers import Workers
from tests.pretrain.groups import in_group
from tests.pretrain.test_loop import CONFIG
from tests.pretrain.tiny_clip import pairs, tiny_model, towers_of


class Clock:
    """Advances by hand, and by ``tick_s`` whenever it is read."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s, self._tick_s = 100.0, tick_s

    def __call__(self) -> float:
        self.now_s += self._tick_s
        return self.now_s


def test_the_parts_of_a_step_are_its_whole_time() -> None:
    now = Clock()
    clock = StepClock(torch.device("cpu"), now)
    steps = []
    for waited_s in (0.25, 3.0):
        with clock.waiting():
            now.now_s += waited_s
        now.now_s += 1.0 - waited_s
        clock.begin("forward")
        now.now_s += 2.0
        with clock.within("communication"):
            now.now_s += 4.0
        now.now_s += 8.0
        clock.begin("optimizer")
        now.now_s += 16.0
        steps.append(clock.end_step()())
    # All 31 seconds; a wait during which the device computed is none.
    expected = {**dict.fromkeys(PARTS, 0.0), "forward": 10.0, "communication": 4.0}
    expected["optimizer"] = 16.0
    assert steps == [
        {**expected, "data": 0.25, "other": 0.75},
        {**expected, "data": 1.0, "other": 0.0},
    ]


def reports_of_worker() -> list[dict[str, float | int]]:
    """Times that a worker of a group is told; worker 1 gets its batches late."""
    workers = Workers.current()
    config = replace(CONFIG, batch=BatchConfig(pairs=4 * workers.count))
    model = tiny_model().train()
    plan = Plan.of(20 * 4 * workers.count, config.batch, 2)
    loop = Trainer(
        towers_of(model), model, config, plan, device=torch.device("cpu"), workers=workers
    )

    now = Clock(tick_s=1.0)
    loop.clock._now = now

    def batches() -> Iterator[Batch]:
        for number in range(2 * GATHER_STEPS):
            now.now_s += 1000.0 * workers.rank
            yield pairs(4, seed=2 * number + workers.rank)

    reports: list[StepReport] = list(train(loop, batches()))
    (exchanged,) = [report for report in reports[GATHER_STEPS + 1 :] if report.by_rank]
    assert exchanged.by_rank is not None
    return [
        {"at": exchanged.steps_done, "slowest": slowest(exchanged.by_rank), **each}
        for each in exchanged.by_rank
    ]


def test_each_of_two_workers_is_told_the_times_of_both() -> None:
    first, second = in_group(2, reports_of_worker)
    assert first == second
    assert first[0]["at"] == 2 * GATHER_STEPS
    assert first[0]["slowest"] == 1
    assert first[0]["data"] < 10 < 1000 <= first[1]["data"] < 1010
    assert first[0]["communication"] > 0


def test_times_of_one_worker_are_its_own_and_cover_its_steps() -> None:
    (times,) = reports_of_worker()
    assert times["at"] == 2 * GATHER_STEPS
    assert times["communication"] == 0
    assert all(times[part] > 0 for part in ("forward", "backward", "optimizer"))


@pytest.mark.parametrize(("late_s", "line"), [(0.1, None), (0.2, "slowest: rank 1, backward 50%")])
def test_a_worker_lags_from_a_tenth_of_a_step_on(late_s: float, line: str | None) -> None:
    usual = {**dict.fromkeys(PARTS, 0.0), "forward": 0.6, "backward": 0.4}
    late = {**usual, "backward": 0.4 + late_s}
    waiting = {**usual, "communication": late_s}
    assert lag([waiting, late, waiting, waiting]) == line
