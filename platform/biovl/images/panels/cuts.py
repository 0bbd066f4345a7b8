"""All straight cuts of a figure: a tree of regions at all levels, of bounded size.

A region is cut where a strip has the colour of a background from side to side (a gap), or where the
colour changes along a whole line (a seam). The space between text and its plot is a gap, too: which
cuts are used is decided in ``panels.choice``. Labels determine which cuts are explored.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biovl.images.panels.ink import Cut, Ink

MAX_REGIONS = 1000
_FIRST_REGIONS, _REGIONS_PER_PANEL = 180, 40
"""Bound the running time: figures with much text have very many gaps. Clean cuts are explored
first. Above this number, regions with several labels are only cut in one way, between these."""

_OVERTIME = 250
"""Maximum number of regions beyond ``MAX_REGIONS``."""

_BETWEEN = 3
"""Cuts per axis that are explored between the same labels."""

_BESIDE = 2
"""Cuts that are explored if all labels are on one side: the other side is a heading."""

_BLIND = 5
"""Cuts that are explored if labels are unknown."""

_DEARER, _DEARER_BESIDE = 2.0, 1.2
"""Cuts are not explored if they cost this factor more than the cheapest between the same labels."""

_LEAST_SIDE = 0.04
"""Minimum side of a panel, as a fraction of the figure's longer side."""

_CLEAN = 0.006
"""Fraction of a gap that specks and hairlines may cross."""

_CROSSED = 0.07
"""Fraction of a gap that axis titles, arrows and connecting lines may cross, at a cost."""

_VALLEYS = 12
_UNKNOWN = 1.6
"""Cost of a wide gap whose colour is not a background elsewhere."""

_ABOVE = 0.2
"""Minimum difference of this fraction from the median of all lines."""

_IMPLIED = 3.4
"""Cost of a cut without a gap or seam, where the distance of labels from the edge implies it."""

_NEAR_EDGE = 0.15
"""Maximum distance of labels from their edge, as a fraction of a region, to imply a cut."""

_BRIDGE_PX = 3
"""Minimum width of a gap at which a crossing line is significant."""

_SEAM = 0.72
"""Minimum fraction of a line along which the colour changes."""

_Line = tuple[int, int, float]
"""Start and end of a gap, and the cost of a cut there."""

