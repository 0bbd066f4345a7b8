"""Disagreement as in table 9 of BIOMEDICA, and alpha against published examples."""

import pytest

from biovl.concepts.agreement import disagreement, krippendorff_alpha, summary
from tests.concepts.ballots import PLOTS, vote


def columns(*rows: str) -> list[list[str]]:
    """Return what is said of each unit, from a row per observer; a point is nothing."""
    return [[value for value in unit if value != "."] for unit in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("answers", "percent"),
    [("a", 0), ("aaa", 0), ("aab", 33.33), ("ab", 50), ("abc", 66.67), ("abcd", 75), ("aabb", 50)],
)
def test_disagreement_is_the_share_that_is_not_with_most(answers: str, percent: float) -> None:
    assert disagreement(answers) == pytest.approx(percent, abs=0.01)


# K. Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, sections A, B and C.
@pytest.mark.parametrize(
    ("observers", "alpha"),
    [
        (["0100000010", "1110010000"], 0.095),
        (["aabbdcccedda", "babbbccceddd"], 0.692),
        (["123321412...", "1233224125.3", ".3332342251.", "12332441251."], 0.743),
    ],
)
def test_alpha_is_that_of_the_published_examples(observers: list[str], alpha: float) -> None:
    assert krippendorff_alpha(columns(*observers)) == pytest.approx(alpha, abs=0.0005)


def test_alpha_of_perfect_agreement_is_one_and_without_variety_there_is_none() -> None:
    assert krippendorff_alpha(["aa", "bbb"]) == 1
    assert krippendorff_alpha(["aa", "aaa"]) is None
    assert krippendorff_alpha(["a", "b"]) is None


def test_statistics_are_those_of_table_9_over_clusters_with_several_votes() -> None:
    clusters = [
        # Panels differ; the same concepts in another order are the same answer.
        [vote("ann", "Maps, PCR"), vote("bob", "PCR, Maps", PLOTS), vote("cem", "Maps, PCR")],
        # Who names one more gives another answer.
        [vote("ann", "Maps/map"), vote("bob", "Maps")],
        [vote("ann", "Maps"), vote("bob", "Maps")],
        [vote("ann", "Maps"), vote("bob", "Maps")],
        [vote("ann", "Tables")],
    ]
    found = summary(clusters)
    # Disagreements 33.33, 0, 0, 0: the third quartile is a quarter of the way to the largest.
    panel = {"min": 0, "max": 33.33, "mean": 8.33, "median": 0, "iqr": 8.33}
    assert found["panel"].items() >= {"clusters": 4, **panel}.items()
    # 8 + 1 values; 4 of 6 pairs of the first cluster differ: 1 - (9 - 1) * (4 / 2) / (81 - 64 - 1).
    assert found["panel"]["alpha"] == 0
    assert found["global_concepts"].items() >= {"max": 0, "iqr": 0, "alpha": 1}.items()
    assert found["local_concepts"]["max"] == 50


def test_without_votes_there_are_no_statistics() -> None:
    nothing = dict.fromkeys(["min", "max", "mean", "median", "iqr", "alpha"])
    assert summary([])["panel"] == {"clusters": 0, **nothing}
