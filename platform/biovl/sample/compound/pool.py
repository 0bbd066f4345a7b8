"""A pool of drawn contents, from which many figures are composed in little time.

Drawing a figure takes 60..240 ms, nearly all of it for the contents of its panels; composing one
from a pool takes a tenth of that.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image

from biovl.sample.compound.contents import Content, Source, cropped, photograph, plot
from biovl.sample.compound.layouts import PANEL_ASPECT, Rng, sample_quantiles

_SIDES_PX = (90, 320)
"""Minimum and maximum of a content's shorter side: lettering is larger in small panels."""
_TRIES = 8


@cache
def pool(seed: int, photographs: int, plots: int) -> Source:
    """Return a source with a fixed number of contents, drawn once per process.

    Args:
        seed: Random seed; no content is the same for another seed.
        photographs: Number of photographs; 100 take two seconds and 15 MB.
        plots: Number of plots and diagrams.
    """
    taken = _drawn(seed, photographs, photograph)
    drawn = _drawn(seed + 1, plots, plot)

    def any_photograph(rng: Rng, width: int, height: int) -> Content:
        pixels, subject = taken[_nearest(rng, taken, width, height)]
        turned = np.rot90(pixels, 2) if rng.integers(2) else pixels
        shown = cropped(turned, rng, width, height)
        if rng.integers(3) == 0:
            shown = shown[..., rng.permutation(3)]
        return shown, subject

    def any_plot(rng: Rng, width: int, height: int) -> Content:
        pixels, subject = drawn[_nearest(rng, drawn, width, height)]
        image = Image.fromarray(pixels)
        return np.array(image.resize((width, height), Image.Resampling.BILINEAR)), subject

    return Source(any_photograph, any_plot)


def _drawn(seed: int, number: int, draw: Callable[[Rng, int, int], Content]) -> list[Content]:
    contents = []
    for i in range(number):
        rng = np.random.default_rng([seed, i])
        aspect = sample_quantiles(rng, PANEL_ASPECT)
        short = math.exp(rng.uniform(*np.log(_SIDES_PX)))
        wide, tall = short * max(aspect, 1.0), short * max(1 / aspect, 1.0)
        contents.append(draw(rng, round(wide), round(tall)))
    return contents


def _nearest(rng: Rng, contents: list[Content], width: int, height: int) -> int:
    """Return the index of the content nearest in shape and size among a few random ones."""

    def off(index: int) -> float:
        tall, wide = contents[index][0].shape[:2]
        return abs(math.log(wide / width)) + abs(math.log(tall / height))

    tries: list[int] = rng.integers(len(contents), size=_TRIES).tolist()
    return min(tries, key=off)
