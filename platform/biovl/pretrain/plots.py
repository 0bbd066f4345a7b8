"""Plots of a run for its model card. The same records give the same bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from biovl.core.charts import BLUE, GREY, ROSE, draw_empty, plot_figure, png, style, thousands
from biovl.pretrain.guard import LOSS_NAMES, chance

POINTS = 1_000
"""Longer curves are reduced to means over equal parts: more points than pixels are useless."""

_PALE = "#b9d0e6"
_DASHED = (0, (4, 3))
_RECALLS = {1: ("#12304f", "o"), 5: (BLUE, "s"), 10: ("#8db6d9", "^")}
_DIRECTIONS = {"image_to_text": "Image to text", "text_to_image": "Text to image"}

Rows = Sequence[Mapping[str, Any]]
Scores = Mapping[int, Mapping[str, float]]
"""Scores of ``benchmark.retrieval``, by epoch from 0."""


def plots(rows: Rows, scores: Scores, trained_by: str = "infonce") -> dict[str, bytes]:
    """Return every plot as PNG, by file name.

    Args:
        rows: Rows of ``metrics.jsonl``: one record per step, from ``Meter.add``.
        scores: Scores of the validated epochs; may be empty.
        trained_by: The training loss: ``infonce`` or ``siglip``.
    """
    with style():
        return {
            "loss.png": loss(rows, scores, trained_by),
            "recall.png": recall(scores),
            "throughput.png": throughput(rows),
        }


def loss(rows: Rows, scores: Scores, trained_by: str = "infonce") -> bytes:
    """Plot the training loss by step and the validation loss by epoch, each with chance level."""
    drawn = plot_figure(10, 4.2)
    training, judged = drawn.subplots(1, 2, width_ratios=(1.6, 1))
    training.set_title(f"Training loss, {LOSS_NAMES[trained_by]}")
    judged.set_title(f"Validation loss, {LOSS_NAMES['infonce']}")
    step_S, loss_S = _curve(rows, "loss")
    if len(step_S):
        training.plot(step_S, loss_S, color=_PALE, linewidth=1)
        training.plot(step_S, smoothed(loss_S), color=BLUE, linewidth=1.8)
        # A larger batch later raises the chance level.
        batch_S, pairs_S = _curve(rows, "pairs")
        guessed_S = np.array([chance(trained_by, pairs) for pairs in pairs_S])
        training.plot(batch_S, guessed_S, color=GREY, linewidth=1.2, linestyle=_DASHED)
        _name_guessing(training, guessed_S[-1])
        _axis_of_steps(training)
        _from_zero(training, max(loss_S.max(), guessed_S.max()))
    else:
        draw_empty(training, "no step")
    if scores:
        last = scores[max(scores)]
        epochs, losses = _by_epoch(scores, "loss")
        judged.plot(epochs, losses, color=BLUE, linewidth=1.8, marker="o", markersize=4.5)
        judged.axhline(last["chance_loss"], color=GREY, linewidth=1.2, linestyle=_DASHED)
        _name_guessing(judged, last["chance_loss"])
        judged.set_xlabel(f"epoch (in batches of {last['loss_block']:,.0f} pairs)")
        _axis_of_epochs(judged, epochs)
        _from_zero(judged, max(np.nanmax(losses), last["chance_loss"]))
    else:
        draw_empty(judged, "no validation")
    return png(drawn)


def recall(scores: Scores) -> bytes:
    """Plot R@1, R@5 and R@10 of both directions by epoch, each with chance level."""
    plot = plot_figure(10, 4.4)
    panels = plot.subplots(1, 2, sharey=True)
    highest = 0.0
    for axes, (direction, title) in zip(panels, _DIRECTIONS.items(), strict=True):
        axes.set_title(title)
        if not scores:
            draw_empty(axes, "no validation")
            continue
        last = scores[max(scores)]
        # A pool of fewer pairs than k has no recall at k.
        ks = [k for k in _RECALLS if f"{direction}_recall_at_{k}" in last]
        for k in ks:
            colour, marker = _RECALLS[k]
            epochs, shares = _by_epoch(scores, f"{direction}_recall_at_{k}")
            chance = last[f"chance_recall_at_{k}"]
            axes.plot(
                *(epochs, shares),
                color=colour,
                linewidth=1.8,
                marker=marker,
                markersize=4.5,
                label=f"R@{k}",
            )
            axes.axhline(chance, color=colour, linewidth=1, linestyle=_DASHED)
            highest = max(highest, np.nanmax(shares), chance)
            _axis_of_epochs(axes, epochs)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(axis="y")
        axes.set_xlabel("epoch")
    if scores:
        top = 1.1 * highest
        for axes, direction in zip(panels, _DIRECTIONS, strict=True):
            axes.set_ylim(0, top)
            _name_ends(axes, [last[f"{direction}_recall_at_{k}"] for k in ks], top)
        panels[0].set_ylabel(f"found among {last['pairs']:,.0f} pairs; dashed: by chance")
        handles, names = panels[0].get_legend_handles_labels()
        plot.legend(handles, names, loc="outside upper right", ncols=3)
    return png(plot)


def throughput(rows: Rows) -> bytes:
    """Plot pairs per second by step, and the shares of waiting time and hardware utilisation."""
    drawn = plot_figure(10, 4.2)
    speed, shares = drawn.subplots(1, 2)
    speed.set_title("Speed")
    shares.set_title("Use of the time and of the hardware")
    step_S, pairs_S = _curve(rows, "pairs_per_s")
    if not len(step_S):
        draw_empty(speed, "no step")
        draw_empty(shares, "no step")
        return png(drawn)
    speed.plot(step_S, pairs_S, color=_PALE, linewidth=1)
    speed.plot(step_S, smoothed(pairs_S), color=BLUE, linewidth=1.8)
    speed.set_ylabel("pairs/s, all workers")
    _axis_of_steps(speed)
    _from_zero(speed, pairs_S.max())
    thousands(speed.yaxis)
    curves = {"wait_share": ("waiting for data", ROSE), "mfu": ("model FLOPs utilisation", BLUE)}
    for name, (label, colour) in curves.items():
        where_S, share_S = _curve(rows, name)
        if len(where_S):
            shares.plot(where_S, smoothed(share_S), color=colour, linewidth=1.8, label=label)
    _from_zero(shares, 1 / 1.12)
    shares.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    shares.legend(loc="upper right")
    _axis_of_steps(shares)
    return png(drawn)


def smoothed(values_S: np.ndarray, share: float = 0.04) -> np.ndarray:
    """Return moving averages over ``share`` of all values, over fewer at the ends."""
    reach = round(len(values_S) * share / 2)
    sums = np.concatenate([[0.0], np.cumsum(values_S, dtype=np.float64)])
    places = np.arange(len(values_S))
    # Symmetric windows, so that the ends are not biased.
    near = np.minimum(reach, np.minimum(places, len(values_S) - 1 - places))
    first, last = places - near, places + near + 1
    return np.asarray((sums[last] - sums[first]) / (last - first))


def _curve(steps: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values, reduced to means in a long run; missing values are skipped."""
    points = [(row["step"], row[name]) for row in steps if row.get(name) is not None]
    pairs = np.array(points, np.float64).reshape(-1, 2)
    if len(pairs) > POINTS:
        pairs = np.stack([part.mean(axis=0) for part in np.array_split(pairs, POINTS)])
    return pairs[:, 0], pairs[:, 1]


def _by_epoch(scores: Scores, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return epochs, from 1, and values."""
    epochs = sorted(scores)
    values = np.array([scores[epoch].get(name, np.nan) for epoch in epochs], np.float64)
    return np.array(epochs) + 1, values


def _name_guessing(axes: Axes, height: float) -> None:
    axes.annotate(
        "guessing",
        (0.99, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=GREY,
        fontsize=9,
    )


def _name_ends(axes: Axes, shares: Sequence[float], top: float) -> None:
    """Write the last value of each curve to its right, without overlaps."""
    free = 0.0
    for share in sorted(shares):
        place = max(share, free)
        axes.annotate(
            f"{share:.1%}",
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
        free = place + 0.045 * top


def _from_zero(axes: Axes, top: float) -> None:
    axes.set_ylim(0, 1.12 * top)
    axes.grid(axis="y")


def _axis_of_steps(axes: Axes) -> None:
    axes.set_xlabel("step")
    thousands(axes.xaxis)


def _axis_of_epochs(axes: Axes, epochs: np.ndarray) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    # A single epoch gets margins.
    axes.set_xlim(min(epochs[0], 1) - 0.3, max(epochs[-1], 2) + 0.3)
