"""Queries: labels and references are removed, and sentences of several figures are not used."""

from dataclasses import replace

import pytest

from biovl.articles.citances import citances
from biovl.benchmark.figure_retrieval.queries import (
    caption_query,
    mention_query,
    without_references,
)
from biovl.core.records import Mention, Reference, Span


def mention(text: str, link: str = "", container: str = "body") -> Mention:
    start = text.find(link)
    refs = [Reference(start, start + len(link), [], False)] if link else []
    return Mention(text=text, refs=refs, superscripts=[], container=container)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Figure 3. Liver of a mouse.", "Liver of a mouse."),
        ("Fig. S2: Liver of a mouse (A), spleen (B).", "Liver of a mouse (A), spleen (B)."),
        ("FIGURE 1 | Liver of a mouse.", "Liver of a mouse."),
        ("Supplementary Figure 2 Liver\n of a mouse.", "Liver of a mouse."),
        ("Figure 3—figure supplement 1. Liver of a mouse.", "Liver of a mouse."),
        ("Figure 3—source data 2. Liver of a mouse.", "Liver of a mouse."),
        ("FIGURE 4A-C Liver of a mouse.", "Liver of a mouse."),
        ("Fig. 1a, b Liver of a mouse.", "Liver of a mouse."),
        ("Figs. 1 and 2. Liver of a mouse.", "Liver of a mouse."),
        ("Figures 1A–C, 2A, and 3: Liver of a mouse.", "Liver of a mouse."),
        # What is no label.
        ("Figure 3Liver of a mouse.", "Liver of a mouse."),
        ("Fig. 1 (A) Liver of a mouse.", "(A) Liver of a mouse."),
        ("Figure 1 A 45-year-old mouse", "A 45-year-old mouse"),
        ("Figure 2 3D view of a mouse", "3D view of a mouse"),
        ("Figure 1 – B cells of a mouse", "B cells of a mouse"),
        ("Figure 1, 2 mice of one age", ", 2 mice of one age"),
        ("Plate 2A b-value map of a mouse", "b-value map of a mouse"),
        ("Figures of merit of a mouse.", "Figures of merit of a mouse."),
        ("Liver as in Figure 2 of a mouse.", "Liver as in Figure 2 of a mouse."),
        ("Figure 1. Mice.", None),
    ],
)
def test_a_caption_has_no_label(caption: str, expected: str | None) -> None:
    assert caption_query(caption, 3) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Cells grew quickly (Fig. 2A, B).", "Cells grew quickly."),
        ("Cells grew quickly (see Figure 2).", "Cells grew quickly."),
        ("Cells (arrow; Fig. 2c) grew quickly.", "Cells (arrow) grew quickly."),
        ("Cells (Fig. 2c; arrow) grew quickly.", "Cells (arrow) grew quickly."),
        ("Cells grew [Fig. 2] in a day.", "Cells grew in a day."),
        ("Figure 2 shows that cells grew.", "The figure shows that cells grew."),
        ("Figures 2A and 2B show that cells grew.", "The figures show that cells grew."),
        ("Figure 2A and B show that cells grew.", "The figures show that cells grew."),
        (
            "As can be seen in Figs. 2a, b, cells grew.",
            "As can be seen in the figures, cells grew.",
        ),
        ("Cells grew quickly (Figs. 2A and C).", "Cells grew quickly."),
        ("As shown in Figure 2B, cells grew.", "As shown in the figure, cells grew."),
        ("Cells grew (Fig. 2) and died (Fig. 3).", None),
        ("Cells grew (Figs. 2 and 3).", None),
    ],
)
def test_a_sentence_has_no_references(sentence: str, expected: str | None) -> None:
    (citance,) = citances([mention(sentence)], "Figure 2")
    assert without_references(citance) == expected


def test_the_longest_sentence_of_the_body_is_the_query() -> None:
    mentions = [
        mention("Cells grew (Fig. 2). In all mice they grew on the third day (Fig. 2)."),
        mention(
            "In every table of this article cells grow and grow and grow (Fig. 2).", "", "table"
        ),
    ]
    query = mention_query(mentions, "Figure 2", 3)
    assert query == "In all mice they grew on the third day."
    assert mention_query(mentions, "Figure 2", 30) is None
    power = mention("In all mice 106 cells were counted in (Fig. 2) each section.", "Fig. 2")
    marked = replace(power, superscripts=[Span(14, 15)])
    query = mention_query([marked], "Figure 2", 3)
    assert query == "In all mice 10^6 cells were counted in each section."
    assert mention_query(mentions, "Figure 4", 3) is None
