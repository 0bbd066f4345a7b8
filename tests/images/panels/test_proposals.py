"""What a detector proposes counts beside cuts, labels and number; alone it cuts nothing."""

import numpy as np
import pytest

from biovl.images.boxes import Box, Proposal, iou
from biovl.images.labels.reading import Label
from biovl.images.panels.choice import Chooser
from biovl.images.panels.cuts import Mark, Region
from biovl.images.panels.proposals import Proposed, agreement, partition, same_panels
from biovl.images.panels.splitting import split_figure


def noise(boxes: list[Box], width: int = 600, height: int = 400) -> np.ndarray:
    """Draw panels of noise on white paper."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    rng = np.random.default_rng(5)
    for box in boxes:
        x0, y0, x1, y1 = int(box.x0), int(box.y0), int(box.x1), int(box.y1)
        pixels[y0:y1, x0:x1] = rng.integers(0, 200, (y1 - y0, x1 - x0, 3))
    return pixels


WHIRL = [
    Box(0, 0, 380, 150),
    Box(400, 0, 600, 250),
    Box(220, 270, 600, 400),
    Box(0, 170, 200, 400),
    Box(220, 170, 380, 250),
]
"""Five panels that no line from side to side parts."""
LABELS = [
    Label(name, Box(box.x0 + 5, box.y0 + 5, box.x0 + 25, box.y0 + 25), 0.9)
    for name, box in zip("ABCDE", WHIRL, strict=True)
]


def hits(found: list[Box], true: list[Box]) -> int:
    return sum(max((iou(one, box) for one in found), default=0.0) > 0.8 for box in true)


def test_proposals_are_panels_where_no_cut_from_side_to_side_is() -> None:
    pixels, names = noise(WHIRL), list("ABCDE")
    alone = [p.box for p in split_figure(pixels, labels=LABELS, expected=names)]
    proposals = [Proposal(box, 0.9) for box in WHIRL]
    found = split_figure(pixels, labels=LABELS, expected=names, proposals=proposals)
    assert hits(alone, WHIRL) < 5
    assert hits([panel.box for panel in found], WHIRL) == 5
    assert {panel.label for panel in found} == set(names)


def test_edges_are_those_of_cuts_where_proposals_are_the_same_panels() -> None:
    pixels = noise([Box(0, 0, 280, 400), Box(320, 0, 600, 400)])
    # An axis title makes the cut costly; the proposals avoid it, and end within a label.
    pixels[100:115, 280:316] = 0
    labels = [Label("A", Box(258, 370, 276, 390), 0.9), Label("B", Box(578, 370, 596, 390), 0.9)]
    proposals = [Proposal(Box(2, 12, 270, 386), 0.95), Proposal(Box(324, 12, 590, 386), 0.95)]
    found = split_figure(pixels, labels=labels, expected=["A", "B"], proposals=proposals)
    assert [(panel.label, panel.label_box) for panel in found] == [
        (label.text, label.box) for label in labels
    ]
    for panel, label in zip(found, labels, strict=True):
        assert panel.box.x1 >= label.box.x1
        assert (panel.box.y0, panel.box.y1) == (0, 400)


def row_of(names: str) -> tuple[list[Box], list[Label]]:
    """Return panels side by side, and a label in the corner of each."""
    step = 600 // len(names)
    boxes = [Box(x, 0, x + step - 15, 400) for x in range(0, 600, step)]
    labels = [
        Label(name, Box(box.x0 + 5, 5, box.x0 + 25, 25), 0.9)
        for name, box in zip(names, boxes, strict=True)
    ]
    return boxes, labels


def test_the_panel_of_a_letter_that_the_caption_passes_over_is_found() -> None:
    boxes, labels = row_of("ABCD")
    read = [label for label in labels if label.text != "C"]
    proposals = [Proposal(box, 0.9) for box in boxes]
    found = split_figure(noise(boxes), labels=read, expected=list("ABD"), proposals=proposals)
    assert [panel.label for panel in found] == ["A", "B", None, "D"]
    assert hits([panel.box for panel in found], boxes) == 4


@pytest.mark.parametrize("names", ["ABD", "ABZ"])
def test_a_letter_that_the_caption_passes_over_is_no_panel_by_itself(names: str) -> None:
    boxes, labels = row_of(names)
    proposals = [Proposal(box, 0.9) for box in boxes]
    found = split_figure(noise(boxes), labels=labels, expected=list(names), proposals=proposals)
    assert [panel.label for panel in found] == list(names)


def test_an_inset_may_extend_beyond_its_panel() -> None:
    boxes = [Box(0, 0, 290, 400), Box(310, 0, 600, 400), Box(200, 250, 340, 330)]
    pixels = noise(boxes[:2])
    pixels[250:330, 200:340] = 120
    labels = [Label("A", Box(5, 5, 25, 25), 0.9), Label("B", Box(315, 5, 335, 25), 0.9)]
    proposals = [Proposal(box, 0.9) for box in boxes]
    found = split_figure(pixels, labels=labels, expected=["A", "B", "C"], proposals=proposals)
    assert hits([panel.box for panel in found], boxes) == 3


@pytest.mark.parametrize(("score", "panels"), [(0.9, 5), (0.6, 1)])
def test_confident_proposals_as_many_as_the_captions_labels_may_differ_in_size(
    score: float, panels: int
) -> None:
    insets = [Box(20 + 140 * at, 280, 140 + 140 * at, 380) for at in range(4)]
    boxes = [Box(0, 0, 600, 400), *insets]
    pixels = noise(boxes[:1])
    for inset in insets:
        pixels[int(inset.y0) : int(inset.y1), int(inset.x0) : int(inset.x1)] = 120
    labels = [Label("A", Box(5, 5, 25, 25), 0.9)]
    proposals = [Proposal(box, score) for box in boxes]
    found = split_figure(pixels, labels=labels, expected=list("ABCDE"), proposals=proposals)
    assert len(found) == panels
    assert hits([panel.box for panel in found], boxes) == panels


def test_proposals_that_miss_a_panel_replace_no_clean_cuts() -> None:
    boxes = [Box(x, y, x + 290, y + 190) for y in (0, 210) for x in (0, 310)]
    inset = Proposal(Box(20, 20, 120, 90), 0.7)
    proposals = [*(Proposal(box, 0.9) for box in boxes[:3]), inset]
    found = split_figure(noise(boxes), expected=list("ABCD"), proposals=proposals)
    assert hits([panel.box for panel in found], boxes) == 4


def test_proposals_take_no_label_from_clear_cuts() -> None:
    boxes = [Box(0, 0, 190, 200), Box(210, 0, 390, 200), Box(410, 0, 600, 200)]
    labels = [
        Label(n, Box(b.x0 + 5, 5, b.x0 + 25, 25), 0.9) for n, b in zip("AB", boxes, strict=False)
    ]
    proposals = [Proposal(boxes[0], 0.9), Proposal(boxes[2], 0.9)]
    found = split_figure(
        noise(boxes, height=200), labels=labels, expected=["A", "B"], proposals=proposals
    )
    assert [panel.label for panel in found] == ["A", "B"]


def test_nonsense_changes_nothing_where_labels_and_cuts_agree() -> None:
    boxes = [Box(0, 0, 290, 400), Box(310, 0, 600, 400)]
    pixels, names = noise(boxes), ["A", "B"]
    labels = [
        Label(n, Box(b.x0 + 5, 5, b.x0 + 25, 25), 0.9) for n, b in zip("AB", boxes, strict=True)
    ]
    nonsense = [
        Proposal(Box(100, 50, 450, 380), 0.95),
        Proposal(Box(-50, -50, 20, 20), 0.9),
        Proposal(Box(700, 500, 900, 800), 0.8),
        Proposal(Box(30, 30, 30, 30), 0.8),
    ]
    plain = split_figure(pixels, labels=labels, expected=names)
    found = split_figure(pixels, labels=labels, expected=names, proposals=nonsense)
    assert [panel.box for panel in found] == [panel.box for panel in plain]


def test_a_figure_without_labels_stays_whole_whatever_is_proposed() -> None:
    (whole,) = split_figure(noise(WHIRL), proposals=[Proposal(box, 0.9) for box in WHIRL])
    assert whole.how == "whole"


def test_regions_agree_with_what_shares_more_than_half_with_them() -> None:
    proposed = [Proposed((0, 0, 10, 10), 0.8)]
    found = agreement([(0, 0, 10, 10), (0, 0, 10, 5), (0, 0, 10, 20), (0, 0, 10, 8)], proposed)
    assert found[(0, 0, 10, 10)] == 0.8
    assert found[(0, 0, 10, 5)] == found[(0, 0, 10, 20)] == 0
    assert abs(found[(0, 0, 10, 8)] - 0.48) < 1e-9


def test_only_so_many_proposals_that_keep_clear_of_each_other_are_panels() -> None:
    left, right = Proposed((0, 0, 10, 10), 0.9), Proposed((12, 0, 22, 10), 0.8)
    over = Proposed((5, 0, 15, 10), 0.7)
    assert partition([left, right, over], 2) == [left.box, right.box]
    assert partition([left, over, right], 2) == []
    assert partition([left], 2) == []


def test_proposed_panels_have_known_boxes_only_if_all_are_known() -> None:
    boxes = [(0, 0, 9, 10), (12, 0, 22, 9)]
    assert same_panels(boxes, [(11, 0, 22, 10), (0, 0, 10, 10)]) == [
        (0, 0, 10, 10),
        (11, 0, 22, 10),
    ]
    assert same_panels(boxes, [(0, 0, 10, 10), (11, 0, 17, 10)]) == boxes
    assert same_panels(boxes, [(0, 0, 10, 10)]) == boxes
    assert same_panels([], []) == []


def test_an_inset_is_a_panel_with_its_own_label() -> None:
    inset, tall = Proposed((2, 2, 6, 6), 0.9), Proposed((0, 0, 10, 10), 0.8)
    assert partition([inset, tall], 2) == [inset.box, tall.box]
    assert partition([Proposed((6, 6, 12, 12), 0.9), tall], 2) == []
    assert partition([Proposed((2, 2, 9, 9), 0.9), tall], 2) == []

    root, label = (0, 0, 22, 10), Mark(0, (3, 3, 4, 4), 0.9)
    chooser = Chooser(
        {root: Region(root, (label,), ())}, [label], 2, most=3, proposed=[tall, inset]
    )
    leaves = chooser.as_proposed(chooser.choose()).leaves
    assert [(leaf.box, leaf.marks) for leaf in leaves] == [(tall.box, ()), (inset.box, (label,))]
