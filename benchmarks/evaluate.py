"""How long judging takes: retrieval of large pools, exactly, and bootstrap intervals.

python benchmarks/evaluate.py --pairs 10000 30000 100000 --dim 512 --threads 2

Ours against faiss's flat search (both directions, the 100 nearest: no rank beyond) and against
CLIP_benchmark's own function, given the same vectors, where its matrix of all similarities fits and
it is installed (``pip install --no-deps clip-benchmark``). Each runs in a process of its own, whose
peak of memory is taken. Vectors are made up: time does not depend on them.

evaluate_clip_benchmark.py compares whole runs with a model.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace

import faiss
import numpy as np
import torch

from biovl.benchmark import bootstrap, ranks

PMC_15M = 725_739
"""Pairs of BiomedCLIP's test set."""

_MATRIX_GB = 5
"""Larger matrices of similarities are not tried."""

_PAIR_BYTES = 25
"""What CLIP_benchmark takes at 10,000 pairs of each of its matrix (2.5 GB)."""


def unit_rows(count: int, dim: int, seed: int) -> np.ndarray:
    """Return random unit rows, float32."""
    rows = np.random.default_rng(seed).standard_normal((count, dim), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def pool(pairs: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and texts that know each other somewhat."""
    image_ND, text_ND = unit_rows(pairs, dim, 0), unit_rows(pairs, dim, 1)
    text_ND += 0.2 * image_ND
    text_ND /= np.linalg.norm(text_ND, axis=1, keepdims=True)
    return image_ND, text_ND


def ours(image_ND: np.ndarray, text_ND: np.ndarray) -> float:
    """Return recall at 1 of images by our places, as the retrieval task takes them."""
    of_images, _ = ranks.places(image_ND, text_ND, np.arange(len(image_ND)))
    return float(ranks.hits(of_images, 1).mean())


def flat(image_ND: np.ndarray, text_ND: np.ndarray) -> float:
    """Return the same by faiss's flat search for the 100 nearest, both directions."""
    found, pairs = [], len(image_ND)
    for items_ND, queries_ND in ((text_ND, image_ND), (image_ND, text_ND)):
        index = faiss.IndexFlatIP(items_ND.shape[1])
        index.add(items_ND)
        _, nearest_NK = index.search(queries_ND, min(100, pairs))
        found.append((nearest_NK[:, 0] == np.arange(pairs)).mean())
    return float(found[0])


def clip_benchmark(image_ND: np.ndarray, text_ND: np.ndarray) -> float:
    """Return the same by CLIP_benchmark: recall at 1, 5 and 10, both directions.

    The model it asks looks the vectors up: what stands for a text is its number.
    """
    from clip_benchmark.metrics import zeroshot_retrieval

    images, texts = torch.from_numpy(image_ND), torch.from_numpy(text_ND)
    rows = torch.arange(len(images)).split(64)
    found = zeroshot_retrieval.evaluate(
        SimpleNamespace(encode_image=lambda own: own, encode_text=lambda own: texts[own]),
        [(images[own], [[str(row)] for row in own.tolist()]) for own in rows],
        lambda own: torch.tensor([int(text) for text in own]),
        "cpu",
        amp=False,
        recall_k_list=[1, 5, 10],
    )
    return float(found["text_retrieval_recall@1"])


def intervals(image_ND: np.ndarray, text_ND: np.ndarray) -> float:
    """Take the intervals of recall at 1, of MRR and of the median rank: 1,000 resamples each."""
    pairs = len(image_ND)
    rank_N = np.random.default_rng(0).geometric(20 / pairs, pairs).astype(np.float64)
    bootstrap.estimate((rank_N <= 1).astype(np.float64))
    bootstrap.estimate(1 / rank_N)
    return bootstrap.estimate(rank_N, bootstrap.median).low


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ours": ours,
    "flat": flat,
    "clip_benchmark": clip_benchmark,
    "bootstrap": intervals,
}


def measured(way: str, pairs: int, dim: int, threads: int) -> dict[str, float]:
    """Return seconds, CPU seconds and GB of memory of one way in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--pairs", str(pairs), "--dim", str(dim)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def alone(way: str, pairs: int, dim: int) -> None:
    """Run one way here and print what it took, the vectors themselves not counted as time."""
    vectors = pool(pairs, dim)
    # Threads are begun and libraries warmed with the first product.
    WAYS[way](vectors[0][:256], vectors[1][:256])
    start, cpu = time.perf_counter(), time.process_time()
    value = WAYS[way](*vectors)
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": time.process_time() - cpu,
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
                "value": value,
            }
        )
    )


def main() -> None:
    """Print a table; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--way", choices=sorted(WAYS))
    given = parser.parse_args()
    if given.way:
        alone(given.way, given.pairs[0], given.dim)
        return
    rows = []
    for pairs in given.pairs:
        for way in WAYS:
            if way == "clip_benchmark" and (
                pairs**2 * _PAIR_BYTES / 1e9 > _MATRIX_GB or find_spec("clip_benchmark") is None
            ):
                continue
            row = {"way": way, "pairs": pairs, **measured(way, pairs, given.dim, given.threads)}
            rows.append(row)
            print(
                f"{way:14} {pairs:>8,} pairs  {row['seconds']:8.1f} s  "
                f"{row['cpu_seconds']:8.1f} s CPU  {row['peak_gb']:5.2f} GB  {row['value']:.4f}",
                flush=True,
            )
    largest = max((row for row in rows if row["way"] == "ours"), key=lambda row: row["pairs"])
    # Time grows with the square of the pairs, memory with the pairs: their vectors and counts.
    hours = largest["cpu_seconds"] * (PMC_15M / largest["pairs"]) ** 2 / 3600
    vectors_gb = 2 * 4 * given.dim * PMC_15M / 1e9
    print(
        f"ours, {PMC_15M:,} pairs: {hours:.1f} CPU hours expected, {vectors_gb:.1f} GB of vectors"
    )
    print(json.dumps({"rows": rows, "cpu_hours_of_pmc_15m": hours}))


if __name__ == "__main__":
    main()
