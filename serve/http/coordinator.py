"""What the replicas of an application share: which release is wanted, and a few small values.

Each replica tells every ``poll_s`` what it has loaded and is told what to serve. A new release is
served when every replica has it: until then all answer with the one before, so that an answer
never mixes the model of one with the index of another, and one replica that cannot load it keeps
it from all.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from serve.http.rate import Buckets


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A model and its index: where they are, and what must be found there."""

    model: str
    index: str | None
    model_fingerprint: str
    index_fingerprint: str | None
    generation: int = 0
    """Counts what was wanted one after the other."""

    @property
    def model_version(self) -> str:
        """The first 12 digits of the model's fingerprint."""
        return self.model_fingerprint[:12]

    @property
    def index_version(self) -> str | None:
        """The first 12 digits of the index's fingerprint."""
        return self.index_fingerprint[:12] if self.index_fingerprint else None


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a replica says of itself."""

    serving: Wanted | None
    """None while it starts."""
    loaded: int = 0
    """The generation that it has ready beside what it serves; 0 for none."""
    failed: int = 0
    """The generation that it could not load."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a replica is told."""

    serving: Wanted | None
    """None where the coordinator knows of nothing: it is to be told again."""
    next: Wanted | None
    """To be loaded beside what is served; None: nothing, or no longer."""
    reason: str = ""
    """Why the last reload failed; empty once another was asked for."""
    settled: bool = True
    """Whether all replicas serve what they should."""


@dataclass
class Coordination:
    """The shared state, in one process. Knows no Ray and no clock but the one it is given."""

    silent_s: float = 10.0
    """A replica that says nothing for so long is no longer waited for."""
    clock: Callable[[], float] = time.monotonic
    buckets: Buckets = field(default_factory=Buckets)
    """Of the rate limit."""
    _serving: Wanted | None = None
    _next: Wanted | None = None
    _newest: int = 0
    """The highest generation assigned so far. None is assigned twice: replicas remember by it what
    they could not load."""
    _reason: str = ""
    _reports: dict[str, tuple[float, Report]] = field(default_factory=dict)
    _values: dict[tuple[str, str], tuple[float, Any]] = field(default_factory=dict)

    def serving(self) -> Wanted | None:
        """Return what is served; None before the first replica."""
        return self._serving

    def begin(self, initial: Wanted) -> Wanted:
        """Return what to serve: the first replica's own wish, if nothing is served yet."""
        if self._serving is None:
            self._serving = replace(initial, generation=max(1, initial.generation))
        return self._serving

    def want(self, candidate: Wanted) -> Wanted:
        """Have all replicas load a release; return it with its generation.

        The same release asked for twice is one; another takes the place of one not yet loaded.
        """
        serving = self.begin(candidate)
        self._reason = ""
        for known in (self._next, serving):
            if known is not None and replace(known, generation=0) == replace(
                candidate, generation=0
            ):
                return known
        self._newest = max(self._newest, serving.generation) + 1
        self._next = replace(candidate, generation=self._newest)
        return self._next

    def exchange(self, replica: str, report: Report) -> Orders:
        """Take note of a replica and tell it what to serve."""
        now = self.clock()
        self._reports[replica] = now, report
        self._reports = {
            name: (at, said)
            for name, (at, said) in self._reports.items()
            if now - at <= self.silent_s
        }
        # Where the coordinator itself was restarted, replicas know more than it.
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

    def leave(self, replica: str) -> bool:
        """Forget a replica that stops; return whether it was the last."""
        self._reports.pop(replica, None)
        return not self._reports

    def alone_for(self) -> float:
        """Return for how many seconds no replica has said anything."""
        newest = max((at for at, _ in self._reports.values()), default=0.0)
        return self.clock() - newest

    def _decide(self) -> None:
        if self._next is None:
            return
        wanted = self._next.generation
        said = {name: report for name, (_, report) in self._reports.items()}
        failed = {name: report.reason for name, report in said.items() if report.failed == wanted}
        if failed:
            # Of the same reason on ten replicas one is enough.
            self._reason = "; ".join(sorted(set(failed.values())))
            self._next = None
        elif all(
            wanted in (report.loaded, report.serving.generation if report.serving else 0)
            for report in said.values()
        ):
            self._serving, self._next = self._next, None

    def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        """Keep a value of a replica for a while, instead of its last of this kind."""
        self._values[kind, replica] = self.clock() + keep_s, payload

    def get_all(self, kind: str) -> dict[str, Any]:
        """Return the values of a kind by replica, but of those that were kept long enough."""
        now = self.clock()
        self._values = {key: entry for key, entry in self._values.items() if entry[0] > now}
        return {name: payload for (of, name), (_, payload) in self._values.items() if of == kind}


class Coordinator(Protocol):
    """``Coordination`` from wherever one is."""

    async def serving(self) -> Wanted | None: ...
    async def begin(self, initial: Wanted) -> Wanted: ...
    async def want(self, candidate: Wanted) -> Wanted: ...
    async def exchange(self, replica: str, report: Report) -> Orders: ...
    async def leave(self, replica: str) -> None: ...
    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None: ...
    async def get_all(self, kind: str) -> Mapping[str, Any]: ...
    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float: ...


class LocalCoordinator:
    """For a service of one process."""

    def __init__(self, state: Coordination | None = None) -> None:
        self._state = state or Coordination()

    async def serving(self) -> Wanted | None:
        return self._state.serving()

    async def begin(self, initial: Wanted) -> Wanted:
        return self._state.begin(initial)

    async def want(self, candidate: Wanted) -> Wanted:
        return self._state.want(candidate)

    async def exchange(self, replica: str, report: Report) -> Orders:
        return self._state.exchange(replica, report)

    async def leave(self, replica: str) -> None:
        self._state.leave(replica)

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        self._state.put(kind, replica, payload, keep_s=keep_s)

    async def get_all(self, kind: str) -> Mapping[str, Any]:
        return self._state.get_all(kind)

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        return await self._state.buckets.lease(key, count, per_s, burst)
