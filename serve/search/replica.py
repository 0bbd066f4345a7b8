"""Base class of the replicas of all deployments."""

import asyncio
from collections.abc import Callable

from ray import serve

from serve.http.coordinator_actor import ray_coordinator
from serve.http.metrics import Metrics, send_snapshots
from serve.search.holder import Holder
from serve.search.release import Release
from serve.search.settings import Settings


class Replica:
    """Common parts of a replica: name, coordinator and metrics."""

    def __init__(self, settings: Settings, token: str) -> None:
        """Create a replica; ``token`` distinguishes applications with different settings."""
        context = serve.get_replica_context()
        self.settings = settings
        self.name = f"{context.deployment}-{context.replica_id.unique_id}"
        self.coordinator = ray_coordinator(
            f"{context.app_name}-{settings.name}-{token}", poll_s=settings.poll_s
        )
        self.metrics = Metrics(self.name)
        self._leaving: asyncio.Task[None] | None = None

    def batched(self, kind: str, size: int, waited_s: float) -> None:
        """Count a batch of images or texts, with its size and queue time."""
        self.metrics.batch(kind, size)
        self.metrics.waited(kind, waited_s)

    def holder(self, load: Callable[..., Release]) -> Holder:
        """Return an object that loads and switches the releases this replica serves."""
        return Holder(
            load, coordinator=self.coordinator, replica=self.name, poll_s=self.settings.poll_s
        )

    def start_metrics(self) -> None:
        """Start sending metrics to the coordinator; HTTP replicas do so in ``http_api``."""
        self._leaving = asyncio.create_task(send_snapshots(self.metrics, self.coordinator))
