"""The plots of a sweep. The same outcomes give the same bytes."""

import statistics
from collections.abc import Callable, Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import NullLocator, PercentFormatter

from biovl.core.charts import BLUE, GREY, ROSE, draw_empty, plot_figure, png, style, two_lines
from biovl.sweep.outcomes import FINISHED, TrialOutcome
from biovl.sweep.tables import by_row, values_of
from biovl.sweep.trials import Trial

_DASHED = (0, (4, 3))
_MOST_CURVES = 12
_DIRECTIONS = {
    "image_to_text_recall_at_1": ("image to text", BLUE, "o"),
    "text_to_image_recall_at_1": ("text to image", ROSE, "s"),
}
_AXES: dict[str, tuple[str, Callable[[Trial], int]]] = {
    "context": ("context length in tokens", lambda trial: trial.context),
    "batch": ("pairs of a step", lambda trial: trial.config.batch.pairs),
    "image": ("image size in px", lambda trial: trial.image_px),
}


def plots(outcomes: Sequence[TrialOutcome]) -> dict[str, bytes]:
    """Return every plot as PNG, by file name; settings that do not vary have no plot."""
    drawn = {}
    with style():
        for name, (label, of) in _AXES.items():
            if len({of(outcome.trial) for outcome in outcomes}) > 1:
                drawn[f"{name}.png"] = against(outcomes, label, of)
        drawn["settings.png"] = settings(outcomes)
        drawn["curves.png"] = curves(outcomes)
        drawn["tokens.png"] = tokens(outcomes)
    return drawn


def against(outcomes: Sequence[TrialOutcome], label: str, of: Callable[[Trial], int]) -> bytes:
    """Plot R@1 of both directions and the loss against a numeric setting.

    Points are trials; a line joins the means at each number.
    """
    figure = plot_figure(10, 4.2)
    recalls, losses = figure.subplots(1, 2, width_ratios=(1.4, 1))
    recalls.set_title("R@1 on val")
    losses.set_title("Loss on val")
    done = [outcome for outcome in outcomes if outcome.status == FINISHED and outcome.final]
    if not done:
        draw_empty(recalls, "no trial was finished")
        draw_empty(losses, "no trial was finished")
        return png(figure)
    for name, (direction, colour, marker) in _DIRECTIONS.items():
        _points(recalls, done, of, name, colour, marker, direction)
    chance = done[0].final["chance_recall_at_1"]
    recalls.axhline(chance, color=GREY, linewidth=1.2, linestyle=_DASHED, label="by chance")
    recalls.yaxis.set_major_formatter(PercentFormatter(1))
    recalls.legend(loc="best")
    _points(losses, done, of, "loss", BLUE, "o", "")
    for axes in (recalls, losses):
        axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
        axes.grid(axis="y")
        axes.set_xlabel(label)
        numbers = sorted({of(outcome.trial) for outcome in done})
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
        axes.xaxis.set_minor_locator(NullLocator())
    return png(figure)


def settings(outcomes: Sequence[TrialOutcome]) -> bytes:
    """Plot R@1 of every row of the table, with the spread of its seeds."""
    rows = by_row(outcomes)
    figure = plot_figure(10, 1.4 + 0.5 * len(rows))
    axes = figure.subplots()
    axes.set_title("R@1 on val, by setting")
    for shift, (name, (direction, colour, _)) in zip((-0.2, 0.2), _DIRECTIONS.items(), strict=True):
        for place, row in enumerate(rows):
            values = values_of(row, name)
            label = direction if place == 0 else None
            mean = statistics.fmean(values) if values else 0.0
            axes.barh(place + shift, mean, height=0.36, color=colour, label=label)
            if len(values) > 1:
                axes.plot(
                    [min(values), max(values)],
                    [place + shift] * 2,
                    color="black",
                    linewidth=1.2,
                    marker="|",
                )
            text = f"{mean:.1%}" if values else row[0].status
            end = max(values, default=0.0)
            axes.annotate(
                text, (end, place + shift), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=9,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [two_lines(_named(row[0].trial), 40) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * max(axes.get_xlim()[1], 0.01))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="x")
    figure.legend(loc="outside upper right", ncols=2)
    return png(figure)


