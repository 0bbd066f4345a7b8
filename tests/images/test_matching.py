"""Who is who among printed labels, panels and the labels of a caption."""

import pytest

from biovl.images.boxes import Box, PanelFound
from biovl.images.matching import (
    column_order,
    cut_axes,
    match,
    matched_names,
    reading_order,
    skipped_letters,
)

GRID = [Box(0, 0, 90, 90), Box(100, 0, 190, 90), Box(0, 100, 90, 190), Box(100, 100, 190, 190)]


def panels(*labels: str | None, boxes: list[Box] = GRID) -> list[PanelFound]:
    return [
        PanelFound(box, label, None, 0.8, "labels")
        for box, label in zip(boxes, labels, strict=False)
    ]


def names(found: list[PanelFound], expected: list[str]) -> list[str | None]:
    return [panel.label for panel in match(found, expected).panels]


@pytest.mark.parametrize(
    ("read", "expected", "how"),
    [
        ("A", "A", "exact"),
        ("(A)", "A", "written alike"),
        ("b.", "b", "written alike"),
        ("A.i", "Ai", "written alike"),
        ("A’", "A'", "written alike"),
        ("A′", "A'", "written alike"),
        ("Ａ", "A", "written alike"),
        ("c", "C", "in either case"),
        ("II", "ii", "in either case"),
        ("0", "O", "looks alike"),
        ("l", "I", "looks alike"),
        ("1", "l", "looks alike"),
        ("A", "А", "looks alike"),
        ("B", "В", "looks alike"),
    ],
)
def test_names_are_compared_from_exact_to_look_alike(read: str, expected: str, how: str) -> None:
    assert matched_names([read], [expected]) == {0: (expected, how)}


def test_other_letters_are_other_labels() -> None:
    assert matched_names(["A", "D"], ["B", "C"]) == {}


def test_a_step_decides_only_where_one_answer_is_left() -> None:
    # Two texts that could be "a" but for their case are neither.
    assert matched_names(["A", "A"], ["a", "b"]) == {}
    # Where both cases are labels, each is itself.
    assert matched_names(["a", "A"], ["A", "a"]) == {0: ("a", "exact"), 1: ("A", "exact")}


def test_panels_take_the_captions_spelling() -> None:
    assert names(panels("A", "(b)", "C", "d"), ["a", "b", "c", "d"]) == ["a", "b", "c", "d"]


def test_a_panel_without_a_label_takes_the_one_that_is_left_in_its_place() -> None:
    matched = match(panels("A", None, "C", "D"), ["A", "B", "C", "D"])
    assert [panel.label for panel in matched.panels] == ["A", "B", "C", "D"]
    assert [panel.how for panel in matched.panels] == ["exact", "order", "exact", "exact"]
    assert matched.confidence < match(panels("A", "B", "C", "D"), ["A", "B", "C", "D"]).confidence


def test_columns_are_read_down_where_labels_say_so() -> None:
    assert names(panels("A", "C", None, "D"), ["A", "B", "C", "D"]) == ["A", "C", "B", "D"]


def test_letters_stand_as_in_the_alphabet_whatever_the_captions_order() -> None:
    # "(A, C) At rest. (B, D) In motion."
    assert names(panels("A", "B", "C", None), ["A", "C", "B", "D"]) == ["A", "B", "C", "D"]


def test_nothing_is_guessed_where_labels_stand_in_no_order() -> None:
    matched = match(panels("D", None, "A", "B"), ["A", "B", "C", "D"])
    assert [panel.label for panel in matched.panels] == ["D", None, "A", "B"]
    assert matched.missing == ("C",)


def test_nothing_is_guessed_where_the_counts_differ() -> None:
    matched = match(panels("A", "B", None), ["A", "B", "C", "D"])
    assert [panel.label for panel in matched.panels] == ["A", "B", None]
    assert matched.missing == ("C", "D")


