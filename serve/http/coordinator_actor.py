"""Coordinator of replicas in several processes: a named, detached Ray actor."""

import asyncio
import functools
import time
from typing import Any, cast

from serve.http.coordinator import Coordinator, LocalCoordinator


def ray_coordinator(name: str, *, poll_s: float) -> Coordinator:
    """Return a client of the named coordinator actor, which is created if it does not exist."""
    # A busy process may miss several polls; after ten the replica counts as dead.
    return cast(Coordinator, _Client(name, silent_s=max(5.0, 10 * poll_s)))


class _Client:
    """Client of the coordinator actor, which is found by name and created on demand.

    The actor outlives the replicas, is restarted if its node dies (the replicas then send their
    state again), and exits when no replica is left. Methods raise ConnectionError if it is
    unavailable.
    """

    def __init__(self, name: str, *, silent_s: float) -> None:
        self._name, self._silent_s = name, silent_s

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

    def __getattr__(self, method: str) -> Any:
        """Return a method of ``Coordinator`` that asks the actor."""
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._ask, method)


class _Actor(LocalCoordinator):
    """Coordinator in its own process, which exits when there are no replicas."""

    _ALONE_S = 60.0

    def __init__(self, silent_s: float) -> None:
        super().__init__(silent_s)
        self._born = time.monotonic()
        self._watch = asyncio.get_event_loop().create_task(self._until_alone())

    async def _until_alone(self) -> None:
        import ray

        while min(self.alone_for(), time.monotonic() - self._born) < self._ALONE_S:
            await asyncio.sleep(1)
        # exit_actor() works only within an actor task, so the actor kills itself by handle.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
