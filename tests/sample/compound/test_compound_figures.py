"""Figures whose truth is known are only of use if what they say of themselves is true."""

import numpy as np
import pytest

from biovl.core.errors import ConfigError
from biovl.images.boxes import Box, enclosing
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.strata import STRATA


@pytest.fixture(scope="module")
def figures():
    return {stratum: make_compound(3, stratum) for stratum in STRATA}


def test_the_same_seed_draws_the_same_figure():
    first, again = make_compound(5, "plain"), make_compound(5, "plain")
    assert np.array_equal(first.pixels, again.pixels)
    assert (first.panels, first.caption) == (again.panels, again.caption)
    assert make_compound(6, "plain").caption != first.caption


def is_within(inner: Box, outer: Box) -> bool:
    """Return whether a box lies within another, with a tolerance of one pixel."""
    grown = Box(outer.x0 - 1, outer.y0 - 1, outer.x1 + 1, outer.y1 + 1)
    return enclosing([grown, inner]) == grown


def test_every_box_lies_on_the_page(figures):
    for stratum, figure in figures.items():
        height, width = figure.pixels.shape[:2]
        page = Box(0, 0, width, height)
        for panel in figure.panels:
            assert is_within(panel.box, page), stratum
            assert min(panel.box.width, panel.box.height) > 8, stratum
            if panel.label_box:
                assert is_within(panel.label_box, panel.box), stratum


def test_the_caption_says_each_part_once_and_nothing_else(figures):
    for stratum, figure in figures.items():
        parts = {p.label: p.sub_caption for p in figure.panels if p.label}
        assert all(part and part in figure.caption for part in parts.values()), stratum
        rest = figure.caption
        for told in (figure.preamble, *parts.values(), figure.trailing):
            rest = rest.replace(told, "", 1)
        # Only the markers are left.
        assert len(rest) < 12 * (len(parts) + 1), (stratum, rest)


def test_citing_sentences_name_labels_of_the_figure(figures):
    for figure in figures.values():
        for citance in figure.citances:
            assert set(citance.labels) <= set(figure.labels)
            assert citance.labels[0] in citance.text


def test_a_label_is_drawn_where_it_is_said_to_be(figures):
    for stratum in ("plain", "label_styles", "labels_on_texture"):
        figure = figures[stratum]
        for panel in figure.panels:
            box = panel.label_box
            ink = figure.pixels[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)]
            assert np.ptp(ink.mean(axis=2)) > 60, (stratum, panel.label)


def test_strata_are_what_they_are_called(figures):
    assert len(figures["many"].panels) > 12
    assert len(figures["single"].panels) == 1
    assert figures["labels_none"].labels == ()
    doubled = [p.label for p in figures["labels_doubled"].panels]
    assert len(doubled) == len(figures["labels_doubled"].labels) + (len(doubled) > 2)
    dark = figures["dark"].pixels
    assert dark[0].mean() < 200


def test_an_unknown_stratum_is_refused():
    with pytest.raises(ConfigError, match="'foggy'"):
        make_compound(0, "foggy")
