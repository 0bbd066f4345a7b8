"""What ends a job, as the person who typed its command should read it: one reason, of ours.

Ray gives an exception of a task to the driver as a text with the worker's trace, after printing as
much. So tasks return what is ours as a row, and the driver raises it.
"""

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray.exceptions
import ray.train

from biovl.core.artifacts import Draft
from biovl.core.errors import BiovlError, NothingUsable, StorageError
from biovl.core.filesystems import storage_problem, translate_storage_errors, without_credentials

_FAILED = "failed"
_SHOWN = 12
"""Reasons of an error, the most frequent ones."""
_GOES_ON = "Once that is mended, the same command goes on with what is left."


def run_task(where: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the row that a task makes, or the reason why it cannot; for ``raise_task_error``.

    Args:
        where: What the task works on, should a disk or a bucket fail.
        work: The task.
    """
    try:
        with translate_storage_errors(without_credentials(where)):
            return work()
    except BiovlError as error:
        return {_FAILED: pickle.dumps(error)}


def raise_task_error(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row that a task made.

    Raises:
        BiovlError: What ended the task, if something did.
    """
    if row.get(_FAILED) is not None:
        # Written by a task of this very job.
        error: BiovlError = pickle.loads(row[_FAILED])
        raise error
    return row


@contextlib.contextmanager
def explain_resume(where: str) -> Iterator[None]:
    """Say of a disk or a bucket that fails in the block what to do; other errors pass.

    Args:
        where: What the job publishes, or a part of it.

    Raises:
        StorageError: If a disk or bucket does not do its work.
    """
    try:
        with translate_storage_errors(without_credentials(where)):
            yield
    except StorageError as error:
        raise StorageError(f"{error}\n{_GOES_ON}") from error


@contextlib.contextmanager
def remove_unusable_draft(where: str) -> Iterator[None]:
    """Delete the draft of a job that made nothing usable: a corrected command begins anew.

    Args:
        where: What the job publishes, and nobody else.
    """
    try:
        yield
    except NothingUsable:
        Draft(where).abandon()
        raise


def check_usable(
    usable: int,
    what: str,
    reasons: Mapping[str, int],
    *,
    may_be_empty: bool,
    first: str = "",
    hint: str = "",
) -> None:
    """Refuse to publish what nobody can use.

    Args:
        usable: How many rows are.
        what: Of which rows and where from: ``722 figures of table.csv``.
        reasons: Why others are not, with how many.
        may_be_empty: The setting of this name.
        first: The first of them, and where it was looked for.
        hint: What to do.

    Raises:
        NothingUsable: If no row is usable, unless that may be.
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


def worker_error(error: ray.train.TrainingFailedError, where: str) -> Exception:
    """Return what a worker of Ray Train raised where it is ours or a disk's; else all of it.

    Args:
        error: Of a training.
        where: What it works on, should a disk or a bucket fail.
    """
    for failure in getattr(error, "worker_failures", {}).values():
        # Ray wraps what comes from our code to keep its trace, and what comes from another task.
        raised = getattr(failure, "_base_exc", failure)
        if isinstance(raised, ray.exceptions.RayTaskError):
            raised = raised.cause
        if isinstance(raised, OSError):
            raised = storage_problem(raised, without_credentials(where)) or raised
        if isinstance(raised, BiovlError):
            return raised
    return error
