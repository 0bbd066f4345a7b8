"""SVG charts in the colours of the page, for light and dark mode, without scripts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from biovl.chain.page.markup import Html, element

_WIDTH, _HEIGHT = 520, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 48
_POINTS = 400
"""Maximum points of a curve; longer curves are averaged over equal intervals."""

Place = Callable[[float], float]


@dataclass(frozen=True)
class Curve:
    """A line of a chart."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    look: str
    """Class of ``style.css``: first, second, third or pale."""
    dots: bool = False


def lines(
    title: str,
    curves: Sequence[Curve],
    *,
    x: str,
    levels: Mapping[str, float] | None = None,
    percent: bool = False,
) -> Html:
    """Return a line chart, with named levels as dashed lines; the y axis begins at zero.

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
    elements = [*_grid(ticks, place_y, percent), *_marks(along, place_x), _name_x(x)]
    for name, height in levels.items():
        y = place_y(height)
        elements.append(element("line", class_="level", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        elements.append(
            element(
                "text", name, class_="level-name", x=_WIDTH - _RIGHT, y=y - 6, text_anchor="end"
            )
        )
    for curve in curves:
        xs, ys = _thinned(curve.xs, curve.ys)
        points = " ".join(f"{place_x(a):.1f},{place_y(b):.1f}" for a, b in zip(xs, ys, strict=True))
        elements.append(element("polyline", class_=f"curve {curve.look}", points=points))
        if curve.dots:
            elements += [
                element("circle", class_=f"dot {curve.look}", cx=place_x(a), cy=place_y(b), r=4)
                for a, b in zip(xs, ys, strict=True)
            ]
    return _svg(title, elements)


def histogram(
    title: str,
    bars: Sequence[tuple[float, float, int]],
    *,
    x: str,
    marks: Mapping[str, float] | None = None,
) -> Html:
    """Return a histogram.

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
    elements = [
        *_grid(ticks, place_y),
        *_marks(_ticks(first, last, whole=True), place_x),
        _name_x(x),
    ]
    for start, end, count in bars:
        left, right, top = place_x(start), place_x(end), place_y(count)
        elements.append(
            element(
                "rect",
                class_="bar",
                x=f"{left + 0.75:.1f}",
                y=f"{top:.1f}",
                width=f"{max(right - left - 1.5, 1):.1f}",
                height=f"{_HEIGHT - _BOTTOM - top:.1f}",
            )
        )
    for name, value in (marks or {}).items():
        if first <= value <= last:
            at = place_x(value)
            elements.append(
                element("line", class_="level", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM)
            )
            elements.append(element("text", name, class_="level-name", x=at + 5, y=_TOP + 11))
    return _svg(title, elements)


def bubbles(
    title: str, points: Sequence[tuple[float, float, int]], *, x: str, y: str, unit: float = 1.0
) -> Html:
    """Return a bubble chart on logarithmic axes: the area of a circle is proportional to its count.

    Args:
        title: Accessible description.
        points: (x, y, count); x and y are positive.
        x: Label of the x axis.
        y: Label of the y axis.
        unit: Margin around the points, in powers of two.
    """
    lows = [math.log2(min(p[i] for p in points)) - unit for i in (0, 1)]
    highs = [math.log2(max(p[i] for p in points)) + unit for i in (0, 1)]
    place_x = _scale(lows[0], highs[0], _LEFT, _WIDTH - _RIGHT)
    place_y = _scale(lows[1], highs[1], _HEIGHT - _BOTTOM, _TOP)
    most = max(count for *_, count in points)
    elements = []
    for power in range(math.ceil(lows[1]), math.floor(highs[1]) + 1):
        elements += _rule(place_y(power), f"{2**power:,}")
    for power in range(math.ceil(lows[0]), math.floor(highs[0]) + 1):
        elements.append(_mark(place_x(power), f"{2**power:,}"))
    for across, up, count in sorted(points, key=lambda point: -point[2]):
        dot = element(
            "circle",
            element("title", f"{across:,.0f} × {up:,.0f} px: {count:,}"),
            class_="bubble",
            cx=f"{place_x(math.log2(across)):.1f}",
            cy=f"{place_y(math.log2(up)):.1f}",
            r=f"{max(3.0, 26 * math.sqrt(count / most)):.1f}",
        )
        elements.append(dot)
    elements += [_name_x(x), element("text", y, class_="name", x=_LEFT + 8, y=_TOP + 12)]
    return _svg(title, elements)


def _svg(title: str, drawn: Sequence[Html]) -> Html:
    return element(
        "svg",
        *drawn,
        class_="chart",
        view_box=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=title,
    )


def _grid(ticks: Sequence[float], place: Place, percent: bool = False) -> list[Html]:
    rules = []
    for tick in ticks:
        rules += _rule(place(tick), f"{tick:.0%}" if percent else f"{tick:,.10g}")
    return rules


def _rule(at: float, text: str) -> list[Html]:
    return [
        element(
            "line", class_="rule", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}"
        ),
        element("text", text, class_="tick", x=_LEFT - 8, y=f"{at + 4:.1f}", text_anchor="end"),
    ]


def _marks(ticks: Sequence[float], place: Place) -> list[Html]:
    return [_mark(place(tick), f"{tick:,.10g}") for tick in ticks]


def _mark(at: float, text: str) -> Html:
    return element(
        "text", text, class_="tick", x=f"{at:.1f}", y=_HEIGHT - _BOTTOM + 18, text_anchor="middle"
    )


def _name_x(text: str) -> Html:
    return element("text", text, class_="name", x=_WIDTH - _RIGHT, y=_HEIGHT - 8, text_anchor="end")


def _scale(low: float, high: float, at_low: float, at_high: float) -> Place:
    span = (high - low) or 1.0
    return lambda value: at_low + (value - low) / span * (at_high - at_low)


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


def _thinned(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    size = -(-len(xs) // _POINTS)
    if size <= 1:
        return list(xs), list(ys)
    parts = [slice(start, start + size) for start in range(0, len(xs), size)]
    return (
        [sum(xs[part]) / len(xs[part]) for part in parts],
        [sum(ys[part]) / len(ys[part]) for part in parts],
    )
