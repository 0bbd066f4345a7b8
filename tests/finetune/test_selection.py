"""Which interpolation is published, and what is said of it."""

import numpy as np
import pyarrow as pa
import pytest

from biovl.benchmark.config import name_of
from biovl.finetune.selection import MRR, Point, judge, points_of, select


def points(on_val: list[float], retained: list[float] | None = None) -> list[Point]:
    alphas = np.linspace(0, 1, len(on_val))
    kept = [{}] * len(on_val) if retained is None else [{"xray": value} for value in retained]
    return [
        Point(alpha=float(alpha), on_val=value, retained=own)
        for alpha, value, own in zip(alphas, on_val, kept, strict=True)
    ]


@pytest.mark.parametrize(
    ("on_val", "retained", "expected"),
    [
        # All of the gain at the end; half of the way has 90 % of it.
        ([0.2, 0.25, 0.295, 0.30, 0.30], None, 0.5),
        ([0.2, 0.21, 0.22, 0.23, 0.40], None, 1.0),
        # Nothing gains: the given model.
        ([0.2, 0.2, 0.19, 0.1, 0.1], None, 0.0),
        # The tuned model forgets the retained task.
        ([0.2, 0.25, 0.29, 0.35, 0.40], [0.9, 0.895, 0.88, 0.7, 0.5], 0.25),
        # A retained task that improves is no loss.
        ([0.2, 0.25, 0.29, 0.35, 0.40], [0.5, 0.6, 0.7, 0.8, 0.9], 1.0),
        # A loss of just what is allowed: one image of a hundred.
        ([0.2, 0.25, 0.29, 0.35, 0.40], [0.80, 0.79, 0.79, 0.79, 0.79], 1.0),
        # All but the given model forget.
        ([0.2, 0.25, 0.29, 0.35, 0.40], [0.9, 0.8, 0.8, 0.8, 0.8], 0.0),
    ],
)
def test_the_smallest_alpha_with_most_of_the_gain_is_selected(
    on_val: list[float], retained: list[float] | None, expected: float
) -> None:
    found = select(points(on_val, retained), retained_loss=0.01, gain_share=0.9)
    assert found.alpha == expected


def test_points_are_read_from_the_scores_of_a_report() -> None:
    def scores(alpha: float, image: float, text: float, xray: float) -> list[dict]:
        model = name_of(alpha)
        return [
            {"model": model, "task": "val", "name": "image_to_text_recall_at_1", "value": 9.0},
            {"model": model, "task": "val", "name": MRR[0], "value": image},
            {"model": model, "task": "val", "name": MRR[1], "value": text},
            {"model": model, "task": "xray", "name": "accuracy", "value": xray},
            {"model": model, "task": "xray", "name": "macro_f1", "value": 7.0},
        ]

    found = points_of(
        [*scores(1.0, 0.4, 0.6, 0.8), *scores(0.0, 0.1, 0.2, 0.9)], (0.0, 1.0), "val", ["xray"]
    )
    assert found == [
        Point(alpha=0.0, on_val=pytest.approx(0.15), retained={"xray": 0.9}),
        Point(alpha=1.0, on_val=0.5, retained={"xray": 0.8}),
    ]


def predictions(image_N: np.ndarray, text_N: np.ndarray) -> pa.Table:
    """As retrieval writes them: the queries of one direction, then of the other."""
    count = len(image_N)
    nothing = [None] * count
    return pa.table(
        {
            "id": [
                f"{way}/{n}" for way in ("image_to_text", "text_to_image") for n in range(count)
            ],
            MRR[0]: [*image_N, *nothing],
            MRR[1]: [*nothing, *text_N],
        }
    )


def test_both_directions_count_equally_if_pairs_share_texts() -> None:
    before = predictions(np.full(100, 0.31), np.full(100, 0.9))
    after = predictions(np.full(100, 0.5), np.full(100, 0.1))
    # As retrieval writes them: one query per distinct text, here of 5.
    before, after = (table.slice(0, 105) for table in (before, after))
    found = judge(before, after, resamples=1_000, seed=0)
    assert (found.before, found.after) == (pytest.approx(0.605), pytest.approx(0.3))
    assert found.verdict == "not better"


def verdict(gain: float, noise: float, pairs: int) -> tuple[str, float]:
    numbers = np.random.default_rng(0)
    image_N, text_N = numbers.uniform(0.1, 0.9, (2, pairs))
    # Opposite noise in the two directions does not count: the unit is the pair.
    noise_N = noise * numbers.standard_normal(pairs)
    found = judge(
        predictions(image_N, text_N),
        predictions(image_N + gain + noise_N, text_N + gain - noise_N),
        resamples=1_000,
        seed=0,
    )
    assert found.after - found.before == pytest.approx(found.difference)
    return found.verdict, found.difference


def test_a_shift_of_all_pairs_is_a_difference_in_its_direction() -> None:
    assert verdict(0.1, 0.5, 60) == ("better", pytest.approx(0.1))
    assert verdict(-0.1, 0.5, 60) == ("worse", pytest.approx(-0.1))
    assert verdict(0.0, 0.5, 60) == ("not better", pytest.approx(0.0))


def test_one_changed_rank_of_twelve_is_no_difference() -> None:
    before_N = np.full(12, 0.5)
    after_N = before_N.copy()
    after_N[0] = 1.0
    found = judge(
        predictions(before_N, before_N), predictions(after_N, before_N), resamples=1_000, seed=0
    )
    assert found.verdict == "not better"
