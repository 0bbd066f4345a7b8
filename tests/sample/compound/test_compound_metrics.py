"""Measures of panels and labels, with numbers worked out by hand."""

import pytest

from biovl.images.boxes import Box
from biovl.sample.compound.metrics import (
    Counts,
    Scored,
    alignment_counts,
    average_precision,
    box_counts,
    imageclef_accuracy,
    match_boxes,
)

LEFT, RIGHT = Box(0, 0, 10, 10), Box(10, 0, 20, 10)
BOTH = Box(0, 0, 20, 10)


def test_imageclef_divides_by_the_candidates_area_so_tiny_boxes_win() -> None:
    tiny = [Box(4, 4, 6, 6), Box(14, 4, 16, 6)]
    assert imageclef_accuracy(tiny, [LEFT, RIGHT]) == 1.0
    assert box_counts(tiny, [LEFT, RIGHT]).hits == 0


@pytest.mark.parametrize(
    ("found", "true", "accuracy"),
    [
        ([LEFT, RIGHT], [LEFT, RIGHT], 1.0),
        # Half of the candidate lies in either panel: less than two thirds.
        ([BOTH], [LEFT, RIGHT], 0.0),
        # One of two candidates matches the only panel.
        ([LEFT, RIGHT], [LEFT], 0.5),
        # 7 of 10 columns of the candidate lie in the left panel.
        ([Box(3, 0, 13, 10)], [LEFT, RIGHT], 0.5),
        ([], [LEFT], 0.0),
    ],
)
def test_imageclef_accuracy_of_a_figure(found: list[Box], true: list[Box], accuracy: float) -> None:
    assert imageclef_accuracy(found, true) == accuracy


def test_a_candidate_counts_once_in_imageclef() -> None:
    # Both true panels lie where the one candidate does.
    assert imageclef_accuracy([LEFT], [LEFT, Box(0, 0, 10, 9)]) == 0.5


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


def test_alignment_needs_the_box_and_the_label() -> None:
    true = [("A", LEFT), (None, RIGHT)]
    assert alignment_counts([("A", LEFT), (None, RIGHT)], true) == Counts(2, 2, 2)
    assert alignment_counts([("B", LEFT), ("C", RIGHT)], true) == Counts(0, 2, 2)
    assert alignment_counts([("A", BOTH)], true) == Counts(1, 1, 2)
