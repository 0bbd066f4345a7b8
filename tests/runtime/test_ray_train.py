"""Ray Train as the jobs use it: who dies after a checkpoint is begun again, who does not is not."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import ray

from biovl.core.errors import TrainingStopped
from biovl.runtime import ray_train
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.ray_train import SAVE_REQUEST, Failures, SaveBeforeResize, SaveRequest, fit


def test_failures_with_a_checkpoint_in_between_are_mended_for_ever() -> None:
    failures = Failures(3, [100])
    assert not any(failures.are_too_many([100 + week]) for week in range(1, 51))
    # The same checkpoint, an older one after a corrupt one, or none: no progress.
    assert [failures.are_too_many(steps) for steps in ([150], [140], [])] == [False, False, True]
    assert "4 times in a row" in failures.described
    assert "53 in all" in failures.described


def test_a_crash_loop_ends() -> None:
    failures = Failures(3, [])
    assert [failures.are_too_many([]) for _ in range(4)] == [False, False, False, True]
    assert failures.described == "4 times"
    assert Failures(0, []).are_too_many([5])


def test_a_save_is_waited_for_and_asked_for_again() -> None:
    request = SaveRequest()
    # Before the first step there is nothing to save, and nobody who would.
    assert not request.make(1e9)
    assert not request.is_made()
    for _ in range(2):
        answers: list[bool] = []
        asker = threading.Thread(target=lambda found=answers: found.append(request.make(1e9)))
        asker.start()
        while not request.is_made():
            pass
        assert answers == []
        request.answer()
        asker.join()
        assert answers == [True]
        assert not request.is_made()


def dies(arguments: dict[str, Any]) -> dict[str, Any]:
    """Note an attempt; save in the first ones; die like the process of a node that is reclaimed."""
    place = Path(arguments["place"])
    (place / "attempts").mkdir(exist_ok=True)
    attempt = len(list((place / "attempts").iterdir()))
    (place / "attempts" / str(attempt)).touch()
    if attempt < arguments["saves"]:
        checkpoints = Checkpoints(str(place))
        checkpoints.save({"steps_done": attempt + 1})
        checkpoints.wait()
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


@pytest.mark.ray
def test_workers_that_save_before_they_die_are_begun_again(
    ray_session: None, tmp_path: Path
) -> None:
    said: list[str] = []
    arguments = {"place": str(tmp_path), "saves": 2}
    with pytest.raises(TrainingStopped, match=r"\b2 times .*\b3 ") as failed:
        fit(
            dies,
            arguments,
            place=str(tmp_path),
            bounds=(1, 1),
            cpus=0.5,
            gpus=0,
            restarts=1,
            say=said.append,
        )
    assert len(list((tmp_path / "attempts").iterdir())) == 3, (said, failed.value)
    assert len(said) == 2


def test_a_failure_without_a_text_is_named_and_tried_again(tmp_path: Path) -> None:
    said: list[str] = []

    def fails(arguments: dict[str, Any]) -> dict[str, Any]:
        if not said:
            raise MemoryError
        return arguments

    place = str(tmp_path)
    done = fit(fails, {"a": 1}, place=place, bounds=(0, 0), cpus=1, gpus=0, say=said.append)
    assert done == {"a": 1}
    assert "MemoryError" in said[0]


class AsBeforeAResize(SaveBeforeResize):
    """Does to healthy workers what Ray Train does when there is room for more."""

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        super().after_worker_group_poll_status(worker_group_status)
        if not worker_group_status.finished:
            self.before_controller_execute_resize_decision(None)


def saves_when_asked(arguments: dict[str, Any]) -> dict[str, Any]:
    """Take steps until a checkpoint is asked for."""
    steps_done = 0
    while not SAVE_REQUEST.is_made():
        steps_done += 1
    checkpoints = Checkpoints(arguments["place"])
    checkpoints.save({"steps_done": steps_done})
    checkpoints.wait()
    SAVE_REQUEST.answer()
    return {"steps_done": steps_done}


@pytest.mark.ray
def test_worker_0_saves_before_the_number_of_workers_changes(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_train, "SaveBeforeResize", AsBeforeAResize)
    # It never ends where nobody asks.
    returned = fit(
        saves_when_asked,
        {"place": str(tmp_path)},
        place=str(tmp_path),
        bounds=(1, 1),
        cpus=0.5,
        gpus=0,
    )
    assert Checkpoints(str(tmp_path)).steps() == [returned["steps_done"]]


@pytest.mark.ray
def test_a_queue_whose_actor_ended_is_empty(ray_session: None) -> None:
    """It is drained where a job ends, whose own error must not be hidden."""
    queue = ray_train.create_driver_queue()
    queue.put("said")
    assert ray_train.drain_queue(queue) == ["said"]
    ray.kill(queue.actor, no_restart=True)
    assert ray_train.drain_queue(queue) == []
    queue.shutdown(force=True)
