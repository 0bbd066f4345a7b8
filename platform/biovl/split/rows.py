"""Rows of ``panels/`` for one figure: one per panel, or one for the whole figure.

A figure is split if its caption names panels, the image has as many, and both agree; else it stays
whole, with the reason. A wrong caption is worse than a long one.
"""

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from PIL import Image

from biovl.articles.citances.extraction import Citance, citances
from biovl.articles.spans import SpanIndex
from biovl.articles.subcaptions.splitting import SplitCaption, split_caption
from biovl.core.records import (
    Figure,
    Mention,
    Panel,
    PanelMention,
    PanelProvenance,
    PixelBox,
    Reference,
    Span,
)
from biovl.images import decode, hashing
from biovl.images.boxes import Box, Proposal
from biovl.images.encode import jpeg
from biovl.images.labels.reading import Label, read_labels
from biovl.images.matching import Matched, MatchedPanel, match
from biovl.images.panels.splitting import split_figure
from biovl.split import confidence
from biovl.split.config import Splitting

log = logging.getLogger(__name__)

UNUSABLE = "image is not usable"
NOT_ALLOWED = "licence does not allow changes"
NO_LABELS = "caption names no panels"
NO_PANELS = "image shows no panels"
DISAGREE = "labels and panels disagree"
UNSURE = "below confidence"
FAILED = "splitter failed"
Propose = Callable[[np.ndarray], Sequence[Proposal]]
"""Detector: maps an image, RGB, uint8, shape [H, W, 3], to panel proposals."""

_SURE = 0.9
"""Minimum score of all labels if one of them is not named by the caption."""

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9]+")
_AS_PUBLISHED = "as published"


def figure_of(row: Mapping[str, Any], extra: Sequence[str] = ()) -> Figure:
    """Return a row of ``figures/`` as a record. Missing columns become None or empty.

    Args:
        row: The row.
        extra: Names of its ``extra_columns``.
    """
    values: dict[str, Any] = {item.name: row.get(item.name) for item in fields(Figure)}
    values["extra_columns"] = {name: row[name] for name in extra}
    values["mentions"] = [
        Mention(
            text=found["text"],
            refs=[Reference(**reference) for reference in found["refs"]],
            superscripts=_spans(found["superscripts"]),
            container=found["container"],
        )
        for found in row.get("mentions") or ()
    ]
    for name in ("caption_bold", "caption_superscripts"):
        values[name] = _spans(row.get(name) or ())
    values["third_party"] = bool(values["third_party"])
    return Figure(**values)


def split(
    figure: Figure, how: Splitting, taken: set[str], propose: Propose | None = None
) -> list[Panel]:
    """Return the rows of one figure: its panels in reading order, or the whole figure.

    Args:
        figure: The figure, as harvested.
        how: Settings of splitting.
        taken: Ids in use; the panels' ids are added.
        propose: A detector that proposes panels; None: no detector.
    """
    try:
        cut = _cut(figure, how, propose)
    # One figure in a hundred million that triggers a bug must not end the run. It is counted
    # under a separate reason, and the log has the traceback.
    except Exception as error:
        log.exception("splitting %s failed", figure.figure_id)
        cut = FAILED, f"{type(error).__name__}: {error}"[:300], 0.0
    if isinstance(cut, tuple):
        reason, detail, confidence = cut
        return [_whole(figure, reason, detail, confidence)]
    return [
        replace(panel, figure_id=_id(panel, number, taken))
        for number, panel in enumerate(cut, start=1)
    ]


@dataclass(frozen=True)
class Matching:
    """Split caption, citing sentences and matching panels of a figure."""

    caption: SplitCaption
    cited: Sequence[Citance]
    matched: Matched
    pixels: np.ndarray

    @property
    def confidence(self) -> float:
        """Probability that boxes, labels and captions of all panels are right."""
        return confidence.probability(self.caption, self.matched)


