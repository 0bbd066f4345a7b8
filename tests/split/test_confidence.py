"""The confidence of a figure falls with whatever speaks against it."""

from dataclasses import replace

from biovl.articles.subcaptions.splitting import split_caption
from biovl.images.boxes import Box, PanelFound
from biovl.images.matching import match
from biovl.split.confidence import probability

CAPTION = split_caption("(A) Scores of mice. (B) Genes of cells. (C) Weights of rats.")
PANELS = [
    PanelFound(Box(100 * at, 0, 100 * at + 90, 90), label, None, 0.98, "labels")
    for at, label in enumerate("ABC")
]


def sure(panels: list[PanelFound]) -> float:
    return probability(CAPTION, match(panels, CAPTION.labels()))


def test_unsure_boxes_unread_and_missing_labels_lower_the_confidence() -> None:
    best = sure(PANELS)
    assert 0 < best < 1
    assert sure([replace(panel, confidence=0.6) for panel in PANELS]) < best
    assert sure([*PANELS[:2], replace(PANELS[2], label=None)]) < best
    assert sure(PANELS[:2]) < 0.8 * best


def test_a_caption_that_is_hard_to_split_lowers_it() -> None:
    matched = match(PANELS, CAPTION.labels())
    assert probability(replace(CAPTION, confidence=0.5), matched) < probability(
        replace(CAPTION, confidence=0.95), matched
    )
