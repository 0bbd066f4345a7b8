"""Ray Train for the jobs: run one function on all workers, and restart after failures.

Ray Train counts failures over the whole run: a run of weeks on spot nodes would end with its fourth
preemption. So its own retries are off; workers and its controller are restarted here, and only
consecutive failures without a new checkpoint count. The function itself resumes from the job's
draft.
"""

import logging
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions
import ray.train
import ray.train.torch
import ray.util.queue
import torch
import torch.distributed as dist
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError, RestartNeeded, StorageError, TrainingStopped
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.failures import worker_error
from biovl.runtime.in_process import as_worker

RESTARTS = 3
"""Restarts after consecutive failures without a new checkpoint."""

RESIZE_CHECK_S = 60.0
"""Seconds between checks for room for more workers."""

SAVE_WAIT_S = 600.0
"""Seconds that a resize waits for the old workers to save: a step, and writing the checkpoint."""

COLLECTIVES_TIMEOUT_S = 1_800
"""Seconds that a worker waits in a collective: data may be slow; a dead worker is detected at once.
"""

_RESERVED = "reserved"
_RESUMES = "The same command resumes from the last checkpoint."

_log = logging.getLogger(__name__)

Work = Callable[[dict[str, Any]], dict[str, Any]]


def fit(
    work: Work,
    arguments: Mapping[str, Any],
    *,
    place: str,
    bounds: tuple[int, int],
    cpus: float,
    gpus: float,
    accelerator: str | None = None,
    restarts: int = RESTARTS,
    say: Callable[[str], None] = lambda line: None,
    resize_check_s: float = RESIZE_CHECK_S,
) -> dict[str, Any]:
    """Run ``work(arguments)`` on every worker and return the result of rank 0.

    For use within ``connect_ray``, and by one driver of ``place`` at a time.

    Args:
        work: A module-level function. It starts in the driver's working folder, if that exists.
            RestartNeeded, raised by any worker, restarts all of them and does not count as failure.
        arguments: Arguments of the function.
        place: A folder that all nodes can access, local or ``s3://``; Ray's files are in its draft.
        bounds: Minimum and maximum number of workers. With (0, 0) the function runs in this
            process, on its CPU.
        cpus: CPUs of a worker, or threads in this process.
        gpus: GPUs of a worker.
        accelerator: Ray's name of the GPU type; None accepts any.
        restarts: Consecutive failures, of the workers or of Ray Train's controller, that are
            followed by a restart although no checkpoint was added in between.
        say: Called with a line about each restart.
        resize_check_s: Seconds between checks for room for more workers, if ``bounds`` allow more.

    Raises:
        TrainingStopped: After more than ``restarts`` failures without a new checkpoint between.
        ConfigError: If a worker rejects a setting.
        StorageError: If a disk or a bucket fails.
    """

    def attempt() -> dict[str, Any]:
        if most == 0:
            with as_worker(cpus):
                return work(dict(arguments))
        # A fresh name: Ray would resume from files under the same name; biovl resumes by itself.
        folder.delete_folder(".draft/ray")
        trainer = train.torch.TorchTrainer(
            _begin,
            train_loop_config={
                # Ray Train's controller unpickles this, too: only workers import the function.
                "work": pickle.dumps(work),
                "arguments": arguments,
                "place": place,
                "working_folder": os.getcwd(),
            },
            torch_config=train.torch.TorchConfig(
                backend="nccl" if gpus else "gloo", timeout_s=COLLECTIVES_TIMEOUT_S
            ),
            scaling_config=train.ScalingConfig(
                num_workers=most if fewest == most else bounds,
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
        return dict(trainer.fit().return_value or {})

    fewest, most = bounds
    folder = Draft(place).folder
    failures = Failures(restarts, Checkpoints(place).steps())
    # Ray's type hints describe the v1 classes.
    train: Any = ray.train
    # In this process, the function's own errors arrive.
    failed: Any = train.TrainingFailedError if most else Exception
    while True:
        try:
            return attempt()
        except failed as error:
            reason = worker_error(error, place)
            # No failure: the worker that raises it limits how often it does.
            if isinstance(reason, RestartNeeded):
                say(f"restarting the workers: {reason}")
                continue
            # A restart would fail with the same setting.
            if isinstance(reason, StorageError | ConfigError):
                raise reason from error
            if failures.are_too_many(Checkpoints(place).steps()):
                raise TrainingStopped(
                    f"training failed {failures.described}; the last time: {reason}\n{_RESUMES}"
                ) from error
            text = str(reason).strip() or repr(reason)
            say(f"restarting the training: {text.splitlines()[-1]}")
        except ray.exceptions.ActorDiedError as error:
            if failures.are_too_many(Checkpoints(place).steps()):
                raise TrainingStopped(
                    f"Ray Train's controller died {failures.described}: find out what kills "
                    f"processes on the driver's node, such as full memory\n{_RESUMES}"
                ) from error
            say("restarting the workers: Ray Train's controller died")
            group = reserved_placement_group(place)
            if group is not None:
                remove_placement_group(group)


class Failures:
    """Counts consecutive failures, without a new checkpoint of more steps in between.

    A run has finitely many steps, so a run that keeps failing ends after at most ``allowed`` + 1
    failures per checkpoint.

    Args:
        allowed: Number of consecutive failures that are followed by a restart.
        checkpoints: Steps of the existing checkpoints.
    """

    def __init__(self, allowed: int, checkpoints: Sequence[int]) -> None:
        self._allowed, self._furthest = allowed, max(checkpoints, default=0)
        self._count = self._in_all = 0

    def are_too_many(self, checkpoints: Sequence[int]) -> bool:
        """Count a failure, given the steps of existing checkpoints; return whether to give up."""
        furthest = max(checkpoints, default=0)
        self._count = 1 if furthest > self._furthest else self._count + 1
        self._furthest = max(self._furthest, furthest)
        self._in_all += 1
        return self._count > self._allowed

    @property
    def described(self) -> str:
        """The number of failures, for a message."""
        if self._in_all == self._count:
            return f"{self._count} times"
        return f"{self._count} times in a row without a new checkpoint, {self._in_all} in all"


class SaveRequest:
    """A request to the training loop for a checkpoint, made by another thread of its process."""

    def __init__(self) -> None:
        self._heard, self._wanted, self._saved = (threading.Event() for _ in range(3))

    def make(self, wait_s: float) -> bool:
        """Request a checkpoint and wait for it; return whether it was written."""
        if not self._heard.is_set():
            # No step was taken yet: there is nothing to save.
            return False
        self._saved.clear()
        self._wanted.set()
        return self._saved.wait(wait_s)

    def is_made(self) -> bool:
        """Return whether a checkpoint is requested; the loop calls this after each step."""
        self._heard.set()
        return self._wanted.is_set()

    def answer(self) -> None:
        """Report that the requested checkpoint is written."""
        self._wanted.clear()
        self._saved.set()


SAVE_REQUEST = SaveRequest()
"""The request object of this process if it is a Ray Train worker."""


class SaveBeforeResize(ControllerCallback, WorkerGroupCallback):
    """Makes worker 0 save a checkpoint before Ray Train changes the number of workers.

    Ray Train restarts the workers from their last checkpoint, which may be 15 minutes old. Runs in
    Ray Train's controller. If a worker has failed, nothing is saved.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        """Store the worker group, to request a checkpoint from it before a resize."""
        self._group = worker_group

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Drop the stored worker group if a worker has failed: it cannot save."""
        if worker_group_status.errors:
            self._group = None

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Drop the stored worker group, which is being shut down."""
        self._group = None

    def before_controller_execute_resize_decision(self, resize_decision: Any) -> None:
        """Make worker 0 save, and wait until it has saved."""
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
            # The worker has just died: the restarted ones begin at the last checkpoint.
            _log.warning("worker 0 did not save before the resize: %s", error)


def _save_now(wait_s: float) -> bool:
    # By reference: on the worker, this module is the worker's own.
    return SAVE_REQUEST.make(wait_s)


def current_device() -> torch.device:
    """Return the device of this worker; outside a worker the CPU."""
    return ray.train.torch.get_device() if dist.is_initialized() else torch.device("cpu")


def is_preempted() -> bool:
    """Return whether a node of the run is about to be reclaimed; outside a worker False.

    Ray notifies every worker within seconds of the announcement (``reclaim``). Only this worker's
    copy is read: ``ray.train.get_preemption_info`` would run a collective in every step.
    """
    return (
        dist.is_initialized() and get_train_context().preemption_context.preemption_info is not None
    )


def reserved_placement_group(place: str) -> PlacementGroup | None:
    """Return the placement group of a run's workers; None if they have not started.

    Ray Train's own cleanup of placement groups needs the dashboard; without one it never frees
    them, and the next run would wait indefinitely.
    """
    noted = Draft(place).read_note(_RESERVED)
    return None if noted is None else PlacementGroup(ray.PlacementGroupID(bytes.fromhex(noted)))


def create_driver_queue() -> Any:
    """Return a Ray queue on the driver's node. If the node dies, its items are lost."""
    here = ray.get_runtime_context().get_node_id()
    return ray.util.queue.Queue(
        actor_options={
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": -1,
            # On the driver's node: without the driver the queue is of no use.
            "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
        }
    )


def drain_queue(queue: Any) -> list[Any]:
    """Remove and return all items of a queue."""
    try:
        items: list[Any] = queue.get_nowait_batch(queue.qsize())
    # The queue's actor died in between, or for good: what ended it is reported elsewhere.
    except (ray.util.queue.Empty, ray.exceptions.RayError):
        return []
    return items


def _begin(arguments: dict[str, Any]) -> dict[str, Any]:
    """Run ``work`` on a worker."""
    # Ray Train changes the working folder of its workers, which breaks relative locations.
    if os.path.isdir(arguments["working_folder"]):
        os.chdir(arguments["working_folder"])
    group = ray.util.get_current_placement_group()
    if ray.train.get_context().get_world_rank() == 0 and group is not None:
        Draft(arguments["place"]).note(_RESERVED, group.id.hex())
    work: Work = pickle.loads(arguments["work"])
    return work(dict(arguments["arguments"]))
