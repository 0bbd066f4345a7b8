"""Synthetic figures for training, in rounds, and for validation, drawn from seeds."""

from collections.abc import Callable, Sequence

import numpy as np

from biovl.sample.compound.contents import DRAWN, Source
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.pool import pool
from biovl.sample.compound.strata import VARIED
from biovl.split.detector.config import DetectorConfig, Drawing
from biovl.split.detector.fitting import Fitted, fit, view

FIRST_SEED = 1_000_000
"""First seed of training; benchmark and validation use lower seeds."""
FIRST_HELD_OUT = 900_000

_POOL_SEED = 700_000
"""Seed of the first round's pool."""
_ROUNDS_OF_POOL = 100
"""Rounds after which a pool is drawn anew."""

CHUNK = 32
"""Figures per drawing task, half a second."""

Figures = Sequence[tuple[int, str]]
"""Seeds and strata."""

Drawer = Callable[[Figures, DetectorConfig, int | None], "Callable[[], list[Fitted]]"]
"""Starts to draw figures for the input size of a configuration, in a training round; None: for
validation, in which every content is drawn anew. The returned function waits for them."""


def draw(figures: Figures, config: DetectorConfig, number: int | None) -> list[Fitted]:
    """Return synthetic figures for (seed, stratum) pairs, fitted to the input size.

    Args:
        figures: Seeds and strata.
        config: Settings.
        number: Training round; None: validation.
    """
    source = DRAWN if number is None else _source(config.drawing, number)
    made = [make_compound(seed, stratum, source) for seed, stratum in figures]
    size_px = config.design.size_px
    return [fit(one.pixels, [panel.box for panel in one.panels], size_px) for one in made]


def _source(drawing: Drawing, number: int) -> Source:
    seed = _POOL_SEED + 2 * (number // _ROUNDS_OF_POOL)
    return pool(seed, drawing.photographs, drawing.plots)


def figures_of_round(config: DetectorConfig, number: int) -> list[tuple[int, str]]:
    """Return the (seed, stratum) pairs of the figures of a training round."""
    drawing = config.drawing
    first = FIRST_SEED + config.seed * 100_000_000 + number * drawing.figures
    rng = np.random.default_rng([config.seed, number])
    is_varied = rng.uniform(size=drawing.figures) < drawing.varied
    return [
        (first + i, VARIED if is_varied[i] else drawing.strata[(first + i) % len(drawing.strata)])
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
                self._waiting[ahead] = self._drawer(figures, self._config, ahead)
        self._figures, self._round = self._waiting.pop(number)(), number
