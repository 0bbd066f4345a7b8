"""Cluster the embeddings of a table into ``concepts/``.

1. measure  a task per block sums moments for PCA; one task merges them and fits the components
2. project  a task per block writes the coordinates of its images
3. iterate  workers sum over their blocks, the driver updates the centroids: k-means
4. assign   the same workers write the cluster of every row, and the driver summarises the clusters
5. write    tasks write columns per part, and read the members' images; then plots

A block is a range of rows of fixed length, and sums over blocks are exact: neither the number of
workers nor the assignment of blocks changes a byte. The driver's memory depends on the number of
clusters, a worker's on its cache. Every task and iteration leaves a receipt, from which an
interrupted job resumes.
"""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import numpy as np
import ray

from biovl.concepts import cluster_steps, finishing, kmeans, members
from biovl.concepts.blocks import EmbeddedTable, block_count, open_source
from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.clusters import EMBEDDED_BY, KIND, embedded_by
from biovl.concepts.summary import summarise
from biovl.core.artifacts import COLUMNS, Draft, Manifest, read_manifest
from biovl.core.errors import ConfigError
from biovl.core.tables import Table
from biovl.runtime.connection import connect_ray, running_ray
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

FORMAT = 1
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""

_LATE = ("components", "clusters", "iterations", "tolerance", "seed")
"""Settings without effect before PCA is fitted."""

_RESTARTS = 20
_PATIENCE_S = 30
"""Restarts of a worker, as machines come and go."""


@entry_point
def cluster(config: ClusterConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Cluster the images of a table, and publish the clusters for manual labelling.

        out/
          pca.npz  scree.png        mean, components, variance of all
          centroids.npy             float32, shape [clusters, components]; the largest cluster first
          clusters.parquet          size, cohesion, distances, key, nearest clusters of each
          members.parquet           30 random members of each, with thumbnails
          sheets.png                contact sheet of clusters of all sizes
          columns/                  cluster_id and cluster_distance of every row of the table
          manifest.json             rows without embedding by reason; inertia by iteration

    Raises:
        ConfigError: If there are fewer usable vectors than clusters, or fewer dimensions than
            components.
        ArtifactError: If the embedding is of another table, or ``out`` holds another artifact or
            is being written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    report = Progress("cluster", progress)
    source = open_source(config.table, config.embedding)
    table, inputs = source.table, source.as_inputs()
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["workers"])
    published = job.find_published()
    if published is not None:
        return published
    _check(config, source)
    blocks = block_count(table, config.block_rows)
    with job.begin(accepts=_accepts_settings) as draft:
        with connect_ray():
            stages = Stages(draft, report)
            measured = stages.run(
                "measuring block", blocks, cluster_steps.measure, (config, source)
            )
            (fitted,) = stages.run("fitting", 1, cluster_steps.fit, (config, source))
            projected = stages.run(
                "projecting block", blocks, cluster_steps.project, (config, source)
            )
            usable = {number: receipt["usable"] for number, receipt in enumerate(projected)}
            largest = max(receipt["largest"] for receipt in projected)
            with start_workers(config, usable, largest) as team:
                k_means = _KMeans(config, draft, team, report)
                centroids_KC, inertias = k_means.iterate(usable)
                assigned = k_means.assign(table, blocks, centroids_KC)
            report.say("summarising the clusters")
            summary = summarise(
                cluster_steps.assigned_rows(config, 0, table.rows),
                len(centroids_KC),
                seed=config.seed,
            )
            clusters = finishing.write_clusters(config, summary, centroids_KC)
            renumbered_K = cluster_steps.read_array(draft.folder, finishing.RENUMBERED)
            parts = stages.run(
                "writing part",
                len(table.parts),
                cluster_steps.write_columns,
                (config, table, renumbered_K),
            )
            wanted = cluster_steps.read_array(draft.folder, finishing.WANTED)
            pieces = members.tasks(wanted)
            shown = stages.run(
                "reading members",
                pieces,
                members.read_members,
                (config, table, finishing.WANTED),
            )
        members.merge(config, clusters, pieces)
        finishing.draw(config, clusters)
        reasons = sum((Counter(row["without_embedding"]) for row in measured), Counter[str]())
        counts = {
            "rows": table.rows,
            "clustered": sum(usable.values()),
            "without_embedding": dict(sorted(reasons.items())),
        }
        files = {part.name: row for part, row in zip(table.parts, parts, strict=True)}
        finishing.publish_columns(job, counts, files)
        manifest = job.manifest(
            counts={
                **counts,
                "clusters": clusters,
                "members": len(wanted),
                "members_undecodable": sum(row["undecodable"] for row in shown),
            },
            files=finishing.sizes(config),
            notes={
                "embedding": source.column,
                EMBEDDED_BY: embedded_by(read_manifest(source.uri, COLUMNS)),
                "components": fitted["components"],
                "explained_variance": fitted["kept"],
                "inertia": [*inertias, sum(row["inertia"] for row in assigned)],
                "iterations": len(inertias),
                "distance": "L2 among components",
            },
        )
        return draft.publish(manifest)


