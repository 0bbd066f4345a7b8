"""Translation of failures for users: one reason, as an exception of biovl.

Ray passes a task's exception to the driver as text with the worker's traceback, and prints it, too.
Tasks therefore return biovl's errors as a row, and the driver raises them.
"""

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import ray.exceptions
import ray.train
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biovl.core.errors import BiovlError, DamagedTable, NothingUsable, RayError, StorageError
from biovl.core.filesystems import storage_problem, translate_storage_errors, without_credentials

MAX_DEATHS = 8
"""How often a worker may die at one task (a crash, full memory, a lost machine) and be replaced.
Ray Data replaces it for ever: one image that ends its worker would keep a job busy for nights."""

_FAILED = "failed"
_SHOWN = 12
"""Number of reasons in an error message, most frequent first."""
_RESUMES = "Once this is fixed, the same command resumes the job."


class Attempts:
    """Counts the unfinished attempts at each unit of work of an actor pool.

    Ray counts attempts at tasks, but not at calls of a pool's actors, which it retries forever.
    Counts are reset when a run resumes. Create it on the driver, and pass it to the actors.
    """

    def __init__(self) -> None:
        here = ray.get_runtime_context().get_node_id()
        # On the driver's node, without which no unit is begun; other machines may be taken away.
        options = {
            "num_cpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(here, False),
        }
        self._counter: Any = ray.remote(_Counter).options(**options).remote()

    def begin(self, unit: str) -> int:
        """Count an attempt at a unit, and return the number of earlier unfinished attempts."""
        return int(ray.get(self._counter.begin.remote(unit)))

    def end(self, unit: str) -> None:
        """Reset the count of a unit, after an attempt that its worker survived."""
        self._counter.end.remote(unit)


class _Counter:
    def __init__(self) -> None:
        self._begun = Counter[str]()

    def begin(self, unit: str) -> int:
        self._begun[unit] += 1
        return self._begun[unit] - 1

    def end(self, unit: str) -> None:
        del self._begun[unit]


def run_task(
    where: str,
    work: Callable[[], dict[str, Any]],
    what: str = "",
    attempts: Attempts | None = None,
) -> dict[str, Any]:
    """Run a task and return its row, or a row with its error for ``raise_task_error``.

    Args:
        where: The location the task works on, for errors of a disk or bucket.
        work: The task. It is not retried after its worker has died ``MAX_DEATHS`` times.
        what: Name of the task: for that error, and as key of ``attempts``.
        attempts: Counter of attempts for calls of actors, which Ray does not count; None in a Ray
            task, whose attempts Ray counts.
    """
    deaths = _earlier_attempts() if attempts is None else attempts.begin(what)
    if deaths >= MAX_DEATHS:
        error = RayError(
            f"{what or 'a task'}: its worker died {deaths} times. It needs more memory than a "
            f"worker has, or crashes a library; Ray's logs name the process\n{_RESUMES}"
        )
        return {_FAILED: pickle.dumps(error)}
    try:
        with translate_storage_errors(without_credentials(where)), _explain_damage():
            return work()
    except BiovlError as error:
        return {_FAILED: pickle.dumps(error)}
    finally:
        if attempts is not None:
            attempts.end(what)


def run_steps(where: str, make: Callable[[], Iterator[Any]], what: str = "") -> Iterator[Any]:
    """Yield the values of an iterator, each made as a task; last a row with its error, if it fails.

    Args:
        where: As in ``run_task``.
        make: Returns the iterator; called with the first value.
        what: As in ``run_task``.
    """
    values: Iterator[Any] | None = None

    def following() -> dict[str, Any]:
        nonlocal values
        values = make() if values is None else values
        value = next(values, None)
        return {} if value is None else {"value": value}

    while "value" in (row := run_task(where, following, what)):
        yield row["value"]
    if row:
        yield row


def _earlier_attempts() -> int:
    """Return how often Ray began the current task before; 0 outside of tasks, and in actors."""
    # Not public: Ray's interfaces for a limit of a dataset's retries end with Ray 2.64.
    worker = getattr(ray._private.worker.global_worker, "core_worker", None)
    attempt = getattr(worker, "get_current_task_attempt_number", lambda: 0)
    return int(attempt())


def raise_task_error(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a task, or raise the error that it returned.

    Raises:
        BiovlError: The error that ended the task.
    """
    if row.get(_FAILED) is not None:
        # The row was written by a task of this job.
        error: BiovlError = pickle.loads(row[_FAILED])
        raise error
    return row


@contextlib.contextmanager
def explain_resume(where: str) -> Iterator[None]:
    """Add instructions to resume to storage errors; translate errors of corrupt Parquet files.

    Args:
        where: The folder that the job publishes, or a part of it.

    Raises:
        StorageError: If a disk or bucket fails in the block.
        DamagedTable: If a Parquet file that is read in the block is truncated or corrupt.
    """
    try:
        with translate_storage_errors(without_credentials(where)), _explain_damage():
            yield
    except StorageError as error:
        raise StorageError(f"{error}\n{_RESUMES}") from error


@contextlib.contextmanager
def _explain_damage() -> Iterator[None]:
    """Translate Arrow's error about a Parquet file that is truncated or something else.

    Raises:
        DamagedTable: If such a file is read in the block.
    """
    try:
        yield
    except pa.ArrowInvalid as error:
        if not any(name in str(error).lower() for name in ("parquet", "thrift")):
            raise
        raise DamagedTable(
            f"a Parquet file of an input is truncated or corrupt: {str(error).splitlines()[0]}"
        ) from error


def check_usable(
    usable: int,
    what: str,
    reasons: Mapping[str, int],
    *,
    may_be_empty: bool,
    first: str = "",
    hint: str = "",
) -> None:
    """Reject a result without usable rows, before it is published.

    Args:
        usable: Number of usable rows.
        what: Description of all rows and their source: ``722 figures of table.csv``.
        reasons: Counts of the reasons why rows are unusable.
        may_be_empty: The setting of this name.
        first: Description of the first unusable row and its location.
        hint: Advice for the user.

    Raises:
        NothingUsable: If no row is usable and ``may_be_empty`` is false.
    """
    if usable or may_be_empty:
        return
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"nothing usable among {what}; nothing is published"]
    lines += [f"  {count:,} x {reason}" for reason, count in most[:_SHOWN]]
    lines += [f"  … and {len(most) - _SHOWN} other reasons"] * (len(most) > _SHOWN)
    lines += [f"the first: {first}"] * bool(first)
    lines += [hint] * bool(hint)
    lines.append("Set may_be_empty=true to publish it all the same.")
    raise NothingUsable("\n".join(lines))


def worker_error(error: Exception, where: str) -> Exception:
    """Return the cause of a training error if it is a biovl or storage error, else the error.

    Args:
        error: The error of Ray Train, or of a training without workers.
        where: The location it works on, for errors of a disk or bucket.
    """
    for failure in getattr(error, "worker_failures", {0: error}).values():
        # Ray wraps exceptions to keep their traceback, and again when they come from another task.
        raised = getattr(failure, "_base_exc", failure)
        if isinstance(raised, ray.exceptions.RayTaskError):
            raised = raised.cause
        if isinstance(raised, OSError):
            raised = storage_problem(raised, without_credentials(where)) or raised
        if isinstance(raised, BiovlError):
            return raised
    return error
