"""SVG charts in the colours of the page, for light and dark mode, without scripts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from biovl.chain.page.markup import parts

_WIDTH, _HEIGHT = 520, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 48
_POINTS = 400
"""Maximum points of a curve; longer curves are averaged over equal intervals."""

Place = Callable[[float], float]


@dataclass(frozen=True)
class Curve:
    """A line of a chart, with its points and its style."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    look: str
    """CSS class of the line: first, second, third or pale."""
    dots: bool = False


def lines(
    title: str,
    curves: Sequence[Curve],
    *,
    x: str,
    levels: Mapping[str, float] | None = None,
    percent: bool = False,
) -> Markup:
    """Return a line chart as SVG, with named levels as dashed lines; y begins at zero.

    Args:
        title: Accessible description.
        curves: At least one, with at least one point.
        x: Label of the x axis.
        levels: Heights of the dashed lines, by name.
        percent: Whether y values are fractions, to be shown as percentages.
    """
    levels = levels or {}
    most = max([*(max(curve.ys) for curve in curves), *levels.values(), 1e-9])
    ticks = _ticks(0, min(1.0, most * 1.1) if percent else most * 1.08)
    along = _ticks(min(min(c.xs) for c in curves), max(max(c.xs) for c in curves), whole=True)
    first, last = min(min(c.xs) for c in curves), max(max(c.xs) for c in curves)
    place_x = _scale(first, last if last > first else first + 1, _LEFT + 8, _WIDTH - _RIGHT - 8)
    place_y = _scale(0, max(ticks[-1], most * 1.06), _HEIGHT - _BOTTOM, _TOP)
    return _chart(
        title,
        x,
        [(place_y(tick), f"{tick:.0%}" if percent else f"{tick:,.10g}") for tick in ticks],
        [(place_x(tick), f"{tick:,.10g}") for tick in along],
        levels=[(place_y(height), name) for name, height in levels.items()],
        curves=[
            (curve, [(place_x(a), place_y(b)) for a, b in _thinned(curve.xs, curve.ys)])
            for curve in curves
        ],
    )


def histogram(
    title: str,
    bars: Sequence[tuple[float, float, int]],
    *,
    x: str,
    marks: Mapping[str, float] | None = None,
) -> Markup:
    """Return a histogram as SVG.

    Args:
        title: Accessible description.
        bars: (start, exclusive end, count) of consecutive bins.
        x: Label of the x axis.
        marks: Values marked by dashed lines, by name.
    """
    first, last = bars[0][0], bars[-1][1]
    most = max(count for *_, count in bars)
    ticks = _ticks(0, most, whole=True)
    place_x = _scale(first, last, _LEFT, _WIDTH - _RIGHT)
    # Leave space for the names of marks above the highest bar.
    place_y = _scale(0, most * (1.16 if marks else 1.04), _HEIGHT - _BOTTOM, _TOP)
    shapes = []
    for start, end, count in bars:
        left, top = place_x(start), place_y(count)
        width, height = max(place_x(end) - left - 1.5, 1), _HEIGHT - _BOTTOM - top
        shapes.append((round(left + 0.75, 1), top, round(width, 1), round(height, 1)))
    return _chart(
        title,
        x,
        [(place_y(tick), f"{tick:,.10g}") for tick in ticks],
        [(place_x(tick), f"{tick:,.10g}") for tick in _ticks(first, last, whole=True)],
        bars=shapes,
        marks=[(place_x(v), name) for name, v in (marks or {}).items() if first <= v <= last],
    )


def bubbles(title: str, points: Sequence[tuple[float, float, int]], *, x: str, y: str) -> Markup:
    """Return a bubble chart as SVG on logarithmic axes: areas are proportional to counts.

    Args:
        title: Accessible description.
        points: (x, y, count); x and y are positive.
        x: Label of the x axis.
        y: Label of the y axis.
    """
    # An octave of margin.
    lows = [math.log2(min(p[i] for p in points)) - 1 for i in (0, 1)]
    highs = [math.log2(max(p[i] for p in points)) + 1 for i in (0, 1)]
    place_x = _scale(lows[0], highs[0], _LEFT, _WIDTH - _RIGHT)
    place_y = _scale(lows[1], highs[1], _HEIGHT - _BOTTOM, _TOP)
    most = max(count for *_, count in points)

    def powers(axis: int, place: Place) -> list[tuple[float, str]]:
        within = range(math.ceil(lows[axis]), math.floor(highs[axis]) + 1)
        return [(place(power), f"{2**power:,}") for power in within]

    circles = [
        (
            place_x(math.log2(across)),
            place_y(math.log2(up)),
            round(max(3.0, 26 * math.sqrt(count / most)), 1),
            f"{across:,.0f} × {up:,.0f} px: {count:,}",
        )
        for across, up, count in sorted(points, key=lambda point: -point[2])
    ]
    return _chart(title, x, powers(1, place_y), powers(0, place_x), y=y, bubbles=circles)


def _chart(
    title: str,
    x: str,
    rules: Sequence[tuple[float, str]],
    ticks: Sequence[tuple[float, str]],
    **shapes: Any,
) -> Markup:
    box = {"left": _LEFT, "right": _WIDTH - _RIGHT, "top": _TOP, "bottom": _HEIGHT - _BOTTOM}
    size = {"width": _WIDTH, "height": _HEIGHT}
    chart: Markup = parts.chart(title, box | size, x, rules, ticks, **shapes)
    return chart


def _scale(low: float, high: float, at_low: float, at_high: float) -> Place:
    span = (high - low) or 1.0
    return lambda value: round(at_low + (value - low) / span * (at_high - at_low), 1)


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return round numbers between low and high for the ticks of an axis."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9) / 4))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    if whole:
        step = max(1.0, round(step))
    start = math.ceil(low / step - 1e-9)
    return [number * step for number in range(start, math.floor(high / step + 1e-9) + 1)]


def _thinned(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    size = max(1, -(-len(xs) // _POINTS))
    intervals = [slice(start, start + size) for start in range(0, len(xs), size)]
    return [(fmean(xs[interval]), fmean(ys[interval])) for interval in intervals]
