"""Our scheduling against the form that Ray's documentation shows, at the same promise.

python benchmarks/ray_idioms.py --only kmeans,harvest,input,checkpoints --rounds 3

kmeans: actors that hold their blocks (``concepts/cluster_job.py``) against a materialised dataset
on which each iteration runs ``map_batches``, with the centroids put into the object store once.
Both call the same functions on the same blocks, so their centroids must be equal bit by bit.

harvest: units that read, write and leave a receipt within one ``map`` (``harvest/job.py``) against
``map_batches`` that yields rows and a datasink that writes the parts and receipts. Both write with
the same functions. The datasink's run is also stopped half-way once and run again. All published
bytes must be equal.

input and checkpoints: see ``ray_idioms_training.py``.

Rounds alternate; ratios are of medians. Memory is the highest sum, over Ray's worker processes, of
what they do not share with others; for k-means plus the dataset in the object store. The last line
of standard output is the figures as JSON.
"""

import argparse
import contextlib
import io
import itertools
import json
import operator
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray_idioms_training
from ray.data import Datasink
from ray.data._internal.execution.interfaces import TaskContext
from ray.data.block import Block, BlockAccessor

from biovl.concepts import cluster_job, cluster_steps, kmeans
from biovl.concepts.cluster_config import ClusterConfig
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Draft
from biovl.core.parts import PartWriter
from biovl.core.records import Article, Figure
from biovl.harvest import job as harvesting
from biovl.harvest.config import HarvestConfig
from biovl.harvest.rows import rows
from biovl.harvest.sources import Address
from biovl.runtime.connection import connect_ray
from biovl.sample import make_packages

COMPONENTS = 50
_PAGE = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def peak_of_workers() -> Iterator[list[int]]:
    """Yield a list that holds, after the block, the highest memory of Ray's workers, in bytes."""
    peaks = [0]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.1):
            peaks[0] = max(peaks[0], sum(map(own_bytes, Path("/proc").glob("[0-9]*"))))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        is_over.set()
        thread.join()


