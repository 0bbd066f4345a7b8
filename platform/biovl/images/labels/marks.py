"""Marks: connected components of letter size, and the short words that they form."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

# Shapes: N marks, S side of a patch.

DARK_BELOW = (80, 128, 176, 208)
LIGHT_ABOVE = (128, 176, 222)
"""Grey thresholds for binarization; letters merge with texture at some and not at others."""

_PLAIN_SHARE = 0.12
"""Fraction of pixels neither dark nor light, below which a figure is a line drawing and needs fewer
thresholds."""

MIN_HEIGHT_PX, MAX_HEIGHT_PX = 6, 100
SIDE = 20
"""Side of the patch in which a mark is read, in pixels."""

_MAX_REGIONS = 12_000
"""Maximum components per threshold. More are noise: letters cannot be separated from grain of their
size."""
_MAX_MARKS = 4_000
_LONGEST = 4
"""Marks in the word of a label: "(ii)"."""
_BOTH_WAYS = np.ones((3, 3), int)


@dataclass(frozen=True)
class Marks:
    """Letter-sized connected components, all darker or all lighter than their surroundings."""

    boxes: np.ndarray
    """Boxes as x0, y0, x1, y1. Shape [N, 4], int."""
    thresholds: np.ndarray
    """Binarization threshold of each mark, grey value. Shape [N], int."""
    is_dark: bool

    def __len__(self) -> int:
        return len(self.boxes)


def find_words(grey: np.ndarray, *, is_dark: bool) -> tuple[Marks, list[tuple[int, ...]]]:
    """Return isolated marks and short words, darker or lighter than their surroundings.

    Longer words are text, except for a bracketed letter in them, as in "(A) Control". Vertically
    stacked letters are text as well: the title of a vertical axis.

    Args:
        grey: uint8, shape [H, W].
        is_dark: Whether ink is darker than paper.

    Returns:
        The marks, and for each word the indices of its marks, from left to right. Ink binarized at
        several thresholds may give several words.
    """
    known: dict[tuple[int, ...], int] = {}
    thresholds: list[int] = []
    words: dict[tuple[int, ...], None] = {}
    for threshold in _thresholds(grey, is_dark=is_dark):
        ink = grey < threshold if is_dark else grey > threshold
        regions, number = ndimage.label(ink, _BOTH_WAYS)
        if not 0 < number <= _MAX_REGIONS:
            continue
        found = np.array(
            [(x.start, y.start, x.stop, y.stop) for y, x in ndimage.find_objects(regions)],
            np.int32,
        )
        letters = _letters(found)[:_MAX_MARKS]
        letters = _with_dots(letters, found)
        places = [tuple(box) for box in letters.tolist()]
        for word in _short_words(letters):
            marks = []
            for i in word:
                mark = known.setdefault(places[i], len(known))
                if mark == len(thresholds):
                    thresholds.append(threshold)
                marks.append(mark)
            words[tuple(marks)] = None
    all_boxes = np.array(list(known), np.int32).reshape(-1, 4)
    return Marks(all_boxes, np.array(thresholds, np.int32), is_dark), list(words)


def _thresholds(grey: np.ndarray, *, is_dark: bool) -> tuple[int, ...]:
    """Return the thresholds: fewer if nearly all pixels are black or white."""
    some = grey[::4, ::4]
    if ((some > 48) & (some < 216)).mean() > _PLAIN_SHARE:
        return DARK_BELOW if is_dark else LIGHT_ABOVE
    return DARK_BELOW[1::2] if is_dark else LIGHT_ABOVE[1:2]


def _letters(boxes: np.ndarray) -> np.ndarray:
    """Return the boxes of letter size."""
    wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    fits = (high >= MIN_HEIGHT_PX) & (high <= MAX_HEIGHT_PX)
    fits &= (wide <= 1.7 * high) & (wide >= 0.06 * high) & (wide >= 1)
    return np.asarray(boxes[fits])


def _with_dots(letters: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return letters, with the dots of i and j merged with their stems."""
    wide, high = found[:, 2] - found[:, 0], found[:, 3] - found[:, 1]
    is_round = (wide <= 2 * high + 1) & (high <= 2 * wide + 1)
    dots = found[(high <= 14) & is_round]
    thin = letters[:, 2] - letters[:, 0] <= 0.62 * (letters[:, 3] - letters[:, 1])
    stems = letters[thin]
    if not len(dots) or not len(stems):
        return letters
    tops = np.column_stack([(stems[:, 0] + stems[:, 2]) / 2, stems[:, 1]])
    bottoms = np.column_stack([(dots[:, 0] + dots[:, 2]) / 2, dots[:, 3]])
    _, near = cKDTree(bottoms).query(tops)
    dot = dots[near]
    tall = stems[:, 3] - stems[:, 1]
    gap, dot_high = stems[:, 1] - dot[:, 3], dot[:, 3] - dot[:, 1]
    aside = np.abs(bottoms[near, 0] - tops[:, 0])
    fits = (gap >= 1) & (gap <= 0.4 * tall) & (dot_high <= 0.35 * tall) & (aside <= 0.2 * tall)
    joined = letters.copy()
    which = np.flatnonzero(thin)[fits]
    joined[which, :2] = np.minimum(stems[fits, :2], dot[fits, :2])
    joined[which, 2:] = np.maximum(stems[fits, 2:], dot[fits, 2:])
    return joined


