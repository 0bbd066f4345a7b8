"""One figure to its panels, or to itself."""

import io
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from biovl.core import records
from biovl.core.records import Figure, Panel, Span
from biovl.images.boxes import Box, iou
from biovl.images.decode import decode_rgb
from biovl.split.config import Splitting
from biovl.split.rows import (
    DISAGREE,
    NO_LABELS,
    NO_PANELS,
    NOT_ALLOWED,
    UNSURE,
    UNUSABLE,
    figure_of,
    split,
)
from tests.compound_rows import BOXES, CAPTION, drawn, encoded, figure_row, mention


def rows_of(figure: Figure, *taken: str, **how: Any) -> list[Panel]:
    settings = {"confidence": 0.5, "derivatives": "all", "jpeg_quality": 95, **how}
    return split(figure, Splitting(**settings), set(taken))


def test_a_compound_figure_becomes_its_panels() -> None:
    first, second = rows_of(figure_row())
    assert [first.panel_label, second.panel_label] == ["A", "B"]
    assert [first.figure_id, second.figure_id] == ["PMC1_f1_pA", "PMC1_f1_pB"]
    for row, truth in zip((first, second), BOXES, strict=True):
        assert row.box_px is not None
        found = row.box_px
        assert iou(Box(found.x0, found.y0, found.x1, found.y1), truth) > 0.8
        assert (row.width_px, row.height_px) == (found.x1 - found.x0, found.y1 - found.y0)
        assert (row.parent_figure_id, row.article_id) == ("PMC1_f1", "PMC1")
        assert row.label_box_px is not None
        assert row.confidence > 0.5
    assert first.own_caption == "Scatter plot of scores in 43 patients."
    assert first.preamble == "Effects of a drug on hearts."
    assert first.full_caption == CAPTION
    assert first.caption == (
        "Effects of a drug on hearts. Scatter plot of scores in 43 patients. Data are means ± "
        "s.e.m.; n = 6."
    )


def test_pixels_of_a_png_are_cut_without_loss_and_those_of_a_jpeg_at_a_stated_quality() -> None:
    for kind, made in (("png", "png"), ("jpeg", "jpeg quality 95, 4:4:4")):
        row = rows_of(figure_row(kind=kind))[0]
        assert (row.image_format, row.how.pixels) == (kind, made)
        assert row.image is not None
        assert row.box_px is not None
        cut = decode_rgb(row.image).pixels
        whole = decode_rgb(encoded(drawn(), kind)).pixels
        assert cut is not None
        assert whole is not None
        box = row.box_px
        differs = np.abs(cut.astype(int) - whole[box.y0 : box.y1, box.x0 : box.x1])
        assert differs.max() == 0 if kind == "png" else differs.mean() < 2
        assert row.image_sha256 != figure_row(kind=kind).image_sha256


def test_panels_have_the_sentences_that_cite_them_and_flagged_those_about_the_figure() -> None:
    text = (
        "Genes are many. Scores rose (Fig. 2a), but the genes were silent (Fig. 2b). See Figure 2. "
        "Others differ (Fig. 3A)."
    )
    mentions = [mention(text, "Fig. 2a", "Fig. 2b", "Figure 2")]
    first, second = rows_of(figure_row(mentions=mentions))
    both, whole = first.mentions
    assert both.text == "Scores rose (Fig. 2a), but the genes were silent (Fig. 2b)."
    assert [both.text[ref.start : ref.end] for ref in both.refs] == ["Fig. 2a", "Fig. 2b"]
    assert (both.figure_level, both.linked, both.container) == (False, True, "body")
    assert (whole.text, whole.figure_level) == ("See Figure 2.", True)
    assert second.mentions[0].statement is None  # a clause of two words is none of its own
    longer = text.replace("Scores rose", "The scores were higher than before")
    first, second = rows_of(figure_row(mentions=[mention(longer, "Fig. 2a", "Fig. 2b")]))
    assert first.mentions[0].statement == "The scores were higher than before (Fig. 2a)"
    assert second.mentions[0].statement == "the genes were silent (Fig. 2b)."


def test_sentences_about_other_panels_are_not_a_panels() -> None:
    mentions = [mention("Scores rose (Fig. 2A).", "Fig. 2A")]
    first, second = rows_of(figure_row(mentions=mentions))
    assert (len(first.mentions), len(second.mentions)) == (1, 0)


@pytest.mark.parametrize(
    ("names", "cited"),
    [(("A", "B"), "Fig. 2A1"), (("A1", "B1"), "Fig. 2A"), (("a1", "b"), "Fig. 2A")],
)
def test_sentences_about_a_part_of_a_panel_or_the_group_around_it_are_the_panels(
    names: tuple[str, str], cited: str
) -> None:
    caption = CAPTION.replace("(A)", f"({names[0]})").replace("(B)", f"({names[1]})")
    text = f"Scores of the patients rose (see {cited})."
    first, second = rows_of(
        figure_row(caption=caption, mentions=[mention(text, cited)]), confidence=0.0
    )
    assert [first.panel_label, second.panel_label] == list(names)
    assert (len(first.mentions), len(second.mentions)) == (1, 0)


