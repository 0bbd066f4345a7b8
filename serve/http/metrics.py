"""Prometheus metrics of this replica, and the merged metrics of all replicas.

Each application has its own registry, so that two applications in one process, as in tests, are
counted separately. Every replica sends snapshots to the coordinator. The replica that answers
``/metrics`` merges its own metrics with the snapshots of the others.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from serve.http.problems import Problem

LEAVE_EVERY_S = 5.0
"""Interval between snapshots, in seconds: the maximum age of the metrics of other replicas."""
KEEP_S = 60.0
"""Snapshots expire after this many seconds: the replica no longer exists."""

_KIND = "metrics"
_ASK_S = 2.0
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


Snapshot = Sequence[Metric]
"""All metrics of one replica at one time."""


class Snapshots(Protocol):
    """Storage of the replicas' snapshots; implemented by ``serve.http.coordinator.Coordinator``."""

    async def put(self, kind: str, replica: str, payload: Any, *, keep_s: float = 30.0) -> None:
        """Store a snapshot for ``keep_s`` seconds, replacing the previous one."""
        ...

    async def get_all(self, kind: str) -> Mapping[str, Any]:
        """Return the latest unexpired snapshot of each replica."""
        ...


async def send_snapshot(metrics: "Metrics", snapshots: Snapshots) -> None:
    """Send a snapshot to the coordinator, for the replica that answers ``/metrics``."""
    await snapshots.put(_KIND, metrics.replica, metrics.snapshot(), keep_s=KEEP_S)


async def send_snapshots(metrics: "Metrics", snapshots: Snapshots) -> None:
    """Send a snapshot every ``LEAVE_EVERY_S`` seconds, until cancelled."""
    while True:
        # The next one comes soon, and the coordinator may be back by then.
        with suppress(ConnectionError):
            await send_snapshot(metrics, snapshots)
        await asyncio.sleep(LEAVE_EVERY_S)


async def keep_described(metrics: "Metrics", about: Callable[[], Awaitable[Any]]) -> None:
    """Set the model and index gauges every ``LEAVE_EVERY_S`` seconds, until cancelled.

    Otherwise a replica that no probe reaches would report the index from before a reload.

    Args:
        metrics: Metrics of this replica.
        about: ``Engine.about``. If it raises a problem, the replica is not ready.
    """
    while True:
        try:
            metrics.describe(await about())
        except Problem:
            metrics.describe({})
        await asyncio.sleep(LEAVE_EVERY_S)


async def merged_text(metrics: "Metrics", snapshots: Snapshots) -> bytes:
    """Return the metrics of all replicas as Prometheus text; those of this replica are current.

    If the coordinator is unavailable, only the metrics of this replica are returned.
    """
    try:
        async with asyncio.timeout(_ASK_S):
            others = await snapshots.get_all(_KIND)
    except (ConnectionError, TimeoutError):
        others = {}
    all_of_them = {**others, metrics.replica: metrics.snapshot()}
    return prometheus_text(all_of_them[replica] for replica in sorted(all_of_them))


class Metrics:
    """Prometheus metrics of one replica."""

    def __init__(self, replica: str) -> None:
        """Create metrics with all counters at zero.

        Args:
            replica: Value of the label ``replica``.
        """
        self.replica = replica
        self.registry = registry = CollectorRegistry()
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._stage_series: dict[str, Histogram] = {}
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        durations = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._requests = counter(
            "biovl_requests", "Requests answered.", ("route", "method", "status")
        )
        self._latency = durations(
            "biovl_request_seconds",
            "From the first byte of a request to the last of its answer.",
            ("route",),
        )
        self._stages = durations(
            "biovl_stage_seconds", "Of requests: decode, encode, search, metadata.", ("stage",)
        )
        self._batches = Histogram(
            "biovl_batch_size",
            "Inputs embedded at once.",
            ("kind",),
            buckets=_SIZES,
            registry=registry,
        )
        self._waits = durations(
            "biovl_queue_seconds", "How long inputs waited for their batch.", ("kind",)
        )
        self._rejected = counter(
            "biovl_rejected", "Requests answered with a problem, by its reason.", ("reason",)
        )
        self._in_progress = gauge("biovl_requests_in_progress", "Requests being computed.")
        self._model = gauge("biovl_model_info", "Which model is served: 1.", ("name", "version"))
        self._index = gauge("biovl_index_figures", "Figures in the index.", ("version",))
        self._recall = gauge(
            "biovl_index_recall_at_10", "Measured when the index was built.", ("over", "query")
        )
        # Labelled, as a gauge without labels is 0 until it is set: encoders never set it.
        self._ready = gauge("biovl_ready", "Whether requests can be answered.", ("replica",))

    def answered(self, route: str, method: str, status: int, elapsed_s: float) -> None:
        """Count a response by route template; paths would create one series per figure."""
        # labels() validates and reads the environment on every call, so its results are cached.
        found = self._series.get((route, method, status))
        if found is None:
            found = self._requests.labels(route, method, str(status)), self._latency.labels(route)
            self._series[route, method, status] = found
        count, latency = found
        count.inc()
        latency.observe(elapsed_s)

    def stage(self, name: str, elapsed_s: float) -> None:
        """Record the duration of a stage of a request."""
        found = self._stage_series.get(name)
        if found is None:
            found = self._stage_series[name] = self._stages.labels(name)
        found.observe(elapsed_s)

    def rejected(self, reason: str) -> None:
        """Count a problem response by its slug."""
        self._rejected.labels(reason).inc()

    def batch(self, kind: str, size: int) -> None:
        """Count a batch of images or texts. Called by the batchers."""
        self._batches.labels(kind).observe(size)

    def waited(self, kind: str, elapsed_s: float) -> None:
        """Record the queue time of a batch's first input. Called by the batchers."""
        self._waits.labels(kind).observe(elapsed_s)

    def in_progress(self, change: int) -> None:
        """Change the number of requests in progress."""
        self._in_progress.inc(change)

    def describe(self, about: Mapping[str, Any]) -> None:
        """Set the model and index gauges from ``Engine.about``."""
        self._ready.labels(self.replica).set(1 if about.get("ready") else 0)
        for gauge in (self._model, self._index, self._recall):
            gauge.clear()
        model, index = about.get("model"), about.get("index")
        if model:
            self._model.labels(str(model.get("name")), str(model.get("version"))).set(1)
        if index:
            self._index.labels(str(index.get("version"))).set(float(index.get("figures") or 0))
            for over, recalls in index.get("recall", {}).items():
                for query, recall in recalls.items():
                    self._recall.labels(over, query).set(recall)

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics, with the label ``replica``."""
        families = list(self.registry.collect())
        for family in families:
            family.samples = [
                sample._replace(labels={**sample.labels, "replica": self.replica})
                for sample in family.samples
                # Creation timestamps are not needed for counters and rates.
                if not sample.name.endswith("_created")
            ]
        return families


def prometheus_text(snapshots: Iterable[Snapshot]) -> bytes:
    """Return snapshots in the text format of Prometheus 0.0.4, each family once."""
    joined: dict[str, Metric] = {}
    for family in itertools.chain.from_iterable(snapshots):
        whole = joined.setdefault(
            family.name, Metric(family.name, family.documentation, family.type)
        )
        whole.samples += family.samples
    return generate_latest(_Collected(list(joined.values())))


class _Collected(CollectorRegistry):
    """A registry with fixed metrics, for ``generate_latest``."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
