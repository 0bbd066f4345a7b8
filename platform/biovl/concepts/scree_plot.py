"""The scree plot: share of the variance of each principal component."""

import numpy as np

from biovl.concepts.pca import PCA
from biovl.core.charts import BLUE, INK, ROSE, draw_empty, plot_figure, png, style

_SHOWN = 100


def scree(pca: PCA) -> bytes:
    """Return the scree plot as PNG: share of each component, and cumulative share."""
    with style():
        drawn = plot_figure(9, 4.4)
        axes = drawn.subplots()
        axes.set_title("Variance of the principal components")
        total = float(pca.variance_D.sum())
        if not total:
            draw_empty(axes, "all embeddings are equal")
            return png(drawn)
        kept = len(pca.components_CD)
        shown = min(len(pca.variance_D), max(_SHOWN, 2 * kept))
        shares = pca.variance_D[:shown] / total
        places = np.arange(1, shown + 1)
        axes.bar(places, shares, width=0.9, color=BLUE, label="of one component")
        axes.plot(places, np.cumsum(shares), color=ROSE, label="of all up to it")
        axes.axvline(kept + 0.5, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{kept} kept: {pca.explained:.1%}",
            (kept + 0.5, 0.06),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )
        axes.set_ylim(0, 1.02)
        axes.set_xlim(0.3, shown + 0.7)
        axes.set_xlabel(f"component (of {len(pca.variance_D):,})")
        axes.set_ylabel("share of the variance")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.grid(axis="y")
        axes.legend(loc="center right")
        return png(drawn)
