"""k-means over blocks, with a result independent of the workers and of the order of sums.

Coordinates are rounded to a grid fine enough that only digits beyond float32's are lost, and coarse
enough that float64 sums are exact. Sums are then equal in any order and grouping. faiss finds the
nearest centroids, with one thread per block.

An empty cluster takes half of the cluster with the largest sum of squared distances: the centroid
of that cluster moves a little one way, the new one the opposite way.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import faiss
import numpy as np

# Shapes: N rows, S rows of the sample, T candidates among them, K clusters, C components.

_SAMPLE_ROWS, _SAMPLE_PER_CLUSTER = 16_384, 8

_SPREAD_BITS = 22
_SHIFT = 0.1


def grid_of(largest: float, rows: int) -> float:
    """Return the grid step such that ``rows`` coordinates up to ``largest`` have an exact sum.

    float64 has 53 bits: up to 2^28 rows leave the 24 bits of float32.
    """
    if not largest:
        return 1.0
    bits = 52 - max(rows, 1).bit_length()
    return float(2.0 ** (math.frexp(largest)[1] - bits))


def on_grid(coordinates_NC: np.ndarray, grid: float) -> np.ndarray:
    """Return coordinates rounded to the grid, float32."""
    return (np.rint(coordinates_NC.astype(np.float64) / grid) * grid).astype(np.float32)


def sample_rows(clusters: int) -> int:
    """Return the number of rows to sample for the initial centroids of this number of clusters."""
    return max(_SAMPLE_ROWS, _SAMPLE_PER_CLUSTER * clusters)


def first_centroids(sample_SC: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Return initial centroids: greedy k-means++ on a sample, as in scikit-learn.

    Each is the best of a few candidates, drawn by squared distance from the previous centroids.
    Plain k-means++ ends with 2 to 6 % more inertia.

    Returns:
        float32, shape [K, C], all different; fewer if the sample has fewer different rows.

    Source:
        Arthur and Vassilvitskii 2007, section 6.
    """
    # Rounding would give equal rows a small distance, and they could be chosen twice.
    rows_SC = np.unique(sample_SC, axis=0)
    if len(rows_SC) <= clusters:
        return rows_SC
    rng = np.random.default_rng(seed)
    columns_CS = np.ascontiguousarray(rows_SC.T)
    squares_S = np.square(rows_SC).sum(axis=1)
    nearest_S = np.full(len(rows_SC), np.inf, np.float32)
    tried, chosen = rng.integers(len(rows_SC), size=1), list[int]()
    while len(chosen) < clusters:
        apart_TS = rows_SC[tried] @ columns_CS
        apart_TS *= -2
        apart_TS += squares_S
        apart_TS += squares_S[tried, None]
        np.clip(apart_TS, 0, nearest_S, out=apart_TS)
        best = int(apart_TS.sum(axis=1, dtype=np.float64).argmin())
        chosen.append(int(tried[best]))
        nearest_S = apart_TS[best]
        nearest_S[chosen[-1]] = 0
        sums_S = np.cumsum(nearest_S, dtype=np.float64)
        if not sums_S[-1]:
            break
        places = rng.random(2 + int(math.log(clusters))) * sums_S[-1]
        tried = np.minimum(np.searchsorted(sums_S, places, side="right"), len(rows_SC) - 1)
    return rows_SC[chosen]


