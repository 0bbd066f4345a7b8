"""Warnings about runs whose curves are known."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from biovl.pretrain.warn import warnings_of

PAIRS = 400


def scores(*losses: float, recall: float = 0.5, pairs: int = PAIRS) -> dict[int, dict[str, float]]:
    """Return the scores of epochs with these validation losses."""
    about = {"pairs": pairs, "chance_recall_at_1": 1 / pairs}
    recalls = {f"{way}_recall_at_1": recall for way in ("text_to_image", "image_to_text")}
    return {epoch: {**about, **recalls, "loss": loss} for epoch, loss in enumerate(losses)}


def steps(*losses: float | None, pairs: Sequence[int] = (64,)) -> list[dict[str, Any]]:
    """Return the steps of epochs with these training losses, three of each."""
    return [
        {"epoch": epoch, "loss": loss, "pairs": pairs[min(epoch, len(pairs) - 1)]}
        for epoch, loss in enumerate(losses)
        for _ in range(3)
    ]


def warned(val: Any, train: Any, *, val_pairs: int = PAIRS) -> list[str]:
    return warnings_of(val, train, loss="infonce", published=len(val) - 1, val_pairs=val_pairs)


@pytest.mark.parametrize(
    ("val", "train", "overfits"),
    [
        ((2.0, 1.5, 1.4), (2.0, 1.0, 0.5), False),
        ((2.0, 1.5, 1.9), (2.0, 1.0, 0.5), True),
        # Noise of 400 pairs.
        ((2.0, 1.5, 1.54), (2.0, 1.0, 0.5), False),
        # Both rise: the run has other trouble.
        ((2.0, 1.5, 1.9), (2.0, 1.0, 1.1), False),
        ((2.0,), (2.0,), False),
        # A loss of NaN is null in metrics.jsonl.
        ((2.0, 1.5, 1.9), (2.0, 1.0, None), False),
    ],
)
def test_a_validation_loss_that_rises_while_the_training_loss_falls_is_warned_about(
    val: tuple[float, ...], train: tuple[float | None, ...], overfits: bool
) -> None:
    found = warned(scores(*val), steps(*train))
    assert len(found) == overfits
    if overfits:
        assert found[0].startswith(
            "the model overfits: from epoch 2 to 3 the validation loss rises from 1.500 to 1.900, "
            "and the training loss falls by 0.500"
        )


def test_the_loss_of_few_pairs_must_rise_more() -> None:
    rising = (2.0, 1.5, 1.7)
    assert warned(scores(*rising, pairs=100), steps(2.0, 1.0, 0.5)) != []
    assert warned(scores(*rising, pairs=16, recall=1), steps(2.0, 1.0, 0.5)) == []


def test_training_losses_of_larger_batches_are_compared_with_their_own_chance() -> None:
    # 0.3 more in batches of twice as many pairs is less above chance, which rises by 0.69.
    train = steps(1.0, 1.3, pairs=(64, 128))
    (warning,) = warned(scores(1.5, 1.9), train)
    assert f"falls by {math.log(2) - 0.3:.3f}" in warning


def test_the_published_model_is_compared_with_chance() -> None:
    (warning,) = warned(scores(6.0, 6.0, recall=1 / PAIRS), steps(4.2, 4.2))
    assert "no better than chance on the 400 pairs of val" in warning


def test_a_run_without_validation_says_so() -> None:
    (warning,) = warned({}, steps(2.0), val_pairs=1)
    assert warning == "no epoch was validated: the corpus has 1 pairs in val"
