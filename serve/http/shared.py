"""The coordinator of replicas in many processes: an actor of Ray that they find by its name."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from serve.http.coordinator import Coordination, Orders, Report, Wanted


class RayCoordinator:
    """For replicas in many processes: one small actor, found by name and made on demand.

    It outlives every replica, is restarted where its node dies (the replicas then tell it what
    they serve), and ends itself when none is left. Where it cannot be reached methods raise
    ConnectionError.
    """

    def __init__(self, name: str, *, poll_s: float) -> None:
        """Name the actor; it is made when first needed."""
        self._name = name
        # Ten times silent is gone; a busy process may miss a few.
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
                # It ended itself, or its node died: the name is free for another in a moment.
                await asyncio.sleep(0.2)
        raise ConnectionError(f"the coordinator {self._name} does not answer")

    async def serving(self) -> Wanted | None:
        wanted: Wanted | None = await self._ask("serving")
        return wanted

    async def begin(self, initial: Wanted) -> Wanted:
        wanted: Wanted = await self._ask("begin", initial)
        return wanted

    async def want(self, candidate: Wanted) -> Wanted:
        wanted: Wanted = await self._ask("want", candidate)
        return wanted

    async def exchange(self, replica: str, report: Report) -> Orders:
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
    """``Coordination`` in a process of its own, as long as there are replicas."""

    _ALONE_S = 60.0

    def __init__(self, silent_s: float) -> None:
        self._state = Coordination(silent_s=silent_s)
        self._born = time.monotonic()
        self._watch = asyncio.get_event_loop().create_task(self._until_alone())

    async def _until_alone(self) -> None:
        import ray

        while min(self._state.alone_for(), time.monotonic() - self._born) < self._ALONE_S:
            await asyncio.sleep(1)
        # exit_actor() works in a task of the actor only; a detached actor is ended from outside.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    async def serving(self) -> Wanted | None:
        return self._state.serving()

    async def begin(self, initial: Wanted) -> Wanted:
        return self._state.begin(initial)

    async def want(self, candidate: Wanted) -> Wanted:
        return self._state.want(candidate)

    async def exchange(self, replica: str, report: Report) -> Orders:
        return self._state.exchange(replica, report)

    async def leave(self, replica: str) -> None:
        if self._state.leave(replica):
            # A service begun again with the same settings begins with those settings.
            self._state = Coordination(silent_s=self._state.silent_s)

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        self._state.put(kind, replica, payload, keep_s=keep_s)

    async def get_all(self, kind: str) -> Mapping[str, Any]:
        return self._state.get_all(kind)

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        return await self._state.buckets.lease(key, count, per_s, burst)