def match_figure(
    figure: Figure, propose: Propose | None
) -> Matching | tuple[str, str | None, float]:
    """Return panels that match the caption, or (reason, detail, confidence) if there are none."""
    if figure.image is None or figure.defect is not None:
        return UNUSABLE, figure.defect, 1.0
    cited = citances(figure.mentions, figure.figure_label)
    caption = split_caption(
        figure.caption,
        bold=figure.caption_bold,
        cited={_base(panel) for one in cited for panel in one.panels},
    )
    expected = caption.labels()
    if len(expected) < 2:
        return NO_LABELS, None, 1.0
    pixels = decode.decode_rgb(figure.image).pixels
    if pixels is None:
        return UNUSABLE, decode.UNDECODABLE, 1.0
    labels, untold = _read(pixels, expected)
    if untold is not None:
        return DISAGREE, f"the image shows {untold}, which the caption does not name", 0.0
    proposals = propose(pixels) if propose else ()
    result = split_figure(pixels, labels=labels, expected=expected, proposals=proposals)
    matched = match(result, expected)
    if len(matched.panels) < 2:
        return NO_PANELS, None, 1.0
    if matched.conflict:
        return DISAGREE, matched.conflict, 0.0
    return Matching(caption, cited, matched, pixels)


def _cut(
    figure: Figure, how: Splitting, propose: Propose | None
) -> list[Panel] | tuple[str, str | None, float]:
    """Return the panels of a figure, or the reason why it stays whole, a detail, the confidence."""
    is_usable = figure.image is not None and figure.defect is None
    if is_usable and how.derivatives == "allowed" and not figure.derivatives_allowed:
        return NOT_ALLOWED, figure.license, 1.0
    found = match_figure(figure, propose)
    if isinstance(found, tuple):
        return found
    sure = round(found.confidence, 4)
    if sure < how.confidence:
        return UNSURE, None, sure
    return [_panel(figure, found, panel, sure, how) for panel in found.matched.panels]


def _read(pixels: np.ndarray, expected: Sequence[str]) -> tuple[list[Label], str | None]:
    """Return the expected labels that are printed, and an unexpected one that clearly is, or None.

    Only the letter that follows the last expected label is looked for.
    """
    last = max(expected)
    after = chr(ord(last) + 1) if len(last) == 1 and last.isascii() and last.isalpha() else None
    # Axes, bars and dots resemble an I, an l and an o.
    if after is None or not after.isalpha() or after in "IilOo":
        return read_labels(pixels, expected=expected), None
    found = read_labels(pixels, expected=[*expected, after])
    labels = [label for label in found if label.text != after]
    # An unexpected label counts only if it scores like the others and all of those were found.
    is_sure = len(found) == len(expected) + 1 and min(x.score for x in found) >= _SURE
    return labels, after if is_sure else None


def _panel(
    figure: Figure, found: Matching, matched: MatchedPanel, sure: float, how: Splitting
) -> Panel:
    caption, cited, pixels = found.caption, found.cited, found.pixels
    box = _within(matched.panel.box, pixels)
    data, encoding = _encode(pixels[box.y0 : box.y1, box.x0 : box.x1], figure, how.jpeg_quality)
    properties = decode.inspect(data)
    label = matched.label
    text = caption.text_of(label) if label else figure.caption
    stretches = _stretches(caption, label) if label else [(text, Span(0, len(text)))]
    own = " ".join(part.text for part in caption.parts if label in part.labels)
    label_box = matched.panel.label_box
    mentions = _mentions_of(label, cited, caption.labels())
    return Panel(
        **{
            **_columns_of(figure),
            "parent_figure_id": figure.figure_id,
            "caption": text,
            "caption_bold": _map_spans(figure.caption, stretches, figure.caption_bold),
            "caption_superscripts": _map_spans(
                figure.caption, stretches, figure.caption_superscripts
            ),
            "mentions": mentions,
            "image": data,
            "image_format": properties.format,
            "image_mode": properties.mode,
            "size_bytes": len(data),
            "width_px": properties.width_px,
            "height_px": properties.height_px,
            "image_sha256": hashing.sha256_hex(data),
            "phash": properties.phash,
            "defect": properties.defect,
            "defect_detail": properties.defect_detail,
        },
        supplements_figure_id=figure.parent_figure_id,
        panel_label=label,
        box_px=box,
        label_box_px=_within(label_box, pixels) if label_box else None,
        own_caption=own if label else None,
        preamble=caption.preamble,
        full_caption=figure.caption,
        confidence=round(min(sure, matched.confidence), 4) if label else sure,
        how=PanelProvenance(
            label=matched.how,
            box=matched.panel.how,
            caption=f"own part, {caption.system}" if label else "whole caption",
            pixels=encoding,
        ),
        whole_because=None,
        whole_detail=None,
    )


