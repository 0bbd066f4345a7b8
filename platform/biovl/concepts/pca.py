"""Principal components from sums over blocks, equal to scikit-learn's on all rows.

Each block is summarized by its row count, mean and scatter about the mean, in float64. Two
summaries can be merged without reading the rows again (Chan, Golub and LeVeque 1983). Raw sums of
squares would lose all digits when the mean is large.
"""

import io
from dataclasses import dataclass

import numpy as np

from biovl.core.errors import ArtifactError, ConfigError

# Shapes: N rows, D embedding, C components.


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Count, mean and scatter matrix of a set of rows."""

    count: int
    mean_D: np.ndarray
    """Mean of each dimension; zeros without rows. float64."""
    scatter_DD: np.ndarray
    """Sum of outer products of the centered rows, float64."""


def moments(vectors_ND: np.ndarray) -> Moments:
    """Return the moments of a block of rows, float64."""
    rows_ND = vectors_ND.astype(np.float64)
    if not len(rows_ND):
        return empty_moments(rows_ND.shape[1])
    mean_D = rows_ND.mean(axis=0)
    rows_ND -= mean_D
    return Moments(count=len(rows_ND), mean_D=mean_D, scatter_DD=rows_ND.T @ rows_ND)


def empty_moments(dim: int) -> Moments:
    """Return the moments of an empty set of vectors with ``dim`` dimensions."""
    return Moments(count=0, mean_D=np.zeros(dim), scatter_DD=np.zeros((dim, dim)))


def merge(left: Moments, right: Moments) -> Moments:
    """Return the moments of the union of two sets of rows."""
    if not left.count or not right.count:
        return left if left.count else right
    count = left.count + right.count
    apart_D = right.mean_D - left.mean_D
    between_DD = np.outer(apart_D, apart_D) * (left.count * right.count / count)
    return Moments(
        count=count,
        mean_D=left.mean_D + apart_D * (right.count / count),
        scatter_DD=left.scatter_DD + right.scatter_DD + between_DD,
    )


@dataclass(frozen=True, kw_only=True)
class PCA:
    """Principal components, by decreasing variance. All float64."""

    mean_D: np.ndarray
    components_CD: np.ndarray
    variance_D: np.ndarray
    """Variance of every component, including dropped ones: for the scree plot."""

    def project(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Return the coordinates of rows, float32, shape [N, C]."""
        centred_ND = vectors_ND.astype(np.float64) - self.mean_D
        projected: np.ndarray = (centred_ND @ self.components_CD.T).astype(np.float32)
        return projected

    @property
    def explained(self) -> float:
        """Share of the variance in the selected components; 1 if there is no variance."""
        total = float(self.variance_D.sum())
        return float(self.variance_D[: len(self.components_CD)].sum()) / total if total else 1.0


def fit(found: Moments, components: int | float) -> PCA:
    """Return the principal components of rows from their moments.

    The sign of a component makes its largest coefficient positive, as in scikit-learn.

    Args:
        found: Moments of all rows, at least one.
        components: Number of components; below 1, the minimum share of the variance.

    Raises:
        ConfigError: If there are more components than dimensions.
    """
    dim = len(found.mean_D)
    if components > dim:
        raise ConfigError(
            f"components is {components:g}, but an embedding has {dim} dimensions: choose at most "
            f"{dim}"
        )
    variance_D, vectors_DD = np.linalg.eigh(found.scatter_DD / max(found.count - 1, 1))
    # Rounding can make a zero variance negative.
    variance_D = np.maximum(variance_D[::-1], 0.0)
    components_DD = vectors_DD.T[::-1]
    largest = np.abs(components_DD).argmax(axis=1)
    signs_D = np.sign(components_DD[np.arange(dim), largest])
    count = int(components) if components >= 1 else _enough(variance_D, float(components))
    return PCA(
        mean_D=found.mean_D,
        components_CD=np.ascontiguousarray((components_DD * signs_D[:, None])[:count]),
        variance_D=variance_D,
    )


def _enough(variance_D: np.ndarray, share: float) -> int:
    """Return the number of components with a share of the variance."""
    sums = np.cumsum(variance_D)
    return min(int(np.searchsorted(sums, share * sums[-1])) + 1, len(sums))


def to_bytes(pca: PCA) -> bytes:
    """Return ``pca.npz``: mean [D], components [C, D], variance [D]."""
    stream = io.BytesIO()
    np.savez(stream, mean=pca.mean_D, components=pca.components_CD, variance=pca.variance_D)
    return stream.getvalue()


def from_bytes(data: bytes) -> PCA:
    """Return a PCA from the bytes that ``to_bytes`` made.

    Raises:
        ArtifactError: If the bytes are not a PCA.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return PCA(
                mean_D=stored["mean"],
                components_CD=stored["components"],
                variance_D=stored["variance"],
            )
    except (ValueError, KeyError, OSError) as error:
        raise ArtifactError(f"not a PCA file of biovl: {error}") from error
