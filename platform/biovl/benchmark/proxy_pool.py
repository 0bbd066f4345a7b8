"""Selection of a pool of public images of one modality, by example images or text queries.

1. near        the public images that are nearest to any of the seeds are candidates
2. consistent  candidates whose caption agrees most with the image are kept

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, "Privacy-preserving proprietary data
    analysis": 1,000 seeds, the nearest 100,000 images, of which the 10 % that are most consistent
    with their captions are kept. It does not say how the images near several seeds are combined:
    here the similarity of an image to the seeds is that to the nearest one.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from biovl.benchmark.datasets import Pairs
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.ranks import TIE
from biovl.core.errors import ConfigError
from biovl.index.search import Index

# Shapes: S seeds, P private images, Q public ones, C candidates, K neighbours, D embedding.

UNREADABLE = "image is not readable"
FAR = "farther from the seeds than the candidates"
INCONSISTENT = "less consistent with its caption than those kept"

_TILE = 1 << 15
_ROWS = 256
_COLUMNS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Public images nearest to the seeds, the nearest first."""

    row_C: np.ndarray
    """Row of the public image. int64."""
    seed_C: np.ndarray
    """Row of its nearest seed. int64."""
    similarity_C: np.ndarray
    """Cosine similarity to this seed. float32."""
    readable: int
    """Number of public images with an embedding, which these are chosen from."""


class Rows(Protocol):
    """Embeddings that are read by row: an array, or part of an index."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return some rows, by a slice or by their numbers."""
        ...


def near(seed_SD: np.ndarray, public_QD: Rows, count: int, *, seed: int) -> Candidates:
    """Return the public images nearest to any seed.

    Args:
        seed_SD: Unit embeddings of seeds, without NaN.
        public_QD: Unit embeddings of the public images, any float type, may be memory-mapped; NaN
            rows are no candidates.
        count: Maximum number of candidates.
        seed: Seed of the random choice between equally near images.
    """
    similarity_Q = np.empty(len(public_QD), np.float32)
    seed_Q = np.empty(len(public_QD), np.int64)
    seed_DS = np.ascontiguousarray(seed_SD.T, np.float32)
    for first in range(0, len(public_QD), _TILE):
        rows = slice(first, min(first + _TILE, len(public_QD)))
        near_qS = np.asarray(public_QD[rows], np.float32) @ seed_DS
        seed_Q[rows] = near_qS.argmax(1)
        similarity_Q[rows] = near_qS.max(1)
    row_C = largest(similarity_Q, count, seed=seed)
    return Candidates(
        row_C=row_C,
        seed_C=seed_Q[row_C],
        similarity_C=similarity_Q[row_C],
        readable=int(np.isfinite(similarity_Q).sum()),
    )


def largest(values_N: np.ndarray, count: int, *, seed: int) -> np.ndarray:
    """Return the rows of the largest values, the largest first; ties in random order. int64.

    NaN values are left out.
    """
    # Rounded to steps of TIE: otherwise rounding errors would decide ties.
    steps_N = np.rint(np.asarray(values_N, np.float64) / TIE)
    order_N = np.random.default_rng(seed).permutation(len(values_N))
    order_N = order_N[np.isfinite(steps_N[order_N])]
    sorted_N: np.ndarray = order_N[np.argsort(-steps_N[order_N], kind="stable")][:count]
    return sorted_N


def table(
    candidates: Candidates, ids: list[str], consistency_C: np.ndarray, is_kept_C: np.ndarray
) -> pa.Table:
    """Return the table of candidates that is published, in their order.

    Args:
        candidates: The candidates.
        ids: Their ids.
        consistency_C: Cosine similarity of each candidate's image and caption.
        is_kept_C: Whether each candidate is in the pool.
    """
    reason = pa.array([INCONSISTENT] * len(ids), mask=is_kept_C)
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "seed": pa.array(candidates.seed_C, pa.int64()),
            "similarity": pa.array(candidates.similarity_C, pa.float32()),
            "consistency": pa.array(consistency_C, pa.float32()),
            "kept": pa.array(is_kept_C),
            "left_out": reason,
        }
    )


class Indexed:
    """Embeddings of public images in an index; only requested rows are read into memory."""

    def __init__(self, uri: str, model: ModelDescription, public: Pairs) -> None:
        index = Index.open(uri)
        if index.model_fingerprint != model.fingerprint:
            raise ConfigError(f"index: {uri} was not made with the selector, {model.uri}")
        row_of = {name: row for row, name in enumerate(index.column("figure_id").to_pylist())}
        self._row_Q = np.array([row_of.get(name, -1) for name in public.ids], np.int64)
        self._vectors = index.vectors("images")

    def __len__(self) -> int:
        return len(self._row_Q)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return embeddings of some public images; NaN for those that the index lacks."""
        row_C = self._row_Q[rows]
        found_CD: np.ndarray = self._vectors[row_C]
        found_CD[row_C < 0] = np.nan
        return found_CD


def nearest(
    private_PD: np.ndarray, public_QD: np.ndarray, k: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and similarities of the k nearest public images, nearest first. Both [P, K].

    Args:
        private_PD: L2-normalised embeddings.
        public_QD: L2-normalised embeddings, at least k.
        k: Number of neighbours.
        seed: Seed of the random choice between equally near rows.
    """
    rng = np.random.default_rng(seed)
    rows, similarities = [], []
    for start in range(0, len(private_PD), _ROWS):
        some_pD = private_PD[start : start + _ROWS]
        near_pK = np.zeros((len(some_pD), 0), np.int64)
        key_pK = np.zeros((len(some_pD), 0))
        for first in range(0, len(public_QD), _COLUMNS):
            key_pq = some_pD @ public_QD[first : first + _COLUMNS].T
            # Similarities are rounded to steps of TIE; ties within a step are broken at random.
            # Otherwise rounding errors, equal in a whole column, would decide ties for all queries.
            key_pq = np.rint(key_pq.astype(np.float64) / TIE) + rng.random(key_pq.shape)
            at_pk = np.argpartition(-key_pq, min(k, key_pq.shape[1]) - 1, axis=1)[:, :k]
            key_pK = np.concatenate([key_pK, np.take_along_axis(key_pq, at_pk, 1)], axis=1)
            near_pK = np.concatenate([near_pK, first + at_pk], axis=1)
            best_pk = np.argsort(-key_pK, axis=1, kind="stable")[:, :k]
            key_pK = np.take_along_axis(key_pK, best_pk, 1)
            near_pK = np.take_along_axis(near_pK, best_pk, 1)
        rows.append(near_pK)
        similarities.append(np.einsum("pd,pkd->pk", some_pD, public_QD[near_pK]))
    return np.concatenate(rows), np.concatenate(similarities)
