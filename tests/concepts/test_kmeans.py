"""k-means over blocks: the partition of faiss, and no difference by whoever adds up."""

import faiss
import numpy as np
import pytest

from biovl.concepts import kmeans
from tests.concepts.folders import blobs

LARGEST = 64.0


def sums_of(rows: np.ndarray, centroids: np.ndarray, size: int) -> kmeans.Sums:
    found = kmeans.Sums.none(*centroids.shape)
    for first in range(0, len(rows), size):
        kmeans.add_block(found, first, rows[first : first + size], centroids, LARGEST)
    return found


def clustered(rows: np.ndarray, clusters: int, *, size: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return the centroids, and the cluster of each row."""
    rows = kmeans.on_grid(rows, kmeans.grid_of(LARGEST, len(rows)))
    centroids, inertias = kmeans.first_centroids(rows, clusters, seed=0), list[float]()
    while len(inertias) < 50 and not kmeans.has_settled(inertias, 1e-6):
        found = sums_of(rows, centroids, size)
        inertias.append(found.total_inertia)
        centroids = kmeans.update_centroids(centroids, found, np.random.default_rng(len(inertias)))
    return centroids, kmeans.nearest(rows, centroids)[0]


def groups(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


def inertia(rows: np.ndarray, centroids: np.ndarray) -> float:
    apart = rows[:, None].astype(np.float64) - centroids
    return float(np.square(apart).sum(axis=2).min(axis=1).sum())


def test_separate_groups_are_found_as_faiss_finds_them() -> None:
    rows, kinds = blobs(600, 8, 5)
    centroids, labels = clustered(rows, 8)
    assert groups(labels) == groups(kinds)
    theirs = faiss.Kmeans(5, 8, niter=25, nredo=20, seed=1)
    theirs.train(rows)
    assert groups(labels) == groups(theirs.index.search(rows, 1)[1][:, 0])
    assert inertia(rows, centroids) == pytest.approx(inertia(rows, theirs.centroids), rel=1e-4)


def test_where_groups_overlap_inertia_is_not_worse_than_that_of_faiss() -> None:
    rows = np.random.default_rng(0).normal(size=(5_000, 6)).astype(np.float32)
    theirs = faiss.Kmeans(6, 40, niter=25, seed=1, max_points_per_centroid=5_000)
    theirs.train(rows)
    assert inertia(rows, clustered(rows, 40)[0]) < 1.01 * inertia(rows, theirs.centroids)


def test_sums_are_equal_to_the_last_bit_in_any_order_and_groups() -> None:
    rows = np.random.default_rng(0).normal(size=(3_000, 7)).astype(np.float32) * 10
    rows = kmeans.on_grid(rows, kmeans.grid_of(LARGEST, len(rows)))
    centroids = rows[:20]
    labels, _ = kmeans.nearest(rows, centroids)
    forwards = np.stack([rows[labels == k].astype(np.float64).sum(axis=0) for k in range(20)])
    for size in (100, 999, 3_000):
        found = sums_of(rows, centroids, size)
        assert np.array_equal(found.coordinates_KC, forwards)
        assert found.counts_K.sum() == 3_000
    backwards, parts = kmeans.Sums.none(20, 7), [sums_of(rows[:500], centroids, 100)]
    parts.append(sums_of(rows[500:], centroids, 100))
    for part in reversed(parts):
        backwards.add(part)
    assert np.array_equal(backwards.coordinates_KC, forwards)
    assert np.array_equal(backwards.spread_K, sums_of(rows, centroids, 100).spread_K)


def test_how_rows_are_cut_into_blocks_does_not_change_the_clusters() -> None:
    rows, _ = blobs(1_000, 12, 6, seed=3)
    first, labels = clustered(rows, 20, size=1_000)
    for size in (33, 400):
        again, same = clustered(rows, 20, size=size)
        assert np.array_equal(first, again)
        assert np.array_equal(labels, same)


def test_a_grid_keeps_the_digits_that_float32_has() -> None:
    values = np.array([[1 / 3, -50.123, 1e-4]], np.float32)
    kept = kmeans.on_grid(values, kmeans.grid_of(LARGEST, 1_000_000))
    np.testing.assert_allclose(kept, values, atol=LARGEST * 2**-30)
    # Of as many rows the sum needs no more than float64's 53 bits.
    grid = kmeans.grid_of(LARGEST, 1_000_000)
    assert LARGEST / grid * 1_000_000 <= 2**53


def test_an_empty_cluster_takes_half_of_the_most_spread_one() -> None:
    wide = np.array([[-9.0, 0], [-8, 0], [8, 0], [9, 0]], np.float32)
    tight = np.array([[0.0, 50], [0.1, 50], [0.2, 50], [0.3, 50]], np.float32)
    rows = np.concatenate([wide, tight])
    centroids = np.array([[0, 0], [0.1, 50], [999, 999]], np.float32)
    found = sums_of(rows, centroids, 3)
    assert found.counts_K.tolist() == [4, 4, 0]
    moved = kmeans.update_centroids(centroids, found, np.random.default_rng(0))
    assert sorted(sums_of(rows, moved, 3).counts_K.tolist()) == [2, 2, 4]


def test_fewer_different_rows_than_clusters_give_as_many_clusters_as_there_are() -> None:
    rows = np.repeat(np.array([[0, 0], [1, 0], [0, 3]], np.float32), [5, 1, 9], axis=0)
    centroids, labels = clustered(rows, 6)
    assert sorted(map(tuple, centroids.tolist())) == [(0, 0), (0, 3), (1, 0)]
    assert len(np.unique(labels)) == 3


def test_empty_clusters_stay_where_nothing_can_be_split() -> None:
    rows = np.repeat(np.array([[0, 0], [1, 0]], np.float32), 4, axis=0)
    centroids = np.array([[0, 0], [1, 0], [5, 5]], np.float32)
    found = sums_of(rows, centroids, 8)
    assert np.array_equal(
        kmeans.update_centroids(centroids, found, np.random.default_rng(0)), centroids
    )


def test_it_ends_where_an_iteration_changes_little() -> None:
    assert not kmeans.has_settled([10.0], 0.1)
    assert not kmeans.has_settled([10.0, 8.0], 0.1)
    assert kmeans.has_settled([10.0, 8.0, 7.9], 0.1)
    assert kmeans.has_settled([0.0, 0.0], 0.0)


def test_a_sample_is_the_same_however_rows_are_cut_and_never_twice_the_same_row() -> None:
    one = kmeans.shares({0: 1_000}, 50, seed=3)[0]
    two = kmeans.shares({0: 400, 1: 0, 2: 600}, 50, seed=3)
    assert np.array_equal(one, np.concatenate([two[0], two[2] + 400]))
    assert len(np.unique(one)) == len(one) > 40
    assert np.array_equal(kmeans.shares({0: 5}, 50, seed=3)[0], np.arange(5))


def test_nearest_clusters_are_by_distance_and_never_oneself() -> None:
    centroids = np.array([[0.0], [1], [3], [10]], np.float32)
    numbers, distances = kmeans.nearest_clusters(centroids, 2)
    assert numbers.tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    assert distances.tolist() == [[1, 3], [1, 2], [2, 3], [7, 9]]
    assert kmeans.nearest_clusters(centroids, 5)[0].shape == (4, 3)
    assert kmeans.nearest_clusters(centroids[:1], 5)[0].shape == (1, 0)
