"""Plot of recall and F1 by finding, with the scores of random public images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import PercentFormatter

from biovl.benchmark.tasks import Score
from biovl.core.charts import BLUE, INK, ROSE, plot_figure, png, style, two_lines


def agreement_plot(scores: Sequence[Score], title: str) -> bytes:
    """Return a PNG of the scores of the proxy analysis, as in BiomedCLIP's figure 5B.

    Args:
        scores: Scores with names such as ``recall/Edema`` and ``chance_recall/Edema``.
        title: Title of the plot.
    """
    by_name = {score.name: score for score in scores}
    findings = [name.partition("/")[2] for name in by_name if name.startswith("recall/")]
    at = np.arange(len(findings))
    with style():
        drawn = plot_figure(8, 1.8 + 0.45 * len(findings))
        axes = drawn.subplots()
        axes.set_title(two_lines(title, 70))
        for number, (metric, colour) in enumerate((("recall", BLUE), ("f1", ROSE))):
            own = [by_name[f"{metric}/{name}"] for name in findings]
            value = np.array([score.value for score in own])
            ends = np.array([[score.low, score.high] for score in own]).T
            y = at + 0.34 * (number - 0.5)
            axes.barh(y, value, 0.3, color=colour, label=metric.upper() if number else metric)
            axes.hlines(y, *ends, color=INK, linewidth=1)
            chance = [by_name[f"chance_{metric}/{name}"].value for name in findings]
            label = None if number else "random public image"
            axes.plot(chance, y, "|", color=INK, markersize=12, markeredgewidth=2, label=label)
        notes = [by_name[f"recall/{name}"].note for name in findings]
        axes.set_yticks(at, [f"{name}\n{note}" for name, note in zip(findings, notes, strict=True)])
        axes.set_ylim(len(findings) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="x")
        drawn.legend(loc="outside upper right", ncols=3)
        return png(drawn)
