"""Recall as it is told is that of the searches which are served."""

from pathlib import Path

import numpy as np
import pytest

from biovl.indexing.evaluation import measured
from biovl.retrieval.opened import Index
from biovl.retrieval.query import Part, Query
from biovl.retrieval.vectors import VectorIndex
from tests.retrieval.small_index import publish, unit

COUNT, QUERIES = 4_000, 40


@pytest.mark.parametrize("factory", ["IVF32,SQ8", "IVF32,RaBitQ,Refine(SQ8)", "RaBitQ"])
@pytest.mark.parametrize("is_own", [True, False])
def test_recall_is_that_of_searches_as_they_are_served(
    factory: str, is_own: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    vectors_ND = unit(rng, COUNT, 32)
    rows = rng.choice(COUNT, QUERIES, replace=False)
    query_QD = vectors_ND[rows] if is_own else unit(rng, QUERIES, 32)
    own_Q = rows if is_own else np.full(QUERIES, -1)
    uri = publish(tmp_path / "index", vectors_ND, factory=factory)
    index = Index.open(uri)
    stored_ND = np.load(f"{uri}/images.f16.npy")
    table = measured(VectorIndex.open(f"{uri}/images.faiss"), stored_ND, query_QD, own_Q, 0.95)
    told = {row.get("nprobe"): row for row in table if row.get("k_factor", 1) == 1}
    for row in told.values():
        settings = {name: row[name] for name in ("nprobe", "k_factor") if name in row}
        hits = 0
        for query_D, own in zip(query_QD, own_Q, strict=True):
            exact_N = stored_ND.astype(np.float32) @ query_D
            exact_N[own] = -2 if own >= 0 else exact_N[own]
            nearest = {f"PMC{i // 3}_f{i}" for i in np.argsort(-exact_N)[:10]}
            part = Part(figure_id=f"PMC{own // 3}_f{own}") if own >= 0 else Part(vector_D=query_D)
            found = index.search(Query(parts=(part,), k=10, settings=settings)).hits
            hits += len(nearest & {hit.figure_id for hit in found})
        assert row["recall_at_10"] == pytest.approx(hits / (10 * QUERIES), abs=0.006)
