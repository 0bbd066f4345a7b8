import numpy as np
import pytest

from biovl.index.ranking import Ranking, deepening, fuse_rankings, largest


@pytest.mark.parametrize("k", [0, 1, 3, 5, 9])
def test_of_equal_scores_the_first_are_taken(k: int) -> None:
    scores = np.array([1.0, 3.0, 2.0, 3.0, 2.0])
    assert largest(scores, k).tolist() == [1, 3, 2, 4, 0][:k]


def ranked(*rows: int) -> Ranking:
    return Ranking(np.array(rows), -np.arange(len(rows), dtype=np.float32))


def test_joined_scores_are_sums_of_reciprocal_ranks() -> None:
    both = fuse_rankings({"images": ranked(7, 8), "words": ranked(9, 7)})
    assert both.rows_K.tolist() == [7, 9, 8]
    np.testing.assert_allclose(both.scores_K, [1 / 61 + 1 / 62, 1 / 61, 1 / 62])


def test_the_head_of_a_ranking_does_not_depend_on_how_much_is_asked_for() -> None:
    def rank(depth: int) -> Ranking:
        # Each depth has another order, as approximate searches do.
        rows = np.random.default_rng(depth).permutation(5_000)[:depth]
        return Ranking(rows, np.zeros(len(rows)))

    whole = deepening(rank, 3_000)
    assert len(set(whole.rows_K)) == 3_000
    for depth in (1, 99, 100, 101, 1_999, 2_001):
        assert deepening(rank, depth).rows_K.tolist() == whole.rows_K[:depth].tolist()


@pytest.mark.parametrize("count", [0, 1, 100, 101, 2_000, 2_500])
def test_a_ranking_ends_where_there_is_no_more(count: int) -> None:
    found = deepening(lambda depth: ranked(*range(min(depth, count))), 10_000)
    assert found.rows_K.tolist() == list(range(count))
