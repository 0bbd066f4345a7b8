"""Workers of a group: what worker 0 reads reaches all of them, and what fails on one fails on all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from biovl.core.errors import ArtifactError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers
from tests.pretrain.groups import in_group

CPU = torch.device("cpu")


def state() -> dict[str, Any]:
    """Everything that a checkpoint has: types, shapes, strides, numbers, nothing."""
    rows = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {
        "steps_done": 7,
        "model": {
            "weight": rows.t(),
            "half": rows.to(torch.bfloat16),
            "ids": torch.arange(5),
            "mask": torch.tensor([True, False]),
            "empty": torch.zeros(0, 3),
            "logit_scale": torch.tensor(2.5),
        },
        "optimizer": {
            "state": {0: {"step": torch.tensor(7.0), "exp_avg": torch.full((1_000,), 0.1)}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.98), "params": [0]}],
        },
        "guard": {"losses": [1.5, 2.5], "best": None},
    }


def read_at_worker_0(place: str) -> dict[str, Any]:
    workers = Workers.current()
    # The others have no folder that they could read.
    checkpoints = Checkpoints(place if workers.rank == 0 else "/proc/nowhere")
    return dict(workers.broadcast(checkpoints.load_last, CPU))


def test_worker_0_reads_a_checkpoint_for_all(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(state())
    checkpoints.wait()
    expected = checkpoints.load(7)
    for received in in_group(2, read_at_worker_0, str(tmp_path)):
        torch.testing.assert_close(received, expected, rtol=0, atol=0)
        assert received["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]


def out_of_range(place: str) -> Any:
    raise IndexError(place)


def load_last(place: str) -> Any:
    return Checkpoints(place).load_last()


def error_of_broadcast(read: Callable[[str], Any], place: str) -> tuple[str, str]:
    try:
        Workers.current().broadcast(lambda: read(place), CPU)
    except (ArtifactError, IndexError, RuntimeError) as error:
        return type(error).__name__, str(error)
    return "", ""


def test_what_worker_0_cannot_read_is_an_error_of_all(tmp_path: Path) -> None:
    damaged = tmp_path / ".draft" / "checkpoints" / "000000007.pt"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    first, second = in_group(2, error_of_broadcast, load_last, str(tmp_path))
    assert first == second
    assert first[0] == ArtifactError.__name__
    first, second = in_group(2, error_of_broadcast, out_of_range, "bug")
    assert first[0] == IndexError.__name__
    assert second[0] == RuntimeError.__name__
    assert first[1] in second[1]


def error_of_one(failing: int) -> str:
    workers = Workers.current()

    def work() -> None:
        if workers.rank == failing:
            raise LookupError(f"worker {failing} has no memory")

    try:
        workers.together(work, CPU)
    except (LookupError, RuntimeError) as error:
        return type(error).__name__
    return ""


def test_what_fails_on_one_worker_fails_on_all() -> None:
    assert in_group(2, error_of_one, 1) == ["RuntimeError", "LookupError"]
    assert in_group(2, error_of_one, 2) == ["", ""]


def test_one_worker_alone_needs_no_group() -> None:
    assert Workers().broadcast(lambda: {"steps_done": 3}, CPU) == {"steps_done": 3}
    with pytest.raises(KeyError):
        Workers().together(lambda: {}["missing"], CPU)
