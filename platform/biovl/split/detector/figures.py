"""Synthetic figures for training, in rounds, and for validation, drawn from seeds."""

from collections.abc import Callable, Sequence

import numpy as np

from biovl.sample.compound.figures import make_compound
from biovl.split.detector.config import DetectorConfig
from biovl.split.detector.fitting import Fitted, fit, view

FIRST_SEED = 1_000_000
"""First seed of training; benchmark and validation use lower seeds."""
FIRST_HELD_OUT = 900_000

CHUNK = 32
"""Figures per drawing task, about three seconds."""

Drawer = Callable[[Sequence[tuple[int, str]], int], "Callable[[], list[Fitted]]"]
"""Starts to draw figures of (seed, stratum) pairs, fitted to a size; the returned function waits
for them."""


def draw(figures: Sequence[tuple[int, str]], size_px: int) -> list[Fitted]:
    """Return synthetic figures for (seed, stratum) pairs, fitted to a size."""
    made = [make_compound(seed, stratum) for seed, stratum in figures]
    return [fit(one.pixels, [panel.box for panel in one.panels], size_px) for one in made]


def draw_locally(figures: Sequence[tuple[int, str]], size_px: int) -> Callable[[], list[Fitted]]:
    """Return a function that draws figures in this process when it is called."""
    return lambda: draw(figures, size_px)


def figures_of_round(config: DetectorConfig, number: int) -> list[tuple[int, str]]:
    """Return the (seed, stratum) pairs of the figures of a training round."""
    drawing = config.drawing
    first = FIRST_SEED + config.seed * 100_000_000 + number * drawing.figures
    return [
        (first + i, drawing.strata[(first + i) % len(drawing.strata)])
        for i in range(drawing.figures)
    ]


def held_out(config: DetectorConfig) -> list[tuple[int, str]]:
    """Return the (seed, stratum) pairs of the validation figures."""
    return [
        (FIRST_HELD_OUT + i, stratum)
        for stratum in config.drawing.strata
        for i in range(config.validation_figures)
    ]


class Rounds:
    """Batches of a training run. A batch depends only on the number of its step."""

    def __init__(self, config: DetectorConfig, drawer: Drawer) -> None:
        self._config, self._drawer = config, drawer
        self._waiting: dict[int, Callable[[], list[Fitted]]] = {}
        self._round, self._figures = -1, list[Fitted]()

    def batch(self, step: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return images, [size, size, 3], and boxes, [N, 4], of the figures of a step."""
        config = self._config
        number = step // config.drawing.steps
        if number != self._round:
            self._begin(number)
        rng = np.random.default_rng([config.seed, step])
        chosen = rng.choice(
            len(self._figures), config.optim.batch, replace=config.optim.batch > len(self._figures)
        )
        views = [view(self._figures[at], config.design.size_px, rng) for at in chosen]
        return [pixels for pixels, _ in views], [boxes for _, boxes in views]

    def _begin(self, number: int) -> None:
        last = (self._config.optim.steps - 1) // self._config.drawing.steps
        for ahead in range(number, min(number + 1, last) + 1):
            if ahead not in self._waiting:
                figures = figures_of_round(self._config, ahead)
                self._waiting[ahead] = self._drawer(figures, self._config.design.size_px)
        self._figures, self._round = self._waiting.pop(number)(), number
