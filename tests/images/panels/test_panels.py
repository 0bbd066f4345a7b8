"""Figures with known panels, drawn from blocks of noise, bars and letters' boxes."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from biovl.images.boxes import Box, enclosing, iou
from biovl.images.labels.reading import Label, read_labels
from biovl.images.matching import match
from biovl.images.panels.cuts import MAX_REGIONS, regions_of
from biovl.images.panels.ink import ink_of
from biovl.images.panels.splitting import PanelFound, split_figure
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.metrics import Counts, box_counts, match_boxes


def paper(width: int, height: int, level: int = 255) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def photograph(page: np.ndarray, box: Box, base: int = 120) -> None:
    """Fill a box with smooth grains: no line through it is of one colour."""
    x0, y0, x1, y1 = (int(v) for v in (box.x0, box.y0, box.x1, box.y1))
    grains = np.random.default_rng(x0 * 7 + y0).integers(-60, 60, (y1 - y0, x1 - x0, 1))
    page[y0:y1, x0:x1] = np.clip(base + grains, 0, 255).astype(np.uint8)


def frame(page: np.ndarray, box: Box) -> None:
    """Draw the axes of a plot, with bars apart from one another."""
    x0, y0, x1, y1 = (int(v) for v in (box.x0, box.y0, box.x1, box.y1))
    page[y0:y1, x0 : x0 + 2] = 0
    page[y1 - 2 : y1, x0:x1] = 0
    for x in range(x0 + 14, x1 - 10, 24):
        page[y0 + 20 + x % 30 : y1 - 2, x : x + 10] = 90


def at_corner(box: Box, text: str, score: float = 0.9) -> Label:
    return Label(text, Box(box.x0 + 3, box.y0 + 3, box.x0 + 15, box.y0 + 18), score)


def grid(columns: int, rows: int, *, side: int = 140, gap: int = 12) -> list[Box]:
    step = side + gap
    return [
        Box(x * step, y * step, x * step + side, y * step + side)
        for y in range(rows)
        for x in range(columns)
    ]


def mosaic(boxes: Sequence[Box], level: int = 255) -> np.ndarray:
    page = paper(int(max(b.x1 for b in boxes)), int(max(b.y1 for b in boxes)), level)
    for number, box in enumerate(boxes):
        photograph(page, box, 80 + 35 * (number % 4))
    return page


def boxes_of(found: Sequence[PanelFound]) -> list[Box]:
    return [panel.box for panel in found]


def near(found: Sequence[PanelFound], true: Sequence[Box], least: float = 0.9) -> bool:
    return len(found) == len(true) and all(
        iou(panel.box, box) > least for panel, box in zip(found, true, strict=True)
    )


@pytest.mark.parametrize("level", [255, 0, 170])
def test_a_mosaic_is_cut_at_its_gutters_of_any_colour(level: int) -> None:
    boxes = grid(2, 2)
    labels = [at_corner(box, text) for box, text in zip(boxes, "ABCD", strict=True)]
    found = split_figure(mosaic(boxes, level), labels=labels, expected=list("ABCD"))
    assert near(found, boxes)
    assert [panel.label for panel in found] == list("ABCD")
    assert [panel.label_box for panel in found] == [label.box for label in labels]


def test_a_descender_at_a_gutter_belongs_to_its_panel() -> None:
    # Two pixels of 452: too few to close the gutter.
    boxes = grid(3, 2)
    page = mosaic(boxes)
    page[140:143, 60:62] = 0
    labels = [at_corner(box, text) for box, text in zip(boxes, "ABCDEF", strict=True)]
    found = split_figure(page, labels=labels, expected=list("ABCDEF"))
    assert found[0].box == Box(0, 0, 140, 143)
    assert boxes_of(found[1:]) == boxes[1:]


def test_panels_that_touch_are_cut_at_the_seam() -> None:
    boxes = [Box(0, 0, 150, 200), Box(150, 0, 300, 200)]
    page = paper(300, 200)
    page[:, :150], page[:, 150:] = 60, 190
    page[20:60, 30:80] = 250
    page[90:160, 190:260] = 20
    found = split_figure(page, expected=["a", "b"])
    assert near(found, boxes)


def test_the_count_of_the_caption_is_enough_for_a_clear_layout() -> None:
    boxes = grid(3, 1)
    assert near(split_figure(mosaic(boxes), expected=["a", "b", "c"]), boxes)
    assert {panel.how for panel in split_figure(mosaic(boxes), expected=["a", "b", "c"])} == {
        "layout"
    }


def test_a_gap_within_a_panel_stays_where_one_label_stands_for_both_parts() -> None:
    # Wider between the two parts of A than between A and B.
    parts = [Box(0, 0, 140, 140), Box(180, 0, 320, 140), Box(0, 150, 320, 290)]
    labels = [at_corner(parts[0], "A"), at_corner(parts[2], "B")]
    found = split_figure(mosaic(parts), labels=labels, expected=["A", "B"])
    assert near(found, [Box(0, 0, 320, 140), parts[2]])


def test_a_label_beside_its_panel_is_within_the_panels_box() -> None:
    page = paper(400, 220)
    for x in (0, 210):
        photograph(page, Box(x, 30, x + 180, 220))
        page[2:16, x : x + 12] = 0
    labels = [Label(text, Box(x, 2, x + 12, 16), 0.9) for text, x in (("A", 0), ("B", 210))]
    found = split_figure(page, labels=labels, expected=["A", "B"])
    assert boxes_of(found) == [Box(0, 2, 180, 220), Box(210, 2, 390, 220)]


def test_bars_of_a_plot_are_no_panels() -> None:
    page = paper(500, 220)
    plots = [Box(0, 0, 230, 220), Box(260, 0, 490, 220)]
    for box in plots:
        frame(page, box)
    labels = [at_corner(box, text) for box, text in zip(plots, "ab", strict=True)]
    assert near(split_figure(page, labels=labels, expected=["a", "b"]), plots)


def test_letters_of_an_axis_that_were_read_as_labels_do_not_cut_a_plot() -> None:
    boxes = grid(2, 2)
    page = mosaic(boxes)
    page[:140, :140] = 255
    frame(page, boxes[0])
    letters = [
        Label(text, Box(14 + 24 * n, 120, 24 + 24 * n, 134), 0.6) for n, text in enumerate("ABCD")
    ]
    assert near(split_figure(page, labels=letters, expected=list("ABCD")), boxes, 0.8)


def test_a_labelled_inset_is_a_panel_within_its_panel() -> None:
    figure = make_compound(80_006, "insets")
    labels = [
        Label(panel.label, panel.label_box, 0.9)
        for panel in figure.panels
        if panel.label and panel.label_box
    ]
    found = split_figure(figure.pixels, labels=labels, expected=figure.labels)
    boxes = {panel.label: panel.box for panel in found}
    assert all(iou(boxes[panel.label], panel.box) > 0.5 for panel in figure.panels)


def test_parts_of_one_image_are_cut_where_their_labels_imply_it() -> None:
    boxes = grid(2, 2, gap=0)
    page = paper(280, 280)
    photograph(page, Box(0, 0, 280, 280))
    labels = [at_corner(box, text) for box, text in zip(boxes, "ABCD", strict=True)]
    assert near(split_figure(page, labels=labels, expected=list("ABCD")), boxes)


def test_left_and_right_are_never_one_above_the_other() -> None:
    boxes = [Box(0, 0, 140, 140), Box(150, 0, 290, 140), Box(0, 190, 140, 330)]
    boxes.append(Box(150, 190, 290, 330))
    found = split_figure(mosaic(boxes), expected=["left", "right"])
    assert near(found, [Box(0, 0, 140, 330), Box(150, 0, 290, 330)])


def test_a_figure_whose_caption_names_no_panels_stays_whole() -> None:
    assert [panel.how for panel in split_figure(mosaic(grid(2, 2)))] == ["whole"]
    assert [panel.how for panel in split_figure(mosaic(grid(2, 2)), expected=["A"])] == ["whole"]


def test_labels_alone_cut_a_figure_if_they_are_sure_and_begin_an_alphabet() -> None:
    boxes = grid(2, 1)
    labels = [at_corner(box, text) for box, text in zip(boxes, "ab", strict=True)]
    assert near(split_figure(mosaic(boxes), labels=labels), boxes)
    others = [at_corner(box, text) for box, text in zip(boxes, "km", strict=True)]
    assert len(split_figure(mosaic(boxes), labels=others)) == 1


def test_a_plot_whose_other_panels_are_elsewhere_stays_whole_or_is_doubted() -> None:
    page = paper(400, 300)
    page[5:295, 5:8] = page[5:295, 392:395] = 0
    page[5:8, 5:395] = page[292:295, 5:395] = 0
    for x in range(40, 360, 40):
        page[40 + x // 10 : 46 + x // 10, x : x + 6] = 90
        page[220 - x // 10 : 226 - x // 10, x : x + 6] = 90
    found = split_figure(page, expected=["a", "b", "c"])
    assert all(panel.confidence < 0.8 or panel.how == "whole" for panel in found)


@pytest.mark.parametrize(
    "page",
    [
        paper(30, 30),
        paper(400, 300),
        paper(400, 300, 0),
        paper(20_000, 40),
        paper(25, 9_000, 77),
        np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8),
        np.random.default_rng(0).choice([0, 255], (300, 400, 3)).astype(np.uint8),
    ],
    ids=["30 px", "white", "black", "20000 px wide", "9000 px high", "noise", "specks"],
)
@pytest.mark.parametrize("count", [0, 2, 50])
def test_what_is_no_figure_is_one_box_or_boxes_within_it(page: np.ndarray, count: int) -> None:
    found = split_figure(page, expected=[f"A{number}" for number in range(count)])
    whole = Box(0, 0, page.shape[1], page.shape[0])
    assert found
    assert all(enclosing([whole, panel.box]) == whole and panel.box.area > 0 for panel in found)


def test_time_is_bounded_where_gaps_have_no_end() -> None:
    # 40 x 40 specks: every line between them is a gap.
    page = paper(800, 800)
    page.reshape(40, 20, 40, 20, 3)[:, 6:14, :, 6:14] = 0
    regions = regions_of(ink_of(page), [], missing=50)
    assert len(regions) <= MAX_REGIONS + 40


def test_labels_are_still_parted_where_the_bound_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("biovl.images.panels.cuts.MAX_REGIONS", 60)
    boxes = grid(3, 3)
    labels = [at_corner(box, text) for box, text in zip(boxes, "ABCDEFGHI", strict=True)]
    found = split_figure(mosaic(boxes), labels=labels, expected=list("ABCDEFGHI"))
    assert near(found, boxes)


def test_a_large_figure_is_cut_like_its_small_copy() -> None:
    boxes = grid(2, 2)
    page = mosaic(boxes)
    large = page.repeat(9, axis=0).repeat(9, axis=1)
    small = split_figure(page, expected=list("abcd"))
    found = split_figure(large, expected=list("abcd"))
    assert near(found, [panel.box.scaled(9) for panel in small], 0.97)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(24, 200),
    st.integers(24, 200),
    st.lists(st.tuples(st.floats(-50, 300), st.floats(-50, 300), st.floats(0, 1)), max_size=5),
    st.integers(0, 9),
)
def test_any_labels_anywhere_give_boxes_within_the_figure_and_the_same_again(
    width: int, height: int, places: list[tuple[float, float, float]], count: int
) -> None:
    page = mosaic([Box(0, 0, width // 2, height), Box(width // 2 + 3, 0, width, height // 2)])
    labels = [
        Label("ABCDE"[n], Box(x, y, x + 9, y + 9), score) for n, (x, y, score) in enumerate(places)
    ]
    expected = list("ABCDEFGHI")[:count]
    found = split_figure(page, labels=labels, expected=expected)
    whole = Box(0, 0, page.shape[1], page.shape[0])
    assert all(
        enclosing([whole, panel.box]) == whole and 0 <= panel.confidence <= 1 for panel in found
    )
    assert split_figure(page, labels=labels, expected=expected) == found


@pytest.mark.parametrize("stratum", ["plain", "no_gutters", "plots", "several_images", "damaged"])
def test_drawn_figures_are_cut_where_they_were_put_together(stratum: str) -> None:
    counts = Counts(0, 0, 0)
    for seed in range(5):
        figure = make_compound(seed, stratum)
        labels = [
            Label(panel.label, panel.label_box, 0.9)
            for panel in figure.panels
            if panel.label and panel.label_box
        ]
        found = split_figure(figure.pixels, labels=labels, expected=figure.labels)
        counts += box_counts(boxes_of(found), [panel.box for panel in figure.panels])
    assert counts.f1 > 0.9


@pytest.mark.shared
def test_published_figures_are_cut_where_hands_cut_them(shared_data: Path) -> None:
    panels = alignment = Counts(0, 0, 0)
    rows = (shared_data / "cases" / "panels.jsonl").read_text().splitlines()
    for row in map(json.loads, rows[::3]):
        with tarfile.open(shared_data / "packages" / f"{row['package']}.tar.gz") as package:
            member = next(m for m in package.getmembers() if m.name.endswith("/" + row["image"]))
            file = package.extractfile(member)
            assert file is not None
            pixels = np.asarray(Image.open(io.BytesIO(file.read())).convert("RGB"))
        expected = [panel["label"] for panel in row["panels"]]
        labels = read_labels(pixels, expected=expected)
        found = split_figure(pixels, labels=labels, expected=expected)
        true = [Box(*panel["box"]) for panel in row["panels"]]
        panels += box_counts(boxes_of(found), true)
        named = [(panel.label, panel.panel.box) for panel in match(found, expected).panels]
        boxes = match_boxes([box for _, box in named], true)
        hits = sum(named[i][0] == expected[j] for i, j in boxes.items())
        alignment += Counts(hits, len(named), len(true))
    assert panels.f1 > 0.85
    assert alignment.f1 > 0.75
