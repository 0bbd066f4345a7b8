"""Printed panel labels: detect the letters next to panels, and read them.

The image is binarized at several thresholds; components of letter size that are isolated, or in a
short word, are classified by a small network; among the candidates, those of similar style and in
order are selected. If the caption is known, only its labels are searched for.
"""

import functools
import json
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from biovl.images.boxes import Box
from biovl.images.labels.choice import (
    EVIDENCE,
    LabelReading,
    Weights,
    Word,
    choose,
    consecutive_from_first,
    readings,
)
from biovl.images.labels.marks import Marks, patches, sample_grey
from biovl.images.labels.marks import find_words as find_short_words
from biovl.images.labels.network import Network, builtin_network

MAX_PIXELS = 1_000_000
"""Larger images are downscaled to this size: a label is then still 10 pixels high."""
MAX_ENLARGED = 2.0
"""Smaller images are enlarged up to that size, at most by this factor."""

LEAST_FIT = 0.12
"""Minimum fit of a letter, and minimum score of a label among the others, before the evidence is
weighed."""

WEIGHTS = Path(__file__).with_name("weights.json")
"""Weights of the evidence for labels; ``benchmarks/train_splitter.py`` fits them."""


@dataclass(frozen=True, slots=True)
class Label:
    """A panel label as printed in a figure."""

    text: str
    """Text without brackets and full stops: ``A`` for ``(A)``."""
    box: Box
    """Bounding box of its ink, in pixels of the image."""
    score: float
    """Confidence that this is a label with this text, 0..1."""


@functools.cache
def builtin_weights(name: str) -> Weights:
    """Return built-in weights: ``told`` if the caption names the labels, ``untold`` if not."""
    stored = json.loads(WEIGHTS.read_text(encoding="utf-8"))[name]
    return Weights(
        stored["constant"],
        np.array([stored["evidence"][key] for key in EVIDENCE]),
        *(stored["least"], stored["fewest"]),
    )


def read_labels(pixels: np.ndarray, *, expected: Sequence[str] = ()) -> list[Label]:
    """Return the printed labels of a figure.

    Args:
        pixels: RGB, uint8, shape [H, W, 3]; of any size.
        expected: Labels of the caption, in order. Only these are searched for, once each, and are
            returned in the caption's case. If empty, consecutive letters from A or a are searched.

    Returns:
        Labels in the order of ``expected`` or the alphabet; each with its box in ``pixels``.
    """
    grey, scale = readable_copy(pixels)
    if min(grey.shape) < 12:
        return []
    found = find_words(grey, builtin_network())
    chosen = _expected(found, expected, grey.size) if expected else _unexpected(found, grey.size)
    return [Label(r.text, r.box.scaled(1 / scale), round(score, 4)) for r, score in chosen]


def find_words(grey: np.ndarray, network: Network) -> list[Word]:
    """Return isolated marks and short words, with character probabilities of each mark.

    Args:
        grey: uint8, shape [H, W].
        network: Classifies the marks.
    """
    found = []
    for is_dark in (True, False):
        marks, short = find_short_words(grey, is_dark=is_dark)
        if not short:
            continue
        boxes = marks.boxes
        aspects = (boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1])
        odds = network.read(patches(grey, marks), aspects)
        free, before = _freedom(grey, marks)
        heights = boxes[:, 3] - boxes[:, 1]
        usual = float(np.median(heights[odds[:, -1] < 0.5])) if (odds[:, -1] < 0.5).any() else 1.0
        is_nothing = (odds[:, -1] > 0.97).tolist()
        for word in short:
            # A bracket may be unreadable, a letter may not.
            if sum(is_nothing[i] for i in word) > (len(word) > 2):
                continue
            at = list(word)
            x0, y0 = boxes[at, :2].min(0).tolist()
            x1, y1 = boxes[at, 2:].max(0).tolist()
            tall = heights[at].tolist()
            found.append(
                Word(
                    *(Box(x0, y0, x1, y1), odds[at], tuple(tall), is_dark),
                    *(float(free[at].mean()), float(before[at[0]]), max(tall) / usual),
                )
            )
    return found


