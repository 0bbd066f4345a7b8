"""Whether recall is better than chance: known probabilities, and models that guess."""

import numpy as np
import pytest

from biovl.core.chance import exceeds_chance, half_width, retrieval_warning


@pytest.mark.parametrize(
    ("hits", "count", "chance", "exceeds"),
    [
        # P(X >= 4) of Binomial(12, 1/12) is 0.0154, P(X >= 5) is 0.0023.
        (4, 12, 1 / 12, False),
        (5, 12, 1 / 12, True),
        # About Poisson(10) for R@10: P(X >= 18) is 0.0143, P(X >= 19) is 0.0072.
        (18, 10_000, 0.001, False),
        (19, 10_000, 0.001, True),
        (0, 10_000, 0.001, False),
        (10, 10, 1.0, False),
        (4, 4, 0.25, True),
        (3, 3, 1 / 3, False),
        (500_000, 1_000_000, 1e-6, True),
    ],
)
def test_hits_exceed_chance_where_guessing_reaches_them_in_a_hundredth_of_cases(
    hits: int, count: int, chance: float, exceeds: bool
) -> None:
    assert exceeds_chance(hits, count, chance) is exceeds


def recalls(pairs: int, **recall: float) -> dict[str, float]:
    ks = (1, 5, 10)
    return {"pairs": pairs, **{f"chance_recall_at_{k}": k / pairs for k in ks}, **recall}


def test_a_model_is_warned_about_if_no_recall_exceeds_chance() -> None:
    at_chance = recalls(100, text_to_image_recall_at_1=0.01, image_to_text_recall_at_10=0.12)
    warning = retrieval_warning(at_chance, "of val")
    assert warning is not None
    assert "no better than chance on the 100 pairs of val" in warning
    assert "text to image R@1 1.00% (chance 1.00%)" in warning
    assert retrieval_warning({**at_chance, "image_to_text_recall_at_10": 0.2}, "of val") is None
    assert retrieval_warning(recalls(3, text_to_image_recall_at_1=0.0), "of val") is None
    assert retrieval_warning({"pairs": 0}, "of val") is None
    all_found = {"pairs": 10, "text_to_image_recall_at_10": 1.0, "chance_recall_at_10": 1.0}
    few = {**all_found, "text_to_image_recall_at_1": 0.1, "chance_recall_at_1": 0.1}
    warning = retrieval_warning(few, "of val")
    assert warning is not None
    assert "R@10" not in warning


def test_guessing_is_warned_about_and_knowing_a_tenth_is_not() -> None:
    rng = np.random.default_rng(0)
    warned = {"guesses": 0, "knows a tenth": 0}
    for _ in range(200):
        ranks = rng.integers(0, 200, 200)
        for name, known in (("guesses", 0), ("knows a tenth", 20)):
            ranks[:known] = 0
            found = {f"text_to_image_recall_at_{k}": float((ranks < k).mean()) for k in (1, 5, 10)}
            warned[name] += retrieval_warning(recalls(200, **found), "of val") is not None
    assert warned["guesses"] > 190
    assert warned["knows a tenth"] == 0


def test_a_score_of_a_hundred_pairs_is_uncertain_by_ten_points() -> None:
    assert half_width(100) == pytest.approx(0.098)
    assert half_width(12) == pytest.approx(0.283, abs=1e-3)
