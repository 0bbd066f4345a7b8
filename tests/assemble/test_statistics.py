import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biovl.assemble.statistics import statistics
from biovl.assemble.tally import ValueCounts, merge, tally
from tests.assemble.corpora import HARVESTED, pair, pairs


def stats_of(rows: list[dict[str, Any]], **dropped: int) -> dict[str, Any]:
    return statistics(tally(pairs(rows)), harvested=HARVESTED, dropped=dropped)


def random_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Pairs of a few articles, in any order, so that articles fall into several pieces."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        article = rng.randrange(1 + count // 3)
        tokens = rng.randrange(700)
        rows.append(
            pair(
                f"A{article}",
                split=("train", "val", "test")[article % 3],
                license=rng.choice(["CC-BY-4.0", "CC0-1.0", None]),
                published=(None, "2011", "2012-07", "1999-01-31")[article % 4],
                journal=f"Journal {article % 5}",
                language=("en", None)[article % 2],
                mesh_terms=(None, [], ["Brain", "Mice"], ["Mice"])[article % 4],
                caption_tokens=tokens,
                text_tokens=tokens + number % 2,
                width_px=rng.randrange(1, 4000),
                height_px=rng.randrange(1, 4000),
                mention_count=number % 3,
                mention_chars=100 * (number % 3),
                size=512 * number,
            )
        )
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_pieces_in_any_order_give_the_statistics_of_the_whole(seed: int) -> None:
    rows = random_rows(60, seed)
    whole = stats_of(rows)
    random.Random(seed).shuffle(rows)
    cuts = sorted(random.Random(seed).choices(range(61), k=7))
    pieces = [
        tally(pairs(rows[start:end])) for start, end in zip([0, *cuts], [*cuts, 60], strict=True)
    ]
    partial = merge([merge(pieces[:3]), merge([]), *pieces[3:]])
    assert statistics(partial, harvested=HARVESTED, dropped={}) == whole


def test_quantiles_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 10, 101):
        numbers = rng.integers(0, 40, count)
        for share in (0, 0.25, 0.5, 0.75, 1):
            assert ValueCounts.of(numbers).quantile(share) == pytest.approx(
                np.quantile(numbers, share)
            )


def test_a_summary_holds_what_table_7_of_biomedica_does() -> None:
    found = stats_of([pair(f"A{n}", caption_chars=n) for n in (1, 2, 3, 4, 100)])
    assert found["lengths"]["caption_chars"] == {
        "count": 5,
        "min": 1,
        "max": 100,
        "mean": 22.0,
        "std": pytest.approx(39.0128, abs=1e-4),
        "median": 3.0,
        "first_quartile": 2.0,
        "third_quartile": 4.0,
        "iqr": 2.0,
        "total": 110,
    }


def test_areas_of_many_huge_images_do_not_overflow() -> None:
    huge = ValueCounts(np.array([2**40]), np.array([2**30]))
    assert huge.total() == 2**70


def test_a_window_of_77_holds_75_tokens_of_a_text() -> None:
    found = stats_of([pair("A", caption_tokens=75), pair("A", caption_tokens=76)])
    assert found["windows"]["caption"]["77"] == {
        "texts_truncated": 1,
        "share_of_texts_truncated": 0.5,
        "tokens_wasted": 1,
        "share_of_tokens_wasted": 1 / 151,
    }


def test_histograms_add_up_to_the_tokens_and_the_wasted_tokens() -> None:
    found = stats_of([*random_rows(60, 1), pair("B", caption_tokens=12_389)])
    histogram = found["token_histograms"]["caption"]
    assert sum(histogram["texts"]) == 61
    assert sum(histogram["tokens"]) == found["lengths"]["caption_tokens"]["total"]
    for window, lost in found["windows"]["caption"].items():
        assert sum(histogram["wasted"][window]) == lost["tokens_wasted"]


def test_a_corpus_is_counted_as_in_table_6_of_biomedica() -> None:
    rows = [
        pair("A", mention_count=2, size=1000),
        pair("A", mention_count=1, size=500, caption_chars=0),
        pair("B", split="val", mention_count=0, size=10, cut_out=True),
    ]
    found = stats_of(rows)
    assert found["corpus"] == {
        "articles": 2,
        "images": 3,
        "panels": 1,
        "captions": 2,
        "mentions": 3,
        "size_bytes": 1510,
    }
    assert found["splits"] == {
        "train": {"pairs": 2, "articles": 1, "size_bytes": 1500},
        "val": {"pairs": 1, "articles": 1, "size_bytes": 10},
    }


