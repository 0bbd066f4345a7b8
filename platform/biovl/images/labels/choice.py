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
_ALONE = 0.8
"""Minimum probability of a label without others: a single letter is often part of the content."""
_BELIEVED = 0.2
"""Minimum score of a letter by which the places of others are judged."""
_APART = 1.5
"""Distance of a label that has no others."""
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
    """Emptiness of the area above and below the word, 0..1."""
    before: float = 1.0
    """Emptiness of the area left of the word, 0..1."""
    size: float = 1.0
    """Height relative to the median of the figure's letters."""

    @property
    def prominence(self) -> float:
        """Factor of the fit by size, 0.6..1: labels are often larger than axis text."""
        return min(max(0.45 + 0.4 * self.size, 0.6), 1.0)


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
    ink: float = 1.0
    """Match of ink and text alone, 0..1."""
    is_free: float = 1.0
    before: float = 1.0
    size: float = 1.0
    """These three as in ``Word``."""


Scored = tuple[LabelReading, float]

EVIDENCE = (
    *("ink", "free", "before", "bracket", "size", "style", "disorder", "level", "apart", "rivals"),
    *("mean rivals", "count", "coverage", "mean ink", "scale", "mean size", "mean disorder"),
    "alone",
)
"""Evidence for a label: match of its ink; emptiness above, below and left of it; whether it is in
brackets; height relative to other letters; difference from the height of the other labels; order,
alignment and distance; number of equal letters of this size. Then of the whole selection: means,
number of labels, fraction of the names up to the last, and height relative to the figure."""


@dataclass(frozen=True)
class Weights:
    """Coefficients of a logistic regression on the evidence for a label."""

    constant: float
    of_evidence: np.ndarray
    """Shape [EVIDENCE]."""
    least: float
    """Minimum probability of a label."""
    fewest: int
    """Minimum number of labels in a selection."""

    def probabilities(self, evidence: np.ndarray) -> np.ndarray:
        """Return the probability of each label. Shape [labels]."""
        odds = self.constant + evidence @ self.of_evidence
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))


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
                found.append(
                    LabelReading(
                        *(text, word.box, fit, capital, word.is_dark, has_bracket),
                        *(float(fits[at]), word.is_free, word.before, word.size),
                    )
                )
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
    weights: Weights,
    page_px: int,
    keep: Callable[[list[Scored]], list[Scored]] = list,
) -> list[Scored]:
    """Return at most one reading for each expected label, with its probability, 0..1.

    Labels of one figure share height and style, and are arranged in rows or columns in the order of
    their names. Therefore each of the best readings in turn is the reference for the style, and the
    most similar readings form a selection. The selection that explains the most labels is returned.

    Args:
        found: Readings of the expected labels.
        expected: The labels in their order.
        least: Minimum score of a label within a selection.
        weights: Weights of the evidence.
        page_px: Number of pixels of the figure.
        keep: Reduces a selection before it is compared with others.
    """
    rank = {text: i for i, text in enumerate(expected)}
    best: list[Scored] = []
    most = 0.0
    for selection in selections(found, rank, least, keep):
        evidence = evidence_for(selection, found, rank, page_px)
        chances = weights.probabilities(evidence).tolist()
        kept = keep(
            [
                (reading, chance)
                for reading, chance in zip(selection, chances, strict=True)
                if chance >= weights.least
            ]
        )
        if len(kept) < min(weights.fewest, len(expected)):
            continue
        if len(kept) == 1 < len(expected) and kept[0][1] < _ALONE:
            continue
        total = sum(chance - weights.least for _, chance in kept)
        if total > most:
            best, most = kept, total
    return best


def selections(
    found: Sequence[LabelReading],
    rank: dict[str, int],
    least: float,
    keep: Callable[[list[Scored]], list[Scored]],
) -> list[list[LabelReading]]:
    """Return the distinct selections of one reading per label, each in the order of the labels."""
    by_text: dict[str, list[LabelReading]] = {}
    for reading in found:
        by_text.setdefault(reading.text, []).append(reading)
    distinct: dict[tuple[int, ...], list[LabelReading]] = {}
    for pattern in sorted(found, key=lambda r: -r.fit)[:_MAX_STYLES]:
        near = {text: _likest(options, pattern) for text, options in by_text.items()}
        kept = keep([pair for pair in _aligned(near, rank) if pair[1] >= least])
        readings = sorted((reading for reading, _ in kept), key=lambda r: rank[r.text])
        if readings:
            distinct.setdefault(tuple(map(id, readings)), readings)
    return list(distinct.values())


