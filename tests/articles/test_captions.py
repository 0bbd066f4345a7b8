import pytest

from biovl.articles.captions import readable
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
