"""Selection of a figure's panels among its regions, by labels, layout and caption.

Among all ways to split the figure along its tree of regions, the best has one label per panel, in
the same corner, clean cuts, and the number of panels in the caption. It is found by dynamic
programming: the best split of a region into n panels follows from those of its parts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from biovl.images.panels.cuts import Mark, Region, area
from biovl.images.panels.ink import Cut
from biovl.images.panels.insets import may_hold
from biovl.images.panels.proposals import Proposed, agreement, partition, same_panels

_CORNERS = (
    *(("left", "top", 1.0), ("middle", "top", 0.75), ("right", "top", 0.7)),
    *(("left", "bottom", 0.85), ("middle", "bottom", 0.8), ("right", "bottom", 0.7)),
    *(("left", "middle", 0.4), ("middle", "middle", 0.4)),
)
"""Label positions and their weights: of 29,000 labels of published figures 66 % are top left, 17 %
bottom left, 6 % bottom middle, 5 % bottom right."""

_SHIFTED = 0.65
"""Factor on these weights for labels at a fixed offset from that corner."""

_REACH = 0.3
"""Fraction of a panel's mean side: labels farther than this from their expected position are
ignored."""

_ONE_LABEL = 3.0
_NO_LABEL = -1.5
_UNREAD = -0.2
_MORE_LABELS = -5.0
_CORNER = 2.5
_COUNT = 2.5
_CUT = 1.0
_BALANCE = 0.6
_BALANCE_ALONE = 1.0
_SMALL, _TINY = 1.4, 2.0
_STRIP = -0.4
_STRIP_SIDE = 0.09
_HOPELESS = 9.0
_INSET = 1.5
"""Cost of an inset."""

_MOST_INSETS = 3
"""Maximum number of insets of a panel."""

_HOST = -2
"""Instead of a parting: the region is a panel with insets."""

_UNCUT = 0.5
"""Cost of a panel that a detector proposes without matching cuts."""

_PROPOSED = 2.0
"""Bonus of a panel that equals a confident proposal of a detector."""

_ODDS = (3.9, 1.7, -3.1, -0.65, -1.7, -0.45)
"""Coefficients of a logistic regression on 1,400 panels, nine in ten of them synthetic, the others
published: constant, fit, imbalance, cost, the logarithm by which a panel is smaller than the
others, its own cut."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A region that is used as one panel."""

    box: Cut
    marks: tuple[Mark, ...]
    cost: float
    """Cost of the last cut that created it."""


@dataclass(frozen=True)
class PanelChoice:
    """Selected panels, with the features that determine their score."""

    leaves: tuple[Leaf, ...]
    fit: float
    """Distance of labels from their expected position: mean over the panels, 1 (none) to 0
    (far)."""

    imbalance: float
    """Mean absolute log ratio of the panels' areas to equal shares of the figure."""

    cost: float
    """Mean cost of the cuts that created the panels."""

    agreement: float = 0.0
    """Agreement with the proposals of a detector: mean over the panels, 0..1."""

    def confidence(self, leaf: Leaf) -> float:
        """Return the probability that a panel has this box, 0..1."""
        usual = sum(area(other.box) for other in self.leaves) / len(self.leaves)
        small = max(0.0, math.log(usual / area(leaf.box)))
        odds = (
            _ODDS[0]
            + _ODDS[1] * self.fit
            + _ODDS[2] * self.imbalance
            + _ODDS[3] * self.cost
            + _ODDS[4] * small
            + _ODDS[5] * leaf.cost
        )
        return 1 / (1 + math.exp(-odds))

    @property
    def quality(self) -> float:
        """Score of the selection for comparison; higher is better."""
        return 2 * self.fit - self.imbalance - self.cost + _PROPOSED * self.agreement


@dataclass(frozen=True, slots=True)
class LabelOffset:
    """Typical position of labels in their panels: an offset in pixels from a corner."""

    across: str
    down: str
    dx: float
    dy: float
    prior: float

    def fits(self, boxes_N4: np.ndarray, marks_N4: np.ndarray) -> np.ndarray:
        """Return how close each label is to this position, from 0 (far) to 1 (exact). Shape [N]."""
        dx, dy = _offsets(self.across, self.down, boxes_N4, marks_N4)
        reach = _REACH * np.sqrt((boxes_N4[:, 2:] - boxes_N4[:, :2]).prod(1))
        off = (np.abs(dx - self.dx) + np.abs(dy - self.dy)) / reach
        return np.asarray(np.maximum(1 - off, 0.0))


Fits = dict[tuple[Cut, int], float]
"""Closeness of labels to their position, by region and index of the label."""


@dataclass(frozen=True, slots=True)
class _Best:
    value: float
    parting: int
    first: int