_Candidate = tuple[float, int, int, int, int | None]
"""Minimum cost, start, a number that breaks ties, end; and the index of the background whose gap
this is, if the cost of what crosses it is not computed yet."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A printed label in the downscaled figure."""

    index: int
    box: tuple[float, float, float, float]
    score: float

    def within(self, cut: Cut) -> bool:
        """Return whether the centre of the label is in a rectangle."""
        x, y = (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2
        return cut[0] <= x < cut[2] and cut[1] <= y < cut[3]


@dataclass(frozen=True, slots=True)
class Parting:
    """A cut of a region into two."""

    first: Cut
    second: Cut
    cost: float
    """Cost of the cut: from 0.1 for a wide clean gap to 4 for a gap crossed by ink."""

    def divides(self, marks: Sequence[Mark]) -> bool:
        """Return whether both sides of the cut have labels."""
        return all(any(m.within(side) for m in marks) for side in (self.first, self.second))


@dataclass(frozen=True)
class Region:
    """A part of the figure, cropped to its ink, and its possible cuts."""

    box: Cut
    marks: tuple[Mark, ...]
    partings: tuple[Parting, ...]


def regions_of(
    ink: Ink, marks: Sequence[Mark], *, missing: int, axes: Sequence[int] = (0, 1)
) -> dict[Cut, Region]:
    """Return the regions by their boxes, larger before smaller; empty for a blank figure.

    Args:
        ink: The figure.
        marks: Labels of the figure.
        missing: Number of panels that may have a label not in ``marks``.
        axes: 0 for vertical cuts (left from right), 1 for horizontal cuts (upper from lower).
    """
    root = ink.trimmed((0, 0, ink.width, ink.height))
    if root is None:
        return {}
    most = min(MAX_REGIONS, _FIRST_REGIONS + _REGIONS_PER_PANEL * (len(marks) + missing))
    found: dict[Cut, Region] = {}
    reached = 0
    queue = [(0.0, root)]
    while queue:
        spent, box = heapq.heappop(queue)
        if box in found:
            continue
        inside = tuple(mark for mark in marks if mark.within(box))
        partings: list[Parting] = []
        if (len(inside) > 1 or missing) and reached < most:
            partings = _partings(ink, box, inside, axes, blind=missing > 0)
        elif len(inside) > 1 and reached < most + _OVERTIME:
            every = _partings(ink, box, inside, axes, blind=False)
            partings = sorted(
                (parting for parting in every if parting.divides(inside)), key=lambda p: p.cost
            )[:1]
        found[box] = Region(box, inside, tuple(partings))
        for parting in partings:
            reached += 2
            heapq.heappush(queue, (spent + parting.cost, parting.first))
            heapq.heappush(queue, (spent + parting.cost, parting.second))
    by_area = sorted(found.values(), key=lambda region: (-area(region.box), region.box))
    return {region.box: region for region in by_area}


def area(box: Cut) -> int:
    """Return the area of a rectangle in square pixels."""
    return (box[2] - box[0]) * (box[3] - box[1])


def _partings(
    ink: Ink, box: Cut, marks: Sequence[Mark], axes: Sequence[int], *, blind: bool
) -> list[Parting]:
    x0, y0, x1, y1 = box
    least = max(4, round(_LEAST_SIDE * max(ink.width, ink.height)))
    found: list[Parting] = []
    for axis in axes:
        start = box[axis]
        spans = sorted((mark.box[axis] - start, mark.box[axis + 2] - start) for mark in marks)
        for a, b, cost in _followed(ink, box, axis, least, spans, blind=blind):
            if axis == 0:
                sides = (x0, y0, x0 + a, y1), (x0 + b, y0, x1, y1)
            else:
                sides = (x0, y0, x1, y0 + a), (x0, y0 + b, x1, y1)
            first, second = ink.trimmed(sides[0]), ink.trimmed(sides[1])
            if first is not None and second is not None:
                found.append(Parting(first, second, cost))
    return found


def _followed(
    ink: Ink, box: Cut, axis: int, least: int, spans: Sequence[tuple[float, float]], *, blind: bool
) -> list[_Line]:
    """Return the cheapest cuts between any two labels, and some outside all of them."""
    kept: list[_Line] = []
    taken: dict[int, int] = {}
    cheapest: dict[int, float] = {}
    waiting = _lines(ink, box, axis, least)
    waiting += _implied(spans, box[axis + 2] - box[axis], least, len(waiting))
    heapq.heapify(waiting)
    while waiting:
        cost, a, order, b, crossed = heapq.heappop(waiting)
        if any(start + 1 < a and b < end - 1 for start, end in spans):
            continue
        before = sum((start + end) / 2 < (a + b) / 2 for start, end in spans)
        most = _BETWEEN if 0 < before < len(spans) else _BLIND if blind else _BESIDE
        if taken.get(before, 0) >= most or not all(a > d + 2 or b < c - 2 for c, d, _ in kept):
            continue
        if cost > cheapest.get(before, cost) + _DEARER:
            continue
        if crossed is not None:
            # Lines that cross a gap are only examined if the cut can still be explored.
            dearer = cost + _bridged(ink, ink.inked[crossed], box, axis, a, b)
            heapq.heappush(waiting, (dearer, a, order, b, None))
            continue
        cheapest.setdefault(before, cost)
        taken[before] = taken.get(before, 0) + 1
        kept.append((a, b, cost))
    return kept


def _lines(ink: Ink, box: Cut, axis: int, least: int) -> list[_Candidate]:
    """Return the possible cuts of a region along an axis, without the cost of crossing lines."""
    counted = ink.columns if axis == 0 else ink.rows
    length, side = box[axis + 2] - box[axis], box[3 - axis] - box[1 - axis]
    low, high = least // 2, length - least // 2
    unit = max(ink.width, ink.height) / 100
    found: list[_Candidate] = []

    def add(a: int, b: int, cost: float, crossed: int | None = None) -> None:
        if low <= a and b <= high:
            found.append((cost, a, len(found), b, crossed))

    for number, table in enumerate(ink.inked):
        share = counted(table, box) / side
        for a, b in _runs(share <= _CLEAN):
            width = (b - a) / unit
            cost = 0.1 + 0.9 / (1 + width * width) + 0.3 * (number > 0)
            blank = np.flatnonzero(share[a:b] == 0).tolist()
            if not blank:
                add(a, b, cost, number)
                continue
            # Specks at an end are of the panel there, such as descenders of an axis title.
            before, behind = blank[0], b - a - 1 - blank[-1]
            add(a + before * (before <= unit), b - behind * (behind <= unit), cost)
        for a, b in _valleys(share):
            add(a, b, 1.0 + 40 * float(share[a]) + 0.5 * (number > 0), number)
    jumps = counted(ink.jumps_across if axis == 0 else ink.jumps_down, box) / side
    smooth = counted(ink.jumps_down if axis == 0 else ink.jumps_across, box)
    for a, b in _runs(smooth == 0):
        width = (b - a) / unit
        add(a, b, _UNKNOWN + 0.9 / (1 + width * width))
    # In grain, the colour changes along all lines.
    for at in _peaks(np.where(jumps > np.median(jumps) + _ABOVE, jumps, 0)):
        add(at + 1, at + 1, 1.2 + 5 * (1 - float(jumps[at])))
    return found


def _implied(
    spans: Sequence[tuple[float, float]], length: int, least: int, order: int
) -> list[_Candidate]:
    """Return the cuts at which the other labels are as far from an edge as the outermost one.

    They separate parts of one image, which touch without a line between them.
    """
    if len(spans) < 2:
        return []
    before, behind = spans[0][0], length - max(end for _, end in spans)
    cuts = {round(start - before) for start, _ in spans if before < _NEAR_EDGE * length}
    cuts |= {round(end + behind) for _, end in spans if behind < _NEAR_EDGE * length}
    inside = sorted(at for at in cuts if least < at < length - least)
    return [(_IMPLIED, at, order + number, at, None) for number, at in enumerate(inside)]


def _bridged(ink: Ink, table: np.ndarray, box: Cut, axis: int, a: int, b: int) -> float:
    """Return what is added to the cost of a cut in a gap because lines cross the gap.

    Lines near either end of the gap cost more: they are probably axes or frames of a plot, while a
    connecting line or arrow may be anywhere.
    """
    x0, y0, x1, y1 = box
    if axis == 0:
        through = ink.rows(table, (x0 + a, y0, x0 + b, y1))
    else:
        through = ink.columns(table, (x0, y0 + a, x1, y0 + b))
    at = np.flatnonzero(through == b - a)
    if b - a < _BRIDGE_PX or not len(at):
        return 0.0
    edge = len(through) / 4
    return 0.3 + 1.0 * bool(at[0] < edge) + 1.0 * bool(at[-1] >= len(through) - edge)


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return the runs in which a mask is true: starts and ends."""
    padded = np.zeros(len(mask) + 2, np.bool_)
    padded[1:-1] = mask
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _valleys(share: np.ndarray) -> list[tuple[int, int]]:
    """Return the best position of each local minimum of a strip's crossings."""
    runs = _runs((share > _CLEAN) & (share <= _CROSSED))
    if len(runs) > _VALLEYS:
        edges = [edge for run in runs for edge in run]
        lowest = np.minimum.reduceat(np.append(share, np.inf), edges)[::2]
        runs = [runs[at] for at in np.argsort(lowest, kind="stable")[:_VALLEYS]]
    found = []
    for a, b in runs:
        strip = share[a:b]
        c = int(strip.argmin())
        higher = strip[c:] > strip[c]
        d = int(higher.argmax())
        found.append((a + c, a + c + d if higher[d] else b))
    return found


def _peaks(share: np.ndarray) -> list[int]:
    """Return the local maxima of the edge counts."""
    return [a + int(np.argmax(share[a:b])) for a, b in _runs(share >= _SEAM)]
