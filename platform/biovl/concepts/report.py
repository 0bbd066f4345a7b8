"""Reports next to the labels: tables of clusters, ties and rejected votes, and a histogram."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from biovl.concepts.agreement import FIELDS
from biovl.concepts.clusters import Concepts
from biovl.concepts.resolution import RefusedVote, Resolved
from biovl.concepts.votes import COLUMNS, cells_of, to_csv
from biovl.core.charts import BLUE, draw_empty, plot_figure, png, style, thousands

_TITLES = {
    "panel": "Panels",
    "global_concepts": "Global concepts",
    "local_concepts": "Local concepts",
}
_STEP_PERCENT = 5


def clusters_csv(concepts: Concepts, resolved: Iterable[Resolved]) -> bytes:
    """Return CSV with a row per cluster: its labels, or the reason for having none."""
    found = {item.cluster_id: item for item in resolved}
    header = (
        *("cluster_id", "key", "size", "votes", "status", "panel_type", "panel_subtype"),
        *("global_concepts", "local_concepts", *(f"{name}_disagreement" for name in FIELDS)),
    )
    return to_csv(header, _cluster_rows(concepts, found))


def _cluster_rows(concepts: Concepts, found: Mapping[int, Resolved]) -> Iterator[list[object]]:
    for number, (key, size) in enumerate(zip(concepts.keys, concepts.sizes_K, strict=True)):
        item = found.get(number)
        if item is None:
            yield [number, key, size, 0, "no votes", *[""] * 7]
            continue
        shown = item if item.is_labelled else None
        yield [
            *(number, key, size, len(item.votes), "labelled" if shown else "tied"),
            shown.panel_type if shown else "",
            (shown.panel_subtype or "") if shown else "",
            ";".join(shown.global_concepts) if shown else "",
            ";".join(shown.local_concepts) if shown else "",
            *(f"{item.disagreement[name]:.2f}" for name in FIELDS),
        ]


def ties_csv(resolved: Iterable[Resolved]) -> bytes:
    """Return CSV with a row per tied question of a cluster."""
    return to_csv(
        ("cluster_id", "key", "votes", "reviewers", "field", "divided"),
        (
            (
                *(item.cluster_id, item.key, len(item.votes)),
                ";".join(vote.reviewer for vote in item.votes),
                *(tie.field, tie.reason),
            )
            for item in resolved
            for tie in item.ties
        ),
    )


def refused_csv(refused: Iterable[RefusedVote]) -> bytes:
    """Return CSV with a row per vote that does not count, and per invalid row of the file."""
    return to_csv(
        ("kind", "reason", "line", *COLUMNS),
        (
            (
                *(item.kind, item.reason, "" if item.line is None else item.line),
                *([""] * len(COLUMNS) if item.vote is None else cells_of(item.vote)),
            )
            for item in refused
        ),
    )


def disagreement_png(resolved: Sequence[Resolved], agreement: Mapping[str, Any]) -> bytes:
    """Plot the histogram of disagreement over clusters, for each question.

    Args:
        resolved: The clusters; those with one vote are skipped.
        agreement: Result of ``agreement.summary``.
    """
    several = [item for item in resolved if len(item.votes) > 1]
    with style():
        drawn = plot_figure(11, 3.6)
        for axes, name in zip(drawn.subplots(1, len(FIELDS), sharey=True), FIELDS, strict=True):
            axes.set_title(_TITLES[name])
            if not several:
                draw_empty(axes, "no cluster with two votes")
                continue
            # Bars are centred on their values: 0 and 100 are values like others.
            edges = np.arange(0, 101 + _STEP_PERCENT, _STEP_PERCENT) - _STEP_PERCENT / 2
            percent = [item.disagreement[name] for item in several]
            axes.hist(percent, bins=list(edges), color=BLUE)
            axes.set_xlim(-_STEP_PERCENT, 100)
            axes.set_xlabel("voters not with most, in %")
            axes.grid(axis="y")
            thousands(axes.yaxis)
            mean, alpha = agreement[name]["mean"], agreement[name]["alpha"]
            text = f"mean {mean:.1f} %\nα {'not defined' if alpha is None else f'{alpha:.2f}'}"
            axes.text(0.97, 0.95, text, ha="right", va="top", transform=axes.transAxes)
        drawn.axes[0].set_ylabel("clusters")
        return png(drawn)
