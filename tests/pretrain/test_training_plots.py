import io
import math

import numpy as np
import pytest
from PIL import Image

from biovl.pretrain import plots as drawing
from biovl.pretrain.plots import plots, smoothed


def steps(count: int, **changes) -> list[dict]:
    return [
        {
            "step": step,
            "epoch": 0,
            "pairs": 64,
            "loss": 4 / step,
            "pairs_per_s": 100.0,
            "wait_share": 0.1,
            "mfu": 0.4,
            **changes,
        }
        for step in range(1, count + 1)
    ]


def scores(pairs: int = 50) -> dict[str, float]:
    recalls = {
        f"{name}_recall_at_{k}": k / 20
        for name in ("image_to_text", "text_to_image")
        for k in (1, 5, 10)
    }
    chance = {f"chance_recall_at_{k}": k / pairs for k in (1, 5, 10)}
    loss = {"loss": 2.0, "chance_loss": math.log(pairs), "loss_block": pairs, "pairs": pairs}
    return {**recalls, **chance, **loss}


def test_the_same_records_give_the_same_bytes() -> None:
    first = plots(steps(30), {0: scores(), 1: scores()})
    assert list(first) == ["loss.png", "recall.png", "throughput.png"]
    assert plots(steps(30), {0: scores(), 1: scores()}) == first
    assert plots(steps(31), {0: scores(), 1: scores()}) != first


# A run that was killed at once, on unknown hardware, with a loss that was no number, with few pairs.
@pytest.mark.parametrize(
    ("rows", "judged"),
    [
        ([], {}),
        (steps(1), {0: scores()}),
        (steps(3, loss=None), {}),
        ([{k: v for k, v in row.items() if k != "mfu"} for row in steps(3)], {0: scores()}),
        (steps(3), {0: {k: v for k, v in scores().items() if not k.endswith("_10")}}),
        (steps(2_500), {epoch: scores() for epoch in range(0, 60, 7)}),
    ],
)
def test_every_run_can_be_drawn(rows, judged) -> None:
    for data in plots(rows, judged).values():
        with Image.open(io.BytesIO(data)) as image:
            assert image.width == 1200
            assert image.getcolors(1 << 20) is None or len(image.getcolors(1 << 20)) > 1


def test_the_plotted_chance_is_that_of_the_loss(monkeypatch) -> None:
    monkeypatch.setattr(drawing, "png", lambda drawn: drawn)
    for name, chance in (("infonce", math.log(64)), ("siglip", 5.15103)):
        training, _ = drawing.loss(steps(3), {}, name).axes
        assert training.lines[-1].get_ydata() == pytest.approx([chance] * 3, rel=1e-4)


def test_smoothing_is_the_mean_of_neighbours_and_keeps_the_ends() -> None:
    values = np.array([0.0, 3.0, 0.0, 3.0, 9.0])
    # 40 % of five: one neighbour on either side.
    assert smoothed(values, 0.4).tolist() == [0.0, 1.0, 2.0, 4.0, 9.0]
    assert smoothed(np.ones(1)).tolist() == [1.0]
