"""k-means of the cluster job against faiss.Kmeans on the same cores, and what a worker holds.

python benchmarks/cluster.py speed --vectors 250000 1000000 --folder DIR

``speed`` makes vectors in groups of different sizes, writes them as an embedding beside a table of
tiny images, and runs the job as a user would. faiss gets the same vectors, iterations and threads,
and all vectors (by default it learns from 256 a cluster). Both times are those of k-means alone:
the start and the iterations; the job's other stages are told apart. Inertia is that of the final
centroids over all vectors, in float64. Memory is the highest resident set of any worker process.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import Manifest, to_json
from biovl.core.folders import Folder
from biovl.core.tables import open_table

ROOT = Path(__file__).parents[1]
_PART_ROWS = 50_000


def made_up(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Return vectors in 5,000 overlapping groups of uneven sizes, the first axes the widest."""
    rng = np.random.default_rng(seed)
    scale = np.arange(1, dim + 1) ** -0.5
    centres = rng.normal(size=(5_000, dim)) * scale
    share = rng.pareto(1.5, 5_000) + 0.1
    group = rng.choice(5_000, count, p=share / share.sum())
    vectors = centres[group] + 0.35 * rng.normal(size=(count, dim)) * scale
    return vectors.astype(np.float32)


def write_input(folder: Path, vectors: np.ndarray) -> Path:
    """Write a table of tiny images with the vectors as its embedding."""
    table = folder / f"table-{len(vectors)}"
    if (table / "columns" / "dinov2" / "manifest.json").exists():
        return table
    (table / "columns" / "dinov2").mkdir(parents=True, exist_ok=True)
    from biovl.images.encode import thumbnail

    image = thumbnail(np.full((16, 16, 3), 128, np.uint8), longer_side_px=16)
    kind = pa.list_(pa.float32(), vectors.shape[1])
    for first in range(0, len(vectors), _PART_ROWS):
        own = vectors[first : first + _PART_ROWS]
        name = f"part-{first // _PART_ROWS:06d}-000.parquet"
        ids = [f"image-{first + row}" for row in range(len(own))]
        columns = {"image_id": ids, "image": pa.array([image] * len(own), pa.binary())}
        pq.write_table(pa.table(columns), table / name)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(own.ravel()), type=kind)
        pq.write_table(pa.table({"dinov2": lists}), table / "columns" / "dinov2" / name)
    manifest = Manifest(
        kind="columns",
        config={},
        counts={},
        inputs=[open_table(str(table)).as_input()],
        notes={"columns": ["dinov2"], "embedding": "dinov2"},
    )
    out = Folder(str(table / "columns" / "dinov2"))
    out.write("manifest.json", to_json(asdict(manifest)))
    return table


class Memory:
    """Watches the processes of this job: the highest resident set of each kind, in MB."""

    def __init__(self) -> None:
        self.highest_mb: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.3):
            for name, peak_mb in _peaks():
                self.highest_mb[name] = max(self.highest_mb.get(name, 0), peak_mb)


def _peaks() -> Iterator[tuple[str, float]]:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().split(b"\0")[0].decode()
            status = (path / "status").read_text()
        except OSError:
            continue
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found and command.startswith("ray::"):
            kind = "holds vectors" if "_Worker" in command else "tasks"
            yield kind, int(found[1]) / 1024


def ours(table: Path, out: Path, args: argparse.Namespace) -> dict[str, object]:
    """Run the job; return what it says of itself and took."""
    settings = {
        "table": table,
        "out": out,
        "clusters": args.clusters,
        "iterations": args.iterations,
        "tolerance": 0,
        "components": args.dim,
        "workers.count": args.workers,
        "workers.cache_mb": args.cache_mb,
    }
    given = [f"--set={name}={value}" for name, value in settings.items()]
    began = time.perf_counter()
    with Memory() as memory:
        job = subprocess.run(
            [sys.executable, str(ROOT / "pipelines" / "cluster.py"), "default", *given],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    whole_s = time.perf_counter() - began
    if job.returncode:
        raise SystemExit(job.stderr)
    said = re.search(r"k-means: (\d+) iterations in ([\d.]+) s", job.stderr)
    manifest = json.loads((out / "manifest.json").read_text())
    assert said is not None
    return {
        "k_means_s": float(said[2]),
        "iterations": int(said[1]),
        "inertia": manifest["notes"]["inertia"][-1],
        "clusters": manifest["counts"]["clusters"],
        "whole_job_s": round(whole_s, 1),
        "peak_mb": {name: round(peak) for name, peak in memory.highest_mb.items()},
    }


def of_faiss(vectors: np.ndarray, iterations: int, args: argparse.Namespace) -> dict[str, object]:
    """Run faiss.Kmeans on all vectors; return what it took."""
    faiss.omp_set_num_threads(args.workers)
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        args.clusters,
        niter=iterations,
        seed=0,
        min_points_per_centroid=1,
        max_points_per_centroid=len(vectors),
    )
    began = time.perf_counter()
    kmeans.train(vectors)
    took_s = time.perf_counter() - began
    labels = kmeans.index.search(vectors, 1)[1][:, 0]
    return {"k_means_s": round(took_s, 1), "inertia": inertia(vectors, kmeans.centroids, labels)}


def inertia(vectors: np.ndarray, centroids: np.ndarray, labels: np.ndarray) -> float:
    """Return the sum of squared distances to the centroids."""
    total = 0.0
    for first in range(0, len(vectors), 100_000):
        own = slice(first, first + 100_000)
        apart = vectors[own].astype(np.float64) - centroids[labels[own]]
        total += float(np.square(apart).sum())
    return total


def speed(args: argparse.Namespace) -> None:
    """Print a line of JSON for each number of vectors."""
    for count in args.vectors:
        vectors = made_up(count, args.dim)
        table = write_input(args.folder, vectors)
        out = args.folder / f"concepts-{count}-{args.cache_mb}"
        mine = ours(table, out, args)
        theirs = of_faiss(vectors, int(str(mine["iterations"])), args)
        ratios = {
            "time": round(float(str(mine["k_means_s"])) / float(str(theirs["k_means_s"])), 3),
            "inertia": round(float(str(mine["inertia"])) / float(str(theirs["inertia"])), 5),
        }
        found = {"vectors": count, "ours": mine, "faiss": theirs, "ours_to_faiss": ratios}
        print(json.dumps(found), flush=True)


def main() -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--vectors", type=int, nargs="+", default=[250_000, 1_000_000])
    fast.add_argument("--dim", type=int, default=25)
    fast.add_argument("--clusters", type=int, default=2_000)
    fast.add_argument("--iterations", type=int, default=25)
    fast.add_argument("--workers", type=int, default=os.cpu_count())
    fast.add_argument("--cache-mb", type=int, default=1_000)
    fast.add_argument("--folder", type=Path, required=True)
    fast.set_defaults(run=speed)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
