"""What is said of each cluster, from its rows."""

import numpy as np
import pytest

from biovl.concepts import summary
from biovl.concepts.cluster_steps import ASSIGNED
from biovl.concepts.summary import SHOWN, Summary, summarise


def assigned(clusters: list[int], distances: list[float], *, first: int = 0) -> np.ndarray:
    rows = np.zeros(len(clusters), ASSIGNED)
    rows["cluster"], rows["distance"] = clusters, distances
    # Distinct, and the same wherever a row is.
    rows["id"] = (np.arange(first, first + len(rows)) + 1) * 0x1234567
    return rows


def of(*blocks: np.ndarray, clusters: int = 3, seed: int = 0) -> Summary:
    return summarise(blocks, clusters, seed=seed)


CENTROIDS = np.array([[0, 0], [3, 4], [0, 1]], np.float32)


def test_clusters_are_told_by_size_and_those_without_members_are_left_out() -> None:
    found = of(assigned([2, -1, 0, 2], [1, np.nan, 5, 3]))
    order = found.order()
    assert order.tolist() == [2, 0]
    table = found.table(CENTROIDS, order).to_pydict()
    assert table["cluster_id"] == [0, 1]
    assert table["size"] == [2, 1]
    assert table["cohesion"] == [2, 5]
    assert table["nearest"] == [[1], [0]]
    assert table["nearest_distance"] == [[1], [1]]


def test_percentiles_are_right_within_half_a_percent() -> None:
    distances = np.random.default_rng(0).gamma(4, 1, 5_000).astype(np.float32)
    found = of(assigned([1] * 5_000, distances.tolist()))
    table = found.table(CENTROIDS, found.order()).to_pydict()
    assert table["distance_p50"][0] == pytest.approx(np.percentile(distances, 50), rel=5e-3)
    assert table["distance_p95"][0] == pytest.approx(np.percentile(distances, 95), rel=5e-3)


def test_a_distance_far_from_all_does_not_blur_percentiles() -> None:
    rng = np.random.default_rng(0)
    # The distances of a cluster grow from block to block.
    small = np.sort(rng.uniform(0.5, 1, 4_000) * np.repeat([1e-3, 1], 2_000))
    large = np.append(rng.uniform(0.5, 1, 2_000), 900)
    blocks = [assigned([0] * 400, part.tolist()) for part in np.split(small, 10)]
    found = of(*blocks, assigned([1] * 2_001, large.tolist()), assigned([2], [6e4]))
    table = found.table(CENTROIDS, found.order()).to_pydict()
    for cluster, distances in enumerate((small, large)):
        for percent in (50, 95):
            shown = table[f"distance_p{percent}"][cluster]
            expected = np.percentile(distances, percent, method="inverted_cdf")
            assert shown == pytest.approx(expected, rel=5e-3), (cluster, percent)


def test_percentiles_of_one_member_are_its_distance() -> None:
    found = of(assigned([0, 1], [0.123, 0]))
    table = found.table(CENTROIDS, found.order()).to_pydict()
    assert table["distance_p50"] == pytest.approx([0.123, 0])
    assert table["distance_p95"] == pytest.approx([0.123, 0])


def test_a_key_changes_with_the_centroid_and_with_the_members_but_not_with_their_order() -> None:
    def key(rows: np.ndarray, centroids: np.ndarray = CENTROIDS) -> str:
        return str(of(rows).table(centroids, np.array([0]))["key"][0])

    rows = assigned([0, 0, 0], [1, 2, 3])
    assert len(key(rows)) == 16
    assert key(rows) == key(rows[::-1])
    assert key(rows) != key(rows[:2])
    assert key(rows) != key(assigned([0, 0, 0], [1, 2, 3], first=1))
    assert key(rows) != key(rows, CENTROIDS + 1)


def test_thirty_random_members_are_shown_the_same_however_rows_are_cut() -> None:
    rows = assigned([0, 1] * 500, [1.0] * 1_000)
    numbers = np.arange(3)
    whole = of(rows).members(numbers)
    pieces = of(rows[:77], rows[77:500], rows[500:]).members(numbers)
    assert np.array_equal(whole, pieces)
    assert np.bincount(whole["cluster"]).tolist() == [SHOWN, SHOWN]
    assert (whole["row"] % 2 == whole["cluster"]).all()
    # Spread over all rows and not the first or the nearest.
    assert 300 < whole["row"].mean() < 700
    other = of(rows, seed=1).members(numbers)
    assert len(set(whole["row"]) & set(other["row"])) < 20


def test_a_small_cluster_shows_all_its_members() -> None:
    found = of(assigned([0, -1, 0], [1, np.nan, 2])).members(np.arange(3))
    assert sorted(found["row"].tolist()) == [0, 2]
    assert summary.MEMBER.names == found.dtype.names
