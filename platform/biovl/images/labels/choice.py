"""Selection of a figure's labels among its letters: those of similar style, in order."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from biovl.images.boxes import Box
from biovl.images.labels.network import CHARACTERS, confusable, same_shape

_INDEX = {character: i for i, character in enumerate(CHARACTERS)}
_MAX_STYLES = 24
"""Number of letters, by confidence, that are tried as the pattern for the others."""
_SPREAD = 0.19
"""Spread of the log heights of letters in a figure: a capital's height is only estimated from a
small letter."""
_MAX_OPTIONS = 8
"""Readings per label that fit a pattern best."""

# Heights of letters relative to a capital, for common typefaces.
_LOW = "acemnorsuvwxzαε"
_TAIL = "gpqyγ"
_LONG = "βζj"
_X_HEIGHT, _WITH_TAIL, _WITH_BOTH = 0.72, 0.98, 1.27


@dataclass(frozen=True)
class Word:
    """A mark, or a few marks in a row, with the character probabilities of each."""

    box: Box
    """Bounding box of all marks."""
    probabilities: np.ndarray
    """Probability of each character, and of none, for each mark. Shape [marks, characters + 1]."""
    heights_px: tuple[float, ...]
    is_dark: bool
    is_free: float
    """Emptiness of the area around the word, 0..1."""
    prominence: float = 1.0
    """Size relative to the other words of the figure, 0..1."""


@dataclass(frozen=True)
class LabelReading:
    """A word interpreted as one of the expected labels."""

    text: str
    box: Box
    fit: float
    """Match of ink and text, and isolation of the word, 0..1."""
    capital_px: float
    """Height in pixels of a capital letter in the same font size."""
    is_dark: bool
    has_bracket: bool


Scored = tuple[LabelReading, float]


def readings(words: Iterable[Word], expected: Sequence[str], *, least: float) -> list[LabelReading]:
    """Return all interpretations of words as expected labels, with a fit of at least ``least``."""
    by_length: dict[int, list[tuple[Word, slice, bool]]] = {}
    for word in words:
        core, has_bracket = _without_brackets(word.probabilities)
        by_length.setdefault(core.stop - core.start, []).append((word, core, has_bracket))
    found = []
    for text in expected:
        of_length = by_length.get(len(text), [])
        if not of_length or not text:
            continue
        odds = np.stack([word.probabilities[core] for word, core, _ in of_length])
        fits = np.min([odds[:, i] @ _weights(c) for i, c in enumerate(text)], axis=0)
        for at in np.flatnonzero(fits >= least):
            word, core, has_bracket = of_length[at]
            # Brackets are usual around labels, and rare around other content.
            fit = float(fits[at]) * word.is_free * word.prominence
            fit *= 1.0 if has_bracket else 0.92
            if fit >= least:
                tall = zip(word.heights_px[core], text, strict=True)
                capital = max(height / _relative_height(c) for height, c in tall)
                found.append(LabelReading(text, word.box, fit, capital, word.is_dark, has_bracket))
    return _distinct(found)


def _distinct(found: list[LabelReading]) -> list[LabelReading]:
    """Return the best reading of each text per location: ink is binarized at several thresholds."""
    best: dict[tuple[str, int, int], LabelReading] = {}
    for reading in sorted(found, key=lambda r: -r.fit):
        x, y = (round(v / 4) for v in reading.box.centre)
        if not any((reading.text, x + i, y + j) in best for i in (-1, 0, 1) for j in (-1, 0, 1)):
            best[reading.text, x, y] = reading
    return list(best.values())


@functools.cache
def _weights(character: str) -> np.ndarray:
    """Return how much each class supports a character. Shape [characters + 1]."""
    weights = np.zeros(len(CHARACTERS) + 1, np.float32)
    for others, weight in ((confusable(character), 0.4), (same_shape(character), 1.0)):
        for other in others:
            if other in _INDEX:
                weights[_INDEX[other]] = weight
    return weights


def _without_brackets(odds: np.ndarray) -> tuple[slice, bool]:
    """Return which marks of a word are between its brackets, and whether it has any."""
    last = len(odds)
    closes = last > 1 and bool(odds[last - 1, _INDEX[")"]] > 0.3)
    opening = float(odds[0, _INDEX["("]])
    # Before a closing bracket, an unreadable mark counts as a damaged opening bracket.
    opens = last > 1 and (opening > 0.3 or (closes and last > 2 and odds[0, -1] + opening > 0.6))
    return slice(int(opens), max(last - int(closes), int(opens))), opens or closes


def _relative_height(character: str) -> float:
    if character in _LOW:
        return _X_HEIGHT
    if character in _LONG:
        return _WITH_BOTH
    return _WITH_TAIL if character in _TAIL else 1.0


def choose(
    found: Sequence[LabelReading],
    expected: Sequence[str],
    *,
    least: float,
    keep: Callable[[list[Scored]], list[Scored]] = list,
) -> list[Scored]:
    """Return at most one reading for each expected label, with its score, 0..1.

    Labels of one figure share height and style, and are arranged in rows or columns in the order of
    their names. So every confident letter is tried as the pattern of all, and the pattern that
    explains the most labels is used.

    Args:
        found: Readings of the expected labels.
        expected: The labels in their order.
        least: Minimum score of a label.
        keep: Reduces a selection before it is compared with others.
    """
    best: list[Scored] = []
    most = 0.0
    by_text: dict[str, list[LabelReading]] = {}
    for reading in found:
        by_text.setdefault(reading.text, []).append(reading)
    rank = {text: i for i, text in enumerate(expected)}
    patterns = sorted(found, key=lambda r: -r.fit)[:_MAX_STYLES]
    for pattern in patterns:
        if any(pattern is reading for reading, _ in best):
            continue  # it is explained, and would explain the same
        near = {text: _likest(options, pattern) for text, options in by_text.items()}
        chosen = _aligned({text: options[0] for text, options in near.items()}, near, rank)
        kept = keep([(reading, score) for reading, score in chosen if score >= least])
        if len(kept) == 1 and len(expected) > 1 and not kept[0][0].has_bracket:
            # A single letter is as likely to be part of the content.
            continue
        total = sum(score for _, score in kept)
        if total > most + 1e-6:
            best, most = kept, total
    return sorted(best, key=lambda pair: rank[pair[0].text])


def likeness(reading: LabelReading, pattern: LabelReading) -> float:
    """Return the similarity in style of two labels, 0..1."""
    apart = math.log(reading.capital_px / pattern.capital_px) / _SPREAD
    same = math.exp(-0.5 * apart * apart)
    same *= 1.0 if reading.is_dark == pattern.is_dark else 0.8
    return same * (1.0 if reading.has_bracket == pattern.has_bracket else 0.45)


def _likest(options: Sequence[LabelReading], pattern: LabelReading) -> list[Scored]:
    """Return the readings of one label that best fit a pattern, the best first."""
    scored = [(reading, reading.fit * likeness(reading, pattern)) for reading in options]
    return sorted(scored, key=lambda pair: -pair[1])[:_MAX_OPTIONS]


def _aligned(
    chosen: dict[str, Scored], near: dict[str, list[Scored]], rank: dict[str, int]
) -> list[Scored]:
    """Select again, with each label scored by the positions of the others."""
    for _ in range(2):
        believed = [reading for reading, score in chosen.values() if score > 0.2]
        chosen = {
            text: max(
                ((reading, score * _place(reading, believed, rank)) for reading, score in options),
                key=lambda pair: pair[1],
            )
            for text, options in near.items()
        }
    return list(chosen.values())


def _place(reading: LabelReading, believed: Sequence[LabelReading], rank: dict[str, int]) -> float:
    """Return how well a label is aligned with others, and after those before it."""
    others = [other for other in believed if other.text != reading.text]
    if not others:
        return 0.85
    box, capital = reading.box, reading.capital_px
    slack, order = 0.35 * capital, rank[reading.text]
    wrong, is_level, apart = 0, False, math.inf
    for other in others:
        x, y = other.box.x0 - box.x0, other.box.y0 - box.y0
        is_level |= abs(x) < slack or abs(y) < slack or abs(other.box.y1 - box.y1) < slack
        apart = min(apart, max(abs(x), abs(y)))
        # Contradicts the order of names in rows and in columns.
        sign = 1 if rank[other.text] > order else -1
        wrong += sign * x < 0.5 * capital and sign * y < 0.5 * capital
    in_order = max(1 - wrong / len(others), 0.2)
    # Letters on an axis are closer together than panels.
    spread = min(max(apart / (4 * capital), 0.3), 1.0)
    return float((1.0 if is_level else 0.8) * in_order**0.7 * spread**0.5)


def consecutive_from_first(chosen: list[Scored], names: Sequence[str]) -> list[Scored]:
    """Return the chosen labels that are consecutive from the first name on; one may be missing."""
    have = {pair[0].text: pair for pair in chosen}
    kept: list[Scored] = []
    missed = 0
    for name in names:
        if name in have:
            kept.append(have[name])
            missed = 0
        else:
            missed += 1
            if missed > 1 or not kept:
                break
    return kept
