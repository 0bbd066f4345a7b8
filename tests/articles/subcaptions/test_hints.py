"""What bold type, citances and the image tell about a caption's labels."""

import pytest

from biovl.articles.subcaptions.splitting import SplitCaption, split_caption
from biovl.core.records import Span


def split_marked(marked: str) -> SplitCaption:
    """Split a caption written with ``*a*`` for a bold a."""
    text, bold, start = "", [], None
    for character in marked:
        if character != "*":
            text += character
        elif start is None:
            start = len(text)
        else:
            bold.append(Span(start, len(text)))
            start = None
    return split_caption(text, bold=bold)


def test_bold_letters_are_labels_within_a_sentence() -> None:
    split = split_marked("Changes of *a* stress score, *b* rest score and *c* their difference.")
    assert split.preamble == "Changes of"
    assert [part.text for part in split.parts] == [
        "stress score",
        "rest score",
        "their difference.",
    ]
    assert split_caption("Changes of a stress score, b rest score and their sum.").parts == ()


def test_bold_letters_are_labels_before_small_words() -> None:
    split = split_marked("*a* shows the scan before treatment. *b* shows the scan a year later.")
    assert split.labels() == ("a", "b")


def test_bold_letters_around_a_list_in_brackets() -> None:
    split = split_marked("*a* Sketch of the cell. *b* Spectra of (a) water, (b) oil, (c) wax.")
    assert split.labels() == ("a", "b")
    assert split.parts[1].text == "Spectra of (a) water, (b) oil, (c) wax."


def test_a_bold_letter_in_brackets_is_read_with_its_bracket() -> None:
    split = split_marked("Strength (*a*,*c*) and slope (*b*,*d*) of two models.")
    assert [part.labels for part in split.parts] == [("a", "c"), ("b", "d")]


def test_an_italic_letter_without_brackets_is_a_symbol() -> None:
    caption = "Forces: A lift of the wing B drag of the wing C weight of the wing."
    assert split_caption(caption).labels() == ("A", "B", "C")
    symbols = [
        Span(caption.index(f"{letter} "), caption.index(f"{letter} ") + 1) for letter in "ABC"
    ]
    assert split_caption(caption, italic=symbols).parts == ()


@pytest.mark.parametrize("hint", ["cited", "seen"])
def test_numbers_are_labels_where_the_figure_has_them(hint: str) -> None:
    caption = "The rig has (1) a lamp, (2) a lens and (3) a camera."
    assert split_caption(caption).parts == ()
    split = split_caption(caption, **{hint: ["1", "2", "3"]})
    assert split.labels() == ("1", "2", "3")


def test_one_label_is_enough_where_the_figure_has_it() -> None:
    caption = "Adult mouse. (A) The whole heart."
    assert split_caption(caption).parts == ()
    assert split_caption(caption, seen={"A"}).text_of("A") == "Adult mouse. The whole heart."


def test_a_figure_may_begin_in_the_middle_of_the_alphabet() -> None:
    caption = "Wings. (H) Upper side. (I) Lower side."
    assert split_caption(caption).parts == ()
    assert split_caption(caption, cited={"H", "I"}).labels() == ("H", "I")


@pytest.mark.parametrize(
    "doubtful",
    [
        # The sentence behind the list may be about either panel, or about both.
        "Views of the heart (A) and the lung (B) at rest. The arrow in (A) marks what is larger in (B).",
        # The last part holds what may be about all.
        "(A) Heart. (B) Lung." + " The cells were kept for a day and a night at rest." * 3,
        # The text in front of the parts speaks of one of them.
        "Organs of mice, as drawn in (B). They were fixed. They were cut. (A) Heart. (B) Lung.",
    ],
)
def test_what_makes_a_split_doubtful_lowers_the_confidence(doubtful: str) -> None:
    plain = split_caption(
        "Organs of mice. (A) Axial view of the heart. (B) Coronal view of a lung."
    )
    assert 0 < split_caption(doubtful).confidence < plain.confidence < 1


def test_text_of_a_panel_is_what_holds_for_all_and_its_own_parts() -> None:
    split = split_caption(
        "Cells. (A) Wild type. (B) Mutant. The arrows in (A) mark buds. Bar, 1 μm."
    )
    assert split.text_of("A") == "Cells. Wild type. The arrows in (A) mark buds. Bar, 1 μm."
    assert split.text_of("B") == "Cells. Mutant. Bar, 1 μm."
    assert split.text_of("Z") == "Cells. Bar, 1 μm."


def test_letters_with_a_point_behind_a_title_without_one_are_labels_where_they_are_cited() -> None:
    caption = (
        "Localization in mutant cells a. Immunostaining of cells (left panel) and of subunit c in "
        "mice (right panel). b. Blots of extracts."
    )
    split = split_caption(caption, cited=["a", "b"])
    assert split.preamble == "Localization in mutant cells"
    assert [part.text[:8] for part in split.parts] == ["Immunost", "Blots of"]
    assert split_caption(caption).labels() == ("left", "right")
