"""Compound figures to panels: the box and the label of each.

The figure is cut along gaps and seams in all possible ways (``panels.cuts``); printed labels and
the labels of its caption determine which way is used (``panels.choice``). Without sufficient
evidence a figure stays whole.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from biovl.images.boxes import Box, PanelFound, Proposal
from biovl.images.labels.reading import Label
from biovl.images.matching import cut_axes, matched_names, reading_order, skipped_letters
from biovl.images.panels.choice import Chooser, Leaf, PanelChoice
from biovl.images.panels.cuts import Mark, regions_of
from biovl.images.panels.ink import Cut, Ink, ink_of
from biovl.images.panels.insets import insets_of
from biovl.images.panels.proposals import Proposed, proposed_in

__all__ = ["MIN_SIDE_PX", "MOST_PANELS", "PanelFound", "split_figure"]

MOST_PANELS = 60

MIN_SIDE_PX = 24
"""Smaller figures have no panels."""

_FIRST = ("a", "1", "i", "α")
_LEAST = 0.4
"""Mean confidence below which a figure stays whole: a wrong panel is worse than none."""

_ORDERLY, _CLEAR = 0.85, 1.5
"""Fit of labels above which, and mean cost of cuts below which, no second attempt is needed."""

_SURE = 0.5
"""Minimum score of a label that is not in the caption."""

_AGREED = 0.65
"""Minimum score of all proposals, if they are as many as the labels, to be the panels."""
_COVERED = 0.8
"""Minimum share of the ink that they then contain: an inset may be found, and a panel missed."""


def split_figure(
    pixels: np.ndarray,
    *,
    labels: Sequence[Label] = (),
    expected: Sequence[str] = (),
    proposals: Sequence[Proposal] = (),
) -> list[PanelFound]:
    """Return the panels of a figure in reading order; one box if it is not compound.

    Args:
        pixels: RGB, uint8, shape [H, W, 3].
        labels: Labels read in the figure (``images.labels``).
        expected: The caption's labels, in its order.
        proposals: Panel proposals of a detector: they affect the choice of cuts, and are used as
            panels themselves if no cut is as good.
    """
    height, width = pixels.shape[:2]
    expected = list(dict.fromkeys(expected))
    known = _known(labels, expected)
    count = len(expected) if len(expected) > 1 else len(known)
    if count < 2 or min(height, width) < MIN_SIDE_PX:
        return [_whole(width, height)]
    ink = ink_of(pixels)
    choice = _chosen(ink, known, expected, proposed_in(ink, proposals))
    if choice is None or len(choice.leaves) < 2:
        return [_whole(width, height)]
    found = _found(choice, known, ink)
    if sum(panel.confidence for panel in found) < _LEAST * len(found):
        return [_whole(width, height)]
    return [found[at] for at in reading_order([panel.box for panel in found])]


def _chosen(
    ink: Ink, known: Sequence[Label], expected: Sequence[str], proposed: Sequence[Proposed]
) -> PanelChoice | None:
    """Return the best panels, None for a blank figure.

    Letters on an axis are sometimes read as labels. Panels are therefore also searched for without
    labels, and used if those with labels are in no order. Where a caption passes over a letter, a
    detector's proposals decide whether that panel exists. Where they are as many as the labels,
    confident, and contain nearly all of the ink, they are the panels, unless cuts are clear.
    """
    count = max(len(expected), len(known)) if len(expected) > 1 else len(known)
    counts = [count, count + len(skipped_letters(expected))] if proposed else [count]
    is_agreed = (
        len(proposed) == count
        and all(one.score >= _AGREED for one in proposed)
        and ink.share_within([one.box for one in proposed]) >= _COVERED
    )
    axes = cut_axes(expected)
    best: PanelChoice | None = None
    for labels in (known, ()):
        marks = [_mark(index, label, ink) for index, label in enumerate(labels)]
        insets = insets_of(ink, marks)
        for number in dict.fromkeys(counts):
            regions = regions_of(ink, marks, missing=max(number - len(marks), 0), axes=axes)
            if not regions:
                return None
            most = min(number + 1, MOST_PANELS)
            chooser = Chooser(regions, marks, number, most=most, proposed=proposed, insets=insets)
            choices = [chooser.choose()]
            if proposed:
                choices.append(chooser.as_proposed(choices[0]))
            is_counted = is_agreed and best is None and len(choices[-1].leaves) == count
            # Not in the second attempt: without labels, no cut is clear. If cuts give the same
            # panels, they are more certain.
            if (
                is_counted
                and not _is_clear(choices[0])
                and _boxes(choices[0]) != _boxes(choices[-1])
            ):
                # Their sizes are as seen, and need not be alike.
                return replace(choices[-1], imbalance=0.0)
            for choice in choices:
                if best is None or choice.quality > best.quality:
                    best = choice
        if (best is not None and _is_clear(best)) or len(expected) < 2:
            break
    return best


def _boxes(choice: PanelChoice) -> set[Cut]:
    return {leaf.box for leaf in choice.leaves}


def _is_clear(choice: PanelChoice) -> bool:
    return choice.fit > _ORDERLY and choice.cost < _CLEAR


def _whole(width: int, height: int) -> PanelFound:
    return PanelFound(Box(0, 0, width, height), None, None, 1.0, "whole")


def _known(labels: Sequence[Label], expected: Sequence[str]) -> list[Label]:
    """Return the labels to use: the caption's, each once, in its spelling.

    Without labels in the caption, confident labels that start an alphabet are used.
    """
    best: dict[str, Label] = {}
    for label in sorted(labels, key=lambda label: -label.score):
        best.setdefault(label.text, label)
    read = list(best.values())
    if len(expected) > 1:
        names = matched_names([label.text for label in read], expected)
        return [Label(name, read[at].box, read[at].score) for at, (name, _) in names.items()]
    sure = [label for label in read if label.score >= _SURE]
    starts = {label.text.casefold() for label in sure} & set(_FIRST)
    return sure if starts and len(sure) > 1 else []


def _mark(index: int, label: Label, ink: Ink) -> Mark:
    box = label.box
    x0, x1 = box.x0 / ink.scale_x, box.x1 / ink.scale_x
    y0, y1 = box.y0 / ink.scale_y, box.y1 / ink.scale_y
    return Mark(index, (x0, y0, x1, y1), label.score)


def _found(choice: PanelChoice, labels: Sequence[Label], ink: Ink) -> list[PanelFound]:
    found = []
    for leaf in choice.leaves:
        label = _label(leaf, labels)
        x0, y0, x1, y1 = leaf.box
        found.append(
            PanelFound(
                Box(
                    round(x0 * ink.scale_x),
                    round(y0 * ink.scale_y),
                    round(x1 * ink.scale_x),
                    round(y1 * ink.scale_y),
                ),
                label.text if label else None,
                label.box if label else None,
                choice.confidence(leaf),
                "labels" if label else "layout",
            )
        )
    return found


def _label(leaf: Leaf, labels: Sequence[Label]) -> Label | None:
    return labels[leaf.marks[0].index] if len(leaf.marks) == 1 else None