class Chooser:
    """Selects the best panels among the regions of one figure."""

    def __init__(
        self,
        regions: dict[Cut, Region],
        marks: Sequence[Mark],
        count: int,
        *,
        most: int,
        proposed: Sequence[Proposed] = (),
        insets: Mapping[int, Cut] | None = None,
    ) -> None:
        """Prepare the selection.

        Args:
            regions: The figure's regions, larger before smaller.
            marks: The labels to use, at most one of each text.
            count: Expected number of panels; 0 if unknown.
            most: Maximum number of panels.
            proposed: Panel proposals of a detector.
            insets: Framed rectangles around labels, by their index.
        """
        self.insets = insets or {}
        self.regions = regions
        self.marks = marks
        self.count = count
        self.most = most
        self.root = next(iter(regions))
        self.usual_area = area(self.root) / max(count, len(marks), 2)
        self.places = _places(self.root, marks)
        self.proposed = proposed
        self.likely: Mapping[Cut, float] = agreement(regions, proposed) if proposed else {}

    def choose(self) -> PanelChoice:
        """Return the best panels over all label positions: one label per panel if possible."""
        leaves = self._best_leaves(None)
        place = self._place(leaves)
        if place is not None:
            leaves = self._best_leaves(place)
        return self._judged(leaves, place)

    def as_proposed(self, cut: PanelChoice) -> PanelChoice:
        """Return a detector's proposals as panels: for panels that no straight cut separates.

        Args:
            cut: The panels that cuts separate. If they are the proposed ones, their boxes are used:
                a detector's edges are some pixels off, those of cuts are where the ink ends.
        """
        marks: dict[Cut, list[Mark]] = {box: [] for box in partition(self.proposed, self.count)}
        for mark in self.marks:
            # The label of an inset is not one of the panel around it.
            around = [box for box in marks if mark.within(box)]
            if around:
                marks[min(around, key=area)].append(mark)
        leaves = [Leaf(box, tuple(inside), _UNCUT) for box, inside in marks.items()]
        choice = self._judged(leaves, self._place(leaves))
        exact = same_panels(list(marks), [leaf.box for leaf in cut.leaves])
        boxed = (replace(leaf, box=box) for leaf, box in zip(leaves, exact, strict=True))
        return replace(choice, leaves=tuple(boxed))

    def _judged(self, leaves: Sequence[Leaf], place: LabelOffset | None) -> PanelChoice:
        if len(leaves) < 2:
            return PanelChoice(tuple(leaves), 0.0, _HOPELESS, _HOPELESS)
        single = [leaf for leaf in leaves if len(leaf.marks) == 1]
        pairs = [(leaf.box, leaf.marks[0]) for leaf in single]
        fits = sum(self._fits(pairs, place).values())
        shares = [abs(math.log(area(leaf.box) / self.usual_area)) for leaf in leaves]
        return PanelChoice(
            tuple(leaves),
            fits / len(leaves),
            sum(shares) / len(leaves),
            sum(leaf.cost for leaf in leaves) / len(leaves),
            sum(self._agreement([leaf.box for leaf in leaves])) / len(leaves),
        )

    def _agreement(self, boxes: Sequence[Cut]) -> list[float]:
        if not self.proposed:
            return [0.0]
        if not all(box in self.likely for box in boxes):
            return list(agreement(boxes, self.proposed).values())
        return [self.likely[box] for box in boxes]

    def _best_leaves(self, place: LabelOffset | None) -> list[Leaf]:
        best: dict[Cut, dict[int, _Best]] = {}
        pairs = [(box, mark) for box, region in self.regions.items() for mark in region.marks]
        pairs += [(self.insets[m.index], m) for m in self.marks if m.index in self.insets]
        fits = self._fits(pairs, place)
        for box in reversed(self.regions):
            best[box] = self._ways(box, best, fits)
        ways = best[self.root]
        number = max(ways, key=lambda n: (ways[n].value - self._off(n), -n))
        return self._leaves(self.root, number, best, 0.0)

    def _place(self, leaves: Sequence[Leaf]) -> LabelOffset | None:
        """Return the position of most labels, None if there are none."""
        single = [leaf for leaf in leaves if len(leaf.marks) == 1]
        if not single:
            return None
        boxes = np.array([leaf.box for leaf in single], float)
        marks = np.array([leaf.marks[0].box for leaf in single])
        sums = [(float(p.fits(boxes, marks).sum()) * p.prior, p) for p in self.places]
        most, place = max(sums, key=lambda pair: pair[0])
        return place if most > 0 else None

    def _off(self, number: int) -> float:
        if not self.count:
            return 0.0
        return _COUNT * abs(number - self.count)

    def _ways(self, box: Cut, best: dict[Cut, dict[int, _Best]], fits: Fits) -> dict[int, _Best]:
        inside = len(self.regions[box].marks)
        missing = max(self.count - len(self.marks), 0) if self.marks else self.most
        low, high = max(1, inside - 1), min(inside + missing + (inside > 0), self.most)
        ways = {1: _Best(self._leaf_value(box, self.regions[box].marks, fits), -1, 0)}
        host = self._host(box, fits)
        if host is not None:
            ways[inside] = host
        if self._is_strip(box):
            ways[0] = _Best(_STRIP, -1, 0)
        for at, parting in enumerate(self.regions[box].partings):
            firsts, seconds = best[parting.first], best[parting.second]
            for i, first in firsts.items():
                for j, second in seconds.items():
                    if not low <= i + j <= high:
                        continue
                    value = first.value + second.value - _CUT * parting.cost
                    if i + j not in ways or value > ways[i + j].value:
                        ways[i + j] = _Best(value, at, i)
        return ways

    def _is_strip(self, box: Cut) -> bool:
        """Return whether a region may be a heading or a shared axis title: it has no label."""
        short = min(box[2] - box[0], box[3] - box[1])
        long = max(self.root[2] - self.root[0], self.root[3] - self.root[1])
        return not self.regions[box].marks and short < _STRIP_SIDE * long

    def _host(self, box: Cut, fits: Fits) -> _Best | None:
        """Return a region as one panel with an inset for every label but one."""
        marks = self.regions[box].marks
        if not 1 < len(marks) <= _MOST_INSETS + 1:
            return None
        within = {
            mark.index: self._leaf_value(self.insets[mark.index], (mark,), fits) - _INSET
            for mark in marks
            if mark.index in self.insets and may_hold(box, self.insets[mark.index])
        }
        best: _Best | None = None
        for at, mark in enumerate(marks):
            others = [other.index for other in marks if other is not mark]
            if all(index in within for index in others):
                value = self._leaf_value(box, (mark,), fits) + sum(within[i] for i in others)
                if best is None or value > best.value:
                    best = _Best(value, _HOST, at)
        return best

    def _leaf_value(self, box: Cut, inside: Sequence[Mark], fits: Fits) -> float:
        balance = _BALANCE if self.marks else _BALANCE_ALONE
        larger = math.log(area(box) / self.usual_area)
        value = -balance * abs(larger) - _TINY * max(0.0, -larger - _SMALL)
        aspect = (box[2] - box[0]) / (box[3] - box[1])
        value -= max(0.0, abs(math.log(aspect)) - math.log(4))
        value += _PROPOSED * self.likely.get(box, 0.0)
        if not self.marks:
            return value
        if not inside:
            return value + (_UNREAD if self.count > len(self.marks) else _NO_LABEL)
        best = max(_ONE_LABEL * mark.score + _CORNER * fits[box, mark.index] for mark in inside)
        return value + best + _MORE_LABELS * sum(sorted(m.score for m in inside)[:-1])

    def _fits(self, pairs: Sequence[tuple[Cut, Mark]], place: LabelOffset | None) -> Fits:
        """Return the fit of labels in regions to a position, or to the best one."""
        if not pairs:
            return {}
        boxes = np.array([box for box, _ in pairs], float)
        marks = np.array([mark.box for _, mark in pairs])
        if place is not None:
            values = place.fits(boxes, marks)
        else:
            values = np.max([other.fits(boxes, marks) * other.prior for other in self.places], 0)
        keys = ((box, mark.index) for box, mark in pairs)
        return dict(zip(keys, values.tolist(), strict=True))

    def _leaves(
        self, box: Cut, number: int, best: dict[Cut, dict[int, _Best]], cost: float
    ) -> list[Leaf]:
        way = best[box][number]
        if number == 0:
            return []
        marks = self.regions[box].marks
        if way.parting == _HOST:
            host = marks[way.first]
            rest = [mark for mark in marks if mark is not host]
            within = [Leaf(self.insets[mark.index], (mark,), _INSET) for mark in rest]
            return [Leaf(box, (host,), cost), *within]
        if way.parting < 0:
            return [Leaf(box, marks, cost)]
        parting = self.regions[box].partings[way.parting]
        return [
            *self._leaves(parting.first, way.first, best, parting.cost),
            *self._leaves(parting.second, number - way.first, best, parting.cost),
        ]


