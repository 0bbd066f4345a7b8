import re
from pathlib import Path

import faiss
import numpy as np
import pytest

from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.index import vectors
from biovl.index.vectors import VectorIndex
from tests.index.small_index import unit

FACTORIES = ["SQfp16", "IVF32,SQfp16", "IVF32_HNSW32,SQ8", "IVF32,RaBitQ,Refine(SQ8)"]


def built(factory: str, vectors_ND: np.ndarray, *starts: int) -> bytes:
    trained = vectors.to_bytes(vectors.train(factory, vectors_ND))
    ends = [*starts[1:], len(vectors_ND)]
    parts = [vectors.fill(trained, vectors_ND[a:b], a) for a, b in zip(starts, ends, strict=True)]
    return vectors.to_bytes(vectors.merge_parts(trained, parts))


@pytest.mark.parametrize(
    ("count", "profile", "factory"),
    [
        (0, "default", "SQfp16"),
        (19_999, "low_memory", "SQfp16"),
        (20_000, "default", "IVF512,SQfp16"),
        (200_000, "default", "IVF2048,SQfp16"),
        (1_000_000, "default", "IVF4096,SQfp16"),
        (1_000_001, "default", "IVF4096,SQ8"),
        (24_000_000, "default", "IVF16384_HNSW32,SQ8"),
        (46_000_000, "low_memory", "IVF32768_HNSW32,RaBitQ,Refine(SQ8)"),
    ],
)
def test_the_factory_follows_from_the_number_of_vectors(count, profile, factory) -> None:
    assert vectors.choose_factory(count, 512, profile) == factory


@pytest.mark.parametrize("dim", [512, 640, 768])
def test_low_memory_keeps_at_most_100_bytes_of_a_vector_in_memory(dim: int) -> None:
    factory = vectors.choose_factory(1_000_000, dim, "low_memory").replace("4096", "1")
    index = vectors.train(factory, unit(np.random.default_rng(0), 1_100, dim))
    base = faiss.try_extract_index_ivf(faiss.downcast_index(index.base_index))
    assert base.code_size + 8 <= 100


@pytest.mark.parametrize("factory", ["PCA32,Flat", "PCAR32,SQfp16", "PCA32,IVF4,SQ8"])
def test_fewer_dimensions_keep_products_of_vectors_with_a_large_mean(
    factory: str, tmp_path: Path
) -> None:
    # As the vectors of CLIP models are: of one cone, and of fewer dimensions than they have.
    rng = np.random.default_rng(0)
    spread_ND = rng.standard_normal((3_000, 24)) @ rng.standard_normal((24, 64))
    vectors_ND = (spread_ND + 12 * rng.standard_normal(64)).astype(np.float32)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    query_QD = vectors_ND[:20]
    index = faiss.deserialize_index(np.frombuffer(built(factory, vectors_ND, 0), np.uint8))
    faiss.write_index(index, str(tmp_path / "i.faiss"))
    scores_QK, rows_QK = VectorIndex.open(tmp_path / "i.faiss").search(query_QD, 10, nprobe=4)
    products_QN = query_QD @ vectors_ND.T
    np.testing.assert_allclose(
        scores_QK,
        np.take_along_axis(products_QN, rows_QK, 1),
        atol=0.02 if "SQ8" in factory else 2e-3,
    )
    best_QK = np.argsort(-products_QN, axis=1)[:, :10]
    same = [len(set(a) & set(b)) for a, b in zip(rows_QK, best_QK, strict=True)]
    assert np.mean(same) > (6 if "SQ8" in factory else 9)