@pytest.mark.parametrize(
    ("named", "skipped"),
    [
        ("ABD", "c"),
        ("bc", "a"),
        ("aCf", ""),
        ("ABC", ""),
        ("AZ", ""),
        (["A", "B", "D1"], ""),
        ("αγ", ""),
        ("", ""),
    ],
)
def test_letters_are_skipped_where_most_are_named(named: str | list[str], skipped: str) -> None:
    assert skipped_letters(list(named)) == list(skipped)


def test_the_place_of_a_skipped_letter_stays_free() -> None:
    assert names(panels("A", None, None, "D"), ["A", "B", "D"]) == ["A", "B", None, "D"]
    assert names(panels(None, "B", None, "D"), ["B", "D"]) == [None, "B", None, "D"]


def test_a_label_twice_is_a_conflict() -> None:
    matched = match(panels("A", "A", "B", "C"), ["A", "B", "C"])
    assert matched.conflict == "two panels bear the label A"
    assert matched.confidence == 0


def test_too_few_labels_with_a_panel_are_a_conflict() -> None:
    matched = match(panels("x", "y", "A", "z"), ["A", "B", "C", "D"])
    assert matched.conflict == "1 of 4 labels found their panel"


def test_a_whole_figure_has_no_conflict() -> None:
    whole = [PanelFound(Box(0, 0, 9, 9), None, None, 1.0, "whole")]
    matched = match(whole, [])
    assert matched.conflict is None
    assert matched.panels[0].label is None


@pytest.mark.parametrize(
    ("boxes", "expected", "result"),
    [
        (GRID[:2], ["left", "right"], ["left", "right"]),
        (GRID[:2], ["right", "left"], ["left", "right"]),
        ([GRID[0], GRID[2]], ["top", "bottom"], ["top", "bottom"]),
        (
            GRID,
            ["upper left", "upper right", "lower left", "lower right"],
            ["upper left", "upper right", "lower left", "lower right"],
        ),
        (
            [Box(0, 0, 30, 30), Box(40, 0, 70, 30), Box(80, 0, 110, 30)],
            ["left", "middle", "right"],
            ["left", "middle", "right"],
        ),
        # What the caption says is not what the figure shows.
        (GRID[:2], ["top", "bottom"], [None, None]),
    ],
)
def test_words_for_places_are_looked_up_in_the_figure(
    boxes: list[Box], expected: list[str], result: list[str | None]
) -> None:
    assert names(panels(None, None, None, None, boxes=boxes), expected) == result


@pytest.mark.parametrize(
    ("expected", "axes"),
    [
        (["left", "right"], (0,)),
        (["left", "middle", "right"], (0,)),
        (["top panel", "bottom panel"], (1,)),
        (["upper left", "upper right"], (0, 1)),
        (["A", "B"], (0, 1)),
        (["left", "B"], (0, 1)),
        ([], (0, 1)),
    ],
)
def test_words_for_places_tell_how_a_figure_is_cut(
    expected: list[str], axes: tuple[int, ...]
) -> None:
    assert cut_axes(expected) == axes


def test_rows_are_read_from_the_left_and_their_panels_may_differ_in_height() -> None:
    boxes = [Box(100, 5, 190, 60), Box(0, 0, 90, 90), Box(0, 100, 190, 190)]
    assert reading_order(boxes) == [1, 0, 2]
    assert column_order(GRID) == [0, 2, 1, 3]


def test_rows_beside_a_tall_panel_are_read_one_after_the_other() -> None:
    tall = Box(0, 0, 90, 190)
    # Cropped to its ink, the lower panel begins further left.
    right = [Box(104, 0, 190, 90), Box(100, 100, 190, 190)]
    assert reading_order([tall, *right]) == [0, 1, 2]
    assert names(panels("A", None, None, boxes=[tall, *right]), ["A", "B", "C"]) == ["A", "B", "C"]
    grid = [box.moved(100, 0) for box in GRID]
    assert reading_order([tall, *grid]) == [0, 1, 2, 3, 4]
    wide = Box(0, 0, 190, 90)
    assert column_order([wide, Box(0, 104, 90, 190), Box(100, 100, 190, 190)]) == [0, 1, 2]