def _expected(
    found: list[Word], expected: Sequence[str], page_px: int
) -> list[tuple[LabelReading, float]]:
    """Return the caption's labels that were read, in its case or the other one."""
    names = list(dict.fromkeys(expected))
    weights = builtin_weights("told")
    best: list[tuple[LabelReading, float]] = []
    for case in (str, str.swapcase):
        other = {case(name): name for name in names}
        chosen = choose(
            readings(found, list(other), least=LEAST_FIT),
            list(other),
            least=LEAST_FIT,
            weights=weights,
            page_px=page_px,
        )
        renamed = [(_named(reading, other[reading.text]), score) for reading, score in chosen]
        if sum(s for _, s in renamed) > 1.3 * sum(s for _, s in best):
            best = renamed
        if sum(s for _, s in best) > 0.5 * len(names):
            break
    return best


def _named(reading: LabelReading, text: str) -> LabelReading:
    return replace(reading, text=text)


def _unexpected(found: list[Word], page_px: int) -> list[tuple[LabelReading, float]]:
    """Return the probable labels, consecutive letters from A or a; empty if fewer than two."""
    best: list[tuple[LabelReading, float]] = []
    for names in (string.ascii_uppercase, string.ascii_lowercase):
        kept = choose(
            readings(found, list(names), least=LEAST_FIT),
            list(names),
            least=LEAST_FIT,
            weights=builtin_weights("untold"),
            page_px=page_px,
            keep=functools.partial(consecutive_from_first, names=names),
        )
        if sum(score for _, score in kept) > sum(score for _, score in best):
            best = kept
    return best


def _freedom(grey: np.ndarray, marks: Marks) -> tuple[np.ndarray, np.ndarray]:
    """Return the emptiness above and below each mark, and left of it, 0..1. Shapes [N]."""
    boxes = marks.boxes.astype(np.float32)
    high = (boxes[:, 3] - boxes[:, 1])[:, None]
    steps = np.linspace(0, 1, 8, dtype=np.float32)
    x = boxes[:, :1] + steps * (boxes[:, 2:3] - boxes[:, :1])
    y = boxes[:, 1:2] + steps * high
    near = np.array([0.12, 0.2, 0.3], np.float32)
    left = boxes[:, :1] - np.linspace(0.25, 1.1, 7, dtype=np.float32) * high - 1
    areas = (
        (x, boxes[:, 1:2] - near * high - 1),
        (x, boxes[:, 3:4] + near * high + 1),
        (left, y),
    )
    at = marks.thresholds[:, None, None]
    ink = []
    for across, down in areas:
        seen = sample_grey(grey, across, down)
        on_page = ((down >= 0) & (down <= len(grey)))[:, :, None] & (across >= 0)[:, None, :]
        ink.append(((seen < at if marks.is_dark else seen > at) & on_page).mean((1, 2)))
    return np.asarray(1 - 0.5 * np.maximum(*ink[:2])), np.asarray(1 - ink[2])


def readable_copy(pixels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a figure in grey, scaled for accurate and fast reading, and its scale."""
    height, width = pixels.shape[:2]
    # A scan of hundreds of megapixels is subsampled before anything copies it.
    step = max(1, int((height * width / (8 * MAX_PIXELS)) ** 0.5))
    image = Image.fromarray(np.ascontiguousarray(pixels[::step, ::step])).convert("L")
    scale = min(MAX_ENLARGED, (MAX_PIXELS / (image.width * image.height)) ** 0.5)
    if scale < 1 or scale > 1.3:
        size = max(round(image.width * scale), 1), max(round(image.height * scale), 1)
        # Letters of eight pixels have strokes of one pixel, which break when binarized.
        way = Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC
        image = image.resize(size, way, reducing_gap=2 if scale < 1 else None)
    return np.asarray(image), image.width / width
