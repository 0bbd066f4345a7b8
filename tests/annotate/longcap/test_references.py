"""Sentences without references apart, and without what they say of other figures alone."""

import pytest

from biovl.annotate.longcap.references import OwnReference, without_references
from biovl.core.records import Span

CASES = [
    # Written with the reference to the figure itself between bars.
    ("Tumours shrank (|Fig. 2A|) in mice.", ["A"], "Tumours shrank (A) in mice."),
    ("Tumours shrank (|Fig. 2|).", [], "Tumours shrank."),
    ("Tumours shrank ( |Fig. 2| ) [12, 13].", [], "Tumours shrank."),
    (
        "Tumours shrank (see |Figure 2B,C|; Smith et al., 2010).",
        ["B", "C"],
        "Tumours shrank (B, C).",
    ),
    ("Tumours shrank (|Fig. 2B|, arrow; p < 0.05).", ["B"], "Tumours shrank (B, arrow; p < 0.05)."),
    ("Tumours shrank (p = 0.01, |Fig. 2|).", [], "Tumours shrank (p = 0.01)."),
    ("Tumours shrank (|Figs. 2A| and 3B; Table 1).", ["A"], "Tumours shrank (A)."),
    ("Tumours shrank (|Figure 2—figure supplement 1|).", [], "Tumours shrank."),
    ("Tumours shrank (|Figure 2—figure supplement 1B|).", ["B"], "Tumours shrank (B)."),
    ("Tumours shrank (|Figure 2 – Figure supplement 1A,C|).", ["A", "C"], "Tumours shrank (A, C)."),
    ("It shrank (|Figure 2—figure supplement 1|, n = 10).", [], "It shrank (n = 10)."),
    ("It shrank (|Figure 2—figure supplement 1|, a control).", [], "It shrank (a control)."),
    ("It shrank (|Figure 2—figure supplement 1|, 12 mice).", [], "It shrank (12 mice)."),
    ("It shrank (|Figure 2B-panel A|).", ["B"], "It shrank (B)."),
    ("It shrank (|Figure 2(E–G)|, p < 0.05).", ["E", "F", "G"], "It shrank (E, F, G, p < 0.05)."),
    ("It shrank (|Figure 2 (a, b)|).", ["a", "b"], "It shrank (a, b)."),
    ("It shrank (|Figure 2a|, p value = 0).", ["a"], "It shrank (a, p value = 0)."),
    ("It shrank (|Figure 2a|, t test).", ["a"], "It shrank (a, t test)."),
    ("It shrank (by half, [34]) (|Figure 2a|).", ["a"], "It shrank (by half) (a)."),
    ("It shrank (|Fig. 2—panels A–C|).", ["A", "B", "C"], "It shrank (A, B, C)."),
    ("It shrank (|Fig. 2A|, t-test).", ["A"], "It shrank (A, t-test)."),
    ("It took long (settling time, see |Fig. 2A|).", ["A"], "It took long (settling time, A)."),
    ("It overlaps (S8 Table and |Fig 5B|).", ["B"], "It overlaps (B)."),
    # Values behind a reference are no panels and figures.
    ("Tumours shrank (|Fig 4B|, p<0.05).", ["B"], "Tumours shrank (B, p<0.05)."),
    ("Tumours shrank (|Fig. 4A|, n = 10).", ["A"], "Tumours shrank (A, n = 10)."),
    ("Tumours shrank (|Fig. 2A|, 12 mice).", ["A"], "Tumours shrank (A, 12 mice)."),
    ("Tumours shrank (|Fig. 2A|, 5 of 10).", ["A"], "Tumours shrank (A, 5 of 10)."),
    ("Tumours shrank (|Fig. 2|, 95% CI 1.2).", [], "Tumours shrank (95% CI 1.2)."),
    ("It shrank (|Fig. 2A|, a typical mouse).", ["A"], "It shrank (A, a typical mouse)."),
    ("It shrank (|Figs. 2|, 3 and 4).", [], "It shrank."),
    # Intervals are no works.
    (
        "The odds ratio was 2.4 (95% CI [1, 4]) in men (|Fig. 2|).",
        [],
        "The odds ratio was 2.4 (95% CI [1, 4]) in men.",
    ),
    (
        "Scaled to the range [0, 1] before plotting (|Fig. 2|).",
        [],
        "Scaled to the range [0, 1] before plotting.",
    ),
    ("The median was 12 [8, 15] days (|Fig. 2|).", [], "The median was 12 [8, 15] days."),
    ("The stay was 120 [8, 15] days (|Fig. 2|).", [], "The stay was 120 days."),
    # Dates are no works.
    ("It was wet (May 2019) here (|Fig. 2|).", [], "It was wet (May 2019) here."),
    ("Rain fell (June – October 2010, |Fig. 2|).", [], "Rain fell (June – October 2010)."),
    ("It is so (May et al., 2009) (|Fig. 2|).", [], "It is so."),
    # Words of the sentence stay.
    ("|Figure 2A| shows a CT scan [4].", ["A"], "Figure 2A shows a CT scan."),
    ("As in |Fig. 2|, cells grew (Fig. 3).", [], "As in Fig. 2, cells grew."),
    ("The structure is given in (|Fig. 2|).", [], "The structure is given in (Fig. 2)."),
    ("It differs by 3 s; see |Figure 2|.", [], "It differs by 3 s."),
    ("A model introduced in [50] fits (|Fig. 2|).", [], "A model introduced in [50] fits."),
    ("The index t[1] rose (|Fig. 2|).", [], "The index t[1] rose."),
    ("Levels (in mg) rose (|Fig. 2|).", [], "Levels (in mg) rose."),
    ("We saw (a) mice and (b) rats (|Fig. 2|).", [], "We saw (a) mice and (b) rats."),
    # Clauses about another figure.
    ("Tumours shrank (|Fig. 2A|), and weight fell (Fig. 3).", ["A"], "Tumours shrank (A)."),
    ("Weight fell (Fig. 3), whereas tumours shrank (|Fig. 2|).", [], "Tumours shrank."),
    ("Weight (Fig. 3) and size (|Fig. 2|) fell.", [], "Weight and size fell."),
    ("Pain fell (at 1 week, |Fig. 2|; at 2 weeks, Fig. 3).", [], "Pain fell (at 1 week)."),
]


@pytest.mark.parametrize(("written", "panels", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_references_apart_go_and_the_rest_reads_on(
    written: str, panels: list[str], wanted: str
) -> None:
    own = OwnReference(written.index("|"), tuple(panels))
    assert without_references(written.replace("|", ""), [own]) == wanted


def test_raised_numbers_of_works_go_and_powers_stay() -> None:
    sentence = "Growth was fast12,13 at 106 cells and 5 m2."
    raised = [Span(15, 20), Span(26, 27), Span(41, 42)]
    assert without_references(sentence, [], raised) == "Growth was fast at 10^6 cells and 5 m2."


def test_a_sentence_made_to_be_slow_is_read_all_the_same() -> None:
    for hostile in (
        "(" * 50_000,
        "(Fig. 1, " * 5_000,
        "[1" * 20_000,
        "Fig. 1 and " * 5_000,
        "[1,2] " * 9_000,
        " " * 20_000,
    ):
        without_references(hostile, [OwnReference(3)])