def _whole(figure: Figure, reason: str, detail: str | None, confidence: float) -> Panel:
    """Return the single row of a figure that is not split: its bytes and texts unchanged."""
    mentions = [
        PanelMention(
            text=found.text,
            refs=found.refs,
            superscripts=found.superscripts,
            container=found.container,
            figure_level=not any(reference.panels for reference in found.refs),
            statement=None,
            linked=True,
        )
        for found in figure.mentions
    ]
    return Panel(
        **{
            **_columns_of(figure),
            "parent_figure_id": figure.figure_id,
            "mentions": mentions,
        },
        supplements_figure_id=figure.parent_figure_id,
        panel_label=None,
        box_px=None,
        label_box_px=None,
        own_caption=None,
        preamble=None,
        full_caption=figure.caption,
        confidence=confidence,
        how=PanelProvenance(
            label="none", box="whole", caption="whole caption", pixels=_AS_PUBLISHED
        ),
        whole_because=reason,
        whole_detail=detail,
    )


def _columns_of(figure: Figure) -> dict[str, Any]:
    return {item.name: getattr(figure, item.name) for item in fields(Figure)}


def _id(panel: Panel, number: int, taken: set[str]) -> str:
    """Return an unused id for a panel: ``PMC1_f2_pA``, or with its number if it has no label."""
    name = _NOT_IN_ID.sub("-", panel.panel_label or "").strip("-") or str(number)
    stem = candidate = f"{panel.parent_figure_id}_p{name}"
    again = 2
    while candidate in taken:
        candidate, again = f"{stem}-{again}", again + 1
    taken.add(candidate)
    return candidate


def _within(box: Box, pixels: np.ndarray) -> PixelBox:
    """Return a box in whole pixels inside the image, at least one pixel in size."""
    height, width = pixels.shape[:2]
    x0, y0 = min(max(round(box.x0), 0), width - 1), min(max(round(box.y0), 0), height - 1)
    return PixelBox(
        x0, y0, min(max(round(box.x1), x0 + 1), width), min(max(round(box.y1), y0 + 1), height)
    )


def _encode(pixels: np.ndarray, figure: Figure, jpeg_quality: int) -> tuple[bytes, str]:
    """Return pixels as a file, and the encoding: JPEG for a JPEG source, else lossless PNG."""
    is_grey = bool(
        (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all()
    )
    image = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if is_grey else pixels))
    if figure.image_format == "jpeg":
        return jpeg(image, jpeg_quality), f"jpeg quality {jpeg_quality}, 4:4:4"
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue(), "png"


# Mentions.


def _mentions_of(
    label: str | None,
    cited: Sequence[Citance],
    labels: Sequence[str],
) -> list[PanelMention]:
    """Return the sentences that cite a panel, and, flagged, those that cite the whole figure."""
    found = []
    superscripts: dict[int, SpanIndex[Span]] = {}
    for one in cited:
        named = [
            panel
            for panel in dict.fromkeys(map(_base, one.panels))
            if label is not None and _names(panel, label, labels)
        ]
        if named or any(not reference.panels for reference in one.references):
            if id(one.mention) not in superscripts:
                superscripts[id(one.mention)] = SpanIndex(
                    one.mention.superscripts, lambda span: span
                )
            found.append(_mention(one, superscripts[id(one.mention)], named))
    return found


