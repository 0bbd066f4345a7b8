"""Balancing against what can be counted by hand, and against the paper's own counts."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from biovl.assemble.balance import UNLABELLED, balance_labels, cap_for, counts

PLOTS, MICROSCOPY, TABLES = "Plots and Charts", "Microscopy", "Tables"


def lists(*rows: list[str | None] | list[str] | None) -> pa.Array:
    return pa.array(rows, pa.list_(pa.string()))


def ids(number: int, per_article: int = 1) -> tuple[list[str], list[str]]:
    return [f"A{row // per_article}" for row in range(number)], [f"F{row}" for row in range(number)]


def kept(labels: pa.Array, **settings: int) -> np.ndarray:
    found = balance_labels(labels, *ids(len(labels)), **settings)
    return np.flatnonzero([name is None for name in found.over])


def test_a_row_counts_under_each_of_its_labels_and_without_one_as_unlabelled() -> None:
    found = counts(lists([PLOTS], [MICROSCOPY, PLOTS], [], None))
    assert found == {PLOTS: 2, MICROSCOPY: 1, UNLABELLED: 2}
    assert counts(lists([PLOTS, None], [None])) == {PLOTS: 1, UNLABELLED: 1}


def test_a_column_with_one_text_a_row_is_counted_alike() -> None:
    column = pa.chunked_array([pa.array(["x-ray", None]), pa.array(["x-ray"])])
    assert counts(column) == {"x-ray": 2, UNLABELLED: 1}


def test_no_label_has_more_rows_than_the_cap_and_rare_ones_keep_theirs() -> None:
    labels = lists(*[[PLOTS]] * 90, *[[MICROSCOPY]] * 7, *[None] * 20)
    rows = kept(labels, cap=10)
    assert counts(labels.take(pa.array(rows))) == {PLOTS: 10, MICROSCOPY: 7, UNLABELLED: 10}


def test_a_rare_concept_beside_a_common_one_takes_its_place_among_the_common() -> None:
    labels = lists(*[[PLOTS]] * 90, *[[MICROSCOPY, PLOTS]] * 7)
    rows = kept(labels, cap=10)
    assert counts(labels.take(pa.array(rows))) == {PLOTS: 10, MICROSCOPY: 7}


def test_the_order_of_labels_in_a_row_does_not_matter() -> None:
    labels = lists(*[[PLOTS, MICROSCOPY]] * 5, *[[MICROSCOPY, PLOTS]] * 5)
    assert len(kept(labels, cap=4)) == 4


def test_what_is_left_out_says_which_label_has_its_fill() -> None:
    found = balance_labels(lists([PLOTS], [PLOTS], [TABLES]), *ids(3), cap=1)
    assert sorted(map(str, found.over)) == ["None", "None", PLOTS]
    assert found.cap == 1


def test_the_rows_of_an_article_stay_or_go_together() -> None:
    articles, rows = ids(1_000, per_article=10)
    found = balance_labels(lists(*[[PLOTS]] * 1_000), articles, rows, cap=500)
    stays = Counter(a for a, over in zip(articles, found.over, strict=True) if over is None)
    assert sorted(stays.values()) == [10] * 50


def test_the_choice_depends_on_ids_and_seed_and_not_on_the_order_of_rows() -> None:
    labels = [[random.Random(row).choice([PLOTS, MICROSCOPY, TABLES])] for row in range(300)]
    articles, rows = ids(300, per_article=3)

    def chosen(order: list[int], seed: int) -> set[str]:
        found = balance_labels(
            lists(*(labels[row] for row in order)),
            [articles[row] for row in order],
            [rows[row] for row in order],
            cap=40,
            seed=seed,
        )
        return {rows[row] for row, over in zip(order, found.over, strict=True) if over is None}

    backwards = list(range(300))[::-1]
    assert chosen(list(range(300)), 0) == chosen(backwards, 0)
    assert chosen(list(range(300)), 0) != chosen(backwards, 1)


def test_a_target_gives_the_largest_cap_with_which_at_most_so_many_stay() -> None:
    labels = lists(*[[PLOTS]] * 90, *[[MICROSCOPY]] * 7, *[[TABLES]] * 20)
    found = balance_labels(labels, *ids(117), target=50)
    # 7 and 20 stay whole; plots up to 23.
    assert found.cap == 23
    assert len(kept(labels, target=50)) == 50


def test_a_target_that_is_not_reached_leaves_nothing_out() -> None:
    found = balance_labels(lists([PLOTS], [PLOTS]), *ids(2), target=2)
    assert found.cap is None
    assert list(found.over) == [None, None]


def test_the_size_of_the_papers_balanced_corpus_is_a_cap_of_a_million_of_each_topic() -> None:
    # BIOMEDICA, table 16, totals: they add up to 24,070,000, so each image counts once.
    below = [28_888, 35_353, 272_399, 324_265, 457_141, 525_660, 639_029, 904_632]
    above = [1_128_082, 1_928_158, 2_517_332, 2_919_995, 12_389_066]
    topics = {frozenset([f"topic {n}"]): size for n, size in enumerate(below + above)}
    expected = (8_404_992 - sum(below)) // 5
    assert cap_for(topics, 8_404_992) == expected == 1_043_525
    assert max(below) < expected < min(above)


@pytest.mark.parametrize("cap", [1, 5, 17, 60])
def test_with_random_sets_of_labels_no_cap_is_ever_broken(cap: int) -> None:
    rng = random.Random(cap)
    names = [PLOTS, MICROSCOPY, TABLES, "Maps"]
    labels = lists(*(rng.sample(names, rng.randint(0, 3)) for _ in range(400)))
    found = counts(labels.take(pa.array(kept(labels, cap=cap))))
    assert max(found.values()) <= cap


def test_without_rows_there_is_nothing_to_balance() -> None:
    assert counts(lists()) == {}
    assert len(balance_labels(lists(), [], [], cap=1).over) == 0
