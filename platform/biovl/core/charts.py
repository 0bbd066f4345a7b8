"""Plot style, and deterministic conversion of figures to PNG bytes."""

import contextlib
import io
import textwrap
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

BLUE, ROSE, GREY, INK = "#3b76af", "#d9668a", "#9aa3ad", "#22303c"
"""Kept, dropped, excluded, and text. Distinguishable also without colour vision."""

SERIES = (BLUE, ROSE, "#d99a3d", "#4f9d69", "#7b62a3", GREY)
"""Colours of several lines in one plot."""

GROUP_COLOURS = {"commercial": BLUE, "noncommercial": "#d99a3d", "other": GREY}
"""Colours of PMC's licence groups."""

_DPI = 120
# Restore matplotlib's defaults: plots must not depend on the user's matplotlibrc. Reasons and names
# may contain dollar signs, which are not formulas.
_STYLE: dict[Any, Any] = {
    name: value
    for name, value in matplotlib.rcParamsDefault.items()
    if not name.startswith(("backend", "interactive", "toolbar", "webagg", "tk", "date"))
} | {
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 10,
    "grid.color": "#e4e7ea",
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Apply the plot style inside the block, regardless of the settings of the process."""
    with matplotlib.rc_context(_STYLE):
        yield


def figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure on its own canvas, without pyplot and its global state."""
    made = Figure(figsize=(width_in, height_in), dpi=_DPI)
    FigureCanvasAgg(made)
    return made


def plot_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure with automatic layout for axis labels."""
    made = figure(width_in, height_in)
    made.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    return made


def png(drawn: Figure) -> bytes:
    """Return a figure as PNG bytes, without timestamps or software versions."""
    stream = io.BytesIO()
    drawn.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def draw_empty(axes: Axes, text: str) -> None:
    """Write a text in the middle of empty axes, for a plot without data."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)


def bars(
    axes: Axes, rows: list[tuple[str, int, str]], *, what: str, at_most: int = 20, wrap: int = 46
) -> None:
    """Draw a horizontal bar chart, first row on top; rows beyond ``at_most`` share one bar.

    Args:
        axes: Axes to draw on.
        rows: Name, count and colour.
        what: Name of the counted objects, for the axis label and the last bar.
        at_most: Maximum number of bars.
        wrap: Maximum characters per line of a name; longer names take two lines.
    """
    shown = rows if len(rows) <= at_most else rows[: at_most - 1]
    rest = rows[len(shown) :]
    if rest:
        shown = [*shown, (f"{len(rest)} more", sum(count for _, count, _ in rest), GREY)]
    places = range(len(shown))
    drawn = axes.barh(
        places, [count for _, count, _ in shown], color=[colour for *_, colour in shown], height=0.7
    )
    axes.bar_label(drawn, [f"{count:,}" for _, count, _ in shown], padding=4, fontsize=9)
    axes.set_yticks(places, [two_lines(name, wrap) for name, *_ in shown])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * max(1, *(count for _, count, _ in shown)))
    axes.set_xlabel(what)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    thousands(axes.xaxis)


def bars_height_in(rows: int, at_most: int = 20) -> float:
    """Return the height in inches that a figure of ``bars`` needs."""
    return 1.2 + 0.42 * max(1, min(rows, at_most))


def two_lines(text: str, width: int) -> str:
    """Return a text in at most two lines, cut with an ellipsis."""
    return "\n".join(textwrap.wrap(text, width, max_lines=2, placeholder=" …"))


def thousands(axis: Axis) -> None:
    """Format an axis of counts: thousands separators, and ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
