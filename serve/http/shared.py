"""Coordinator of replicas in several processes: a named, detached Ray actor."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from serve.http.coordinator import Coordination, Orders, ReleaseTarget, ReplicaReport


class RayCoordinator:
    """Client of the coordinator actor, which is found by name and created on demand.

    The actor outlives the replicas, is restarted if its node dies (the replicas then send their
    state again), and exits when no replica is left. Methods raise ConnectionError if it is
    unavailable.
    """

    def __init__(self, name: str, *, poll_s: float) -> None:
        """Set the name of the actor; it is created on first use."""
        self._name = name
        # A busy process may miss several polls; after ten the replica counts as dead.
        self._silent_s = max(5.0, 10 * poll_s)

    def _actor(self) -> Any:
        import ray

        return (
            ray.remote(_Actor)
            .options(
                name=self._name,
                namespace="biovl",
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=3,
            )
            .remote(self._silent_s)
        )

    async def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        from ray.exceptions import RayActorError

        for _ in range(3):
            try:
                return await getattr(self._actor(), method).remote(*arguments, **named)
            except RayActorError:
                # The actor has exited or its node died: a new one can take the name shortly.
                await asyncio.sleep(0.2)
        raise ConnectionError(f"the coordinator {self._name} does not answer")

    async def serving(self) -> ReleaseTarget | None:
        wanted: ReleaseTarget | None = await self._ask("serving")
        return wanted

    async def begin(self, initial: ReleaseTarget) -> ReleaseTarget:
        wanted: ReleaseTarget = await self._ask("begin", initial)
        return wanted

    async def want(self, candidate: ReleaseTarget) -> ReleaseTarget:
        wanted: ReleaseTarget = await self._ask("want", candidate)
        return wanted

    async def exchange(self, replica: str, report: ReplicaReport) -> Orders:
        orders: Orders = await self._ask("exchange", replica, report)
        return orders

    async def leave(self, replica: str) -> None:
        await self._ask("leave", replica)

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        await self._ask("put", kind, replica, payload, keep_s=keep_s)

    async def get_all(self, kind: str) -> Mapping[str, Any]:
        values: Mapping[str, Any] = await self._ask("get_all", kind)
        return values

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        taken: float = await self._ask("lease", key, count, per_s, burst)
        return taken


class _Actor:
    """``Coordination`` in its own process, which exits when there are no replicas."""

    _ALONE_S = 60.0

    def __init__(self, silent_s: float) -> None:
        self._state = Coordination(silent_s=silent_s)
        self._born = time.monotonic()
        self._watch = asyncio.get_event_loop().create_task(self._until_alone())

    async def _until_alone(self) -> None:
        import ray

        while min(self._state.alone_for(), time.monotonic() - self._born) < self._ALONE_S:
            await asyncio.sleep(1)
        # exit_actor() works only within an actor task, so the actor kills itself by handle.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    async def serving(self) -> ReleaseTarget | None:
        return self._state.serving()

    async def begin(self, initial: ReleaseTarget) -> ReleaseTarget:
        return self._state.begin(initial)

    async def want(self, candidate: ReleaseTarget) -> ReleaseTarget:
        return self._state.want(candidate)

    async def exchange(self, replica: str, report: ReplicaReport) -> Orders:
        return self._state.exchange(replica, report)

    async def leave(self, replica: str) -> None:
        if self._state.leave(replica):
            # A service restarted with the same settings starts from those settings.
            self._state = Coordination(silent_s=self._state.silent_s)

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        self._state.put(kind, replica, payload, keep_s=keep_s)

    async def get_all(self, kind: str) -> Mapping[str, Any]:
        return self._state.get_all(kind)

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        return await self._state.buckets.lease(key, count, per_s, burst)