def _mention(one: Citance, raised: SpanIndex[Span], named: Sequence[str]) -> PanelMention:
    """Return a sentence that cites the panel by some names; without names, the whole figure."""
    start, end = one.span.start, one.span.end
    statement = " ".join(dict.fromkeys(filter(None, map(one.statement_of, named))))
    return PanelMention(
        text=one.text,
        refs=[
            Reference(
                start=reference.span.start,
                end=reference.span.end,
                panels=list(reference.panels),
                implied=reference in one.implied,
            )
            for reference in one.references
        ],
        superscripts=list(_shift_spans(raised.overlapping(start, end), start, end)),
        container=one.container,
        figure_level=not named,
        statement=statement if statement not in ("", one.text) else None,
        linked=one.is_linked,
    )


def _names(cited: str, label: str, labels: Sequence[str]) -> bool:
    """Return whether a cited panel equals a label, contains it, or is part of it.

    Journals print A and cite 2a: case matters only if the figure has both.
    """
    if len({name.casefold() for name in labels}) == len(set(labels)):
        cited, label = cited.casefold(), label.casefold()
        labels = [name.casefold() for name in labels]
    if cited == label or cited.startswith(f"{label}.") or label.startswith(f"{cited}."):
        return True
    # "Fig. 2A" is about A1 and A2, and "Fig. 2A1" about A, unless the figure has that panel, too.
    letter = cited.rstrip("0123456789")
    return (
        cited not in labels
        and letter == label.rstrip("0123456789") != ""
        and letter in (cited, label)
    )


def _base(panel: str) -> str:
    """Return ``b`` of ``b (left)``."""
    return panel.partition(" (")[0]


# Spans.


def _spans(values: Sequence[Mapping[str, int]]) -> list[Span]:
    return [Span(value["start"], value["end"]) for value in values]


def _shift_spans(spans: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    """Yield the spans inside a stretch of a text, relative to its start."""
    for span in spans:
        if span.start < end and start < span.end:
            yield Span(max(span.start, start) - start, min(span.end, end) - start)


def _stretches(caption: SplitCaption, label: str) -> list[tuple[str, Span]]:
    """Return the texts that ``text_of`` joins, each with its range in the caption."""
    ranges = [part.spans[0] for part in caption.parts]
    found = [
        (caption.preamble, Span(0, ranges[0].start)),
        *((part.text, part.spans[0]) for part in caption.parts if label in part.labels),
        (caption.trailing, Span(ranges[-1].end, sys.maxsize)),
    ]
    return [(text, place) for text, place in found if text]


def _map_spans(
    source: str, stretches: Sequence[tuple[str, Span]], spans: Sequence[Span]
) -> list[Span]:
    """Return the spans of a caption, mapped to stretches of it that are joined by spaces.

    A stretch with words left out is mapped word by word, so a position inside a word is preserved.
    """
    mapped: list[Span] = []
    if not spans:
        return mapped
    index = SpanIndex(spans, lambda span: span)
    offset = 0
    for text, within in stretches:
        position = within.start
        is_whole = source.find(text, within.start, within.end) >= 0
        for piece in re.finditer(r"(?s).+" if is_whole else r"\S+", text):
            place = source.find(piece[0], position, within.end)
            if place < 0:
                continue
            position = place + len(piece[0])
            for span in _shift_spans(index.overlapping(place, position), place, position):
                start = offset + piece.start()
                new = Span(start + span.start, start + span.end)
                # A span of several words stays one span.
                if mapped and mapped[-1].end + 1 == new.start and span.start == 0:
                    new = Span(mapped.pop().start, new.end)
                mapped.append(new)
        offset += len(text) + 1
    return mapped
