"""Ray Train as the jobs use it: one function on all workers, taken up again whoever dies.

Ray Train's own count of failures has no end of good luck: a run of weeks on spot nodes dies of its
fourth reclaim. So Ray Train is told to mend nothing, workers and its own controller are started
anew here, and what counts is failures in a row without a checkpoint in between. What work was done
is for the function to find in the job's draft.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions
import ray.train
import ray.train.torch
import ray.util.queue
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError, StorageError, TrainingError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.failures import worker_error

RESTARTS = 3
"""Failures in a row without a new checkpoint that are mended."""

RESIZE_CHECK_S = 60.0
"""How often Ray Train looks whether there is room for more workers."""

SAVE_WAIT_S = 600.0
"""How long a new number of workers waits for the old ones to save: a step, and to write it."""

COLLECTIVES_TIMEOUT_S = 1_800
"""How long a worker waits for the others: data may be slow, a dead one is noticed at once."""

_RESERVED = "reserved"
_GOES_ON = "The same command goes on from the last checkpoint."

_log = logging.getLogger(__name__)

Work = Callable[[dict[str, Any]], dict[str, Any]]


def fit(
    work: Work,
    arguments: Mapping[str, Any],
    *,
    place: str,
    count: int | tuple[int, int],
    cpus: float,
    gpus: float,
    accelerator: str | None = None,
    restarts: int = RESTARTS,
    say: Callable[[str], None] = lambda line: None,
    resize_check_s: float = RESIZE_CHECK_S,
) -> dict[str, Any]:
    """Return what ``work`` returns, called with the arguments on every worker, of rank 0.

    For use within ``connect_ray``, and by one driver of ``place`` at a time.

    Args:
        work: A function of a module. It starts in the driver's working folder, if it has that.
        arguments: Of it.
        place: A folder that all nodes see, local or ``s3://``; Ray's files are in its draft.
        count: Workers; or the fewest and the most.
        cpus: Of a worker.
        gpus: Of a worker.
        accelerator: Ray's name of the GPUs; None takes any.
        restarts: Failures in a row, of the workers or of Ray's own controller, that are mended
            although no checkpoint was added in between.
        say: Takes a line about each that is mended.
        resize_check_s: How often to look for room for more workers, where ``count`` allows more.

    Raises:
        TrainingError: If there were more.
        ConfigError: If a worker finds that a setting does not fit.
        StorageError: If a disk or a bucket does not do its work.
    """
    folder = Draft(place).folder
    failures = Failures(restarts, Checkpoints(place).steps())
    # Ray's classes are typed as those of its first version.
    train: Any = ray.train
    while True:
        trainer = train.torch.TorchTrainer(
            _begin,
            train_loop_config={
                "work": work,
                "arguments": arguments,
                "place": place,
                "working_folder": os.getcwd(),
            },
            torch_config=train.torch.TorchConfig(
                backend="nccl" if gpus else "gloo", timeout_s=COLLECTIVES_TIMEOUT_S
            ),
            scaling_config=train.ScalingConfig(
                num_workers=count,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": cpus, **({"GPU": gpus} if gpus else {})},
                accelerator_type=accelerator,
                elastic_resize_monitor_interval_s=resize_check_s,
            ),
            run_config=train.RunConfig(
                name="ray",
                storage_path=folder.at(".draft"),
                storage_filesystem=folder.filesystem,
                logging_config=train.LoggingConfig(log_level="ERROR"),
                failure_config=train.FailureConfig(max_failures=0),
                callbacks=[SaveBeforeResize()],
            ),
        )
        # Ray goes on from what stands under the same name, and nothing of ours does.
        folder.delete_folder(".draft/ray")
        try:
            result: Any = trainer.fit()
        except train.TrainingFailedError as error:
            reason = worker_error(error, place)
            # Nor would a setting fit the next time.
            if isinstance(reason, StorageError | ConfigError):
                raise reason from error
            if failures.are_too_many(Checkpoints(place).steps()):
                raise TrainingError(
                    f"the workers failed {failures.described}; the last time: {reason}\n{_GOES_ON}"
                ) from error
            say(f"workers are started anew: {str(reason).strip().splitlines()[-1]}")
        except ray.exceptions.ActorDiedError as error:
            if failures.are_too_many(Checkpoints(place).steps()):
                raise TrainingError(
                    f"Ray Train's controller died {failures.described}: look for what kills "
                    f"processes on the driver's node, such as full memory\n{_GOES_ON}"
                ) from error
            say("workers are started anew: Ray Train's controller died")
            group = reserved_placement_group(place)
            if group is not None:
                remove_placement_group(group)
        else:
            return dict(result.return_value or {})


class Failures:
    """Counts failures since the last progress, which is a checkpoint after more steps than any.

    Steps end, and so does a run that fails again and again: at the latest after ``allowed`` + 1
    failures for each of its checkpoints.

    Args:
        allowed: So many in a row are mended.
        checkpoints: The steps of those that there are.
    """

    def __init__(self, allowed: int, checkpoints: Sequence[int]) -> None:
        self._allowed, self._furthest = allowed, max(checkpoints, default=0)
        self._count = self._in_all = 0

    def are_too_many(self, checkpoints: Sequence[int]) -> bool:
        """Count a failure, after which there are these checkpoints; return whether to give up."""
        furthest = max(checkpoints, default=0)
        self._count = 1 if furthest > self._furthest else self._count + 1
        self._furthest = max(self._furthest, furthest)
        self._in_all += 1
        return self._count > self._allowed

    @property
    def described(self) -> str:
        """How many there were, for a message."""
        if self._in_all == self._count:
            return f"{self._count} times"
        return f"{self._count} times in a row without a new checkpoint, {self._in_all} in all"


class SaveRequest:
    """A request to a training loop from another thread of its process."""

    def __init__(self) -> None:
        self._heard, self._wanted, self._saved = (threading.Event() for _ in range(3))

    def make(self, wait_s: float) -> bool:
        """Ask for a checkpoint and wait for it; return whether there is one."""
        if not self._heard.is_set():
            # No step was taken yet: there is nothing to save.
            return False
        self._saved.clear()
        self._wanted.set()
        return self._saved.wait(wait_s)

    def is_made(self) -> bool:
        """Return whether there is a request; for the loop, after each step."""
        self._heard.set()
        return self._wanted.is_set()

    def answer(self) -> None:
        """Say that the checkpoint is written."""
        self._wanted.clear()
        self._saved.set()


SAVE_REQUEST = SaveRequest()
"""Of this process, where it is a worker of Ray Train."""


class SaveBeforeResize(ControllerCallback, WorkerGroupCallback):
    """Has worker 0 save before Ray Train ends the workers to begin with another number of them.

    Ray Train restarts them from their last checkpoint, which may be a quarter of an hour old. Runs
    in its controller. Workers that have failed cannot be asked.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        """Remember who works."""
        self._group = worker_group

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Forget those that have failed."""
        if worker_group_status.errors:
            self._group = None

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Forget those that end."""
        self._group = None

    def before_controller_execute_resize_decision(self, resize_decision: Any) -> None:
        """Wait until worker 0 has saved."""
        if self._group is None:
            return
        first = next(
            worker
            for worker in self._group.get_workers()
            if worker.distributed_context.world_rank == 0
        )
        try:
            ray.get(first.execute_async(_save_now, SAVE_WAIT_S))
        except ray.exceptions.RayError as error:
            # It has just died: what is restarted begins at the last checkpoint.
            _log.warning("worker 0 did not save before the resize: %s", error)


