"""Where a sentence ends, and where a point does not end one."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biovl.articles.sentences import sentences
from biovl.core.records import Span


def split(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


@pytest.mark.parametrize(
    "written",
    [
        "Cells grew (Fig. 2A).|They died later (Figs. 3 and 4).",
        "Nuclei were round (Fig. 2; Fig. 3, left).|Others were not.",
        "As in Smith et al. 2010, cells grew.|We agree.",
        "This was shown by Smith et al. [4].|The mice survived.",
        "This was shown by Smith et al.|The mice survived.",
        "Lobes differ, i.e. in width, cf. Table 2.|Others, e.g. Fig. 3, do not.",
        "Growth of E. coli and S. aureus stopped.|B. subtilis grew.",
        "We thank J. R. Smith for S. Pombe cells.|They were fine.",
        "Patients had hepatitis B.|The others had hepatitis C.|We excluded them.",
        "It fell by 0.5 mm vs. Controls.|P values are in Eq. 3.",
        "Tumours shrank.12,13|The rest grew.[4]|No more was seen.",
        "Is it real?|It is!|p53 is lost.|mRNA levels fell.|α-Tubulin did not.",
        "Values rose (see the legend. It is long) in mice.|They fell in rats.",
        "He wrote “It works.”|Then it broke.",
        "Leaves of Quercus sp. Nova were thin.|Those of Salix sp.|The rest was thick.",
        "Samples were run by GC and MS.|Peaks were found.",
        "Cells were kept for 3 h.|Low doses were given at approx. 5 mg.",
        "It was 3.5.|Then 4.",
        "See Fig. S2.|A total of 5 mice were used.",
        "Sold by Sigma Inc. Germany.|We used it.",
        "Dr. Who met Prof. Lee on 5 Jan. 2001 in St. Louis.|They spoke.",
        "The limit is no. 5 of vol. 3, pp. 4–5.|No.|Six were left.",
        "Open bracket (never closed.|The text goes on.",
        "(This is in brackets.)|This is not.",
        "Cells grew. (Fig. 2A).|They died. [Figures 3(b) and 4].|They rose. (Lee, 2010; Table 1)",
        "They fell.|(Fig. 2 shows it.)|(XLSX 120 kb)",
        "A map is in this figure.|Data are in the other figures.|Leaves are in Figure. 3.",
    ],
)
def test_sentences_end_at_points_that_end_them(written: str) -> None:
    pieces = written.split("|")
    assert split(" ".join(pieces)) == pieces


def test_lines_end_sentences_and_so_do_points_that_lost_their_space() -> None:
    assert split("A title\nText (2D).However, it goes on [3].Roots grew (mean of f(x).y).") == [
        "A title",
        "Text (2D).",
        "However, it goes on [3].",
        "Roots grew (mean of f(x).y).",
    ]


@pytest.mark.parametrize(
    "written",
    [
        # A displayed formula is a line of its own; the sentence goes on behind it.
        "The mass is|We model the force by:⏎(3) F = ma,⏎where m is the mass (Fig. 2).|It grew.",
        "By Eq. (3) we have⏎5 B=(g/ρ0)[(αQH)/cp+βS0QF].|Then it fell.",
        "It is given by⏎\\frac{a}{b} \\leq c\\mathrm{max}⏎and c, as\nin Fig. 3, is small.",
        "We have|The rate is⏎A → B,⏎B → C,⏎for all cells.",
        "It fell.|E = mc2.⏎where m is the mass.",
        # Not a formula, or not its sentence.
        "A title|The text.|n = 5",
        "Groups|Patients had values of p = 0.05 or more.",
        "A list:|iii, the third|a Primary production|mRNA levels",
        "In words of a title|Then, x = 3 was the number that counted most.",
    ],
)
def test_a_sentence_runs_through_a_formula(written: str) -> None:
    pieces = written.replace("⏎", "\n").split("|")
    assert split("\n".join(pieces)) == pieces


def test_no_sentence_ends_inside_a_protected_stretch() -> None:
    text = "Grown as in Movie 3. Part 2, they died. We stopped."
    start = text.index("Movie")
    protected = [Span(start, start + len("Movie 3. Part 2"))]
    spans = sentences(text, protected=protected)
    assert [text[span.start : span.end] for span in spans] == [
        "Grown as in Movie 3. Part 2, they died.",
        "We stopped.",
    ]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="aB. ()[]\n1?é”", max_size=120))
def test_sentences_cover_all_but_white_space_in_order(text: str) -> None:
    spans = sentences(text)
    assert all(one.end <= two.start for one, two in pairwise(spans))
    kept = "".join("".join(text[span.start : span.end].split()) for span in spans)
    assert kept == "".join(text.split())


@pytest.mark.parametrize("piece", ["(", "A. ", "). ", "[1", ".12,", "Fig. ", "e.g", "\n", "...."])
def test_long_hostile_texts_are_read(piece: str) -> None:
    assert sentences(piece * 40_000 + "x")
