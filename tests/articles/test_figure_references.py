"""Which panels a reference names, and what a range of figures leaves out."""

import json
import re
from pathlib import Path
from string import ascii_uppercase

import pytest

from biovl.articles.figure_references import (
    LOOK_AHEAD,
    figure_number,
    is_comparison,
    is_panel_range_joint,
    is_range_joint,
    panels_in,
)


@pytest.mark.parametrize(
    ("reference", "panels"),
    [
        ("3", ""),
        ("Figure 3", ""),
        ("", ""),
        ("▶", ""),
        ("Fig. 2A", "A"),
        ("Figs 3E", "E"),
        ("Fig 1 D", "D"),
        ("fig. 2", ""),
        ("2(a)", "a"),
        ("Fig.5(C,D)", "C D"),
        ("Fig. 3(a) and (b)", "a b"),
        ("Fig. 7-A", "A"),
        ("Fig. 9. B", "B"),
        ("Fig. 4, C and D", "C D"),
        ("Fig. 5, K to N", "K L M N"),
        ("Fig 1, panels a and g", "a g"),
        ("Fig. 1BC", "B C"),
        ("3c/d", "c d"),
        ("Figure 5C,H", "C H"),
        ("Fig. 3a,b and c", "a b c"),
        ("2A–C", "A B C"),
        ("2a-c", "a b c"),
        ("2A, 2B", "A B"),
        ("7A-7C", "A B C"),
        ("2(a)–2(d)", "a b c d"),
        ("3A1–3, B2", "A1 A2 A3 B2"),
        ("1, A3 to D3", "A3 B3 C3 D3"),
        ("Fig. 2A–C, B, and E", "A B C E"),
        ("Figure 1—figure supplement 3C", "C"),
        ("Appendix 1—figure 2d", "d"),
        ("Figura 1 A e B", "A B"),
        ("Figura 1A y B", "A B"),
        ("Fig. 1 [A–C]", "A B C"),
        ("Fig. 1[a]", "a"),
        # Figures, not panels.
        ("4–6", ""),
        ("Figures 3 and 4", ""),
        ("Fig. 2 in [3]", ""),
        ("1st figure", ""),
        # Another figure's panel.
        ("Fig. 1A, 2B", "A"),
        # Panels of panels, and labels of more than a letter.
        ("Figure 3Ad–g", "A.d A.e A.f A.g"),
        ("Fig. 3Bi, ii", "B.i B.ii"),
        ("Fig. 2(ii)–(iv)", "ii iii iv"),
        ("Fig. 1i", "i"),
        ("2A1–A3", "A1 A2 A3"),
        ("2A′–C′", "A′ B′ C′"),
        # A reference of its own for each panel.
        ("A", "A"),
        ("b, c", "b c"),
        ("(d)", "d"),
        ("panel B", "B"),
        ("S1", ""),
        ("see", ""),
    ],
)
def test_panels_inside_a_reference(reference: str, panels: str) -> None:
    assert panels_in(reference, ". The") == panels.split()


@pytest.mark.parametrize(
    ("reference", "after", "panels"),
    [
        ("2", "d, e) show", "d e"),
        ("Fig. 2", ", D1–3) show", "D1 D2 D3"),
        ("Fig. 2", ", A15, B15; Table 4).", "A15 B15"),
        ("Fig. 2", ", S1 and S2).", ""),
        ("Fig. 2", ", F3,8 = 509)", ""),
        ("Fig. 2", ", T3 levels)", ""),
        ("Fig. 2", ", G26–G53).", ""),
        ("Fig. 2", ", E14).", ""),
        ("Fig. 2", ", T2).", ""),
        ("2", "A–C). The", "A B C"),
        ("2", "A and B show", "A B"),
        ("2", "A illustrates", "A"),
        ("2", "(a)–(d), the", "a b c d"),
        ("2", " (A, B) shows", "A B"),
        ("2", " A).", "A"),
        ("2", " A and B). The", "A B"),
        ("2", " d–f and ", "d e f"),
        ("2", ", B and C).", "B C"),
        ("2", ", panels B, E and ", "B E"),
        ("8", "-A). The shark", "A"),
        ("2", "Ba–c).", "B.a B.b B.c"),
        ("6", "A through 6E, in mice", "A B C D E"),
        ("3", "A–3C, and S1–S3).", "A B C"),
        ("Fig. 2A", " and B) show", "A B"),
        ("Fig. 2A", "–C)", "A B C"),
        ("Fig. 2(a)", ", (b) and (d)", "a b d"),
        ("Figure 6a", " and B). Based", "a B"),
        ("A", ", C) and", "A C"),
        ("Figura 1", "A y B); las", "A B"),
        ("Figura 1A", " e B) mostra", "A B"),
        ("Fig. 1", " [A–C]). The", "A B C"),
        ("Fig. 1", "[A and B] shows", "A B"),
    ],
)
def test_panels_go_on_behind_a_reference(reference: str, after: str, panels: str) -> None:
    assert panels_in(reference, after) == panels.split()


@pytest.mark.parametrize(
    "after",
    [
        " A total of",
        " a significant increase",
        ", a total of",
        ", left panel",
        " I think",
        " (n = 5)",
        " (a significant increase)",
        " [a significant increase]",
        " [12]",
        " e a área",
        " y a la",
        " B-cell lymphoma",
        ", E. coli was",
        ", p < 0.05)",
        "; P = 0.1",
        ", S1–S2).",
        ", respectively",
        "’s panel",
        ") A total",
        ". A total",
    ],
)
def test_words_behind_a_number_are_no_panels(after: str) -> None:
    assert panels_in("Fig. 2", after) == []


