"""Plot of a confusion matrix. Equal counts give byte-identical files."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import PercentFormatter

from biovl.core.charts import BLUE, INK, plot_figure, png, style, two_lines

_MOST_NUMBERS = 20
_MOST_NAMES = 40


def confusion_plot(confusion_CC: np.ndarray, classes: Sequence[str], *, title: str) -> bytes:
    """Return a PNG of the confusion matrix, as shares of each class (row), with counts.

    Args:
        confusion_CC: Counts, int64.
        classes: Names of the classes.
        title: Title of the plot.
    """
    count = len(classes)
    total_C1 = confusion_CC.sum(axis=1, keepdims=True)
    share_CC = confusion_CC / np.maximum(total_C1, 1)
    side = 3.2 + min(0.55 * count, 9.0)
    colours = LinearSegmentedColormap.from_list("shares", ["white", BLUE])
    with style():
        drawn = plot_figure(side + 2.2, side)
        axes = drawn.subplots()
        axes.set_title(two_lines(title, 60))
        names = axes.imshow(share_CC, cmap=colours, vmin=0, vmax=1)
        step = max(1, -(-count // _MOST_NAMES))
        at = range(0, count, step)
        axes.set_xticks(at, [two_lines(classes[n], 18) for n in at], rotation=45, ha="right")
        axes.set_yticks(at, [two_lines(classes[n], 26) for n in at])
        axes.set_xlabel("taken for")
        axes.set_ylabel("class")
        axes.tick_params(length=0)
        for edge in axes.spines.values():
            edge.set_visible(False)
        if count <= _MOST_NUMBERS:
            for row in range(count):
                for column in range(count):
                    dark = share_CC[row, column] > 0.6
                    text = f"{confusion_CC[row, column]:,}"
                    axes.text(
                        *(column, row, text),
                        ha="center",
                        va="center",
                        fontsize=9,
                        color="white" if dark else INK,
                    )
        bar = drawn.colorbar(names, ax=axes, shrink=0.7)
        bar.set_label("share of the class")
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        return png(drawn)