def _check(config: ClusterConfig, source: EmbeddedTable) -> None:
    """Check settings against the table before Ray starts."""
    if config.clusters > source.table.rows:
        raise ConfigError(
            f"clusters is {config.clusters:,}, but {config.table} has {source.table.rows:,} rows: "
            "choose fewer clusters"
        )
    if config.components > source.dim:
        raise ConfigError(
            f"components is {config.components:g}, but {source.column} has {source.dim} numbers: "
            f"choose at most {source.dim}"
        )


def _accepts_settings(draft: Draft, changed: set[str]) -> bool:
    """Return whether a draft may resume with other settings for the steps after PCA."""
    return changed.issubset(_LATE) and not draft.note_names("fitting")


@ray.remote(num_cpus=1, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)
class _Worker:
    """Holds projected blocks. Reads them again after a restart."""

    def __init__(
        self, config: ClusterConfig, numbers: list[int], grid: float, largest: float
    ) -> None:
        cache_bytes = config.workers.cache_mb * 1_000_000
        self._blocks = cluster_steps.HeldBlocks(config.out, numbers, grid, cache_bytes)
        self._config, self._largest = config, largest

    def wait_until_started(self) -> None:
        """Return once this worker has started."""

    def pick(self, number: int, own: np.ndarray) -> dict[str, Any]:
        """Return some rows of a block."""
        return run_task(
            self._config.out,
            lambda: {"rows": self._blocks.one(number)[own]},
        )

    def first_centroids(self, sample_SC: np.ndarray, clusters: int, seed: int) -> dict[str, Any]:
        """Return initial centroids."""
        return run_task(
            self._config.out,
            lambda: {"centroids": kmeans.first_centroids(sample_SC, clusters, seed)},
        )

    def sums(self, centroids_KC: np.ndarray) -> dict[str, Any]:
        """Return the sums of an iteration over this worker's blocks."""
        return run_task(
            self._config.out,
            lambda: {"sums": cluster_steps.sums(self._blocks, centroids_KC, self._largest)},
        )

    def assign(self, table: Table, number: int, centroids_KC: np.ndarray) -> dict[str, Any]:
        """Write the clusters of a block."""

        def work() -> dict[str, Any]:
            block_UC = self._blocks.one(number)
            receipt = cluster_steps.assign(self._config, table, number, block_UC, centroids_KC)
            Draft(self._config.out).note(f"assigning-block/{number:06d}", receipt)
            return receipt

        return run_task(self._config.out, work)


@contextlib.contextmanager
def start_workers(
    config: ClusterConfig, usable: Mapping[int, int], largest: float
) -> Iterator["_Team"]:
    """Start workers that share the blocks, and yield them; their CPUs are released at the end."""
    cpus = int(ray.cluster_resources().get("CPU", 1))
    count = config.workers.count or cpus
    # A cluster may autoscale; a local Ray does not, and surplus workers would never start.
    if running_ray() is None:
        count = min(count, cpus)
    count = max(1, min(count, len(usable)))
    grid = kmeans.grid_of(largest, sum(usable.values()))
    workers = [
        _Worker.remote(config, list(range(first, len(usable), count)), grid, largest)  # type: ignore[attr-defined]
        for first in range(count)
    ]
    try:
        yield _Team(workers)
    finally:
        for worker in workers:
            ray.kill(worker)


