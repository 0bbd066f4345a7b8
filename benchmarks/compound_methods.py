"""Ways to take a figure or a caption apart: ours, and baselines to judge it by."""

import importlib
import json
import re
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from compound_cases import CaptionCase, Case, cited, cited_panels

from biovl.articles.citances.extraction import references
from biovl.articles.subcaptions.splitting import SplitCaption, split_caption
from biovl.core.records import Figure
from biovl.images.boxes import Box, PanelFound
from biovl.images.labels.reading import read_labels
from biovl.images.matching import match
from biovl.images.panels.splitting import split_figure
from biovl.split import rows
from biovl.split.config import default


@dataclass(frozen=True)
class FoundPanel:
    """A predicted panel."""

    label: str | None
    box: Box
    confidence: float


@dataclass(frozen=True)
class Prediction:
    """What a method says of a figure."""

    panels: list[FoundPanel]
    """None or one: the figure is not compound."""
    texts: Mapping[str, str] | None = None
    """Text about each panel, by its label; None: the method does not read captions."""
    confidence: float = 1.0
    """That all of it is right; 0: the figure stays whole."""
    cpu_ms: float = 0.0
    note: str = ""
    """Why the figure stays whole."""


Method = Callable[[Case], Prediction | None]
"""Returns None for figures that it does not apply to."""

Propose = rows.Propose


def ours(propose: Propose | None) -> Method:
    """Return the method of ``biovl split``.

    It runs as in the job but at a confidence of 0, so that all thresholds can be judged. Where it
    refuses a figure, the panels are those it saw.
    """
    how = default().splitting()
    how = type(how)(**{**vars(how), "confidence": 0.0})

    def predict(case: Case) -> Prediction:
        start = time.process_time()
        found = rows.split(case.row, how, set(), propose)
        cpu_ms = 1000 * (time.process_time() - start)
        if found[0].whole_because is None:
            panels = [
                FoundPanel(one.panel_label, Box(*_ends(one.box_px)), one.confidence)
                for one in found
            ]
            texts = {one.panel_label: one.caption for one in found if one.panel_label}
            # The figure's own confidence is that of its best panel, or of one without a label.
            return Prediction(panels, texts, max(one.confidence for one in found), cpu_ms)
        caption = _split(case.row)
        labels = caption.labels()
        panels = []
        if found[0].whole_because == rows.DISAGREE:
            read = read_labels(case.pixels, expected=labels)
            proposed = propose(case.pixels) if propose else ()
            seen = split_figure(case.pixels, labels=read, expected=labels, proposals=proposed)
            panels = _named(seen, labels)
        texts = {label: caption.text_of(label) for label in labels}
        note = ": ".join(filter(None, (found[0].whole_because, found[0].whole_detail)))
        return Prediction(panels, texts, 0.0, cpu_ms, note)

    return predict