def own_bytes(process: Path) -> int:
    """Return what a worker of Ray's holds for itself; 0 for other processes."""
    try:
        if not (process / "cmdline").read_bytes().startswith(b"ray::"):
            return 0
        _, resident, shared, *_ = map(int, (process / "statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE


def write_blocks(out: str, rows: int, block_rows: int) -> tuple[dict[int, int], float]:
    """Write projected blocks as the job does; return the rows of each, and the largest number."""
    rng, usable, largest = np.random.default_rng(0), {}, 0.0
    centres = rng.normal(size=(2_000, COMPONENTS)) * np.arange(1, COMPONENTS + 1) ** -0.5
    for number, first in enumerate(range(0, rows, block_rows)):
        count = min(block_rows, rows - first)
        block_UC = centres[rng.integers(len(centres), size=count)]
        block_UC = (block_UC + 0.2 * rng.normal(size=block_UC.shape)).astype(np.float32)
        cluster_steps.write_array(Draft(out).folder, cluster_steps.projected_path(number), block_UC)
        usable[number], largest = count, max(largest, float(np.abs(block_UC).max()))
    return usable, largest


Step = Callable[[np.ndarray], kmeans.Sums]


def iterate(step: Step, centroids_KC: np.ndarray, iterations: int) -> np.ndarray:
    """Return the centroids after some iterations."""
    for number in range(iterations):
        sums = step(centroids_KC)
        rng = np.random.default_rng([0, number])
        centroids_KC = kmeans.update_centroids(centroids_KC, sums, rng)
    return centroids_KC


@contextmanager
def actors(config: ClusterConfig, usable: dict[int, int], largest: float) -> Iterator[Step]:
    """Our form: actors that hold their blocks, and add them up before they answer."""
    with cluster_job.start_workers(config, usable, largest) as team:
        yield team.sums


@contextmanager
def dataset(config: ClusterConfig, usable: dict[int, int], largest: float) -> Iterator[Step]:
    """Ray Data's form: a materialised dataset of blocks, and ``map_batches`` per iteration."""
    grid, out = kmeans.grid_of(largest, sum(usable.values())), config.out

    def read(row: dict[str, Any]) -> dict[str, Any]:
        name = cluster_steps.projected_path(row["number"])
        block_UC = cluster_steps.read_array(Draft(out).folder, name)
        return {"number": row["number"], "block": kmeans.on_grid(block_UC, grid)}

    def add_up(batch: dict[str, np.ndarray], centroids: list[Any]) -> dict[str, np.ndarray]:
        centroids_KC = ray.get(centroids[0])
        found = kmeans.Sums.none(*centroids_KC.shape)
        for number, block_UC in zip(batch["number"].tolist(), batch["block"], strict=True):
            rows_UC = np.ascontiguousarray(block_UC, np.float32)
            kmeans.add_block(found, number, rows_UC, centroids_KC, largest)
        return {
            "coordinates": found.coordinates_KC[None],
            "counts": found.counts_K[None],
            "spread": found.spread_K[None],
            "number": np.array(list(found.inertia)),
            "inertia": np.array(list(found.inertia.values())),
        }

    numbers = [{"number": number} for number in usable]
    blocks = ray.data.from_items(numbers, override_num_blocks=len(numbers)).map(read).materialize()

    def step(centroids_KC: np.ndarray) -> kmeans.Sums:
        total = kmeans.Sums.none(*centroids_KC.shape)
        # In a list: Ray would resolve a reference, and copy what it refers to, for every task.
        given = {"centroids": [ray.put(centroids_KC)]}
        for row in blocks.map_batches(add_up, batch_size=None, fn_kwargs=given).iter_rows():
            total.add(
                kmeans.Sums(
                    coordinates_KC=row["coordinates"],
                    counts_K=row["counts"],
                    spread_K=row["spread"],
                    inertia={int(row["number"]): float(row["inertia"])},
                )
            )
        return total

    step.bytes = blocks.size_bytes()  # type: ignore[attr-defined]
    yield step


def compare_kmeans(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return seconds and memory of both forms of k-means, and their ratios."""
    config = configs.build(
        ClusterConfig,
        {"table": "none", "out": str(folder / "out"), "clusters": arguments.clusters},
    )
    usable, largest = write_blocks(config.out, arguments.rows, arguments.block_rows)
    sample_SC = cluster_steps.read_array(Draft(config.out).folder, cluster_steps.projected_path(0))
    grid = kmeans.grid_of(largest, arguments.rows)
    first_KC = kmeans.on_grid(sample_SC[: arguments.clusters], grid)
    seconds: dict[str, list[float]] = {"actors": [], "dataset": []}
    start: dict[str, list[float]] = {"actors": [], "dataset": []}
    memory: dict[str, list[float]] = {"actors": [], "dataset": []}
    ends: list[np.ndarray] = []
    for number in range(arguments.rounds):
        for name, form in (("actors", actors), ("dataset", dataset)):
            began = time.perf_counter()
            with peak_of_workers() as peak, form(config, usable, largest) as step:
                # The first call waits for what has not started yet.
                step(first_KC)
                start[name].append(time.perf_counter() - began)
                began = time.perf_counter()
                ends.append(iterate(step, first_KC, arguments.iterations))
                seconds[name].append((time.perf_counter() - began) / arguments.iterations)
            memory[name].append((peak[0] + getattr(step, "bytes", 0)) / 1e6)
            print(
                f"kmeans {number + 1}, {name}: start {start[name][-1]:.1f} s, "
                f"{seconds[name][-1]:.3f} s an iteration, {memory[name][-1]:.0f} MB",
                flush=True,
            )
    is_equal = all(np.array_equal(ends[0], other) for other in ends[1:])
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    held = {name: statistics.median(found) for name, found in memory.items()}
    return {
        "rows": arguments.rows,
        "clusters": arguments.clusters,
        "blocks": len(usable),
        "equal_centroids": is_equal,
        "seconds_an_iteration": seconds,
        "seconds_to_start": start,
        "memory_mb": memory,
        "dataset_to_actors": {
            "time": medians["dataset"] / medians["actors"],
            "memory": held["dataset"] / held["actors"],
        },
    }


class PartsSink(Datasink[None]):
    """Writes the parts of a unit, then its receipt; one block of input is one unit."""

    def __init__(self, config: HarvestConfig, stop_at: int) -> None:
        self._config, self._stop_at = config, stop_at

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> None:
        """Write the rows of a unit, as they arrive."""
        rows = (
            row
            for block in blocks
            for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True)
        )
        for unit, of_unit in itertools.groupby(rows, key=operator.itemgetter("unit")):
            if unit >= self._stop_at:
                raise RuntimeError("stopped half-way")
            self._write_unit(int(unit), (row["row"] for row in of_unit))

    def _write_unit(self, unit: int, rows: Iterable[Article | Figure]) -> None:
        draft, part_bytes = Draft(self._config.out), self._config.part_size_mb * 1_000_000
        seen: Counter[str] = Counter()
        with (
            PartWriter(draft.folder, "articles", unit, Article, part_bytes) as articles,
            PartWriter(draft.folder, "figures", unit, Figure, part_bytes) as figures,
        ):
            for row in rows:
                if isinstance(row, Figure):
                    figures.add(row)
                    seen[f"figures/{row.defect or ''}"] += 1
                    seen["mentions"] += len(row.mentions)
                else:
                    articles.add(row)
                    seen[f"articles/{row.defect or ''}"] += 1
        files = {**articles.files, **figures.files}
        draft.note(f"units/{unit:06d}", {"seen": dict(seen), "files": files})


def harvest_to_sink(config: HarvestConfig, stop_at: int = sys.maxsize) -> None:
    """Harvest as Ray Data's pages show: read, map, write to a datasink."""
    job = harvesting.job_of(config)
    planned = harvesting.plan_units(config)

    def read(batch: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        source = plugins.make("harvest.sources", config.source)
        for unit, addresses in zip(batch["unit"].tolist(), batch["addresses"], strict=True):
            for address in addresses:
                for package in source.read(Address(address["uri"], address["name"])):
                    found = list(rows(package))
                    column = np.empty(len(found), object)
                    column[:] = found
                    yield {"unit": np.full(len(found), unit), "row": column}

    with job.begin() as draft:
        units = draft.once("plan", lambda: planned)
        finished = {int(name.rpartition("/")[2]) for name in draft.note_names("units")}
        todo = [{"unit": n, "addresses": u} for n, u in enumerate(units) if n not in finished]
        tasks = ray.data.from_items(todo, override_num_blocks=len(todo))
        tasks.map_batches(read, batch_size=1).write_datasink(PartsSink(config, stop_at))
        draft.publish(harvesting.manifest_of(job, draft, len(units)))


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def compare_harvests(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return seconds and memory of both forms of harvest, and their ratios."""
    packages = folder / "packages"
    make_packages(packages, articles=arguments.articles)

    def config(out: str) -> HarvestConfig:
        source = {"name": "packages", "path": str(packages)}
        settings = {"source": source, "out": str(folder / out), "packages_per_unit": 25}
        return configs.build(HarvestConfig, settings)

    forms: dict[str, Callable[[HarvestConfig], Any]] = {
        "map": lambda config: harvesting.harvest(config, progress=io.StringIO()),
        "datasink": harvest_to_sink,
    }
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    memory: dict[str, list[float]] = {name: [] for name in forms}
    # Workers import what they need before anything is measured.
    for name, form in forms.items():
        form(config(f"warm-{name}"))
    expected = content(folder / "warm-map")
    is_equal = content(folder / "warm-datasink") == expected
    for number in range(arguments.rounds):
        for name, form in forms.items():
            out = f"{name}-{number}"
            with peak_of_workers() as peak:
                began = time.perf_counter()
                form(config(out))
                seconds[name].append(time.perf_counter() - began)
            memory[name].append(peak[0] / 1e6)
            is_equal = is_equal and content(folder / out) == expected
            print(f"harvest {number + 1}, {name}: {seconds[name][-1]:.1f} s", flush=True)
    stopped = config("stopped")
    with contextlib.suppress(Exception):
        harvest_to_sink(stopped, stop_at=arguments.articles // 50)
    receipts = len(list((folder / "stopped" / ".draft" / "units").glob("*.json")))
    harvest_to_sink(stopped)
    return {
        "articles": arguments.articles,
        "equal_bytes": is_equal,
        "units_done_when_stopped": receipts,
        "equal_bytes_after_a_stop": content(folder / "stopped") == expected,
        "seconds": seconds,
        "memory_mb": memory,
        "datasink_to_map": {
            "time": statistics.median(seconds["datasink"]) / statistics.median(seconds["map"]),
            "memory": statistics.median(memory["datasink"]) / statistics.median(memory["map"]),
        },
    }


COMPARISONS = {
    "kmeans": compare_kmeans,
    "harvest": compare_harvests,
    "input": ray_idioms_training.compare_input,
    "checkpoints": ray_idioms_training.compare_checkpoints,
}


def main() -> None:
    """Compare, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(COMPARISONS))
    parser.add_argument("--articles", type=int, default=500)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--block-rows", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=1_000)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=10_000, help="of input")
    parser.add_argument("--planned", default="1000,10000", help="input: pieces of longer epochs")
    parser.add_argument("--megabytes", type=int, default=300, help="of a checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder, connect_ray():
        for name in arguments.only.split(","):
            Path(folder, name).mkdir()
            found[name] = COMPARISONS[name](arguments, Path(folder, name))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
