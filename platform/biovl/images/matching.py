"""Matching of printed labels, detected panels and caption labels.

Names are compared in stages, from exact to look-alike, and a stage only decides if its answer is
unique. A panel without a printed label is assigned by position, if nothing contradicts it. A figure
with conflicting labels stays whole: a wrong caption is worse than a long one.
"""

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from biovl.images.boxes import Box, PanelFound

_PRIMES = dict.fromkeys(map(ord, "’‘′`´ʹ"), "'") | {ord("″"): "''", ord("”"): "''"}
_DROPPED = dict.fromkeys(map(ord, " .,:;()[]{}–—-_")) | {0x200B: None}

# Characters printed alike, by a representative: digits, bars and the capitals that Greek and
# Cyrillic share with Latin.
_ALIKE = str.maketrans(
    "0οоθ1|iι5ѕ8αаβвсеёкмнорртхуγ",
    "ooool" + "lll" + "ssbaabbceekmhopptxyy",
)
_SHARE_PLACED = 0.5

_OFF = 0.4
"""Maximum distance of the left panel's centre from the left edge, as a fraction of the side."""

_LEFT = frozenset({"left", "lefthand"})
_RIGHT = frozenset({"right", "righthand"})
_TOP = frozenset({"top", "upper", "above", "up"})
_BOTTOM = frozenset({"bottom", "lower", "below", "down"})
_MIDDLE = frozenset({"middle", "center", "centre", "central"})
_FILLERS = frozenset({"panel", "panels", "row", "column", "image", "hand", "side", "the", "most"})


@dataclass(frozen=True, slots=True)
class MatchedPanel:
    """A panel with the label of its part of the caption."""

    panel: PanelFound
    label: str | None
    """Label as in the caption; None if no part of the caption is about this panel."""

    how: str
    """Matching rule: ``exact``, ``written alike``, ``in either case``, ``looks alike``, ``order``,
    ``place`` or ``none``."""

    confidence: float


@dataclass(frozen=True, slots=True)
class Matched:
    """The panels of a figure with labels of its caption, missing labels, and any conflict."""

    panels: tuple[MatchedPanel, ...]
    missing: tuple[str, ...]
    """Labels of the caption that no panel has."""

    conflict: str | None
    """Reason why the figure should stay whole; None if there is no conflict."""

    confidence: float
    """Probability that every panel has the right label, 0..1; 0 with a conflict."""


def match(panels: Sequence[PanelFound], expected: Sequence[str]) -> Matched:
    """Assign the labels of a caption to panels.

    Args:
        panels: Panels of one figure, in reading order.
        expected: The caption's labels, each once, in its order.
    """
    names: dict[int, tuple[str, str]] = {}
    printed = {at: panel.label for at, panel in enumerate(panels) if panel.label}
    twice = [name for name, count in Counter(printed.values()).items() if count > 1]
    if not expected:
        return _with(panels, names, (), None)
    for at, (name, how) in matched_names(list(printed.values()), expected).items():
        names[list(printed)[at]] = name, how
    free = [at for at in range(len(panels)) if at not in names]
    left = [name for name in expected if name not in {taken for taken, _ in names.values()}]
    if free and left and not any(at in printed for at in free):
        for at, (name, how) in _placed(panels, names, free, left, expected).items():
            names[at] = name, how
    missing = tuple(name for name in expected if name not in {taken for taken, _ in names.values()})
    conflict = None
    if len(panels) > 1 and twice:
        conflict = f"two panels bear the label {twice[0]}"
    elif len(panels) > 1 and len(names) < _SHARE_PLACED * max(len(panels), len(expected)):
        conflict = f"{len(names)} of {len(expected)} labels found their panel"
    return _with(panels, names, missing, conflict)


def matched_names(read: Sequence[str], expected: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Return the expected label of each text and the matching rule, by the text's index.

    A text that matches several labels gets none. If several texts match one label, only the best
    match gets it, if it is unique.
    """
    found: dict[int, tuple[str, str]] = {}
    for how, key in _STEPS:
        texts = [at for at in range(len(read)) if at not in found]
        names = [
            n for n in dict.fromkeys(expected) if n not in {name for name, _ in found.values()}
        ]
        text_keys = Counter(key(read[at]) for at in texts)
        name_keys = Counter(key(name) for name in names)
        by_key = {key(name): name for name in names}
        for at in texts:
            written = key(read[at])
            if written and text_keys[written] == name_keys[written] == 1:
                found[at] = by_key[written], how
    return found


def skipped_letters(expected: Sequence[str]) -> list[str]:
    """Return the letters that the labels of a caption skip, in lower case: c for A, B, D.

    The figure may have these panels. Empty if a label is not a single letter, or if at least as
    many letters are missing as named.
    """
    named = {name.casefold() for name in expected}
    if not named or not all(len(name) == 1 and "a" <= name <= "z" for name in named):
        return []
    upto = (chr(code) for code in range(ord("a"), ord(max(named))))
    missing = [letter for letter in upto if letter not in named]
    return missing if len(missing) < len(named) else []


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Return the indices of boxes row by row, from left to right.

    A box belongs to a row if it overlaps the row's first box vertically by more than half of the
    smaller height of the two. If boxes of a row are above each other, beside a tall one, those left
    of the tallest are read before it, and the others behind it, each row by row.
    """
    return _read(boxes, range(len(boxes)))


def _read(boxes: Sequence[Box], chosen: Sequence[int]) -> list[int]:
    rows: list[list[int]] = []
    for at in sorted(chosen, key=lambda i: (boxes[i].y0, boxes[i].x0)):
        for row in rows:
            if _are_beside(boxes[at], boxes[row[0]]):
                row.append(at)
                break
        else:
            rows.append([at])
    order: list[int] = []
    for row in rows:
        if all(_are_beside(boxes[i], boxes[j]) for i, j in itertools.combinations(row, 2)):
            order += sorted(row, key=lambda i: (boxes[i].x0, boxes[i].y0))
            continue
        tallest = max(row, key=lambda i: (boxes[i].height, -boxes[i].x0))
        middle = boxes[tallest].centre[0]
        before = [at for at in row if at != tallest and boxes[at].centre[0] < middle]
        behind = [at for at in row if at != tallest and boxes[at].centre[0] >= middle]
        order += [*_read(boxes, before), tallest, *_read(boxes, behind)]
    return order


def _are_beside(first: Box, second: Box) -> bool:
    shared = min(first.y1, second.y1) - max(first.y0, second.y0)
    return shared > 0.5 * min(first.height, second.height)


def column_order(boxes: Sequence[Box]) -> list[int]:
    """Return the indices of boxes column by column, from the top down."""
    return reading_order([Box(box.y0, box.x0, box.y1, box.x1) for box in boxes])


def _written(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_PRIMES).translate(_DROPPED)


def _folded(text: str) -> str:
    return _written(text).casefold()


def _alike(text: str) -> str:
    return _folded(text).translate(_ALIKE)


def _same(text: str) -> str:
    return text


_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("exact", _same),
    ("written alike", _written),
    ("in either case", _folded),
    ("looks alike", _alike),
)


