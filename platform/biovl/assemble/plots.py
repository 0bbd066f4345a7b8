"""Plots of a corpus in ``plots/``, from ``stats.json``. Equal statistics give identical files."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from biovl.assemble import cohort
from biovl.core.charts import (
    BLUE,
    GREY,
    GROUP_COLOURS,
    INK,
    ROSE,
    bars,
    bars_height_in,
    draw_empty,
    plot_figure,
    png,
    style,
    thousands,
    two_lines,
)

_MIN_TOKENS_SHOWN = 640
"""The token axis reaches beyond the longest window even where no caption does."""

_MOST_FIGURES_SHOWN = 25
_MOST_YEARS_SHOWN = 60
_MOST_LABELS_SHOWN = 30
_PALE_TO_BLUE = LinearSegmentedColormap.from_list("pale to blue", ["#e3edf6", BLUE, "#12304f"])


def plots(stats: Mapping[str, Any]) -> dict[str, bytes]:
    """Return every plot as PNG, by file name.

    Args:
        stats: Result of ``statistics``, or content of ``stats.json``.
    """
    with style():
        drawn = {
            "cohort.png": cohort.cohort(stats),
            "caption_lengths.png": lengths(stats, "caption"),
            "image_sizes.png": image_sizes(stats),
            "figures_per_article.png": figures_per_article(stats),
            "licenses.png": licenses(stats),
            "years.png": years(stats),
            "drops.png": drops(stats),
        }
        for column in stats["labels"]:
            drawn[f"{column}.png"] = labels(stats, column)
        # If the text of a pair is its caption, a second plot would be identical.
        if stats["token_histograms"]["text"] != stats["token_histograms"]["caption"]:
            drawn["text_lengths.png"] = lengths(stats, "text")
    return drawn


def lengths(stats: Mapping[str, Any], of: str) -> bytes:
    """Plot the tokens of captions or texts by length, with truncated tokens in another colour.

    There is one plot for each context length.

    A bar's height is a number of tokens, so that areas are shares: BMC-LongCLIP, figure 1.
    """
    histogram, windows = stats["token_histograms"][of], stats["windows"][of]
    drawn = plot_figure(11, 7.2)
    panels = drawn.subplots(2, 2, sharex=True, sharey=True)
    tokens = np.array(histogram["tokens"], np.int64)
    bin_tokens = histogram["bin_tokens"]
    filled = np.flatnonzero(histogram["texts"])
    longest = (int(filled[-1]) + 1) * bin_tokens if len(filled) else 0
    shown = min(max(longest, _MIN_TOKENS_SHOWN) // bin_tokens, len(tokens))
    edges = np.arange(shown + 1) * bin_tokens
    for axes, (window, lost) in zip(panels.flat, windows.items(), strict=True):
        axes.set_title(f"Window of {window} tokens")
        if not tokens.any():
            draw_empty(axes, f"no {of}s")
            continue
        seen = (tokens - np.array(histogram["wasted"][window], np.int64))[:shown]
        axes.stairs(seen, edges, fill=True, color=BLUE, label="seen by the model")
        axes.stairs(tokens[:shown], edges, baseline=seen, fill=True, color=ROSE, label="wasted")
        axes.axvline(int(window), color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            *(0.98, 0.95),
            f"{lost['share_of_tokens_wasted']:.1%} of tokens wasted\n"
            f"{lost['share_of_texts_truncated']:.1%} of {of}s truncated",
            transform=axes.transAxes,
            ha="right",
            va="top",
            linespacing=1.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )
        axes.set_xlim(0, shown * bin_tokens)
        axes.set_ylim(0, 1.3 * tokens[:shown].max())
        axes.grid(axis="y")
        thousands(axes.xaxis)
        thousands(axes.yaxis)
    for axes in panels[:, 0]:
        axes.set_ylabel("tokens")
    rest = f" (last bar: {edges[-2]:,} and more)" if longest >= len(tokens) * bin_tokens else ""
    for axes in panels[1]:
        axes.set_xlabel(f"length of the {of}, CLIP tokens{rest}")
    if tokens.any():
        handles, names = panels[0, 0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside upper right", ncols=2)
    return png(drawn)


def image_sizes(stats: Mapping[str, Any]) -> bytes:
    """Plot images by width and height, and by shorter side with the input sizes of image towers."""
    sizes = stats["image_sizes"]
    drawn = plot_figure(11, 4.8)
    both, shorter = drawn.subplots(1, 2, width_ratios=(1.15, 1))
    both.set_title("Width and height")
    shorter.set_title("Shorter side")
    if not sizes["bins"]:
        draw_empty(both, "no images")
        draw_empty(shorter, "no images")
        return png(drawn)
    width, height, images = np.array(sizes["bins"], np.int64).T
    # A margin of three bins on each side, so that powers of two are visible, and equal ranges on
    # both axes: squares are on the diagonal.
    low, high = min(width.min(), height.min()) - 3, max(width.max(), height.max()) + 4
    grid = np.zeros((high - low, high - low))
    grid[height - low, width - low] = images
    edges = 2.0 ** (np.arange(low, high + 1) / sizes["bins_per_octave"])
    mesh = both.pcolormesh(
        *(edges, edges, np.ma.masked_equal(grid, 0)),
        cmap=_PALE_TO_BLUE,
        norm=LogNorm(1, max(10, images.max())),
    )
    both.plot(edges[[0, -1]], edges[[0, -1]], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    colours = drawn.colorbar(mesh, ax=both, label="images", pad=0.02)
    colours.outline.set_visible(False)
    colours.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    both.set_ylabel("height, px")
    both.set_xlabel("width, px")
    _octaves(both, "x", edges[0], edges[-1])
    _octaves(both, "y", edges[0], edges[-1])

    counts = np.zeros(high - low)
    np.add.at(counts, np.minimum(width, height) - low, images)
    shorter.bar(edges[:-1], counts, np.diff(edges), align="edge", color=BLUE, edgecolor="white")
    top = 1.36 * counts.max()
    sides = sizes["images_with_short_side_under_px"].items()
    # Each line ends at its label, so that the longer lines to its right cross none.
    for level, (side, under) in enumerate(sides, start=1):
        end = top * (0.78 + 0.07 * level)
        shorter.plot([int(side)] * 2, [0, end], color=ROSE, linewidth=1.2)
        label = f"{under / images.sum():.0%} under {side} px"
        shorter.text(int(side) * 0.95, end, label, ha="right", va="top", fontsize=9)
    shorter.set_ylim(0, top)
    shorter.set_ylabel("images")
    shorter.set_xlabel("shorter side, px")
    shorter.grid(axis="y")
    thousands(shorter.yaxis)
    # The labels need room to the left of the lines, also if all images are larger or smaller.
    _octaves(shorter, "x", min(edges[0], 40), max(edges[-1], 700))
    return png(drawn)


def figures_per_article(stats: Mapping[str, Any]) -> bytes:
    """Plot articles by the number of their images in the corpus."""
    found = {int(value): count for value, count in stats["figures_per_article"]["articles"].items()}
    drawn, axes = _titled(8, 4.2, "Images of an article in the corpus")
    if not found:
        draw_empty(axes, "no articles")
        return png(drawn)
    last = max(5, min(max(found), _MOST_FIGURES_SHOWN))
    counts = [found.get(value, 0) for value in range(1, last)]
    counts.append(sum(count for value, count in found.items() if value >= last))
    axes.bar(range(1, last + 1), counts, color=BLUE, width=0.8)
    ticks = [1, *range(5, last, 5), last] if last > 5 else [*range(1, last + 1)]
    names = [str(tick) for tick in ticks]
    names[-1] += " or more" if max(found) > last else ""
    axes.set_xticks(ticks, names)
    median = stats["figures_per_article"]["median"]
    axes.axvline(min(median, last), color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"median {median:g}",
        (min(median, last), 1),
        xycoords=("data", "axes fraction"),
        xytext=(5, -3),
        textcoords="offset points",
        va="top",
    )
    axes.set_ylim(0, 1.12 * max(counts))
    axes.set_xlim(0.3, last + 0.7)
    axes.set_xlabel("images")
    axes.set_ylabel("articles")
    axes.grid(axis="y")
    thousands(axes.yaxis)
    return png(drawn)


def licenses(stats: Mapping[str, Any]) -> bytes:
    """Plot images by licence, in the colour of PMC's licence group."""
    rows = [
        (row["license"] or "none stated", row["images"], GROUP_COLOURS[row["license_group"]])
        for row in stats["licenses"]
    ]
    drawn, axes = _titled(9, bars_height_in(len(rows)) + 0.3, "Licences")
    if not rows:
        draw_empty(axes, "no images")
        return png(drawn)
    bars(axes, rows, what="images")
    present = {row["license_group"] for row in stats["licenses"]}
    groups = [group for group in GROUP_COLOURS if group in present]
    handles = [Patch(color=GROUP_COLOURS[group], label=group) for group in groups]
    drawn.legend(handles=handles, loc="outside upper right", ncols=len(groups))
    return png(drawn)