def _save_now(wait_s: float) -> bool:
    # By reference: where this runs, this module is that of the worker.
    return SAVE_REQUEST.make(wait_s)


def reserved_placement_group(place: str) -> PlacementGroup | None:
    """Return what the workers of a run hold, or held, of the cluster; None before they began.

    Ray Train's own cleaner of placement groups asks the dashboard who is dead; a Ray without one
    never frees them, and whoever is next would wait for ever.
    """
    noted = Draft(place).read_note(_RESERVED)
    return None if noted is None else PlacementGroup(ray.PlacementGroupID(bytes.fromhex(noted)))


def create_driver_queue() -> Any:
    """Return a queue of Ray's on the driver's node. Where it dies, what it held is lost."""
    here = ray.get_runtime_context().get_node_id()
    return ray.util.queue.Queue(
        actor_options={
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": -1,
            # Beside the driver, without which it is of no use.
            "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
        }
    )


def drain_queue(queue: Any) -> list[Any]:
    """Return what stands in a queue, and take it out."""
    try:
        items: list[Any] = queue.get_nowait_batch(queue.qsize())
    # It died in between.
    except ray.util.queue.Empty:
        return []
    return items


def _begin(given: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs."""
    # Ray Train moves its workers elsewhere, where relative locations would mean other folders.
    if os.path.isdir(given["working_folder"]):
        os.chdir(given["working_folder"])
    group = ray.util.get_current_placement_group()
    if ray.train.get_context().get_world_rank() == 0 and group is not None:
        Draft(given["place"]).note(_RESERVED, group.id.hex())
    work: Work = given["work"]
    return work(dict(given["arguments"]))
