"""Recall as it is told is that of the searches which are served."""

from pathlib import Path

import numpy as np
import pytest

from biovl.core.chance import retrieval_warning
from biovl.index.query import Query, QueryPart
from biovl.index.recall import (
    choose_and_score,
    halves,
    interval,
    measure_settings,
    recall_of,
    recall_of_own_images,
)
from biovl.index.search import Index
from biovl.index.vectors import VectorIndex
from tests.index.small_index import publish, unit

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
    table = measure_settings(
        VectorIndex.open(f"{uri}/images.faiss"), stored_ND, query_QD, own_Q, 0.95
    )
    told = {row.get("nprobe"): row for row in table if row.get("k_factor", 1) == 1}
    for row in told.values():
        settings = {name: row[name] for name in ("nprobe", "k_factor") if name in row}
        hits = 0
        for query_D, own in zip(query_QD, own_Q, strict=True):
            exact_N = stored_ND.astype(np.float32) @ query_D
            exact_N[own] = -2 if own >= 0 else exact_N[own]
            nearest = {f"PMC{i // 3}_f{i}" for i in np.argsort(-exact_N)[:10]}
            part = (
                QueryPart(figure_id=f"PMC{own // 3}_f{own}")
                if own >= 0
                else QueryPart(vector_D=query_D)
            )
            found = index.search(Query(parts=(part,), k=10, settings=settings)).hits
            hits += len(nearest & {hit.figure_id for hit in found})
        assert row["recall_at_10"] == pytest.approx(hits / (10 * QUERIES), abs=0.006)


def test_settings_are_chosen_and_recall_is_measured_with_different_queries(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    vectors_ND = unit(rng, COUNT, 32)
    uri = publish(tmp_path / "index", vectors_ND, factory="IVF64,SQ8")
    stored_ND = np.load(f"{uri}/images.f16.npy")
    opened = VectorIndex.open(f"{uri}/images.faiss")
    # Half of the queries are vectors of the index, which one cell finds; half are from anywhere.
    query_QD = np.empty((60, 32), np.float32)
    query_QD[::2] = vectors_ND[:30] + 0.01 * unit(rng, 30, 32)
    query_QD[1::2] = unit(rng, 30, 32)
    query_QD /= np.linalg.norm(query_QD, axis=1, keepdims=True)
    none_Q = np.full(60, -1)
    answered = choose_and_score(opened, stored_ND, query_QD, none_Q, 0.6)
    easy = measure_settings(opened, stored_ND, query_QD[::2], none_Q[::2], 0.6)
    assert answered.table == easy
    assert answered.settings == {"nprobe": easy[-1]["nprobe"]}
    hits = 0
    for query_D in query_QD[1::2]:
        scores_N = stored_ND.astype(np.float32) @ query_D
        _, rows = opened.search(query_D, 100, **answered.settings)
        hits += int((scores_N[rows[0][:10]] >= np.sort(scores_N)[-10] - 1e-5).sum())
    # Searches of too few results look into more cells.
    assert answered.recall == pytest.approx(hits / 300, abs=0.01)
    assert answered.recall < easy[-1]["recall_at_10"]
    assert answered.recall == recall_of(
        opened, stored_ND, query_QD[1::2], none_Q[1::2], answered.settings
    )


def test_one_query_is_both_halves() -> None:
    assert [one.tolist() for one in halves(1)] == [[0], [0]]
    assert [one.tolist() for one in halves(5)] == [[0, 2, 4], [1, 3]]


def test_the_interval_is_that_of_wilson() -> None:
    # Newcombe 1998, Stat Med 17:857, table I: 81 of 263, 15 of 148 and 0 of 20.
    assert interval(81 / 263, 263) == (0.2553, 0.3662)
    assert interval(15 / 148, 148) == (0.0624, 0.1605)
    assert interval(0, 20) == (0.0, 0.1611)


def test_a_model_that_does_not_know_its_images_is_warned_about() -> None:
    rng = np.random.default_rng(7)
    image_QD = unit(rng, 300, 32)
    known = recall_of_own_images(image_QD, image_QD + 0.1 * unit(rng, 300, 32))
    assert (known["pairs"], known["text_to_image_recall_at_1"]) == (300, 1.0)
    assert known["chance_recall_at_10"] == pytest.approx(1 / 30)
    assert retrieval_warning(known, "of a sample") is None
    foreign = recall_of_own_images(image_QD, unit(rng, 300, 32))
    assert retrieval_warning(foreign, "of a sample") is not None
    # A collapsed model: all images are tied.
    collapsed = recall_of_own_images(np.repeat(image_QD[:1], 300, 0), image_QD)
    assert collapsed["text_to_image_recall_at_10"] == pytest.approx(1 / 30)
    assert retrieval_warning(collapsed, "of a sample") is not None
    assert recall_of_own_images(image_QD[:3], image_QD[:3]).keys() == {
        *("pairs", "text_to_image_recall_at_1", "chance_recall_at_1")
    }
