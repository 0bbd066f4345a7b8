"""Comparing published folders."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction


def content(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder, by relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextlib.contextmanager
def nothing_done_to(folder: Path) -> Iterator[None]:
    """Check that the block leaves a published folder as it is, and requests nothing of Ray.

    A job that finds its result published returns at once: it starts no Ray and no task, and writes
    no file, not even the same bytes again. How long it takes depends on the machine.
    """

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a published job used Ray")

    before, changed = content(folder), _changed_ns(folder)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (ray, "init"),
            # Asked first by whatever connects.
            (ray, "is_initialized"),
            (ray, "put"),
            (RemoteFunction, "_remote"),
            (ActorClass, "_remote"),
        ):
            patch.setattr(owner, name, refuse)
        yield
    assert content(folder) == before
    assert _changed_ns(folder) == changed


def _changed_ns(folder: Path) -> dict[str, int]:
    """Return when a folder and all in it were changed; a folder is when a file comes or goes."""
    return {str(path): path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