def test_raised_and_bold_stretches_keep_their_words() -> None:
    caption = CAPTION.replace("15 genes", "15 genes, 106 cells")
    start = caption.index("106") + 2
    bold = caption.index("(B)")
    row = rows_of(
        figure_row(
            caption=caption,
            caption_superscripts=[Span(start, start + 1)],
            caption_bold=[Span(0, 17), Span(bold, bold + 3)],
        )
    )[1]
    assert [row.caption[one.start : one.end] for one in row.caption_superscripts] == ["6"]
    assert row.caption[: row.caption_superscripts[0].start].endswith("15 genes, 10")
    assert [row.caption[one.start : one.end] for one in row.caption_bold] == ["Effects of a drug"]


def test_a_raised_digit_is_not_that_of_another_panel() -> None:
    caption = CAPTION.replace("43", "106").replace(
        "Heat map of 15 genes in", "Scatter plot of 106 scores in"
    )
    start = caption.index("106") + 2
    figure = figure_row(caption=caption, caption_superscripts=[Span(start, start + 1)])
    first, second = rows_of(figure)
    assert first.caption[: first.caption_superscripts[0].end].endswith("scores in 106")
    assert second.caption_superscripts == []


@pytest.mark.parametrize(
    ("columns", "how", "reason"),
    [
        ({"defect": "no caption"}, {}, UNUSABLE),
        ({"image": None}, {}, UNUSABLE),
        ({"image": b"\x89PNG\r\n\x1a\n cut"}, {}, UNUSABLE),
        ({"caption": "Scores and genes."}, {}, NO_LABELS),
        ({"derivatives_allowed": False}, {"derivatives": "allowed"}, NOT_ALLOWED),
        ({"derivatives_allowed": None}, {"derivatives": "allowed"}, NOT_ALLOWED),
        ({}, {"confidence": 1.0}, UNSURE),
    ],
)
def test_a_figure_that_is_not_cut_is_one_row_as_it_was(
    columns: dict[str, Any], how: dict[str, Any], reason: str
) -> None:
    figure = figure_row(mentions=[mention("Scores rose (Fig. 2A).", "Fig. 2A")], **columns)
    (row,) = rows_of(figure, **how)
    assert row.whole_because == reason
    for item in fields(Figure):
        if item.name not in ("mentions", "parent_figure_id"):
            assert getattr(row, item.name) == getattr(figure, item.name)
    assert (row.parent_figure_id, row.box_px, row.panel_label) == ("PMC1_f1", None, None)
    assert (row.mentions[0].text, row.how.pixels) == ("Scores rose (Fig. 2A).", "as published")


def test_a_single_image_whose_caption_names_letters_stays_whole() -> None:
    (row,) = rows_of(figure_row(np.full((300, 400, 3), 90, np.uint8)))
    assert row.whole_because in (NO_PANELS, DISAGREE)


def test_a_figure_that_shows_a_label_more_than_its_caption_names_stays_whole() -> None:
    page = Image.new("RGB", (1200, 360), "white")
    page.paste(Image.fromarray(drawn()))
    page.paste(page.crop((400, 60, 800, 360)), (800, 60))
    ImageDraw.Draw(page).text((824, 20), "C", fill="black", font=ImageFont.load_default(34))
    (row,) = rows_of(figure_row(np.asarray(page)))
    assert row.whole_because == DISAGREE
    assert row.whole_detail == "the image shows C, which the caption does not name"
    named = figure_row(np.asarray(page), caption=f"{CAPTION} (C) Heat map of spleen.")
    assert [panel.panel_label for panel in rows_of(named)] == ["A", "B", "C"]


def test_the_figure_that_a_figure_supplements_is_kept_beside_its_own_id() -> None:
    for row in rows_of(figure_row(parent_figure_id="PMC1_f0")):
        assert (row.parent_figure_id, row.supplements_figure_id) == ("PMC1_f1", "PMC1_f0")


def test_ids_are_free_ones() -> None:
    first, second = rows_of(figure_row(), "PMC1_f1_pA")
    assert (first.figure_id, second.figure_id) == ("PMC1_f1_pA-2", "PMC1_f1_pB")


@pytest.mark.parametrize("size", [(8, 8), (30, 30), (6000, 12), (12, 6000), (1600, 1200)])
def test_images_of_any_size_are_read(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
    caption = " ".join(f"({letter}) Part {letter}." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert rows_of(figure_row(noise, caption=caption))


def test_rows_travel_through_tables() -> None:
    text = "Scores rose (Fig. 2A)."
    figure = figure_row(mentions=[mention(text, "Fig. 2A")], caption_bold=[Span(0, 3)])
    (read,) = records.table(Figure, [figure]).to_pylist()
    assert figure_of(read) == figure
    del read["derivatives_allowed"]
    assert figure_of(read).derivatives_allowed is None
    panels = records.table(Panel, rows_of(figure))
    assert panels.schema.equals(records.schema(Panel))
    # What reads figures finds their columns.
    assert panels.schema.names[: len(records.schema(Figure))] == records.schema(Figure).names


def test_a_turned_photograph_is_cut_as_it_is_displayed() -> None:
    turned = Image.fromarray(np.rot90(drawn()))
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    turned.save(stream, "JPEG", exif=exif, quality=95)
    rows = rows_of(replace(figure_row(), image=stream.getvalue(), image_format="jpeg"))
    assert [row.panel_label for row in rows] == ["A", "B"]
