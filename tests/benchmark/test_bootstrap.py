"""Intervals against SciPy's own, and where there is nothing to resample."""

import numpy as np
import pytest
import scipy.stats

from biovl.benchmark import bootstrap
from biovl.benchmark.bootstrap import estimate, median, paired_difference


def interval(values: np.ndarray, *statistic: bootstrap.Statistic, **how: int) -> tuple:
    found = estimate(values, *statistic, **how)
    return found.low, found.high


def test_the_ends_are_those_scipy_takes_from_the_same_resamples() -> None:
    values = np.random.default_rng(3).exponential(size=40)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=1_000, rng=0)
    left_out = np.array([np.delete(values, n).mean() for n in range(40)])
    ends = bootstrap._bca(values.mean(), theirs.bootstrap_distribution, left_out, np.ones(40))
    assert ends == pytest.approx(tuple(theirs.confidence_interval), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "function"),
    [
        (np.random.default_rng(5).exponential(size=60), "mean"),
        (np.random.default_rng(6).integers(0, 4, 61), "mean"),
        (np.random.default_rng(7).exponential(size=400), "median"),
    ],
)
def test_intervals_are_scipys_up_to_the_draw(values: np.ndarray, function: str) -> None:
    theirs = scipy.stats.bootstrap((values,), getattr(np, function), n_resamples=20_000, rng=1)
    ours = interval(values, getattr(bootstrap, function), resamples=20_000)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


def test_an_interval_is_numbers_where_scipys_is_none() -> None:
    # Leaving one of these out never changes the median.
    assert interval(np.array([0] * 10 + [1] * 20 + [2] * 10), median) == (1, 1)


def test_leaving_groups_out_accelerates_as_leaving_examples_out() -> None:
    values = np.random.default_rng(0).exponential(size=6_000)
    drawn, count = np.unique(values, return_counts=True)
    grouped, _ = bootstrap._jackknife(drawn, count, bootstrap.mean, 0)
    assert len(grouped) == 1_000
    off = (values.mean() - values) / (len(values) - 1)
    exact = -(off**3).sum() / (6 * (off**2).sum() ** 1.5)
    apart = grouped.mean() - grouped
    assert (apart**3).sum() / (6 * (apart**2).sum() ** 1.5) == pytest.approx(exact, rel=0.35)


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert median(np.array([4, 1, 2]), np.array([[1.0, 1, 1], [1, 2, 1], [0, 1, 1]])).tolist() == [
        2,
        1.5,
        1.5,
    ]
    values = np.random.default_rng(0).integers(0, 9, 50)
    assert median(values, np.ones((1, 50)))[0] == np.median(values)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for seed in range(200):
        low, high = interval(rng.random(100) < 0.3, resamples=400, seed=seed)
        covered += low <= 0.3 <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_what_cannot_vary_is_its_own_interval() -> None:
    for values in (np.array([0.25]), np.full(9, 0.1), np.ones(1_000)):
        found = estimate(values)
        assert found.low == found.high == found.value == pytest.approx(values[0])


def test_the_seed_decides_and_the_order_does_not() -> None:
    values = np.random.default_rng(1).random(50)
    assert interval(values) == interval(values[::-1])
    assert interval(values) != interval(values, seed=1)


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="examples"):
        interval(np.zeros(0))


def test_memory_of_many_examples_is_bounded_by_chunks() -> None:
    values = np.random.default_rng(0).random(50_000)
    low, high = interval(values, resamples=200)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 50_000**0.5, rel=0.2)


def test_a_pair_is_judged_on_the_same_resamples() -> None:
    rng = np.random.default_rng(2)
    hard = rng.random(400)
    ours, theirs = hard + rng.normal(0.02, 0.05, 400), hard
    found = paired_difference(ours, theirs)
    assert found.value == pytest.approx((ours - theirs).mean())
    assert (found.low, found.high) == pytest.approx(interval(ours - theirs), abs=0.002)
    assert found.low > 0
    assert found.p == 1 / 1_001
    # Each for itself, the intervals overlap.
    assert interval(ours)[0] < interval(theirs)[1]


def test_a_model_does_not_differ_from_itself() -> None:
    values = np.random.default_rng(0).random(30)
    found = paired_difference(values, values)
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)
    with pytest.raises(ValueError, match=r"\(30,\).*\(29,\)"):
        paired_difference(values, values[1:])


def test_p_is_rarely_small_where_models_are_alike() -> None:
    rng = np.random.default_rng(4)
    small = 0
    for seed in range(200):
        ours, theirs = rng.random((2, 80)) < 0.5
        small += paired_difference(ours * 1, theirs * 1, resamples=300, seed=seed).p < 0.05
    assert small / 200 < 0.10


def test_p_is_not_small_for_a_few_pairs() -> None:
    ours = np.array([0.9, 0.8, 0.7, 0.9, 0.8])
    assert paired_difference(ours[:2], ours[:2] - 0.5).p == 0.5
    assert paired_difference(ours, ours - 0.5).p == 2 / 2**5
    # Pairs in which the models are equal say nothing.
    same = np.concatenate([ours, np.ones(50)])
    assert paired_difference(same, same - 0.5 * (same < 1)).p == 2 / 2**5


@pytest.mark.parametrize("count", [5, 10, 11, 200])
def test_p_of_a_mean_is_that_of_scipys_permutations(count: int) -> None:
    ours, theirs = np.random.default_rng(count).integers(0, 5, (2, count)) / 4
    exact = scipy.stats.permutation_test(
        (ours, theirs),
        lambda one, other, axis: (one - other).mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=0,
    )
    found = paired_difference(ours, theirs, resamples=20_000)
    assert found.p == pytest.approx(exact.pvalue, abs=1e-12 if count <= 10 else 0.01)