class _Team:
    """The workers; blocks are distributed round-robin."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers

    def of(self, number: int) -> Any:
        """Return the worker of a block."""
        return self.workers[number % len(self.workers)]

    def pick(self, rows: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return rows of blocks, in block order."""
        pending = [self.of(number).pick.remote(number, own) for number, own in sorted(rows.items())]
        return np.concatenate([raise_task_error(ray.get(found))["rows"] for found in pending])

    def wait(self, report: Progress) -> None:
        """Wait until all workers have started, and report the number of waiting ones."""
        waiting = [worker.wait_until_started.remote() for worker in self.workers]
        while waiting:
            started, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_PATIENCE_S)
            ray.get(started)
            if waiting:
                report.say(
                    f"{len(waiting)} of {len(self.workers)} workers wait for a CPU each; "
                    "workers.count sets their number"
                )

    def first_centroids(self, sample_SC: np.ndarray, clusters: int, seed: int) -> np.ndarray:
        """Return initial centroids, computed by one worker with a single thread."""
        found = self.workers[0].first_centroids.remote(sample_SC, clusters, seed)
        return np.asarray(raise_task_error(ray.get(found))["centroids"])

    def sums(self, centroids_KC: np.ndarray) -> kmeans.Sums:
        """Return the sums over all blocks."""
        centroids = ray.put(centroids_KC)
        total = kmeans.Sums.none(*centroids_KC.shape)
        for found in [worker.sums.remote(centroids) for worker in self.workers]:
            total.add(raise_task_error(ray.get(found))["sums"])
        return total


class _KMeans:
    """The k-means iterations, resumed from an earlier run."""

    def __init__(self, config: ClusterConfig, draft: Draft, team: _Team, report: Progress) -> None:
        self._config, self._draft, self._team, self._report = config, draft, team, report

    def iterate(self, usable: Mapping[int, int]) -> tuple[np.ndarray, list[float]]:
        """Return the centroids, and the inertia before each iteration."""
        config, noted = self._config, self._draft.read_note("kmeans")
        inertias: list[float] = noted["inertia"] if noted else []
        done = before = len(inertias)
        self._team.wait(self._report)
        began = time.monotonic()
        if noted:
            centroids_KC = cluster_steps.read_array(self._draft.folder, _centroids(done))
        else:
            rows = kmeans.sample_rows(config.clusters)
            sample_SC = self._team.pick(kmeans.shares(usable, rows, config.seed))
            centroids_KC = self._team.first_centroids(sample_SC, config.clusters, config.seed)
        self._report.stage("iteration", config.iterations, done_before=done)
        while done < config.iterations and not kmeans.has_settled(inertias, config.tolerance):
            found = self._team.sums(centroids_KC)
            rng = np.random.default_rng([config.seed, done])
            centroids_KC = kmeans.update_centroids(centroids_KC, found, rng)
            inertias.append(found.total_inertia)
            done += 1
            cluster_steps.write_array(self._draft.folder, _centroids(done), centroids_KC)
            # Noted last: the centroids it refers to exist by now.
            self._draft.note("kmeans", {"inertia": inertias})
            self._report.add(f"inertia {inertias[-1]:.6g}")
        took_s = time.monotonic() - began
        self._report.say(f"k-means: {done - before} iterations in {took_s:.1f} s, start included")
        return centroids_KC, inertias

    def assign(self, table: Table, blocks: int, centroids_KC: np.ndarray) -> list[dict[str, Any]]:
        """Write the clusters of all rows; return the receipts of the blocks."""
        stages, key = Stages(self._draft, self._report), "assigning-block"
        centroids, shared = ray.put(centroids_KC), ray.put(table)
        pending = [
            self._team.of(number).assign.remote(shared, number, centroids)
            for number in stages.pending("assigning block", key, blocks)
        ]
        for found in pending:
            raise_task_error(ray.get(found))
            self._report.add()
        return stages.receipts(key, blocks)


def _centroids(iteration: int) -> str:
    return f".draft/kmeans/{iteration:06d}.npy"