def test_an_article_counts_once_however_many_images_it_has() -> None:
    rows = [pair("A", full_text_chars=10), pair("A", full_text_chars=10), pair("B")]
    found = stats_of(rows)
    assert found["years"] == [{"year": "2020", "articles": 2, "images": 3}]
    assert found["journals"]["top"] == [{"journal": "eLife", "articles": 2, "images": 3}]
    assert found["lengths"]["full_text_chars"]["total"] == 10 + 5000
    assert found["figures_per_article"]["articles"] == {"1": 1, "2": 1}


def test_an_article_counts_under_every_licence_of_its_images_and_once_in_a_group() -> None:
    rows = [
        pair("A", license="CC-BY-4.0"),
        pair("A", license="CC0-1.0"),
        pair("A", license=None, license_group="other"),
        pair("B", license="CC-BY-4.0"),
    ]
    found = stats_of(rows)
    assert [(row["license"], row["articles"], row["images"]) for row in found["licenses"]] == [
        ("CC-BY-4.0", 2, 2),
        ("CC0-1.0", 1, 1),
        (None, 1, 1),
    ]
    assert found["license_groups"] == [
        {"license_group": "commercial", "articles": 2, "images": 3},
        {"license_group": "other", "articles": 1, "images": 1},
    ]


def test_mesh_terms_are_counted_by_article_and_the_first_50_listed() -> None:
    many = [f"Term {number:02}" for number in range(60)]
    rows = [
        pair("A", mesh_terms=["Brain", *many]),
        pair("A", mesh_terms=["Brain", *many]),
        pair("B", mesh_terms=["Brain"]),
        pair("C", mesh_terms=None),
        pair("D", mesh_terms=[]),
    ]
    found = stats_of(rows)["mesh_terms"]
    assert (found["articles"], found["terms"], found["distinct"]) == (2, 62, 61)
    assert len(found["top"]) == 50
    assert found["top"][:2] == [
        {"term": "Brain", "articles": 2},
        {"term": "Term 00", "articles": 1},
    ]


def test_images_are_counted_by_size_and_under_the_inputs_of_image_towers() -> None:
    rows = [pair("A", width_px=224, height_px=512), pair("A", width_px=300, height_px=223)]
    found = stats_of(rows)["image_sizes"]
    assert found["images_with_short_side_under_px"] == {"224": 1, "336": 2, "512": 2}
    # 512 = 2^9, and there are four bins in each octave.
    assert [31, 36, 1] in found["bins"]


def test_a_mention_length_is_of_images_that_are_mentioned() -> None:
    rows = [pair("A", mention_count=0, mention_chars=0), pair("A", mention_chars=40)]
    assert stats_of(rows)["lengths"]["mention_chars"]["count"] == 1


def test_drops_are_listed_from_the_most_frequent() -> None:
    assert list(stats_of([], few=1, many=7)["dropped"].items()) == [("many", 7), ("few", 1)]


def test_an_empty_corpus_has_statistics() -> None:
    found = statistics(merge([]), harvested=HARVESTED, dropped={})
    assert found["corpus"]["images"] == 0
    assert found["splits"] == {}
    assert found["lengths"]["caption_tokens"]["median"] is None
    assert found["windows"]["caption"]["77"]["share_of_tokens_wasted"] == 0


def test_statistics_are_plain_json_and_survive_it() -> None:
    found = stats_of(random_rows(20, 0))
    assert json.loads(json.dumps(found)) == found


def test_other_columns_of_an_index_and_their_order_do_not_matter() -> None:
    table = pairs(random_rows(20, 0))
    mixed = table.select(sorted(table.column_names)).append_column(
        "sharpness", pa.array([0.5] * 20)
    )
    assert statistics(tally(mixed), harvested=HARVESTED, dropped={}) == statistics(
        tally(table), harvested=HARVESTED, dropped={}
    )


def test_of_several_dates_of_an_article_the_first_counts_in_any_order() -> None:
    rows = [pair("A", published="2012"), pair("A", published="2011-05"), pair("A", published=None)]
    for order in (rows, rows[::-1]):
        assert stats_of(order)["years"] == [{"year": "2011", "articles": 1, "images": 3}]
