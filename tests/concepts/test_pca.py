"""Principal components from blocks, against all rows at once."""

from functools import reduce

import numpy as np
import pytest

from biovl.concepts import pca
from biovl.core.errors import ArtifactError, ConfigError


def rows(count: int, dim: int, *, offset: float = 0) -> np.ndarray:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(count, dim)) * np.arange(dim, 0, -1)
    return mixed @ np.linalg.qr(rng.normal(size=(dim, dim)))[0] + offset


def by_blocks(vectors: np.ndarray, size: int) -> pca.Moments:
    blocks = [vectors[first : first + size] for first in range(0, len(vectors), size)]
    return reduce(pca.merge, map(pca.moments, blocks), pca.empty_moments(vectors.shape[1]))


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
def test_blocks_give_the_covariance_of_all_rows(size: int) -> None:
    vectors = rows(300, 5)
    found = by_blocks(vectors, size)
    assert found.count == 300
    np.testing.assert_allclose(found.mean_D, vectors.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.scatter_DD / 299, np.cov(vectors.T), rtol=1e-10)


def test_a_large_mean_costs_no_digits() -> None:
    vectors = rows(300, 5)
    far = by_blocks(vectors + 1e7, 64).scatter_DD / 299
    # Sums of squares would have lost 14 of 16 digits.
    np.testing.assert_allclose(far, np.cov(vectors.T), atol=1e-5)


def test_components_are_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors = rows(500, 12, offset=3)
    theirs = decomposition.PCA(4, svd_solver="full").fit(vectors)
    ours = pca.fit(by_blocks(vectors, 64), 4)
    np.testing.assert_allclose(ours.variance_D[:4], theirs.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.components_CD, theirs.components_, atol=1e-9)
    np.testing.assert_allclose(ours.project(vectors), theirs.transform(vectors), atol=1e-5)


def test_components_are_the_directions_of_a_singular_value_decomposition() -> None:
    vectors = rows(200, 6)
    _, singular, directions = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    found = pca.fit(by_blocks(vectors, 32), 6)
    np.testing.assert_allclose(found.variance_D, singular**2 / 199, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.components_CD @ directions.T), np.eye(6), atol=1e-9)


def test_the_largest_number_of_a_component_is_positive() -> None:
    found = pca.fit(by_blocks(rows(200, 6), 32), 6).components_CD
    assert (found[np.arange(6), np.abs(found).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize(
    ("share", "count"), [(0.5, 1), (0.65, 2), (0.89, 2), (0.95, 3), (0.999, 4)]
)
def test_a_share_of_the_variance_takes_the_fewest_components(share: float, count: int) -> None:
    # Variances 6, 3, 0.9 and 0.1: shares 0.6, 0.9, 0.99 and 1.
    scatter = np.diag([6.0, 3.0, 0.9, 0.1]) * 9
    found = pca.fit(pca.Moments(count=10, mean_D=np.zeros(4), scatter_DD=scatter), share)
    assert len(found.components_CD) == count


def test_equal_rows_have_no_variance_and_all_of_it_is_kept() -> None:
    found = pca.fit(pca.moments(np.ones((5, 3))), 0.99)
    assert found.explained == 1
    assert np.array_equal(found.project(np.ones((2, 3))), np.zeros((2, len(found.components_CD))))


def test_more_components_than_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"components .*4\b.*3\b"):
        pca.fit(pca.moments(rows(10, 3)), 4)


def test_what_is_stored_is_read_back_and_nothing_else_is() -> None:
    stored = pca.to_bytes(pca.fit(pca.moments(rows(20, 3)), 2))
    assert pca.to_bytes(pca.from_bytes(stored)) == stored
    with pytest.raises(ArtifactError, match="PCA"):
        pca.from_bytes(b"something else")
