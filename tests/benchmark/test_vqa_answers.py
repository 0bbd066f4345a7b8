"""When two answers are the same, and how near they are when they are not."""

import pytest

from biovl.benchmark.vqa_answers import most_frequent, normalised, token_f1, vocabulary


@pytest.mark.parametrize(
    ("answer", "same"),
    [("Yes", "yes"), (" Left  lung.", "left lung"), (4, "4"), ("x-ray", "x-ray"), ("5%", "5%")],
)
def test_answers_are_compared_without_case_blanks_and_outer_punctuation(answer, same):
    assert normalised(answer) == same


@pytest.mark.parametrize(("one", "other"), [("ER+", "ER-"), (">5 mm", "<5 mm"), ("-1", "1")])
def test_answers_that_differ_by_a_sign_differ(one, other):
    assert normalised(one) != normalised(other)


@pytest.mark.parametrize(
    ("predicted", "answer", "f1"),
    [
        ("left lung", "left lung", 1.0),
        ("The left lung", "left lung!", 1.0),
        # One of two words right, and it is one of three: P 1/2, R 1/3.
        ("left kidney", "left upper lobe", 0.4),
        # A word said twice is right once: P 1/2, R 1.
        ("lung lung", "lung", 2 / 3),
        ("yes", "no", 0.0),
        # Nothing but an article has no words.
        ("the", "a", 1.0),
        ("the", "lung", 0.0),
    ],
)
def test_f1_counts_the_words_in_common(predicted, answer, f1):
    assert token_f1(predicted, answer) == pytest.approx(f1)


def test_other_tokens_than_words_can_be_compared():
    assert token_f1("lungs", "lung", tokens=list) == pytest.approx(2 * 4 / 9)


def test_classes_are_the_answers_given_often_enough_the_most_frequent_first():
    given = ["No", "yes", "no", "CT", "yes.", "NO"]
    assert vocabulary(given) == ("no", "yes", "ct")
    assert vocabulary(given, least=2) == ("no", "yes")
    assert vocabulary(["b", "a"]) == ("a", "b")
    assert most_frequent(given) == "no"
    with pytest.raises(ValueError, match="answers"):
        most_frequent([])
