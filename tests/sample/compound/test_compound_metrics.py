"""Measures of panels and labels, with numbers worked out by hand."""

import pytest

from biovl.images.boxes import Box
from biovl.sample.compound.metrics import (
    Counts,
    Scored,
    average_precision,
    box_counts,
    match_boxes,
)

LEFT, RIGHT = Box(0, 0, 10, 10), Box(10, 0, 20, 10)
BOTH = Box(0, 0, 20, 10)


def test_half_of_the_area_of_both_is_enough_and_less_is_not() -> None:
    # 100 shared of 200; then 100 of 210.
    assert box_counts([BOTH], [LEFT]) == Counts(1, 1, 1)
    assert box_counts([Box(0, 0, 21, 10)], [LEFT]) == Counts(0, 1, 1)


def test_the_best_pair_is_made_first() -> None:
    # The first box overlaps LEFT by 80 of 120, the second is it.
    assert match_boxes([Box(2, 0, 12, 10), LEFT], [LEFT]) == {1: 0}


def test_f1_is_the_harmonic_mean() -> None:
    counts = Counts(2, 3, 5)
    assert counts.precision == pytest.approx(2 / 3)
    assert counts.recall == pytest.approx(2 / 5)
    assert counts.f1 == pytest.approx(2 * (2 / 3) * (2 / 5) / (2 / 3 + 2 / 5))
    assert Counts(0, 0, 0).f1 == 1.0
    assert Counts(1, 1, 1) + Counts(0, 2, 0) == Counts(1, 3, 1)


def test_average_precision_is_the_area_under_precision_over_recall() -> None:
    # Ranked: hit, miss, hit; two true boxes. Recall 1/2 at precision 1, then 1 at 2/3.
    figures = [
        ([Scored(LEFT, 0.9), Scored(Box(50, 50, 60, 60), 0.8)], [LEFT]),
        ([Scored(RIGHT, 0.7)], [RIGHT]),
    ]
    assert average_precision(figures) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_average_precision_counts_a_second_box_on_the_same_panel_as_wrong() -> None:
    # Hit, miss; one of two true boxes found: precision 1 up to recall 1/2.
    figures = [([Scored(LEFT, 0.9), Scored(Box(0, 0, 10, 9), 0.8)], [LEFT, RIGHT])]
    assert average_precision(figures) == 0.5
    assert average_precision([([], [LEFT])]) == 0.0


def test_a_later_better_precision_counts_for_lower_recalls() -> None:
    # Miss, hit, hit: precision 0, 1/2, 2/3; the best beyond is 2/3 everywhere.
    figures = [
        ([Scored(Box(50, 0, 60, 9), 0.9), Scored(LEFT, 0.8), Scored(RIGHT, 0.7)], [LEFT, RIGHT])
    ]
    assert average_precision(figures) == pytest.approx(2 / 3)
