"""Ray Train as the jobs use it: one function on all workers, taken up again whoever dies.

Ray starts workers anew. Its own controller and the queue to the driver are processes like others:
these are started anew here. What work was done is for the function to find in the job's draft.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.exceptions
import ray.train
import ray.train.torch
import ray.util.queue
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biovl.errors import StorageError, TrainingError
from biovl.jobs.failures import raised_by_workers
from biovl.storage import Draft

RESTARTS = 3
"""How often Ray starts the workers again when one dies."""

COLLECTIVES_TIMEOUT_S = 1_800
"""How long a worker waits for the others: data may be slow, a dead one is noticed at once."""

_RESERVED = "reserved"
_GOES_ON = "The same command goes on from the last checkpoint."

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
) -> dict[str, Any]:
    """Return what ``work`` returns, called with the arguments on every worker, of rank 0.

    For use within ``connected``, and by one driver of ``place`` at a time.

    Args:
        work: A function of a module. It starts in the driver's working folder, if it has that.
        arguments: Of it.
        place: A folder that all nodes see, local or ``s3://``; Ray's files are in its draft.
        count: Workers; or the fewest and the most.
        cpus: Of a worker.
        gpus: Of a worker.
        accelerator: Ray's name of the GPUs; None takes any.
        restarts: Failures of the workers, and as many of Ray's own controller, that are mended.

    Raises:
        TrainingError: If there were more.
        StorageError: If a disk or a bucket does not do its work.
    """
    folder = Draft(place).folder
    # Ray's classes are typed as those of its first version.
    train: Any = ray.train
    for left in reversed(range(restarts + 1)):
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
            ),
            run_config=train.RunConfig(
                name="ray",
                storage_path=folder.at(".draft"),
                storage_filesystem=folder.filesystem,
                logging_config=train.LoggingConfig(log_level="ERROR"),
                failure_config=train.FailureConfig(max_failures=restarts),
            ),
        )
        # Ray goes on from what stands under the same name, and nothing of ours does.
        folder.delete_folder(".draft/ray")
        try:
            result: Any = trainer.fit()
        except train.TrainingFailedError as error:
            reason = raised_by_workers(error, place)
            if isinstance(reason, StorageError):
                raise reason from error
            raise TrainingError(
                f"the workers failed {restarts + 1} times; the last time: {reason}\n{_GOES_ON}"
            ) from error
        except ray.exceptions.ActorDiedError as error:
            if not left:
                raise TrainingError(
                    f"Ray Train's controller died {restarts + 1} times: look for what kills "
                    f"processes on the driver's node, such as full memory\n{_GOES_ON}"
                ) from error
            group = reserved(place)
            if group is not None:
                remove_placement_group(group)
        else:
            return dict(result.return_value or {})
    raise AssertionError("unreachable: the last try returns or raises")


def reserved(place: str) -> PlacementGroup | None:
    """Return what the workers of a run hold, or held, of the cluster; None before they began.

    Ray Train's own cleaner of placement groups asks the dashboard who is dead; a Ray without one
    never frees them, and whoever is next would wait for ever.
    """
    noted = Draft(place).noted(_RESERVED)
    return None if noted is None else PlacementGroup(ray.PlacementGroupID(bytes.fromhex(noted)))


def queue_to_driver() -> Any:
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


def taken_from(queue: Any) -> list[Any]:
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