def patches(grey: np.ndarray, marks: Marks) -> np.ndarray:
    """Return each mark's ink in a square patch, 1 where there is ink. float32, [N, S, S].

    The side of the square is the longer side of the mark; outside the mark's own box it is empty.
    """
    boxes = marks.boxes
    is_large = np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) > 1.3 * SIDE
    ink = np.zeros((len(marks), SIDE, SIDE), np.float32)
    for which, finer in ((~is_large, 1), (is_large, 2)):
        # Two samples per step in each direction: a large letter is averaged and not subsampled.
        some = _ink(grey, Marks(boxes[which], marks.thresholds[which], marks.is_dark), finer * SIDE)
        ink[which] = some.reshape(len(some), SIDE, finer, SIDE, finer).mean((2, 4))
    return ink


def _ink(grey: np.ndarray, marks: Marks, side: int) -> np.ndarray:
    boxes = marks.boxes.astype(np.float32)
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    longer = np.maximum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])
    steps = (np.arange(side, dtype=np.float32) + 0.5) / side - 0.5
    x = centre[:, :1] + steps * longer[:, None]
    y = centre[:, 1:] + steps * longer[:, None]
    seen = sample_grey(grey, x, y)
    inside_x = (x >= boxes[:, :1]) & (x <= boxes[:, 2:3])
    inside_y = (y >= boxes[:, 1:2]) & (y <= boxes[:, 3:])
    inside = inside_y[:, :, None] & inside_x[:, None, :]
    low = np.where(inside, seen, np.float32(255)).min((1, 2), initial=255)
    high = np.where(inside, seen, np.float32(0)).max((1, 2), initial=0)
    slope = (1.5 / np.maximum(high - low, 24) * (1 if marks.is_dark else -1)).astype(np.float32)
    seen -= marks.thresholds[:, None, None].astype(np.float32)
    seen *= -slope[:, None, None]
    seen += np.float32(0.5)
    np.clip(seen, 0, 1, out=seen)
    seen *= inside
    return seen