def _offsets(
    across: str, down: str, boxes_N4: np.ndarray, marks_N4: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of labels from a corner of regions, in pixels. Shapes [N]."""
    found = []
    for axis, side in ((0, across), (1, down)):
        before = marks_N4[:, axis] - boxes_N4[:, axis]
        behind = boxes_N4[:, axis + 2] - marks_N4[:, axis + 2]
        if side == "middle":
            found.append(np.abs(before - behind) / 2)
        else:
            found.append(np.maximum(before if side in ("left", "top") else behind, 0.0))
    return found[0], found[1]


def _places(root: Cut, marks: Sequence[Mark]) -> list[LabelOffset]:
    """Return candidate positions of labels in panels: at a corner, or at an offset from it.

    In a grid of panels, every label has the same offset from the corner of its panel. So the offset
    is the smallest one of a label from that corner of the whole figure.
    """
    corners = [LabelOffset(across, down, 0.0, 0.0, prior) for across, down, prior in _CORNERS]
    if not marks:
        return corners
    found = list(corners)
    boxes = np.array([mark.box for mark in marks])
    roots = np.tile(np.array(root, float), (len(marks), 1))
    for corner in corners:
        if "middle" not in (corner.across, corner.down):
            dx, dy = _offsets(corner.across, corner.down, roots, boxes)
            least = float(dx.min()), float(dy.min())
            found.append(LabelOffset(corner.across, corner.down, *least, corner.prior * _SHIFTED))
    return found