def nearest(block_NC: np.ndarray, centroids_KC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centroid of each row, int64, and its squared distance, float32."""
    # Several threads would divide a block depending on the machine.
    faiss.omp_set_num_threads(1)
    squared_N1, labels_N1 = faiss.knn(block_NC, centroids_KC, 1)
    return labels_N1[:, 0], np.maximum(squared_N1[:, 0], 0)


@dataclass(kw_only=True)
class Sums:
    """Sums of an iteration. Exact, so that addition is independent of order."""

    coordinates_KC: np.ndarray
    counts_K: np.ndarray
    spread_K: np.ndarray
    """Sum of squared distances per cluster, each rounded so that their sum is exact. float64:
    accurate enough to choose the cluster to split."""
    inertia: dict[int, float] = field(default_factory=dict)
    """Sum of squared distances of each block, by its number."""

    @classmethod
    def none(cls, clusters: int, components: int) -> "Sums":
        """Return the sums over no rows: zeros."""
        return cls(
            coordinates_KC=np.zeros((clusters, components)),
            counts_K=np.zeros(clusters, np.int64),
            spread_K=np.zeros(clusters),
        )

    def add(self, other: "Sums") -> None:
        """Add the sums over other blocks to these, in place."""
        self.coordinates_KC += other.coordinates_KC
        self.counts_K += other.counts_K
        self.spread_K += other.spread_K
        self.inertia |= other.inertia

    @property
    def total_inertia(self) -> float:
        """The inertia over all blocks, correctly rounded."""
        return math.fsum(self.inertia.values())


def add_block(
    sums: Sums, number: int, block_NC: np.ndarray, centroids_KC: np.ndarray, largest: float
) -> None:
    """Add a block of rows to the sums of an iteration.

    Args:
        sums: Sums of the previous blocks; changed in place.
        number: Number of the block.
        block_NC: Rows rounded by ``on_grid``, float32.
        centroids_KC: float32.
        largest: Upper bound of the coordinates' absolute values.
    """
    if not len(block_NC):
        return
    clusters, components = centroids_KC.shape
    labels_N, squared_N = nearest(block_NC, centroids_KC)
    sums.counts_K += np.bincount(labels_N, minlength=clusters)
    for axis in range(components):
        sums.coordinates_KC[:, axis] += np.bincount(labels_N, block_NC[:, axis], clusters)
    step = grid_of(4 * components * largest**2, 2 ** (52 - _SPREAD_BITS - 1))
    spread_N = np.rint(squared_N.astype(np.float64) / step) * step
    sums.spread_K += np.bincount(labels_N, spread_N, clusters)
    sums.inertia[number] = float(squared_N.sum(dtype=np.float64))


def update_centroids(centroids_KC: np.ndarray, sums: Sums, rng: np.random.Generator) -> np.ndarray:
    """Return the next centroids: the means of the members; empty clusters are re-seeded.

    If no cluster can be split because all its members are equal, empty clusters keep their
    centroids.
    """
    counts_K = sums.counts_K
    is_empty = counts_K == 0
    means_KC = sums.coordinates_KC / np.maximum(counts_K, 1)[:, None]
    next_KC = np.where(is_empty[:, None], centroids_KC, means_KC)
    # The largest spread first; ties go to the lower number.
    spread = [
        (-float(sums.spread_K[cluster]), int(cluster), int(counts_K[cluster]))
        for cluster in np.flatnonzero((sums.spread_K > 0) & (counts_K > 1))
    ]
    heapq.heapify(spread)
    for cluster in np.flatnonzero(is_empty):
        if not spread:
            break
        most, of, members = heapq.heappop(spread)
        deviation = math.sqrt(-most / members / next_KC.shape[1])
        shift_C = rng.standard_normal(next_KC.shape[1]) * deviation * _SHIFT
        next_KC[cluster] = next_KC[of] + shift_C
        next_KC[of] -= shift_C
        # Two clusters of half the members: in each, squares are at most as large as before.
        if members > 3:
            heapq.heappush(spread, (most / 2, of, members // 2))
            heapq.heappush(spread, (most / 2, int(cluster), members - members // 2))
    return next_KC.astype(np.float32)


def has_settled(inertias: list[float], tolerance: float) -> bool:
    """Return whether the last iteration improved the inertia by less than the tolerance."""
    if len(inertias) < 2:
        return False
    before, now = inertias[-2:]
    return before - now <= tolerance * before


def nearest_clusters(centroids_KC: np.ndarray, at_most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest other centroids of each centroid, nearest first, and their distances.

    Returns:
        Numbers, int32, and distances, float32, both of shape [K, min(at_most, K - 1)].
    """
    clusters = len(centroids_KC)
    faiss.omp_set_num_threads(1)
    _, found = faiss.knn(centroids_KC, centroids_KC, min(at_most + 1, clusters))
    numbers = np.array(
        [[other for other in row if other != own][:at_most] for own, row in enumerate(found)],
        np.int32,
    ).reshape(clusters, -1)
    apart = centroids_KC[:, None].astype(np.float64) - centroids_KC[numbers]
    distances = np.sqrt(np.square(apart).sum(axis=2))
    order = np.argsort(distances, axis=1, kind="stable")
    return (
        np.take_along_axis(numbers, order, axis=1),
        np.take_along_axis(distances, order, axis=1).astype(np.float32),
    )


def shares(usable: Mapping[int, int], rows: int, seed: int) -> dict[int, np.ndarray]:
    """Return a seeded sample of ``rows`` usable rows: sorted row numbers by block.

    Args:
        usable: Number of usable rows by block.
        rows: Size of the sample.
        seed: Seed of the sample.
    """
    numbers = sorted(usable)
    ends = np.cumsum([usable[number] for number in numbers])
    total = int(ends[-1])
    rng = np.random.default_rng(seed)
    # Without a list of all row numbers; duplicate draws count once.
    drawn = (
        np.arange(total)
        if rows >= total
        else np.unique(rng.integers(total, size=rows, dtype=np.int64))
    )
    found = {}
    for number, end in zip(numbers, ends, strict=True):
        begin = int(end) - usable[number]
        here = drawn[np.searchsorted(drawn, begin) : np.searchsorted(drawn, end)] - begin
        if len(here):
            found[number] = here
    return found
