"""Plots of merged models. Equal scores give byte-identical files."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import PercentFormatter

from biovl.core.charts import BLUE, GREY, INK, ROSE, SERIES, plot_figure, png, style

_DIRECTIONS = (
    ("image_to_text", "image→text", BLUE, "o"),
    ("text_to_image", "text→image", ROSE, "s"),
)


def sweep_plot(sweep: Mapping[str, Any]) -> bytes:
    """Return a PNG of R@1 against alpha, from ``base`` on the left to ``tuned`` on the right.

    Args:
        sweep: Contents of ``sweep.json``: ``points`` by alpha, ``chosen``, ``split`` and ``pairs``.
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
            look: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "markeredgewidth": 1.5,
                "clip_on": False,
            }
            axes.plot(alphas, recalls, linewidth=1.5, markersize=6, label=label, **look)
            # Hollow markers for the two models themselves.
            ends = [at for at, alpha in enumerate(alphas) if alpha in (0, 1)]
            axes.plot(
                *([alphas[at] for at in ends], [recalls[at] for at in ends]),
                **look,
                linestyle="none",
                markersize=9,
                markerfacecolor="white",
            )
        chance = points[0]["chance_recall_at_1"]
        axes.axhline(chance, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="guessing")
        axes.set_xlim(-0.04, 1.04)
        top = 1.12 * max(highest, chance)
        axes.set_ylim(0, top)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbase", "0.25", "0.5", "0.75", "1\ntuned"])
        axes.set_xlabel("alpha, share of tuned")
        axes.set_ylabel("recall at 1")
        decimals = 0 if top >= 0.1 else 1 if top >= 0.01 else 2
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals))
        axes.grid(axis="y")
        drawn.legend(loc="outside upper right", ncols=4)
        return png(drawn)


def between_plot(scores: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> bytes:
    """Return a PNG of the first metric of each task against alpha, with confidence intervals.

    Args:
        scores: By task, in the order of alpha: (alpha, value, lower and upper bound), all in [0,
            1].
    """
    with style():
        drawn = plot_figure(8, 4.8)
        axes = drawn.subplots()
        axes.set_title("WiSE-FT")
        for number, (task, points) in enumerate(scores.items()):
            alphas, values, lows, highs = zip(*points, strict=True)
            colour = SERIES[number % len(SERIES)]
            axes.plot(alphas, values, color=colour, marker="o", label=task, clip_on=False)
            axes.fill_between(alphas, lows, highs, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(bottom=0)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbase", "0.25", "0.5", "0.75", "1\ntuned"])
        axes.set_xlabel("alpha, share of tuned")
        axes.set_ylabel("first score of the task")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="y")
        if scores:
            drawn.legend(loc="outside upper right", ncols=3)
        return png(drawn)