def sample_grey(grey: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return interpolated grey values on a grid for each mark. float32, [N, len y, len x].

    Args:
        grey: uint8, shape [H, W].
        x: Columns to sample; pixel 0 is from 0 to 1. Shape [N, X].
        y: Rows to sample. Shape [N, Y].
    """
    height, width = grey.shape
    x, y = np.clip(x - 0.5, 0, width - 1.001), np.clip(y - 0.5, 0, height - 1.001)
    left, top = x.astype(np.int32), y.astype(np.int32)
    u, v = (x - left).astype(np.float32)[:, None, :], (y - top).astype(np.float32)[:, :, None]
    corner = (top * width)[:, :, None] + left[:, None, :]
    flat = grey.ravel()
    right, below = int(width > 1), width * int(height > 1)
    # In place: these are the largest arrays of the reader.
    rest = 1 - u
    upper = flat[corner] * rest
    upper += flat[corner + right] * u
    corner += below
    lower = flat[corner] * rest
    lower += flat[corner + right] * u
    lower -= upper
    lower *= v
    lower += upper
    return np.asarray(lower, np.float32)


def _short_words(boxes: np.ndarray) -> list[list[int]]:
    """Return the words of a few letters among boxes, and bracketed parts of longer ones."""
    if not len(boxes):
        return []
    boxes = boxes.astype(np.float32)
    turned = boxes[:, [1, 0, 3, 2]]
    below = _following(turned)
    level = np.flatnonzero(~((below >= 0) & _is_in(below)))
    if not len(level):
        return []
    boxes = boxes[level]
    after = _following(boxes)
    starts = np.flatnonzero(~_is_in(after))
    is_narrow = boxes[:, 2] - boxes[:, 0] < 0.5 * (boxes[:, 3] - boxes[:, 1])
    narrow, next_one = is_narrow.tolist(), after.tolist()
    found = []
    for first in starts.tolist():
        word = [first]
        while (at := next_one[word[-1]]) >= 0 and len(word) < _LONGEST + 3:
            word.append(at)
        if len(word) <= _LONGEST:
            found.append(word)
        if len(word) > 2 and any(narrow[i] for i in word):
            parts = _bracketed(boxes[word].tolist(), [narrow[i] for i in word])
            found += [word[i:j] for i, j in parts]
    return [level[word].tolist() for word in found]


def _bracketed(boxes: list[list[float]], narrow: list[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of parts of a longer word that may be "(A)" or "A)"."""
    for last in range(1, len(boxes)):
        _, top, _, end = boxes[last]
        high = end - top
        if not narrow[last] or high < 0.95 * (boxes[last - 1][3] - boxes[last - 1][1]):
            continue
        slack = 0.1 * high + 1
        for first in range(max(0, last - 3), last):
            level = max(abs(boxes[first][1] - top), abs(boxes[first][3] - end)) <= slack
            opens = narrow[first] and level and first < last - 1
            # One mark before it may belong to a vertical title.
            is_half = first == last - 1 and first <= 1
            if (opens or is_half) and (first > 0 or last + 1 < len(boxes)):
                yield first, last + 1


def _is_in(after: np.ndarray) -> np.ndarray:
    """Return which boxes follow another one. Bool, shape [N]."""
    follows = np.zeros(len(after), bool)
    follows[after[after >= 0]] = True
    return follows


def _following(boxes: np.ndarray) -> np.ndarray:
    """Return the index of the next box to the right in the same word, or -1. Shape [N]."""
    middle = (boxes[:, 1] + boxes[:, 3]) / 2
    near = min(6, len(boxes))
    tree = cKDTree(np.column_stack([boxes[:, 0], middle]))
    _, at = tree.query(np.column_stack([boxes[:, 2], middle]), k=near)
    at = at.reshape(len(boxes), near)
    them = boxes[at]
    high, their_high = (boxes[:, 3] - boxes[:, 1])[:, None], them[..., 3] - them[..., 1]
    gap = them[..., 0] - boxes[:, 2:3]
    shared = np.minimum(boxes[:, 3:], them[..., 3]) - np.maximum(boxes[:, 1:2], them[..., 1])
    both = np.maximum(high, their_high)
    fits = (gap >= -0.12 * both) & (gap <= 0.42 * both) & (them[..., 0] > boxes[:, :1])
    fits &= (them[..., 2] > boxes[:, 2:3]) & (shared >= 0.55 * np.minimum(high, their_high))
    fits &= (their_high < 2.2 * high) & (high < 2.2 * their_high)
    gap = np.where(fits, gap, np.inf)
    best, rows = gap.argmin(1), np.arange(len(boxes))
    return np.where(np.isfinite(gap[rows, best]), at[rows, best], -1)
