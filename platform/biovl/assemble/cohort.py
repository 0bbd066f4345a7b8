"""Cohort diagram: counts from harvested articles to the pairs of each split."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from biovl.assemble import rules
from biovl.core.charts import BLUE, INK, ROSE, figure, png

NO_FIGURES = "no figures"
"""Defect of an article without figures: it was read successfully."""

_WIDTH_IN = 11.0
_MAIN_IN, _SIDE_IN = 3.7, 5.6
_BOX_IN, _LINE_IN, _GAP_IN, _MARGIN_IN = 0.68, 0.205, 0.34, 0.2
_MOST_REASONS = 10
_REASON_CHARACTERS = 54


@dataclass(frozen=True)
class CohortStage:
    """A box of the cohort diagram, and the exclusions between it and the next box."""

    title: str
    count: int
    left_out: str = ""
    reasons: Mapping[str, int] = field(default_factory=dict)
    note: str = ""


def steps(stats: Mapping[str, Any]) -> list[CohortStage]:
    """Return the stages from the harvested articles to the pairs of the corpus.

    The exclusions after a stage sum to the difference from the next stage with the same unit.
    """
    articles, figures = stats["harvested"]["articles"], stats["harvested"]["figures"]
    unreadable = {k: n for k, n in articles["defects"].items() if k != NO_FIGURES}
    readable = articles["seen"] - sum(unreadable.values())
    without = articles["defects"].get(NO_FIGURES, 0)
    dropped, corpus = dict(stats["dropped"]), stats["corpus"]
    result = [
        CohortStage("Articles seen", articles["seen"], "could not be read", unreadable),
        CohortStage("Articles read", readable, "without figures", {NO_FIGURES: without}),
        CohortStage("Articles with figures", readable - without),
    ]
    # Drops exclude defective figures only if the rule for defects dropped all of them.
    by_defect = rules.usable_image().name
    title, count = "Published figure images", figures["seen"]
    if dropped.get(by_defect, 0) == figures["defective"]:
        dropped.pop(by_defect, None)
        result += [CohortStage(title, count, "not usable", figures["defects"])]
        title, count = "Usable figure images", figures["usable"]
    result += [CohortStage(title, count, "left out of the corpus", dropped)]
    of = _from_articles(corpus["articles"])
    return [*result, CohortStage("Pairs in the corpus", corpus["images"], note=of)]


def cohort(stats: Mapping[str, Any]) -> bytes:
    """Return the cohort diagram as PNG."""
    boxes = steps(stats)
    lines = [_reason_lines(step) for step in boxes]
    sides_in = [0.5 + _LINE_IN * len(found) if found else 0 for found in lines]
    gaps_in = [max(_GAP_IN, side + 0.24 if side else 0) for side in sides_in]
    height_in = 2 * _MARGIN_IN + _BOX_IN * (len(boxes) + 1) + sum(gaps_in[:-1]) + 2 * _GAP_IN
    drawn = figure(_WIDTH_IN, height_in)
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, _WIDTH_IN)
    axes.set_ylim(0, height_in)
    axes.set_axis_off()
    middle = 0.5 + _MAIN_IN / 2
    top = height_in - _MARGIN_IN
    for number, (step, gap) in enumerate(zip(boxes, gaps_in, strict=True)):
        is_corpus = number == len(boxes) - 1
        _box(axes, middle, top, _MAIN_IN, step.title, step.count, step.note, filled=is_corpus)
        bottom = top - _BOX_IN
        if is_corpus:
            _splits(axes, middle, bottom, stats["splits"])
            break
        _arrow(axes, (middle, bottom), (middle, bottom - gap))
        if lines[number]:
            _side(axes, middle, bottom - gap / 2, step, lines[number], sides_in[number])
        top = bottom - gap
    return png(drawn)


def _from_articles(count: int) -> str:
    return f"from {count:,} article{'' if count == 1 else 's'}"


def _reason_lines(step: CohortStage) -> list[tuple[str, str]]:
    """Return count and text of each line of a side box; long reasons wrap to two lines."""
    ordered = sorted(step.reasons.items(), key=lambda item: (-item[1], item[0]))
    found = [(reason, count) for reason, count in ordered if count]
    shown = found if len(found) <= _MOST_REASONS else found[: _MOST_REASONS - 1]
    rest = found[len(shown) :]
    if rest:
        shown = [*shown, (f"{len(rest)} other reasons", sum(count for _, count in rest))]
    lines = []
    for reason, count in shown:
        wrapped = textwrap.wrap(reason, _REASON_CHARACTERS, max_lines=2, placeholder=" …")
        lines += [(f"{count:,}", wrapped[0] if wrapped else "(no reason)")]
        lines += [("", text) for text in wrapped[1:]]
    return lines


def _side(
    axes: Axes,
    from_x: float,
    centre: float,
    step: CohortStage,
    lines: list[tuple[str, str]],
    height_in: float,
) -> None:
    left, top = _WIDTH_IN - 0.3 - _SIDE_IN, centre + height_in / 2
    _arrow(axes, (from_x, centre), (left, centre))
    _frame(axes, left, centre - height_in / 2, _SIDE_IN, height_in, face="#fbf1f4", edge=ROSE)
    count = sum(step.reasons.values())
    axes.text(left + 0.15, top - 0.21, f"{count:,} {step.left_out}", va="center", weight="bold")
    for number, (amount, reason) in enumerate(lines):
        y = top - 0.44 - _LINE_IN * (number + 0.25)
        axes.text(left + 1.05, y, amount, ha="right", va="center", fontsize=9.5)
        axes.text(left + 1.17, y, reason, va="center", fontsize=9.5)


def _splits(axes: Axes, middle: float, top: float, splits: Mapping[str, Mapping[str, int]]) -> None:
    """Draw a box for every split that has pairs, side by side."""
    if not splits:
        return
    width, between = 3.15, 0.25
    first = max(0.5, middle - (len(splits) * (width + between) - between) / 2) + width / 2
    bar = top - _GAP_IN
    centres = [first + number * (width + between) for number in range(len(splits))]
    axes.plot([middle, middle], [top, bar], color=INK, linewidth=1.1)
    axes.plot([min(middle, centres[0]), max(middle, centres[-1])], [bar, bar], color=INK, lw=1.1)
    for (split, held), centre in zip(splits.items(), centres, strict=True):
        _arrow(axes, (centre, bar), (centre, bar - _GAP_IN))
        note = _from_articles(held["articles"])
        _box(axes, centre, bar - _GAP_IN, width, split, held["pairs"], note, filled=True)


def _box(
    axes: Axes,
    centre: float,
    top: float,
    width_in: float,
    title: str,
    count: int,
    note: str = "",
    *,
    filled: bool = False,
) -> None:
    face = "#e7f0f8" if filled else "white"
    _frame(axes, centre - width_in / 2, top - _BOX_IN, width_in, _BOX_IN, face=face, edge=BLUE)
    axes.text(centre, top - 0.22, title, ha="center", va="center", weight="bold", fontsize=10.5)
    text = f"{count:,}  {note}".rstrip()
    axes.text(centre, top - 0.47, text, ha="center", va="center", fontsize=10.5)


def _frame(
    axes: Axes, x: float, y: float, width_in: float, height_in: float, *, face: str, edge: str
) -> None:
    shape = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width_in, height_in, boxstyle=shape, facecolor=face, edgecolor=edge, zorder=2
        )
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=arrow)
