"""One driver per folder in progress: a lease in its draft, refreshed while the driver works.

    out/.draft/lease.json    the driver that writes the folder, and time of its last refresh

No lock works on local disks, shared file systems and buckets alike, so a lease is not a strict
lock: if two drivers start within the same half second, the last one to write the file wins.
"""

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, StorageError

REFRESH_S = 15.0
STALE_S = 75.0
"""Seconds without a refresh after which another driver may take over; more than any clock skew."""

SETTLE_S = 0.5
"""Seconds that a driver which starts at the same moment may need to write its lease."""

_NAME = "lease"

_LEFT: set[str] = set()
"""Leases that this process has released but could not delete."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Owner:
    id: str
    host: str
    machine: str
    """Scope in which a process id is unique: a boot and a PID namespace (a container)."""

    pid: int
    began: str
    """Start time of the process in ticks of the machine, because process ids are reused."""

    since: float
    """Unix time in seconds, like ``refreshed``."""

    refreshed: float

    @classmethod
    def me(cls) -> "_Owner":
        now = time.time()
        return cls(
            id=uuid.uuid4().hex,
            host=socket.gethostname(),
            machine=_machine(),
            pid=os.getpid(),
            began=_began(os.getpid()),
            since=now,
            refreshed=now,
        )

    def is_dead(self) -> bool:
        """Return whether it is certain that the process has ended or released the lease."""
        if self.id in _LEFT:
            return True
        if not self.machine or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return False
        return _began(self.pid) != self.began


class Lease:
    """A lease that a driver holds on a folder; see ``acquire_lease``."""

    def __init__(self, uri: str, owner: _Owner, refresh_s: float) -> None:
        self._uri, self._owner, self._refresh_s = uri, owner, refresh_s
        self._draft, self._over = Draft(uri), threading.Event()
        self._taken_by = ""
        self._thread = threading.Thread(target=self._refresh, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Verify that no other process has taken over, as can happen after this one was suspended.

        Raises:
            ArtifactError: If another process holds the lease, or has published the folder; the
                message names it.
        """
        if not self._taken_by:
            found = _read(self._draft)
            if found is not None and found.id == self._owner.id:
                return
            self._taken_by = "another process" if found is None else _described(found)
        raise ArtifactError(
            f"{self._uri} was taken over by {self._taken_by}: this process has not renewed its "
            "lease for too long"
        )

    def _refresh(self) -> None:
        while not self._over.wait(self._refresh_s):
            # A disk may be full or a bucket unavailable for a moment: the next attempt may succeed.
            with contextlib.suppress(OSError, StorageError):
                found = _read(self._draft)
                if found is None:
                    # The draft was deleted: the folder is published, by this process or another.
                    return
                if found.id != self._owner.id:
                    self._taken_by = _described(found)
                    _log.error("%s was taken over by %s", self._uri, self._taken_by)
                    return
                _write(self._draft, self._owner)

    def _close(self) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._let_go()
        # If the bucket is no longer accessible, the job has already failed with that reason.
        except (OSError, StorageError):
            _LEFT.add(self._owner.id)
            _log.warning("the lease of %s could not be deleted", self._draft.folder.described)

    def _let_go(self) -> None:
        found = _read(self._draft)
        if found is not None and found.id != self._owner.id:
            return
        if found is not None:
            self._draft.delete_note(_NAME)
        if not self._draft.folder.exists(".draft/begun.json"):
            # Published, or never begun: delete what exists only because of the lease.
            self._draft.clear()


@contextlib.contextmanager
def acquire_lease(
    uri: str,
    *,
    refresh_s: float = REFRESH_S,
    stale_s: float = STALE_S,
    settle_s: float = SETTLE_S,
) -> Iterator[Lease]:
    """Prevent other drivers from writing a folder during the block; use it before ``Draft.begin``.

    An abandoned lease is taken over: at once if its owner ran on this machine and has ended,
    otherwise after ``stale_s`` seconds without a refresh.

    Args:
        uri: The folder, local or ``s3://``.
        refresh_s: Seconds between two refreshes.
        stale_s: Seconds without a refresh after which an owner counts as dead.
        settle_s: Seconds between writing a lease and verifying it.

    Raises:
        ArtifactError: If another driver holds the lease; the message names it and the time.
    """
    draft, owner = Draft(uri), _Owner.me()
    found = _read(draft)
    if found is not None and not found.is_dead():
        unheard_s = time.time() - found.refreshed
        if unheard_s < stale_s:
            raise _refusal(uri, found, stale_s)
    _write(draft, owner)
    time.sleep(settle_s)
    found = _read(draft)
    if found is not None and found.id != owner.id:
        raise _refusal(uri, found, stale_s)
    lease = Lease(uri, owner, refresh_s)
    try:
        yield lease
    finally:
        lease._close()


def _refusal(uri: str, owner: _Owner, stale_s: float) -> ArtifactError:
    return ArtifactError(
        f"{uri} is being made by {_described(owner)}: wait for it or end it. One that has died on "
        f"another machine counts as such {stale_s:.0f} s after it was last heard of"
    )


def _described(owner: _Owner) -> str:
    since = datetime.fromtimestamp(owner.since, UTC).isoformat(" ", "seconds")
    return f"process {owner.pid} on {owner.host} since {since}"


def _read(draft: Draft) -> _Owner | None:
    try:
        values = draft.read_note(_NAME)
        return None if values is None else _Owner(**values)
    # Written by another version of biovl, or deleted while it was read.
    except (ValueError, TypeError, FileNotFoundError):
        return None


def _write(draft: Draft, owner: _Owner) -> None:
    draft.note(_NAME, {**asdict(owner), "refreshed": time.time()})


def _machine() -> str:
    """Return an id that all processes of this machine and container share, "" if unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _began(pid: int) -> str:
    """Return the start time of a process, "" if no live process has this id."""
    try:
        # Fields after the name, which is in brackets and may hold anything: the state, then 18
        # others.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has ended but was not yet reaped by its parent.
    return "" if fields[0] in ("Z", "X") else fields[19]
