"""State shared by the replicas of an application: the target release, metrics and rate limits.

Every ``poll_s`` each replica reports which release it has loaded and receives which one to serve.
Replicas switch to a new release only after all of them have loaded it. Until then all serve the
previous one, so that a response never mixes the model of one release with the index of another. If
one replica fails to load the new release, no replica switches to it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from serve.http.metrics import Snapshots
from serve.http.rate import Buckets, Leases


@dataclass(frozen=True, kw_only=True)
class ReleaseTarget:
    """A model and its index to serve: folders and expected fingerprints."""

    model: str
    index: str | None
    model_fingerprint: str
    index_fingerprint: str | None
    generation: int = 0
    """Number of the request for this release; increases with each."""

    @property
    def model_version(self) -> str:
        """First 12 digits of the model's fingerprint."""
        return self.model_fingerprint[:12]

    @property
    def index_version(self) -> str | None:
        """First 12 digits of the index's fingerprint; None without an index."""
        return self.index_fingerprint[:12] if self.index_fingerprint else None


@dataclass(frozen=True, kw_only=True)
class ReplicaReport:
    """Status that a replica reports to the coordinator."""

    serving: ReleaseTarget | None
    """Release that the replica serves; None during start-up."""
    loaded: int = 0
    """Generation that is loaded in addition to the one that is served; 0: none."""
    failed: int = 0
    """Generation that failed to load; 0: none."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """Response of the coordinator to a report: the releases to serve and to load."""

    serving: ReleaseTarget | None
    """Release to serve; None if the coordinator has no state and needs it from the replica."""
    next: ReleaseTarget | None
    """Release to load in addition to the one that is served; None if no reload is in progress."""
    reason: str = ""
    """Reason why the last reload failed; empty after a new request."""
    settled: bool = True
    """Whether all replicas serve the target release."""


class Coordinator(Leases, Snapshots, Protocol):
    """State that replicas share, in this process or remote."""

    async def serving(self) -> ReleaseTarget | None: ...
    async def begin(self, initial: ReleaseTarget) -> ReleaseTarget: ...
    async def request_release(self, candidate: ReleaseTarget) -> ReleaseTarget: ...
    async def exchange(self, replica: str, report: ReplicaReport) -> Orders: ...
    async def remove_replica(self, replica: str) -> None: ...


@dataclass(eq=False)
class LocalCoordinator:
    """Coordinator in this process. Independent of Ray; the clock is an argument."""

    silent_s: float = 10.0
    """Replicas that have not reported for this long are ignored, in seconds."""
    clock: Callable[[], float] = time.monotonic
    buckets: Buckets = field(default_factory=Buckets)
    """Token buckets of the rate limit."""
    _serving: ReleaseTarget | None = None
    _next: ReleaseTarget | None = None
    _newest: int = 0
    """The highest generation assigned so far. Never reused: replicas identify releases that failed
    to load by their generation."""
    _reason: str = ""
    _reports: dict[str, tuple[float, ReplicaReport]] = field(default_factory=dict)
    _values: dict[tuple[str, str], tuple[float, Any]] = field(default_factory=dict)

    async def serving(self) -> ReleaseTarget | None:
        """Return the release being served; None before the first replica has started."""
        return self._serving

    async def begin(self, initial: ReleaseTarget) -> ReleaseTarget:
        """Return the release to serve; if there is none yet, set it to ``initial``."""
        if self._serving is None:
            self._serving = replace(initial, generation=max(1, initial.generation))
        return self._serving

    async def request_release(self, candidate: ReleaseTarget) -> ReleaseTarget:
        """Request a release from all replicas; return it with its generation.

        Requesting the same release twice has no effect. A different release replaces one that is
        not loaded yet, also if it is the one being served.
        """
        serving = await self.begin(candidate)
        self._reason = ""
        for known in (self._next, serving):
            if known is not None and replace(known, generation=0) == replace(
                candidate, generation=0
            ):
                if known is serving:
                    self._next = None
                return known
        self._newest = max(self._newest, serving.generation) + 1
        self._next = replace(candidate, generation=self._newest)
        return self._next

    async def exchange(self, replica: str, report: ReplicaReport) -> Orders:
        """Store the report of a replica, and return the releases that it must serve and load."""
        now = self.clock()
        self._reports[replica] = now, report
        self._reports = {
            name: (at, said)
            for name, (at, said) in self._reports.items()
            if now - at <= self.silent_s
        }
        # After a restart of the coordinator its state comes from the replicas.
        theirs = report.serving
        self._newest = max(
            self._newest, report.loaded, report.failed, theirs.generation if theirs else 0
        )
        if theirs and (self._serving is None or theirs.generation > self._serving.generation):
            self._serving = theirs
        self._decide()
        serving = self._serving
        if serving is None:
            return Orders(serving=None, next=None)
        settled = all(
            said.serving is None or said.serving.generation == serving.generation
            for _, said in self._reports.values()
        )
        return Orders(
            serving=serving,
            next=self._next,
            reason=self._reason,
            settled=settled and self._next is None,
        )

    async def remove_replica(self, replica: str) -> None:
        """Remove a replica that shuts down.

        After the last one, a service restarted with the same settings starts from those settings.
        """
        self._reports.pop(replica, None)
        if not self._reports:
            self._serving, self._next, self._reason = None, None, ""

    def alone_for(self) -> float:
        """Return the seconds since the last report of any replica."""
        newest = max((at for at, _ in self._reports.values()), default=0.0)
        return self.clock() - newest

    def _decide(self) -> None:
        if self._next is None:
            return
        generation = self._next.generation
        reports = {name: report for name, (_, report) in self._reports.items()}
        failed = {
            name: report.reason for name, report in reports.items() if report.failed == generation
        }
        if failed:
            # Replicas often fail for the same reason: report each reason once.
            self._reason = "; ".join(sorted(set(failed.values())))
            self._next = None
        elif all(
            generation in (report.loaded, report.serving.generation if report.serving else 0)
            for report in reports.values()
        ):
            self._serving, self._next = self._next, None

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        """Store a value of a replica for ``keep_s`` seconds, replacing the previous one."""
        self._values[kind, replica] = self.clock() + keep_s, payload

    async def get_all(self, kind: str) -> dict[str, Any]:
        """Return the unexpired values of a kind, by replica."""
        now = self.clock()
        self._values = {key: entry for key, entry in self._values.items() if entry[0] > now}
        return {name: payload for (of, name), (_, payload) in self._values.items() if of == kind}

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        """Take up to ``count`` tokens of the rate limit from a bucket, and return their number."""
        return await self.buckets.lease(key, count, per_s, burst)