def years(stats: Mapping[str, Any]) -> bytes:
    """Plot images by year; images without a year or before the axis are counted in the title."""
    dated = {int(row["year"]): row["images"] for row in stats["years"] if _is_year(row["year"])}
    drawn, axes = _titled(9, 4.2, "Year of publication")
    aside = {"without a year": sum(row["images"] for row in stats["years"]) - sum(dated.values())}
    if not dated:
        draw_empty(axes, "no image has a year")
        return png(drawn)
    last = max(dated)
    first = max(min(dated), last - _MOST_YEARS_SHOWN + 1)
    aside[f"before {first}"] = sum(count for year, count in dated.items() if year < first)
    shown = np.arange(first, last + 1)
    counts = [dated.get(int(year), 0) for year in shown]
    axes.bar(shown, counts, color=BLUE, width=0.8)
    # A single year gets margins, or its bar would fill the plot.
    axes.set_xlim(min(first, last - 4) - 0.7, max(last, first + 4) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.set_ylabel("images")
    axes.grid(axis="y")
    thousands(axes.yaxis)
    notes = [f"{count:,} images {where}" for where, count in aside.items() if count]
    if notes:
        axes.set_title(", ".join(notes), loc="right", fontweight="normal", fontsize=9.5)
    return png(drawn)


def drops(stats: Mapping[str, Any]) -> bytes:
    """Plot the number of figures that are not in the corpus, by reason."""
    rows = [(reason, count, ROSE) for reason, count in stats["dropped"].items()]
    drawn, axes = _titled(
        10, bars_height_in(len(rows)), "Figures left out of the corpus, by reason"
    )
    if rows:
        bars(axes, rows, what="figures")
    else:
        draw_empty(axes, "none was left out")
    return png(drawn)


def labels(stats: Mapping[str, Any], column: str) -> bytes:
    """Plot, for each label of a column, the number of figures, and of pairs in the corpus."""
    rows = list(stats["labels"][column].items())
    shown = rows[:_MOST_LABELS_SHOWN]
    rest = f" (the {len(shown)} of {len(rows)} with most figures)" if len(rows) > len(shown) else ""
    drawn, axes = _titled(
        9,
        bars_height_in(len(shown), _MOST_LABELS_SHOWN) + 0.3,
        f"{column.replace('_', ' ').capitalize()}{rest}",
    )
    if not shown:
        draw_empty(axes, "no figures")
        return png(drawn)
    places = range(len(shown))
    before = [counts["figures"] for _, counts in shown]
    after = [counts["pairs"] for _, counts in shown]
    whole = axes.barh(places, before, color=GREY, height=0.7, label="figures harvested")
    axes.barh(places, after, color=BLUE, height=0.7, label="pairs in the corpus")
    texts = [f"{left:,} of {all_:,}" for left, all_ in zip(after, before, strict=True)]
    axes.bar_label(whole, texts, padding=4, fontsize=9)
    axes.set_yticks(places, [two_lines(name, 46) for name, _ in shown])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, 1.4 * max(before))
    axes.set_xlabel("figures; one with several labels counts under each")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    thousands(axes.xaxis)
    drawn.legend(loc="outside upper right", ncols=2)
    return png(drawn)


def _titled(width_in: float, height_in: float, title: str) -> tuple[Figure, Axes]:
    drawn = plot_figure(width_in, height_in)
    axes = drawn.subplots()
    axes.set_title(title)
    return drawn, axes


def _is_year(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit()


def _octaves(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Make an axis of pixels logarithmic, with ticks at powers of two."""
    powers = 2.0 ** np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    powers = powers[:: 1 + len(powers) // 8]
    labels = [f"{power:,.6g}" for power in powers]
    if which == "x":
        axes.set_xscale("log", base=2)
        axes.set_xticks(powers, labels)
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log", base=2)
        axes.set_yticks(powers, labels)
        axes.set_ylim(low, high)
