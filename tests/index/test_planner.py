from typing import Any

import numpy as np
import pytest

from biovl.index import planner, vectors
from biovl.index.filters import Selection
from biovl.index.planner import nearest
from biovl.index.vectors import VectorIndex
from tests.index.small_index import unit

RNG = np.random.default_rng(0)
VECTORS_ND = unit(RNG, 4_000, 32).astype(np.float16)
QUERIES_QD = unit(RNG, 5, 32)


@pytest.fixture(scope="module")
def index() -> VectorIndex:
    trained = vectors.to_bytes(vectors.train("IVF64,SQfp16", VECTORS_ND))
    return VectorIndex(vectors.merge_parts(trained, [vectors.fill(trained, VECTORS_ND, 0)]))


def selected(fits_N: np.ndarray) -> Selection:
    return Selection(int(fits_N.sum()), np.packbits(fits_N, bitorder="little"))


def brute_force(query_D: np.ndarray, fits_N: np.ndarray, k: int) -> list[int]:
    scores_N = np.where(fits_N, VECTORS_ND.astype(np.float32) @ query_D, -np.inf)
    return np.argsort(-scores_N)[: min(k, int(fits_N.sum()))].tolist()


def found(index: VectorIndex, query_D: np.ndarray, k: int, chosen: Selection, **how: Any) -> Any:
    return nearest(index, VECTORS_ND, query_D, k, chosen, settings={"nprobe": 2}, **how)


@pytest.mark.parametrize("share", [0, 0.0003, 0.01, 0.3, 1])
def test_an_exact_search_is_brute_force(index: VectorIndex, share: float) -> None:
    fits_N = RNG.random(4_000) < share
    for query_D in QUERIES_QD:
        ranking, plan = found(index, query_D, 20, selected(fits_N), exact=True)
        assert ranking.rows_K.tolist() == brute_force(query_D, fits_N, 20)
        assert plan == (f"exact over {fits_N.sum()} rows" if fits_N.any() else "nothing fits")


@pytest.mark.parametrize("few_rows", [0, 2_000])
@pytest.mark.parametrize("share", [0.0005, 0.005, 0.05, 0.5, 1])
def test_k_rows_are_found_whenever_k_fit(
    index: VectorIndex, share: float, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FEW_ROWS", few_rows)
    fits_N = RNG.random(4_000) < share
    for query_D in QUERIES_QD:
        for k in (1, 20, 500, 9_999):
            ranking, _ = found(index, query_D, k, selected(fits_N))
            assert len(ranking.rows_K) == len(set(ranking.rows_K)) == min(k, fits_N.sum())
            assert fits_N[ranking.rows_K].all()
            assert (np.diff(ranking.scores_K) <= 0).all()


def test_what_fits_far_from_the_query_is_found(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FEW_ROWS", 0)
    query_D = QUERIES_QD[0]
    fits_N = np.zeros(4_000, bool)
    fits_N[np.argsort(VECTORS_ND.astype(np.float32) @ query_D)[:30]] = True
    ranking, _ = found(index, query_D, 30, selected(fits_N))
    assert sorted(ranking.rows_K) == np.flatnonzero(fits_N).tolist()


def test_one_row_that_fits_is_found(index: VectorIndex) -> None:
    fits_N = np.arange(4_000) == 1_234
    assert found(index, QUERIES_QD[0], 10, selected(fits_N))[0].rows_K.tolist() == [1_234]


@pytest.mark.parametrize(
    ("factory", "plan"),
    [
        ("SQfp16", "exact over 4000 rows"),
        ("Flat", "exact over 4000 rows"),
        ("SQ8", "codes of 4000 rows"),
        ("PCA24,Flat", "codes of 4000 rows"),
        ("PCA24,SQ8,RFlat", "codes of 4000 rows k_factor=1"),
    ],
)
def test_only_a_comparison_with_every_vector_is_called_exact(factory: str, plan: str) -> None:
    trained = vectors.to_bytes(vectors.train(factory, VECTORS_ND))
    whole = VectorIndex(vectors.merge_parts(trained, [vectors.fill(trained, VECTORS_ND, 0)]))
    everything = Selection(4_000, None)
    found = nearest(whole, VECTORS_ND, QUERIES_QD[0], 10, everything, settings={})
    assert found[1] == plan


@pytest.mark.parametrize("factory", ["PCA24,IVF32,RaBitQ,Refine(SQ8)", "IVF32_HNSW8,SQ8"])
def test_filters_are_looked_for_in_cells_of_every_kind_of_index(
    factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FEW_ROWS", 0)
    trained = vectors.to_bytes(vectors.train(factory, VECTORS_ND))
    whole = VectorIndex(vectors.merge_parts(trained, [vectors.fill(trained, VECTORS_ND, 0)]))
    fits_N = np.random.default_rng(1).random(4_000) < 0.3
    settings = {"nprobe": 16, "k_factor": 40}
    hits = 0
    for query_D in QUERIES_QD:
        ranking, plan = nearest(whole, VECTORS_ND, query_D, 10, selected(fits_N), settings=settings)
        assert plan.startswith("ivf")
        assert len(ranking.rows_K) == 10
        assert fits_N[ranking.rows_K].all()
        scores_K = VECTORS_ND[ranking.rows_K].astype(np.float32) @ query_D
        np.testing.assert_allclose(ranking.scores_K, scores_K, atol=0.02)
        hits += len(set(ranking.rows_K.tolist()) & set(brute_force(query_D, fits_N, 10)))
    assert hits >= 40