def curves(outcomes: Sequence[TrialOutcome]) -> bytes:
    """Plot mean R@1 of both directions by epoch, a line per trial; crosses mark unfinished ones."""
    figure = plot_figure(10, 4.6)
    axes = figure.subplots()
    axes.set_title("R@1 on val by trial, mean of both directions")
    shown = [outcome for outcome in outcomes if outcome.scores]
    if not shown:
        draw_empty(axes, "no trial was scored")
        return png(figure)
    rows = by_row(shown)
    colours = [
        to_hex(colormaps["viridis"](0.9 * n / max(1, len(rows) - 1))) for n in range(len(rows))
    ]
    for number, row in enumerate(rows):
        for outcome in row:
            epochs = sorted(outcome.scores)
            means = [
                statistics.fmean(outcome.scores[epoch][name] for name in _DIRECTIONS)
                for epoch in epochs
            ]
            # Seeds of a row share color and legend entry.
            label = _named(outcome.trial) if outcome is row[0] and number < _MOST_CURVES else None
            axes.plot(
                [epoch + 1 for epoch in epochs],
                means,
                color=colours[number],
                linewidth=1.6,
                marker="o",
                markersize=4,
                label=label,
            )
            # A finished trial may publish an earlier epoch than its last: that is no early end.
            if outcome.status != FINISHED:
                axes.plot(epochs[-1] + 1, means[-1], "x", color=colours[number], markersize=10)
    some = next(iter(shown[0].scores.values()))
    axes.axhline(
        some["chance_recall_at_1"], color=GREY, linewidth=1.2, linestyle=_DASHED, label="by chance"
    )
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="y")
    axes.set_xlabel("epoch")
    figure.legend(loc="outside right upper")
    return png(figure)


def tokens(outcomes: Sequence[TrialOutcome]) -> bytes:
    """Plot the shares of truncated tokens and of padding at each context length."""
    figure = plot_figure(10, 3.6)
    axes = figure.subplots()
    axes.set_title("Tokens wasted, by context length")
    trials = by_waste(outcomes)
    places = range(len(trials))
    for shift, name, colour, label in (
        (-0.2, "tokens_cut", ROSE, "of captions, cut off"),
        (0.2, "padding", GREY, "of the context, empty (not computed unless step.text=padded)"),
    ):
        shares = [getattr(trial, name) for _, trial in trials]
        drawn = axes.bar([place + shift for place in places], shares, 0.36, color=colour)
        axes.bar_label(drawn, [f"{share:.1%}" for share in shares], padding=2, fontsize=9)
        drawn.set_label(label)
    axes.set_xticks(places, [label for label, _ in trials])
    axes.set_xlim(-0.8, len(trials) - 0.2)
    axes.set_ylim(0, 1.1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=2)
    return png(figure)


def by_waste(outcomes: Sequence[TrialOutcome]) -> list[tuple[str, Trial]]:
    """Return one trial, with its plot label, for each context length and its wasted shares.

    The shares at one context length differ between tokenizers, texts and corpora; labels then
    include the trials' settings.
    """
    measured: dict[tuple[int, float, float], Trial] = {}
    for trial in (outcome.trial for outcome in outcomes):
        measured.setdefault((trial.context, trial.tokens_cut, trial.padding), trial)
    trials = [measured[key] for key in sorted(measured)]
    is_unique = len({trial.context for trial in trials}) == len(trials)
    # Not by label: cut labels of two trials may be equal.
    return [
        (
            f"{trial.context:,} tokens"
            + ("" if is_unique else "\n" + two_lines(_named(trial), 24)),
            trial,
        )
        for trial in trials
    ]


def _points(
    axes: Axes,
    outcomes: Sequence[TrialOutcome],
    of: Callable[[Trial], int],
    name: str,
    colour: str,
    marker: str,
    label: str,
) -> None:
    points: dict[int, list[float]] = {}
    for outcome in outcomes:
        if outcome.final.get(name) is not None:
            points.setdefault(of(outcome.trial), []).append(outcome.final[name])
    numbers = sorted(points)
    for number in numbers:
        axes.plot([number] * len(points[number]), points[number], marker, color=colour, alpha=0.5)
    means = [statistics.fmean(points[number]) for number in numbers]
    axes.plot(numbers, means, color=colour, linewidth=1.8, marker=marker, label=label)


def _named(trial: Trial) -> str:
    label = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in trial.shown.items())
    return label or "base"
