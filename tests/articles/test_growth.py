"""The work for a text grows in proportion to its length, however odd the text is.

Work is the number of executed lines, which does not depend on the machine. Time, and work inside of
regular expressions, are measured by ``benchmarks/compound_fuzz.py`` on more texts.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from benchmarks.compound_fuzz import ENTRIES, UNITS, paragraph, repeated
from biovl.articles import figure_mentions
from biovl.articles.acronyms import acronyms_of
from biovl.articles.citances.extraction import citances, references, statements
from biovl.articles.citances.grammar import MOST
from biovl.articles.figure_references import figure_number
from biovl.articles.jats import read_article
from biovl.core.records import Mention, Reference
from biovl.split import rows

SIZE = 500
HARD = (
    *("references", "semicolons", "PLOS", "places", "range of figures", "clauses"),
    *("markers with text", "behind", "acronym list"),
)


def work(function: Callable[[], object]) -> int:
    """Return the number of lines of our code that a function executes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if "biovl" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("entry", ENTRIES)
def test_work_grows_as_the_text_does(entry: str) -> None:
    read = ENTRIES[entry]
    for kind in HARD:
        texts = [repeated(UNITS[kind], "Fig. 2", size) for size in (SIZE, 4 * SIZE)]
        short, long = (work(lambda text=text: read(text)) for text in texts)
        # Quadratic work is 16 times as much.
        assert long < 6 * short + 500, kind


def test_positions_do_not_multiply_the_panels_of_a_range() -> None:
    (found,) = references("Figure 2A, left and right panels" + "–B, left and right panels" * 40)
    assert found.panels[:2] == ("A (left)", "A (right)")
    assert len(found.panels) < 10


def test_a_list_of_tables_is_read_once() -> None:
    def read(count: int) -> int:
        return work(lambda: references("S1, " * count))

    assert read(400) < 6 * read(100)


def test_a_sentence_has_no_more_than_so_many_references() -> None:
    assert MOST <= len(references("Fig. 2A; " * 3 * MOST)) < 2 * MOST


def test_a_list_of_hundreds_is_not_split_by_respectively() -> None:
    items = ", ".join(["walls"] * 99)
    figures = ", ".join(f"{number}A" for number in range(1, 101))
    found = statements(f"{items} and cells are shown in Figs. {figures}, respectively.")
    assert len(found) == 100
    assert {one.how for one in found} == {"sentence"}


def test_thousands_of_references_may_be_in_one_paragraph() -> None:
    text = "Cells grew (Fig. 2A). " * 2_000
    links = [Reference(at + 12, at + 18, [], False) for at in range(0, len(text), 22)]
    (one,) = citances([Mention(text, links, [], "body")], "Fig. 2")
    assert (one.panels, one.is_linked) == (("A",), True)


def test_a_sentence_with_a_formula_is_found_in_its_paragraph() -> None:
    text = "In Fig. 2A growth is\nx = 2.\nThen it ends. See Fig. 2B."
    cited = citances([paragraph(text)], "Fig. 2")
    assert "\n" not in cited[0].text
    (mention,) = rows._mentions_of("A", cited, ("A", "B"))
    assert mention.text == "In Fig. 2A growth is x = 2."


def test_numbers_of_any_length_are_read() -> None:
    digits = "7" * 5_000
    assert figure_number(f"Figure {digits}") is None
    assert references(f"Fig. {digits}A and {digits}–{digits}") == []
    date = f"<pub-date><day>{digits}</day><month>{digits}</month><year>2020</year></pub-date>"
    xml = (
        f"<article><front><article-meta>{date}</article-meta></front><body><p>"
        f'<xref rid="f1">Fig. 1–{digits}</xref></p><fig id="f1"><label>Fig. 1</label></fig></body>'
        "</article>"
    )
    assert read_article(xml.encode()).defect is None


def test_paragraphs_are_stored_with_figures_up_to_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = "".join(f'<fig id="f{number}"/>' for number in range(9))
    links = "".join(f'<xref rid="f{number}">x</xref>' for number in range(9))
    xml = f"<article><body><p>{links}</p><p>{links}</p>{figures}</body></article>".encode()
    monkeypatch.setattr(figure_mentions, "MOST_TEXT", 100)
    content = read_article(xml).content
    assert content is not None
    assert [len(figure.mentions) for figure in content.figures] == [1] * 9


def test_thousands_of_figures_may_be_in_one_paragraph() -> None:
    # It took minutes.
    xml = f"<article><body><p>{'<fig/>Figure 1. Cells.' * 10_000}</p></body></article>".encode()
    content = read_article(xml).content
    assert content is not None
    assert {figure.caption for figure in content.figures} == {""}


def test_a_reference_to_a_group_cites_some_of_thousands() -> None:
    figures = '<fig id="f"/>' * 2_000
    xml = (
        '<article><body><p><xref rid="g">Figs</xref></p>'
        f'<fig-group id="g"><caption><p>Cells</p></caption>{figures}</fig-group></body></article>'
    )
    content = read_article(xml.encode()).content
    assert content is not None
    assert sum(bool(figure.mentions) for figure in content.figures) == figure_mentions._MAX_GROUP
    assert {figure.caption for figure in content.figures} == {"Cells"}


@pytest.mark.parametrize(
    "text", ["(" + " " * 5_000, "MRI" + " " * 20_000 + "x", "ABC, " + "x-" * 9_000]
)
def test_acronyms_are_found_next_to_anything(text: str) -> None:
    # Each took from seconds to minutes.
    found = acronyms_of([f"{text} end.\nMagnetic resonance imaging (MRI)"])
    assert [one.short for one in found] == ["MRI"]