def evidence_for(
    selection: Sequence[LabelReading],
    found: Sequence[LabelReading],
    rank: dict[str, int],
    page_px: int,
) -> np.ndarray:
    """Return the evidence for each label of a selection. Shape [labels, EVIDENCE]."""
    count = len(selection)
    capital = float(np.median([reading.capital_px for reading in selection]))
    ink = [_log_odds(reading.ink) for reading in selection]
    sizes = [min(max(math.log(reading.size), -1.0), 1.5) for reading in selection]
    rivals = [_rivals(reading, found, capital) for reading in selection]
    ranks = np.array([rank[reading.text] for reading in selection])
    positions = _positions(selection)
    places = _see(positions, ranks, positions, ranks)
    of_all = (
        *(sum(rivals) / count, math.log(count), count / (rank[selection[-1].text] + 1)),
        *(sum(ink) / count, math.log(capital / math.sqrt(page_px)), sum(sizes) / count),
        *(float(places.wrong.mean()), float(count == 1)),
    )
    return np.array(
        [
            (
                *(ink[at], reading.is_free, reading.before, reading.has_bracket, sizes[at]),
                abs(math.log(reading.capital_px / capital)) / _SPREAD,
                *(places.wrong[at], places.is_level[at], places.apart[at], rivals[at], *of_all),
            )
            for at, reading in enumerate(selection)
        ]
    )


def _rivals(reading: LabelReading, found: Sequence[LabelReading], capital_px: float) -> float:
    """Return the logarithm of the number of other such letters: labels are rarely repeated."""
    return math.log1p(
        sum(
            other.text == reading.text
            and other is not reading
            and other.ink > 0.5
            and other.has_bracket == reading.has_bracket
            and abs(math.log(other.capital_px / capital_px)) < 0.25
            for other in found
        )
    )


def _log_odds(chance: float) -> float:
    chance = min(max(chance, 0.01), 0.99)
    return math.log(chance / (1 - chance))


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


def _aligned(near: dict[str, list[Scored]], rank: dict[str, int]) -> list[Scored]:
    """Return the reading of each label that is best by itself and by its place among the others."""
    texts = list(near)
    options = [reading for text in texts for reading, _ in near[text]]
    scores = np.array([score for text in texts for _, score in near[text]])
    starts = np.cumsum([0] + [len(near[text]) for text in texts])
    places, ranks = _positions(options), np.array([rank[reading.text] for reading in options])
    chosen, values = starts[:-1], scores[starts[:-1]]
    for _ in range(2):
        believed = chosen[values > _BELIEVED]
        seen = _see(places, ranks, places[believed], ranks[believed])
        in_order = np.maximum(1 - seen.wrong, 0.2)
        # Letters on an axis are closer together than panels.
        spread = np.clip(np.exp(seen.apart) / 4, 0.3, 1.0)
        fits = scores * np.where(seen.is_level, 1.0, 0.8) * in_order**0.7 * spread**0.5
        ends = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        chosen = np.array([start + int(fits[start:end].argmax()) for start, end in ends], int)
        values = fits[chosen]
    return [(options[at], float(fits[at])) for at in chosen.tolist()]


@dataclass(frozen=True)
class _Places:
    """Positions of N labels among others; without others, as of labels that are far apart."""

    wrong: np.ndarray
    """Fraction of the others that contradict the order of names in rows and in columns."""
    is_level: np.ndarray
    """Whether another label is in the same row or column."""
    apart: np.ndarray
    """Logarithm of the distance to the nearest, in heights of a capital; at most 3."""


def _positions(readings: Sequence[LabelReading]) -> np.ndarray:
    """Return left, top, bottom and the height of a capital. Shape [N, 4]."""
    return np.array([(r.box.x0, r.box.y0, r.box.y1, r.capital_px) for r in readings], float)


def _see(
    places: np.ndarray, ranks: np.ndarray, others: np.ndarray, their_ranks: np.ndarray
) -> _Places:
    """Return the positions of labels among the others that have another name."""
    is_other = ranks[:, None] != their_ranks
    count = is_other.sum(1)
    x, y, end = (others[:, at] - places[:, at, None] for at in range(3))
    capital = places[:, 3, None]
    slack = 0.35 * capital
    level = (np.abs(x) < slack) | (np.abs(y) < slack) | (np.abs(end) < slack)
    sign = np.where(their_ranks > ranks[:, None], 1, -1)
    wrong = (sign * x < 0.5 * capital) & (sign * y < 0.5 * capital) & is_other
    far = np.where(is_other, np.maximum(np.abs(x), np.abs(y)), np.inf)
    apart = np.log(np.maximum(far.min(1, initial=np.inf), 1) / places[:, 3])
    return _Places(
        wrong.sum(1) / np.maximum(count, 1),
        (level & is_other).any(1),
        np.where(count > 0, np.minimum(apart, 3.0), _APART),
    )


def consecutive_from_first(chosen: list[Scored], names: Sequence[str]) -> list[Scored]:
    """Return the chosen labels from the first name on, up to a gap of two or more names."""
    have = {pair[0].text: pair for pair in chosen}
    kept: list[Scored] = []
    missed = 0
    for name in names:
        if name in have:
            kept.append(have[name])
            missed = 0
        else:
            missed += 1
            if missed > 1:
                break
    return kept