@pytest.mark.parametrize(
    "after",
    [
        " and 4B). The",
        " e a área",
        " e o número",
        " y la célula",
        ", 3B and C",
        ", a fluorescence assay",
        " and a phenomenon",
        ", p < 0.01",
        ", n = 10)",
        "; n = 16)",
        ", R2 < 0.3)",
        " and S1 Fig",
        ", S2B, and S2D)",
        " and T cells",
        " and E-cadherin",
        ", E. coli was",
        " to I think",
        ") and B",
    ],
)
def test_words_behind_a_panel_are_no_panels(after: str) -> None:
    assert panels_in("Fig. 2A", after) == ["A"]


def test_a_range_has_at_most_the_letters_of_the_alphabet() -> None:
    assert panels_in("Fig. 2A–Z", "") == list(ascii_uppercase)


def test_a_letter_cut_off_by_the_end_of_what_is_read_is_no_panel() -> None:
    after = "B, C, D, E, F, G, H, I, J, K, L, M and The"
    assert after[:LOOK_AHEAD].endswith(" and T")
    for seen in (after, after[:LOOK_AHEAD]):
        assert panels_in("2", seen) == list("BCDEFGHIJKLM")


@pytest.mark.parametrize(
    ("label", "number"),
    [
        ("Figure 2", ("figure", 2)),
        ("Fig. 2.", ("figure", 2)),
        ("FIGS 2", ("figure", 2)),
        ("Fig.\xa02", ("figure", 2)),
        ("Figura 2", ("figure", 2)),
        ("2", ("figure", 2)),
        ("Fig. S3", ("figure s", 3)),
        ("FigureS3", ("figure s", 3)),
        ("Figure A1", ("figure a", 1)),
        ("Scheme 1", ("scheme", 1)),
        ("Extended Data Fig. 4", ("extended data figure", 4)),
        ("Author response image 1.", ("author response image", 1)),
        ("Fig. 2.—", ("figure", 2)),
        ("Figure-2", ("figure", 2)),
        ("Figura 2 -", ("figure", 2)),
        ("FIGURE S2 |", ("figure s", 2)),
        ("Appendix 1—figure 2", ("appendix 1—figure", 2)),
        ("Figure 1—figure supplement 2", ("figure 1—figure supplement", 2)),
        ("Figure 3.2", None),
        ("Figs. 3–6", None),
        ("Figure 2A", None),
        ("Figure II", None),
        ("", None),
        (None, None),
    ],
)
def test_labels_have_a_kind_and_a_number(label: str | None, number: tuple[str, int] | None) -> None:
    assert figure_number(label) == number


@pytest.mark.parametrize(
    ("between", "joins"),
    [
        ("–", True),
        (" - ", True),
        (" to ", True),
        (" through Fig. ", True),
        ("–Figure ", True),
        (") to (", True),
        ("", False),
        (" and ", False),
        (", ", False),
        (" compared to ", False),
        (" together ", False),
        ("A–", False),
    ],
)
def test_a_range_of_figures_is_joined_by_nothing_but_a_dash(between: str, joins: bool) -> None:
    assert is_range_joint(between) is joins


@pytest.mark.parametrize(
    ("before", "first", "between", "last", "compares"),
    [
        ("(compare ", "Figure 4F", " to ", "Figure 6A", True),
        ("(see ", "Figure 4F", " to ", "Figure 6A", True),
        ("(compare ", "Figure 4", " to ", "Figure 6", True),
        ("are similar (relative Figure ", "4", " to Figure ", "6", True),
        ("(compare ", "Figure 4F", "–", "Figure 6A", False),
        ("(compare ", "Figures 4", " through ", "6", False),
        ("compared with controls (Figs. ", "4", " to ", "6", False),
        ("(", "Figure 4A", " to ", "6", False),
    ],
)
def test_figures_that_are_compared_are_no_range(
    before: str, first: str, between: str, last: str, compares: bool
) -> None:
    assert is_comparison(before, first, between, last) is compares


@pytest.mark.parametrize(
    ("between", "joins"),
    [("A–", True), ("(a)–", True), (" - ", True), ("A to ", True), ("A and ", False), ("", False)],
)
def test_a_range_of_panels_may_run_into_the_next_reference(between: str, joins: bool) -> None:
    assert is_panel_range_joint(between) is joins


@pytest.mark.shared
def test_real_sentences_name_the_panels_found_by_hand(shared_data: Path) -> None:
    wrong = []
    read = 0
    for line in (shared_data / "cases" / "citances.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        # Places inside a figure ("b (left)", "lower") are no panel labels.
        by_span = {
            ref["span"]: [label for panel in ref["panels"] for label in _LABEL.findall(panel)]
            for ref in case["refs"]
        }
        for span, panels in by_span.items():
            rest = case["sentence"].split(span, 1)[1]
            behind = re.split("|".join(map(re.escape, by_span)), rest)[0]
            # Publishers link the whole reference, or no more than up to the number.
            number = _NUMBER.search(span)
            for cut in {len(span), number.end() if number else len(span)}:
                read += 1
                found = panels_in(span[:cut], span[cut:] + behind)
                if found != panels:
                    wrong.append((span[:cut], span[cut:] + behind[:20], found, panels))
    assert wrong == []
    assert read > 40


_LABEL = re.compile(r"^[A-Za-z](?:\.[a-z])?(?=$| )")
_NUMBER = re.compile(r"(?<!S)\d+(?=\S|,|$)")