def _placed(
    panels: Sequence[PanelFound],
    names: dict[int, tuple[str, str]],
    free: list[int],
    left: list[str],
    expected: Sequence[str],
) -> dict[int, tuple[str, str]]:
    """Return the labels of panels without a printed one, if their position determines them."""
    boxes = [panel.box for panel in panels]
    by_words = _by_words([boxes[at] for at in free], left)
    if by_words is not None:
        return {free[at]: (name, "place") for at, name in by_words.items()}
    if len(panels) == len(expected):
        # Captions may list "(A, C) … (B, D) …"; in the figure, letters are in alphabetical order.
        by_letter = [sorted(expected)] if all(len(name) == 1 for name in expected) else []
        rows = [*by_letter, list(expected)]
    elif len(panels) == len(expected) + len(skipped := skipped_letters(expected)):
        rows = [sorted([*expected, *skipped], key=str.casefold)]
    else:
        return {}
    for row in rows:
        for order in (reading_order(boxes), column_order(boxes)):
            # The printed labels must be where this order places them.
            if all(names[at][0] == row[number] for number, at in enumerate(order) if at in names):
                return {
                    at: (row[number], "order")
                    for number, at in enumerate(order)
                    if at not in names and row[number] in left
                }
    return {}


def _by_words(boxes: Sequence[Box], words: Sequence[str]) -> dict[int, str] | None:
    """Return the boxes of labels such as ``upper left``; None if they are not such labels."""
    directions = [_direction(word) for word in words]
    if len(boxes) != len(words) or any(place is None for place in directions):
        return None
    x0, x1 = min(box.x0 for box in boxes), max(box.x1 for box in boxes)
    y0, y1 = min(box.y0 for box in boxes), max(box.y1 for box in boxes)
    found: dict[int, str] = {}
    for word, place in zip(words, directions, strict=True):
        across, down = place or (None, None)
        distances = []
        for at, box in enumerate(boxes):
            x, y = box.centre
            off_x = abs((x - x0) / max(x1 - x0, 1) - across) if across is not None else 0.0
            off_y = abs((y - y0) / max(y1 - y0, 1) - down) if down is not None else 0.0
            distances.append((off_x + off_y, max(off_x, off_y), at))
        _, off, at = min(distances)
        if at in found or off > _OFF:
            return {}
        found[at] = word
    return found


def cut_axes(expected: Sequence[str]) -> tuple[int, ...]:
    """Return the axes along which panels are arranged: 0 across, 1 down, or both.

    Labels such as ``left`` and ``right`` imply that panels are not above each other.
    """
    places = [_direction(name) for name in expected]
    axes = tuple(
        axis for axis in (0, 1) if any(place and place[axis] in (0.0, 1.0) for place in places)
    )
    return axes if axes and all(places) else (0, 1)


def _direction(word: str) -> tuple[float | None, float | None] | None:
    """Return the relative position that a word denotes, (x, y) in 0..1."""
    parts = set(word.casefold().replace("-", " ").split()) - _FILLERS
    across = 0.0 if parts & _LEFT else 1.0 if parts & _RIGHT else None
    down = 0.0 if parts & _TOP else 1.0 if parts & _BOTTOM else None
    if not parts or parts - _LEFT - _RIGHT - _TOP - _BOTTOM - _MIDDLE:
        return None
    if parts & _MIDDLE:
        return 0.5 if across is None else across, 0.5 if down is None else down
    return across, down


def _with(
    panels: Sequence[PanelFound],
    names: dict[int, tuple[str, str]],
    missing: tuple[str, ...],
    conflict: str | None,
) -> Matched:
    trust = {"exact": 1.0, "written alike": 1.0, "in either case": 0.95, "looks alike": 0.85}
    matched = []
    for at, panel in enumerate(panels):
        name, how = names.get(at, (None, "none"))
        share = trust.get(how, 0.7) if name else 0.0
        matched.append(MatchedPanel(panel, name, how, panel.confidence * share))
    confidence = 0.0
    if matched and not conflict:
        confidence = sum(panel.confidence for panel in matched) / (len(matched) + len(missing))
    return Matched(tuple(matched), missing, conflict, confidence)
