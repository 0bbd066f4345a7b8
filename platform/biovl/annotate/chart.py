"""Bar chart of the value frequencies of a column."""

from collections.abc import Mapping

from biovl.core.charts import BLUE, bars, bars_height_in, draw_empty, plot_figure, png, style

_AT_MOST = 31
"""Maximum number of bars; BiomedCLIP's Fig. 1B has thirty."""


def frequencies(counts: Mapping[str, int], *, title: str, what: str) -> bytes:
    """Return a bar chart of the values, the most frequent on top, as PNG."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(name, count, BLUE) for name, count in ordered]
    with style():
        figure = plot_figure(8, bars_height_in(len(rows), _AT_MOST))
        axes = figure.add_subplot()
        axes.set_title(title)
        if rows:
            bars(axes, rows, what=what, at_most=_AT_MOST)
        else:
            draw_empty(axes, f"no {what}")
        return png(figure)
