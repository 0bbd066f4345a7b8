"""Scores of merged models, drawn. The same scores give the same bytes."""

from collections.abc import Mapping
from typing import Any

from matplotlib.ticker import PercentFormatter

from biovl.drawing import BLUE, GREY, INK, ROSE, plot_figure, png, style

_DIRECTIONS = (
    ("image_to_text", "image→text", BLUE, "o"),
    ("text_to_image", "text→image", ROSE, "s"),
)


def sweep_plot(sweep: Mapping[str, Any]) -> bytes:
    """Return recall at 1 against alpha, from ``base`` on the left to ``tuned`` on the right.

    Args:
        sweep: As in ``sweep.json``: ``points`` by alpha, ``chosen``, ``split`` and ``pairs``.
    """
    points = sweep["points"]
    alphas = [point["alpha"] for point in points]
    with style():
        drawn = plot_figure(8, 4.8)
        axes = drawn.subplots()
        axes.set_title(f"WiSE-FT on {sweep['pairs']:,} {sweep['split']} pairs")
        axes.axvline(sweep["chosen"], color=GREY, linewidth=6, alpha=0.35, label="published")
        highest = 0.0
        for name, label, colour, marker in _DIRECTIONS:
            recalls = [point[f"{name}_recall_at_1"] for point in points]
            highest = max(highest, *recalls)
            axes.plot(alphas, recalls, color=colour, linewidth=1.5, label=label)
            for alpha, recall in zip(alphas, recalls, strict=True):
                is_end = alpha in (0, 1)
                axes.plot(
                    *([alpha], [recall], marker),
                    color=colour,
                    markersize=9 if is_end else 6,
                    # The models themselves are hollow: nothing was merged there.
                    markerfacecolor="white" if is_end else colour,
                    markeredgewidth=1.5,
                    clip_on=False,
                )
        chance = points[0]["chance_recall_at_1"]
        axes.axhline(chance, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="guessing")
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(0, 1.12 * max(highest, chance))
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbase", "0.25", "0.5", "0.75", "1\ntuned"])
        axes.set_xlabel("alpha, share of tuned")
        axes.set_ylabel("R@1")
        decimals = 0 if highest >= 0.1 else 1 if highest >= 0.01 else 2
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals))
        axes.grid(axis="y")
        drawn.legend(loc="outside upper right", ncols=4)
        return png(drawn)
