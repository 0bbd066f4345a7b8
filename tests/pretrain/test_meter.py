import math
from typing import Any

import pytest
import torch

from biovl.pretrain.loop import StepReport
from biovl.pretrain.meter import Meter, duration, memory_bytes, short
from biovl.pretrain.schedule import StepPosition
from biovl.pretrain.step_time import PARTS, Seconds


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def meter(clock: Clock, **changes) -> Meter:
    usual = {
        "steps": 100,
        "epochs": 4,
        "pairs": 25_600,
        "workers": 2,
        "peak_flops": 1e12,
        "memory_bytes": lambda: 61.25e9,
        "every_s": 10.0,
        "clock": clock,
    }
    return Meter(**{**usual, **changes})


def step(
    done: int, *, epoch: int = 0, pairs: int = 256, tokens: int = 20_480, flops=1e12, **changes
) -> dict[str, Any]:
    """Return the arguments of ``Meter.add`` for a step."""
    usual = {
        "loss": 2.0,
        "lr": 5e-4,
        "logit_scale": 14.3,
        "grad_norm": 1.5,
        "lengths_B": torch.ones(1, dtype=torch.int32),
        "waited_s": 0.5,
        "seconds": 2.0,
        "by_rank": None,
        "skipped": False,
    }
    place = StepPosition(epoch, 0, pairs, 0)
    report = StepReport(steps_done=done, place=place, **{**usual, **changes})
    return {"report": report, "tokens": tokens, "flops": flops}


def test_a_record_has_the_numbers_of_its_step() -> None:
    assert meter(Clock()).add(**step(1)) == {
        "step": 1,
        "epoch": 0,
        "pairs": 256,
        "pairs_seen": 256,
        "loss": 2.0,
        "lr": 5e-4,
        "logit_scale": 14.3,
        "grad_norm": 1.5,
        "pairs_per_s": 128.0,
        "pairs_per_s_per_worker": 64.0,
        "tokens_per_s": 10_240.0,
        "wait_share": 0.25,
        "step_s": 2.0,
        "memory_gb": 61.25,
        # 10^12 operations in 2 s, of 2 GPUs with 10^12 a second each.
        "mfu": 0.25,
    }


def test_a_line_tells_what_a_person_asks() -> None:
    clock = Clock()
    running = meter(clock)
    running.add(**step(1))
    first = "ep 1/4 1/100  loss 2.000 lr 5.0e-4 scale 14.3  128 pairs/s 64/GPU 10.2k tok/s"
    assert running.line() == f"{first}  wait 25% 61GB MFU 25%"
    clock.now_s = 10.0
    running.add(**step(2))
    line = running.line()
    # 98 steps of 2 s.
    assert line is not None
    assert line.endswith("wait 25% 61GB MFU 25%  3m16s left")


EVEN = {**dict.fromkeys(PARTS, 0.0), "forward": 0.4, "backward": 0.6}


def test_times_of_all_workers_are_recorded_and_the_one_that_lags_is_named() -> None:
    clock = Clock()
    running = meter(clock)
    waiting = {**EVEN, "communication": 0.5}
    starved = {**EVEN, "data": 0.5}
    record = running.add(**step(1, by_rank=[waiting, starved, waiting]))
    assert record["slowest/rank"] == 1
    assert record["slowest/data_s"] == 0.5
    assert record["time/communication_s"] == pytest.approx(1 / 3)
    assert sum(record[f"time/{part}_s"] for part in PARTS) == pytest.approx(1.5)
    assert "slowest: rank 1, data 33%" in (running.line() or "")
    # As long as the times are not exchanged again.
    clock.now_s = 10.0
    running.add(**step(2))
    assert "rank 1" in (running.line() or "")
    clock.now_s = 20.0
    running.add(**step(3, by_rank=[EVEN, EVEN, EVEN]))
    assert "rank" not in (running.line() or "")


def test_lines_come_no_closer_than_asked_and_speak_of_all_steps_between() -> None:
    clock = Clock()
    running = meter(clock)
    running.add(**step(1))
    assert running.line() is not None
    lines = []
    for done in range(2, 13):
        clock.now_s += 2.0
        running.add(**step(done, loss=float(done)))
        lines.append(running.line())
    said = [line for line in lines if line]
    assert len(said) == 2
    # The mean of steps 2 to 6, then of 7 to 11.
    assert "loss 4.000 " in said[0]
    assert "loss 9.000 " in said[1]


def test_the_last_step_has_a_line() -> None:
    clock = Clock()
    running = meter(clock, steps=2, pairs=512)
    running.add(**step(1))
    running.line()
    clock.now_s = 1.0
    running.add(**step(2))
    line = running.line()
    assert line is not None
    assert line.endswith("0s left")


def test_the_first_step_does_not_count_for_the_time_left() -> None:
    clock = Clock()
    running = meter(clock)
    running.add(**step(1, seconds=600.0))
    running.line()
    assert running.seconds_left() is None
    clock.now_s = 10.0
    running.add(**step(2))
    running.line()
    assert running.seconds_left() == pytest.approx(98 * 2.0)


def test_a_resumed_run_has_its_rest_left() -> None:
    clock = Clock()
    running = meter(clock, pairs_done=50 * 256)
    for done in (51, 52):
        running.add(**step(done))
        running.line()
        clock.now_s += 10.0
    assert running.seconds_left() == pytest.approx(48 * 2.0)


def test_utilisation_is_not_told_where_the_peak_is_unknown() -> None:
    running = meter(Clock(), peak_flops=None)
    assert "mfu" not in running.add(**step(1))
    assert "MFU" not in (running.line() or "")


def test_a_loss_that_is_no_number_does_not_hide_the_others() -> None:
    clock = Clock()
    running = meter(clock)
    running.add(**step(1))
    running.line()
    running.add(**step(2, loss=math.nan))
    running.add(**step(3, loss=3.0))
    clock.now_s = 10.0
    assert "loss 3.000 " in (running.line() or "")


def test_one_worker_is_not_told_apart_from_all() -> None:
    running = meter(Clock(), workers=1)
    running.add(**step(1))
    assert "/GPU" not in (running.line() or "")


@pytest.mark.parametrize("by_rank", [None, [EVEN] * 511 + [{**EVEN, "optimizer": 0.55}]])
def test_the_longest_line_fits_120_columns(by_rank: list[Seconds] | None) -> None:
    clock = Clock()
    running = meter(clock, steps=122_400, epochs=32, pairs=8e9, workers=512, peak_flops=989e12)
    for done in (99_900, 99_901):
        busy = step(
            done, epoch=30, pairs=65_536, tokens=7_654_321, seconds=0.5, waited_s=0.05,
            flops=1.1e17, loss=11.09, logit_scale=100.0, by_rank=by_rank,
        )  # fmt: skip
        running.add(**busy)
        line = running.line() or ""
        clock.now_s += 10.0
    assert "left" in line
    assert len(line) <= 120, line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5234, "0.523"),
        (64, "64"),
        (9876, "9876"),
        (12_345, "12.3k"),
        (999_900, "1M"),
        (3e9, "3G"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45.2, "45s"), (725, "12m05s"), (22_320, "6h12m"), (3 * 86_400 + 4 * 3600, "3d04h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_memory_of_a_process_on_the_cpu_is_what_it_held_at_most() -> None:
    assert 1e7 < memory_bytes(torch.device("cpu")) < 1e12
