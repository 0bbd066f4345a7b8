import pytest

from biovl.articles.captions import readable, without_label
from biovl.core.records import Span


def raised(marked: str) -> tuple[str, list[Span]]:
    """Return a text written with ``<6>`` for a raised 6, and the spans of what is raised."""
    text, spans, start = "", [], 0
    for character in marked:
        if character == "<":
            start = len(text)
        elif character == ">":
            spans.append(Span(start, len(text)))
        else:
            text += character
    return text, spans


@pytest.mark.parametrize(
    ("published", "read"),
    [
        ("10<6> cells", "10^6 cells"),
        ("10<-3> M, 10<−9> M and 10<– 12> M", "10^-3 M, 10^−9 M and 10^– 12 M"),
        ("10<−><6>", "10^−6"),
        ("2<2.5>", "2^2.5"),
        ("since 2011<12,13>", "since 2011^12,13"),
        ("𝛼 = 10<6>", "𝛼 = 10^6"),
        ("10<6>–10<7>", "10^6–10^7"),
    ],
)
def test_a_raised_number_after_a_digit_keeps_its_reading(published: str, read: str) -> None:
    assert readable(*raised(published)) == read


@pytest.mark.parametrize(
    "published",
    [
        "5 kg/m<2>",
        "Ca<2+>",
        "CD4<+> cells",
        "the 1<st> of 2",
        "<18>F-FDG",
        "10 <6>",
        "10<>6",
        "no superscripts, 106 cells",
        "",
    ],
)
def test_everything_else_stays_as_published(published: str) -> None:
    text, spans = raised(published)
    assert readable(text, spans) == text


@pytest.mark.parametrize(
    ("caption", "text"),
    [
        ("Fig. 2. CT", "CT"),
        ("Figure 2: CT of the chest", "CT of the chest"),
        ("FIGURE 2 | CT", "CT"),
        ("Figure 2 CT of the chest", "CT of the chest"),
        ("Fig 2. (A) CT", "(A) CT"),
        ("Figure 2 (A) CT", "(A) CT"),
        ("Figure S3. CT", "CT"),
        ("Supplementary Figure 4. CT", "CT"),
        ("Extended Data Fig. 1 | CT", "CT"),
        ("Fig. 1.2 — CT", "CT"),
        ("Scheme 1. Synthesis", "Synthesis"),
        ("Fig. IV. CT", "CT"),
        ("Figure 2", ""),
    ],
)
def test_a_label_in_front_of_a_caption_goes(caption: str, text: str) -> None:
    assert without_label(caption) == text


@pytest.mark.parametrize(
    "caption",
    [
        "Figure 2 shows a CT.",
        "Figure 2 and Figure 3 compare CT and MRI.",
        "Fig. 2, left: CT",
        "CT as in Fig. 2. Arrows",
        "Figures of merit",
        "Figure legends",
        "Plate reader",
        "Fig. 2.5 mm lesion",
        "",
    ],
)
def test_a_label_that_belongs_to_a_sentence_stays(caption: str) -> None:
    assert without_label(caption) == caption
