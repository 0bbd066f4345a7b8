"""Summary of each cluster: size, cohesion, distances, key and members to show.

Blocks are processed one by one; memory depends on the number of clusters, not of rows.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from biovl.concepts import kmeans

# Shapes: N rows of a block, K clusters, M members to show.

SHOWN = 30
"""Members of a cluster shown to reviewers (BIOMEDICA, section 3.2)."""

_NEAREST = 5
_LEVELS = 2_048
"""Levels of distances: the leading 16 bits of a float32, less than 0.8 % apart; 16 octaves below
the largest of each cluster."""

CLUSTER_SCHEMA = pa.schema(
    [
        pa.field("cluster_id", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("cohesion", pa.float32()),
        pa.field("distance_p50", pa.float32()),
        pa.field("distance_p95", pa.float32()),
        pa.field("nearest", pa.list_(pa.int32())),
        pa.field("nearest_distance", pa.list_(pa.float32())),
    ]
)

MEMBER = np.dtype([("cluster", "<i4"), ("priority", "<u8"), ("row", "<i8"), ("distance", "<f4")])


class Summary:
    """Summary of each cluster, accumulated block by block in order."""

    def __init__(self, clusters: int, *, seed: int) -> None:
        """Initialize an empty summary.

        Args:
            clusters: Number of clusters.
            seed: Seed for the selection of members.
        """
        self._seed, self._rows = seed, 0
        self.sizes_K = np.zeros(clusters, np.int64)
        self._distances_K = np.zeros(clusters)
        self._ids_K = np.zeros(clusters, np.uint64)
        self._least_K = np.full(clusters, np.inf, np.float32)
        self._most_K = np.zeros(clusters, np.float32)
        self._levels = np.zeros((clusters, _LEVELS), np.int64)
        self._lowest_K = np.full(clusters, 1 - _LEVELS, np.int64)
        self._members_M = np.empty(0, MEMBER)

    def add(self, assigned_N: np.ndarray) -> None:
        """Add the next block: the records ``steps.ASSIGNED`` of all its rows."""
        rows_U = np.flatnonzero(assigned_N["cluster"] >= 0)
        own = assigned_N[rows_U]
        labels, distances = own["cluster"], own["distance"]
        clusters = len(self.sizes_K)
        self.sizes_K += np.bincount(labels, minlength=clusters)
        self._distances_K += np.bincount(labels, distances, clusters)
        np.add.at(self._ids_K, labels, own["id"])
        np.minimum.at(self._least_K, labels, distances)
        np.maximum.at(self._most_K, labels, distances)
        self._raise_levels()
        levels = np.maximum(_leading(distances) - self._lowest_K[labels], 0)
        np.add.at(self._levels, (labels, levels), 1)
        found = np.empty(len(own), MEMBER)
        found["cluster"], found["distance"] = labels, distances
        found["row"] = rows_U + self._rows
        found["priority"] = _hash_ids(own["id"], self._seed)
        self._members_M = _select_members(np.concatenate([self._members_M, found]))
        self._rows += len(assigned_N)

    def _raise_levels(self) -> None:
        """Move the levels of clusters up to their largest distance; the lowest are added up."""
        raised_K = _leading(self._most_K) - _LEVELS + 1 - self._lowest_K
        for cluster in np.flatnonzero(raised_K):
            by, old = min(int(raised_K[cluster]), _LEVELS - 1), self._levels[cluster].copy()
            self._levels[cluster] = np.pad(old[by:], (0, by))
            self._levels[cluster, 0] += old[:by].sum()
        self._lowest_K += raised_K

    def order(self) -> np.ndarray:
        """Return the non-empty clusters, largest first, shape [K]."""
        order = np.argsort(-self.sizes_K, kind="stable")
        return np.asarray(order[self.sizes_K[order] > 0])

    def members(self, renumbered_K: np.ndarray) -> np.ndarray:
        """Return the members to show, by new cluster number, in random order within each."""
        found = self._members_M.copy()
        found["cluster"] = renumbered_K[found["cluster"]]
        return _in_order(found)

    def table(self, centroids_KC: np.ndarray, order: np.ndarray) -> pa.Table:
        """Return the table that is published as ``clusters.parquet``.

        Args:
            centroids_KC: Centroids of all clusters, float32.
            order: Clusters to include; the first becomes cluster 0.
        """
        own_KC = np.ascontiguousarray(centroids_KC[order], np.float32)
        numbers, distances = kmeans.nearest_clusters(own_KC, _NEAREST)
        keys = [
            _key(centroid_C, int(self.sizes_K[cluster]), int(self._ids_K[cluster]))
            for cluster, centroid_C in zip(order, own_KC, strict=True)
        ]
        columns = [
            np.arange(len(order), dtype=np.int32),
            keys,
            self.sizes_K[order],
            (self._distances_K[order] / self.sizes_K[order]).astype(np.float32),
            self._percentile(50)[order],
            self._percentile(95)[order],
            list(numbers),
            list(distances),
        ]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, CLUSTER_SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=CLUSTER_SCHEMA)

    def _percentile(self, percent: float) -> np.ndarray:
        """Return a percentile of each cluster's distances, within half a level."""
        counts = np.cumsum(self._levels, axis=1)
        wanted = np.ceil(counts[:, -1] * (percent / 100)).clip(1)
        level = (counts < wanted[:, None]).sum(axis=1) + self._lowest_K
        edges = np.stack([level, level + 1]).clip(0).astype(np.uint32) << 16
        middle = edges.view(np.float32).mean(axis=0)
        least_K = np.minimum(self._least_K, self._most_K)
        return np.asarray(np.clip(middle, least_K, self._most_K))


def summarise(blocks: Iterable[np.ndarray], clusters: int, *, seed: int) -> Summary:
    """Return the summary of all blocks."""
    found = Summary(clusters, seed=seed)
    for assigned_N in blocks:
        found.add(assigned_N)
    return found


def _leading(distances_N: np.ndarray) -> np.ndarray:
    """Return the leading 16 bits of non-negative float32, int64: an increasing function."""
    return (distances_N.view(np.uint32) >> 16).astype(np.int64)


def _hash_ids(ids_N: np.ndarray, seed: int) -> np.ndarray:
    """Return a pseudo-random number per row, from its id and the seed (splitmix64)."""
    mixed = ids_N + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed)


def _select_members(members_M: np.ndarray) -> np.ndarray:
    """Return the members of each cluster with the smallest random numbers."""
    sorted_M = _in_order(members_M)
    begins = np.searchsorted(sorted_M["cluster"], sorted_M["cluster"], side="left")
    return np.asarray(sorted_M[np.arange(len(sorted_M)) - begins < SHOWN])


def _in_order(members_M: np.ndarray) -> np.ndarray:
    order = np.lexsort((members_M["row"], members_M["priority"], members_M["cluster"]))
    return np.asarray(members_M[order])


def _key(centroid_C: np.ndarray, size: int, ids: int) -> str:
    """Return a key that changes with the centroid or the members of a cluster."""
    digest = hashlib.blake2b(centroid_C.astype("<f4").tobytes(), digest_size=8)
    digest.update(size.to_bytes(8, "little") + ids.to_bytes(8, "little"))
    return digest.hexdigest()
