"""What every replica of a deployment has, whatever it does."""

import asyncio
from collections.abc import Callable

from ray import serve

from serve.http.metrics import Metrics, leave_always
from serve.http.shared import RayCoordinator
from serve.search.holder import Holder
from serve.search.release import Release
from serve.search.settings import Settings


class Replica:
    """What all replicas have: a name, a coordinator, and numbers that are left with it."""

    def __init__(self, settings: Settings, token: str) -> None:
        """Name it after its deployment. ``token`` tells applications of other settings apart."""
        context = serve.get_replica_context()
        self.settings = settings
        self.name = f"{context.deployment}-{context.replica_id.unique_id}"
        self.coordinator = RayCoordinator(
            f"{context.app_name}-{settings.name}-{token}", poll_s=settings.poll_s
        )
        self.metrics = Metrics(self.name)
        self._leaving: asyncio.Task[None] | None = None

    def batched(self, kind: str, size: int, waited_s: float) -> None:
        """Count a batch."""
        self.metrics.batch(kind, size)
        self.metrics.waited(kind, waited_s)

    def holder(self, load: Callable[..., Release]) -> Holder:
        """Return what holds the release that all replicas serve."""
        return Holder(
            load, coordinator=self.coordinator, replica=self.name, poll_s=self.settings.poll_s
        )

    def leave_numbers(self) -> None:
        """Leave them with the coordinator from now on; the HTTP layer does so by itself."""
        self._leaving = asyncio.create_task(leave_always(self.metrics, self.coordinator))