def one_label_unread(propose: Propose | None) -> Method:
    """Return our panels where the caption's labels lack one in the middle, as if it was not read.

    It applies to figures with four letters or more, none passed over.
    """

    def predict(case: Case) -> Prediction | None:
        labels = list(case.labels)
        letters = [chr(ord("a") + number) for number in range(len(labels))]
        if len(labels) < 4 or [label.casefold() for label in labels] != letters:
            return None
        start = time.process_time()
        del labels[len(labels) // 2]
        read = read_labels(case.pixels, expected=labels)
        proposed = propose(case.pixels) if propose else ()
        seen = split_figure(case.pixels, labels=read, expected=labels, proposals=proposed)
        cpu_ms = 1000 * (time.process_time() - start)
        return Prediction(_named(seen, tuple(labels)), cpu_ms=cpu_ms)

    return predict


def xy_cut(case: Case) -> Prediction:
    """Cut along white gaps, recursively; the caption's labels in reading order."""
    start = time.process_time()
    light = case.pixels.min(axis=2) > _WHITE
    boxes = [PanelFound(box, None, None, 0.5, "layout") for box in _cut(light, 0, 0)]
    labels = _split(case.row).labels()
    panels = _named(boxes, labels) if len(boxes) > 1 else []
    return Prediction(panels, cpu_ms=1000 * (time.process_time() - start))


def detector(propose: Propose) -> Method:
    """Return the method of a detector's boxes alone; the caption's labels in reading order."""

    def predict(case: Case) -> Prediction:
        start = time.process_time()
        found = [PanelFound(one.box, None, None, one.score, "") for one in propose(case.pixels)]
        panels = _named(found, _split(case.row).labels()) if len(found) > 1 else []
        return Prediction(panels, cpu_ms=1000 * (time.process_time() - start))

    return predict


def from_file(path: Path) -> Method:
    """Return the predictions of a JSON Lines file.

    ``{"article", "figure", "confidence": 1.0, "cpu_ms": 0, "panels": [{"box": [x0, y0, x1, y1],
    "label", "confidence", "caption"}]}``; all but the names and boxes may be left out.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    reads_captions = any("caption" in panel for line in lines for panel in line["panels"])
    predictions: dict[str, Prediction] = {}
    for line in lines:
        panels = [
            FoundPanel(one.get("label"), Box(*one["box"]), one.get("confidence", 1.0))
            for one in line["panels"]
        ]
        texts = {one["label"]: one.get("caption", "") for one in line["panels"] if one.get("label")}
        name = "-".join(filter(None, (line["article"], line.get("figure"))))
        predictions[name] = Prediction(
            panels,
            texts if reads_captions else None,
            line.get("confidence", 1.0),
            line.get("cpu_ms", 0.0),
        )
    nothing = Prediction([], {} if reads_captions else None)
    return lambda case: predictions.get(case.name, nothing)


# Captions: the whole text and the own part of each label.

CaptionMethod = Callable[[CaptionCase], tuple[dict[str, str], dict[str, str]]]


def our_caption(case: CaptionCase) -> tuple[dict[str, str], dict[str, str]]:
    """Split a caption as ``biovl split`` does."""
    split = split_caption(case.caption, bold=case.bold, cited=set(case.cited))
    own = {
        label: " ".join(part.text for part in split.parts if label in part.labels)
        for label in split.labels()
    }
    return {label: split.text_of(label) for label in own}, own


def caption_confidence(case: CaptionCase) -> float:
    """Return how sure the split of a caption is, without its image."""
    return split_caption(case.caption, bold=case.bold, cited=set(case.cited)).confidence


def whole_caption(case: CaptionCase) -> tuple[dict[str, str], dict[str, str]]:
    """Return the right labels, each with the whole caption."""
    texts = dict.fromkeys(case.texts, case.caption)
    return texts, texts


def exsclaim(checkout: Path) -> CaptionMethod:
    """Return the caption distributor of EXSCLAIM (github.com/MaterialEyes/exsclaim, GPL-3).

    Nothing of it is included. It needs spaCy with the model ``en_core_web_sm``.
    """
    # Its __init__ imports crawlers and detectors, which captions do not need.
    package = types.ModuleType("exsclaim")
    package.__path__ = [str(checkout / "exsclaim")]
    sys.modules["exsclaim"] = package
    distributor = importlib.import_module("exsclaim.caption")
    model = distributor.load_models(str(checkout / "exsclaim" / "captions" / "models") + "/")

    def predict(case: CaptionCase) -> tuple[dict[str, str], dict[str, str]]:
        try:
            found = distributor.associate_caption_text(model, case.caption, {})
        # As its own pipeline does: a caption at which it fails has no parts.
        except Exception:
            found = {}
        texts = {label: " ".join(one["description"]) for label, one in found.items()}
        # One label stands for a caption that is not compound.
        return (texts, texts) if len(texts) > 1 else ({}, {})

    return predict


# Sentences.

Cited = frozenset[tuple[str, str, str]]
_PLAIN = re.compile(r"Fig(?:ure)?s?\.? ?(S?\d+)([A-Za-z]?)")


def grammar(sentence: str) -> Cited:
    """Return the panels that the grammar finds in a sentence."""
    return cited((found.kind, found.figure, found.panels) for found in references(sentence))


def plain_pattern(sentence: str) -> Cited:
    """Return the panels of a number with letters glued to it, as most pipelines find them."""
    return cited(
        ("supplementary" if found[1].startswith("S") else "main", found[1], found[2])
        for found in _PLAIN.finditer(sentence)
    )


def _split(row: Figure) -> SplitCaption:
    return split_caption(row.caption, bold=row.caption_bold, cited=set(cited_panels(row)))


def _named(found: list[PanelFound], labels: tuple[str, ...]) -> list[FoundPanel]:
    return [
        FoundPanel(one.label, one.panel.box, one.panel.confidence)
        for one in match(found, labels).panels
    ]


def _ends(box: object) -> tuple[float, float, float, float]:
    return box.x0, box.y0, box.x1, box.y1  # type: ignore[attr-defined]


_WHITE, _GAP_PX, _SIDE_PX = 245, 3, 40


def _cut(light: np.ndarray, x: int, y: int) -> Iterator[Box]:
    """Yield the parts between white gaps of 3 px and more, of at least 40 px; light: bool, HW."""
    rows_y, columns_x = np.flatnonzero(~light.all(1)), np.flatnonzero(~light.all(0))
    if not len(rows_y):
        return
    top, left = int(rows_y[0]), int(columns_x[0])
    light = light[top : rows_y[-1] + 1, left : columns_x[-1] + 1]
    x, y = x + left, y + top
    for axis in (1, 0):
        ink = np.flatnonzero(~light.all(axis))
        jumps = np.flatnonzero(np.diff(ink) > _GAP_PX)
        for at in sorted(jumps, key=lambda at: ink[at] - ink[at + 1]):
            end, start = int(ink[at]) + 1, int(ink[at + 1])
            if min(end, len(ink) and int(ink[-1]) + 1 - start) < _SIDE_PX:
                continue
            if axis:
                yield from _cut(light[:end], x, y)
                yield from _cut(light[start:], x, y + start)
            else:
                yield from _cut(light[:, :end], x, y)
                yield from _cut(light[:, start:], x + start, y)
            return
    yield Box(x, y, x + light.shape[1], y + light.shape[0])