def test_an_index_that_subtracts_the_mean_is_searched_in_the_order_of_products(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    vectors_ND = (rng.standard_normal((2_000, 32)) + 2 * rng.standard_normal(32)).astype("f4")
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    index = faiss.index_factory(32, "PCA32,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors_ND)
    index.add(vectors_ND)
    assert vectors.subtracts_mean(index)
    faiss.write_index(index, str(tmp_path / "i.faiss"))
    _, rows_QK = VectorIndex.open(tmp_path / "i.faiss").search(vectors_ND[:20], 10)
    best_QK = np.argsort(-vectors_ND[:20] @ vectors_ND.T, axis=1)[:, :10]
    assert (np.sort(rows_QK) == np.sort(best_QK)).mean() > 0.98


@pytest.mark.parametrize("factory", FACTORIES)
def test_parts_joined_are_the_index_made_at_once(factory: str) -> None:
    vectors_ND = unit(np.random.default_rng(0), 3_000, 64)
    at_once = vectors.train(factory, vectors_ND)
    at_once.add(vectors_ND)
    assert built(factory, vectors_ND, 0, 1_000, 1_001, 2_500) == vectors.to_bytes(at_once)


def test_the_number_of_threads_does_not_change_the_bytes() -> None:
    vectors_ND = unit(np.random.default_rng(0), 6_000, 64)
    found = set()
    for threads in (1, 4):
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(threads)
        found.add(built("IVF64_HNSW32,SQ8", vectors_ND, 0, 3_000))
        faiss.omp_set_num_threads(before)
    assert len(found) == 1


def test_parts_out_of_order_or_cut_short_are_refused() -> None:
    vectors_ND = unit(np.random.default_rng(0), 400, 16)
    trained = vectors.to_bytes(vectors.train("SQfp16", vectors_ND))
    part = vectors.fill(trained, vectors_ND, 100)
    with pytest.raises(ArtifactError, match=r"\b100, expected 0"):
        vectors.merge_parts(trained, [part])
    with pytest.raises(ArtifactError):
        vectors.merge_parts(trained, [vectors.fill(trained, vectors_ND, 0)[:-50]])


@pytest.mark.parametrize("factory", ["IVF65536_HNSW32,RaBitQ,Refine(SQ8)", "IVF4096,SQ8", "Flat"])
def test_a_factory_that_can_be_searched_is_taken(factory: str) -> None:
    vectors.check_factory(factory, 64)


@pytest.mark.parametrize(
    "factory", ["bogus", "HNSW32,SQ8", "LSH", "PQ8", "IDMap,Flat", "IVF64,PQ8x4fs", "IVF64,PQ7", ""]
)
def test_a_factory_that_cannot_be_joined_or_filtered_is_refused(factory: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(factory)) + ".*: ."):
        vectors.check_factory(factory, 64)


@pytest.mark.parametrize("factory", FACTORIES)
def test_an_opened_index_finds_what_comparing_with_all_finds(factory: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors_ND, queries_QD = unit(rng, 3_000, 64), unit(rng, 20, 64)
    (tmp_path / "index").write_bytes(built(factory, vectors_ND, 0))
    index = VectorIndex.open(tmp_path / "index")
    assert (index.count, index.dim) == (3_000, 64)
    scores_QK, rows_QK = index.search(queries_QD, 10, nprobe=32, k_factor=50)
    exact_QK = np.argsort(-queries_QD @ vectors_ND.T, axis=1)[:, :10]
    hits = [len(set(a) & set(b)) for a, b in zip(rows_QK, exact_QK, strict=True)]
    assert np.mean(hits) > 9
    assert (np.diff(scores_QK) <= 0).all()


@pytest.mark.parametrize("factory", FACTORIES)
def test_only_selected_rows_are_found(factory: str) -> None:
    rng = np.random.default_rng(0)
    vectors_ND = unit(rng, 2_000, 64)
    index = VectorIndex(vectors._read(built(factory, vectors_ND, 0)))
    fits_N = rng.random(2_000) < 0.05
    bitmap = np.packbits(fits_N, bitorder="little")
    _, rows_QK = index.search(vectors_ND[:5], 300, nprobe=32, rows=bitmap)
    for rows_K in rows_QK:
        assert sorted(rows_K[rows_K >= 0]) == np.flatnonzero(fits_N).tolist()
        assert (rows_K[fits_N.sum() :] == -1).all()


def test_a_query_that_is_not_finite_or_of_another_length_is_refused() -> None:
    index = VectorIndex(vectors._read(built("Flat", unit(np.random.default_rng(0), 5, 8), 0)))
    with pytest.raises(BiovlError, match="NaN"):
        index.search(np.full(8, np.nan), 1)
    with pytest.raises(BiovlError, match="8 dimensions"):
        index.search(np.ones(9), 1)


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"no index at all")
    with pytest.raises(ArtifactError, match=str(tmp_path / "index")):
        VectorIndex.open(tmp_path / "index")


def test_comparing_halves_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    vectors_ND, query_QD = unit(rng, 500, 40).astype(np.float16), unit(rng, 3, 40)
    scores_QK, rows_QK = vectors.exact_search(vectors_ND, query_QD, 500)
    expected_QN = query_QD @ vectors_ND.astype(np.float32).T
    np.testing.assert_allclose(
        scores_QK, np.take_along_axis(expected_QN, rows_QK, axis=1), atol=1e-6
    )
