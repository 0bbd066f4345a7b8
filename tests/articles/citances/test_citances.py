"""Which figures and panels a sentence cites, and what it says of each."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biovl.articles.citances.extraction import citances, citances_of, references, statements
from biovl.core.records import Mention, Reference

KINDS = {
    "main": "",
    "supplementary": "supp ",
    "appendix": "app ",
    "scheme": "scheme ",
    "other-article": "other ",
}


def told(sentence: str) -> str:
    """Return the references of a sentence in short: ``2 A B; supp S1``."""
    return "; ".join(
        f"{KINDS[found.kind]}{' '.join([found.figure, *found.panels])}"
        for found in references(sentence)
    )


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        # Numbers and panels.
        ("Cells grew (Fig. 2).", "2"),
        ("Cells grew (FIG. 2B).", "2 B"),
        ("Cells grew (figure 2b).", "2 b"),
        ("Cells grew (Fig.2B,C).", "2 B C"),
        ("Cells grew (Figure 12A and B).", "12 A B"),
        ("Cells grew (Fig. 3a, d, and g).", "3 a d g"),
        ("Cells grew (Figs. 2D–F).", "2 D E F"),
        # What follows a panel is a name, a symbol, a word or a statistic, and no other panel.
        ("Cells grew (Fig. 2A, Müller et al., 2010).", "2 A"),
        ("Cells grew (Fig. 3C and Gα).", "3 C"),
        ("Cells grew in Fig. 2c, e.g. the liver.", "2 c"),
        ("Cells grew (Fig. 3A, F(1,20) = 5).", "3 A"),
        ("It was used in Fig. 9C, F and G (1:1000).", "9 C F G"),
        ("Figs. 4(b) and 4(c) plot the numbers.", "4 b c"),
        ("Cells grew (Fig. 2A, 3D models).", "2 A"),
        ("Cells grew (Fig. 2 A to C).", "2 A B C"),
        ("Cells grew (Fig. 2, E to H), then died.", "2 E F G H"),
        ("Cells grew (Fig. 2, A and B).", "2 A B"),
        ("Cells grew (Fig. 2(a)).", "2 a"),
        ("Cells grew (Fig. 2 (a,b)).", "2 a b"),
        ("Figures 2(a)–2(d) show growth.", "2 a b c d"),
        ("Figure 2 b depicts growth, and Figure 3 a shows death.", "2 b; 3 a"),
        ("Figure 2 a new leaf grew; Figure 3 n is low.", "2; 3"),
        ("Cells grew (Figs. 2 ▸ a and 4 ▸ c; Fig. 3 ▸ b, top panel).", "2 a; 4 c; 3 b (top)"),
        ("This is in Fig. 2 ▸(a), which shows cells.", "2 a"),
        ("Cells (Fig. 2, D1–3) and roots (Fig. 3, A1-A2; Table 4).", "2 D1 D2 D3; 3 A1 A2"),
        ("Cells (Fig. 2 D and 2E) and roots (Figs. 4 b and 5 b).", "2 D E; 4 b; 5 b"),
        ("Cells grew in Figs. 4 and 5 a.", "4; 5"),
        ("Cells (Fig. 2, F3,8 = 509) of Fig. 4, T3 levels.", "2; 4"),
        ("Figure 2 ▸ b shows growth; in Fig. 3 ▸ a new leaf and in Fig. 4 ▸ p = 3.", "2 b; 3; 4"),
        ("In Figure 2 a is the slope; Figure 3 b is a map.", "2; 3 b"),
        ("Figs 9(c,d) and 10(c,d) show growth.", "9 c d; 10 c d"),
        ("Cells grew (Fig. 2A/C).", "2 A C"),
        ("Cells grew (Fig. 5-B).", "5 B"),
        ("Cells grew (Fig. 1AB).", "1 A B"),
        ("Cells grew (Figure 1, panels a and g).", "1 a g"),
        ("Cells grew (Fig. 2A′).", "2 A′"),
        ("Cells grew (Fig. 2A1–A3).", "2 A1 A2 A3"),
        ("Cells grew (Fig. 1i).", "1 i"),
        ("Cells grew (Fig. 1i–iii).", "1 i ii iii"),
        ("Cells grew (Fig. 3Ad–f).", "3 A.d A.e A.f"),
        ("Cells grew (Fig. 3B(i)).", "3 B.i"),
        ("Cells grew (Fig. 3Bi, ii).", "3 B.i B.ii"),
        ("Cells grew (Fig. 6II and 7).", "6 II; 7"),
        ("Cells grew (Fig. 3, which shows A. niger).", "3"),
        ("Figure 4 shows nuclei (panel A) and walls (panels C and D).", "4 A C D"),
        # Lists and ranges of figures, with the number carried along.
        ("Cells grew (Figs. 3A, 3B).", "3 A B"),
        ("Cells grew (Figs. 2F, 3A).", "2 F; 3 A"),
        ("Cells grew (Figs 3E vs. 3F).", "3 E; 3 F"),
        ("Cells grew (Figs. 2D–G, 3A–D, and 5).", "2 D E F G; 3 A B C D; 5"),
        ("Cells grew (Figs. 2D and 3, A and D, and fig. S5).", "2 D; 3 A D; supp S5"),
        ("Figures 2–5 show growth.", "2; 3; 4; 5"),
        ("Fig. 1 to Fig. 3 show growth.", "1; 2; 3"),
        ("Data were taken from Figure 3 and 4 (open signs).", "3; 4"),
        ("Cells grew (Fig. 2A; 3B).", "2 A; 3 B"),
        ("As fotos das Figuras 7, 8 e 10 são nossas.", "7; 8; 10"),
        ("Cells grew (Figs. 5A and B, and EV2).", "5 A B; supp EV2"),
        # Places.
        ("Cells grew (Fig. 3, left).", "3 left"),
        ("Cells grew (Fig. 3D, upper panel).", "3 D (upper)"),
        ("Cells grew (Fig. 3 (bottom)).", "3 bottom"),
        ("Cells grew (Fig. 2A and B, lower panels).", "2 A (lower) B (lower)"),
        ("Cells grew (Fig. 2A, left and right panels).", "2 A (left) A (right)"),
        ("Cells grew (Fig. 2H, top, right).", "2 H (top right)"),
        ("The middle panel of Figure 3B shows growth.", "3 B (middle)"),
        ("See the lower panel of Fig. 3 and the inset in Fig. 4a.", "3 lower; 4 a (inset)"),
        ("Panels B and C of Fig. 4 show growth.", "4 B C"),
        ("Cells grew (Fig. 4B, second row).", "4 B (second row)"),
        ("In Fig. 3, left ventricles are shown.", "3"),
        ("Cells grew (Fig. 2A, red arrow) and died (Fig. 2A, dashed line).", "2 A; 2 A"),
        # Panels of a panel, and words for panels later in the sentence.
        ("Cells (Figure 1C, panels A–C), bones (panels E and F).", "1 C.A C.B C.C C.E C.F"),
        ("Cells grew (Figure 1B-panel C).", "1 B.C"),
        ("Cells (Figure 1A, parts c and d, bottom) grew.", "1 A.c A.d (bottom)"),
        ("See Figure 2 panel D, lane 8; panel E, lanes 1 and 8-11.", "2 D E"),
        ("We added panels F and H to Figure 2.", "2 F H"),
        ("Cells grew (panel A, Figure 2).", "2 A"),
        ("The model (panel 6B) or the mean (panel 6C).", "6 B; 6 C"),
        ("Cells grew (S3 Fig. c).", "supp S3 c"),
        ("Cells grew (Fig. 2A(i) and A(ii)).", "2 A.i A.ii"),
        ("Cells grew (Fig. 2A i, ii).", "2 A.i A.ii"),
        ("Cells grew (Fig. 2A-i).", "2 A.i"),
        ("Cells grew (Fig. 2Aa,Ab).", "2 A.a A.b"),
        # Lists.
        ("Cells (Fig 2 C) and cores (Fig 2 D) grew.", "2 C; 2 D"),
        ("Cells grew (Fig. 1G,I[21]).", "1 G I"),
        ("Cells grew (Fig. 3IV–VI).", "3 IV V VI"),
        ("Cells grew (Figs. I and II).", "I; II"),
        ("Cells grew (Fig. 3A1–3).", "3 A1 A2 A3"),
        ("Cells grew (Fig. 3A1, A2 and B1).", "3 A1 A2 B1"),
        ("Cells grew (Fig. 1A–A″).", "1 A A′ A″"),
        ("Cells grew (Fig. S3a† and b).", "supp S3 a b"),
        ("See Figs. 8A–8D. in all cells.", "8 A B C D"),
        ("Cells grew (Fig. 1A, arrows, and B).", "1 A B"),
        ("Cells grew (Fig. 1A, green; B, red; and C, blue).", "1 A B C"),
        ("Cells grew (Fig. 1A for mice and 1B for rats).", "1 A; 1 B"),
        ("Genes (Fig. 2A) are on chromosomes 1A and 2B.", "2 A"),
        ("Genes (Fig. 1A–C) are on chromosome 1D or 1B.", "1 A B C"),
        ("Roots grew (Figures 6G–I and Table 1).", "6 G H I"),
        ("Roots grew (Figs. 6G to I and S1A).", "6 G H I; supp S1 A"),
        ("Roots grew (Figure 5D,I and Supplementary Methods).", "5 D I"),
        ("In Figure 5D, I think, roots grew.", "5 D"),
        ("Walls (Fig 5B, with the control 5A) and cells (10D, 2a).", "5 B; 5 A"),
        ("As shown in Figures 1 (a) to 1 (c), cells grew.", "1 a b c"),
        ("As shown in Fig. 1b,ii, cells grew.", "1 b.ii"),
        ("As shown in Figure 1bi and bii, cells grew.", "1 b.i b.ii"),
        ("Figure 3 a) and b) show cells.", "3 a b"),
        ("Cells grew (Fig. 5 A, left; B, right).", "5 A (left) B (right)"),
        ("1) cells grew (Figures 1 and 2); 2) cells died.", "1; 2"),
        ("Cells grew (Fig. 3; panel A, Fig. 4; panel B).", "3 A; 4 B"),
        ("Cells grew (Figure 7D, panels ii and iii).", "7 D.ii D.iii"),
        # More places.
        ("Cells grew (Fig. 3h, left-hand panels).", "3 h (left)"),
        ("Cells grew (Fig. 7B, upper two panels).", "7 B (upper)"),
        ("Cells grew (Fig. 7B [left]).", "7 B (left)"),
        ("Cells grew (Figure 7A, fifth panel).", "7 A (fifth)"),
        ("Cells grew (Figure 2, upper right photomicrographs).", "2 upper right"),
        ("Cells grew (Figure 4A (top row of blots)).", "4 A (top row)"),
        ("Cells grew (Fig. 5B, far right).", "5 B (far right)"),
        ("Cells grew (left panel, Fig. 2A).", "2 A (left)"),
        ("Cells grew (Fig. 2A, panel on the left).", "2 A (left)"),
        # Kinds.
        ("Cells grew (Supplementary Fig. 3b).", "supp 3 b"),
        ("Cells grew (Fig. S3b and Table S2).", "supp S3 b"),
        ("Cells grew (Additional file 1: Figure S3; Additional Fig. 2).", "supp S3; supp 2"),
        ("Cells grew (Extended Data Fig. 1f,g).", "supp 1 f g"),
        ("Cells grew (Fig 4 and S2 Fig).", "4; supp S2"),
        ("Cells grew (S1A and S1B Fig, S2 Table).", "supp S1 A B"),
        ("Cells grew (Figs S1–S3).", "supp S1; supp S2; supp S3"),
        ("Cells grew (Figures S4A and 7).", "supp S4 A; 7"),
        ("Cells grew (Figure 3 in Supplementary Material).", "supp 3"),
        ("Cells grew (Fig A in S1 File).", "supp A"),
        ("Cells grew (Figure 1a,b, Supporting Information).", "supp 1 a b"),
        ("Cells grew (SI Appendix, Fig. S3A; Appendix S1: Fig. S2).", "supp S3 A; supp S2"),
        ("Cells grew (Sup. Fig. 1, sFigure 2, SFig. 3A).", "supp 1; supp 2; supp 3 A"),
        ("Cells grew (Appendix Fig. A.1).", "app A.1"),
        (
            "Cells grew (Figure 2—figure supplements 1A and 2).",
            "supp 2—figure supplement 1 A; supp 2—figure supplement 2",
        ),
        ("Cells grew (Fig. A1b).", "app A1 b"),
        ("Cells grew (Appendix 1—figure 2d).", "app Appendix 1—figure 2 d"),
        ("The route is short (Schemes 1 and 2).", "scheme 1; scheme 2"),
        ("This agrees with Fig. 3 of Smith et al. (2010).", "other 3"),
        ("This agrees with Figure 2b in [12].", "other 2 b"),
        ("This agrees with their Fig. 5.", "other 5"),
        ("Jones (1999: fig. 4) drew it.", "other 4"),
        ("Cells grew (Smith et al., 2004, Fig. 1B; Fig. 2).", "1 B; 2"),
        ("Cells grew (Smith and Lee, 2004a), see Figure 1B.", "1 B"),
        ("Cells grew (Smith 2004: fig. 1B; Smith (2004), fig. 2).", "other 1 B; other 2"),
        ("We follow Smith et al. (2004), Fig. 1A, as a model.", "other 1 A"),
        (
            "As shown in Figure 9 there was growth (see Fig. 1 there, Fig. 2 therein).",
            "9; other 1; other 2",
        ),
        ("The LI grew more than the SI (Fig. 3B); see the SI, Fig. 2.", "3 B; supp 2"),
        # What is none.
        ("The figure shows 3 cells and a figure-of-8 knot.", ""),
        ("Mitotic figures were seen in 2 of 10 fields.", ""),
        ("Years 20–27 as in Tables 3–5.", ""),
        ("In Figure 1, in May 2010 the count rose.", "1"),
        ("Cells grew (Fig. 2A, P < 0.05; n = 3).", "2 A"),
        ("Cells grew (Fig. 2A, T cells; Fig. 2B, C. elegans).", "2 A; 2 B"),
        ("Fig. 3A and 5 mice are shown.", "3 A"),
        ("In Fig. 3, 20 mice and a rat are seen.", "3"),
        ("In Fig. 2 A total of six is seen.", "2"),
        ("See Fig. 2. (b) Mean of six.", "2"),
        ("One opens “get” in Fig. 4; 2) one keeps it.", "4"),
        ("Cells grew (Figure 3—source data 1).", ""),
        ("Cells grew (Fig. 2A, 3D structure).", "2 A"),
        ("Walls (Fig. 2A) of the 2D model grew in 2 h.", "2 A"),
        ("Walls (Fig. 2a) grew in 2h by 2g.", "2 a"),
        ("Walls grew (Figure 6D, 30-31s).", "6 D"),
        ("Walls grew (Fig. 8B, yellow box; 15,38% of all).", "8 B"),
        ("As in Figure 2C; (E) Key.", "2 C"),
        ("Cells grew (Fig. 5A, H&E).", "5 A"),
        ("Cells grew (Fig. 5C, C57BL/6 mice).", "5 C"),
        ("Cells grew (Fig. 5A, white arrow; P, pith).", "5 A"),
        ("Figure 10A shows 10B cells.", "10 A"),
    ],
)
def test_a_sentence_tells_which_figures_it_cites(sentence: str, expected: str) -> None:
    assert told(sentence) == expected


def test_words_before_a_reference_belong_to_it() -> None:
    sentence = "Walls grew: panels B and C of Fig. 4 show it."
    (found,) = references(sentence)
    assert sentence[found.span.start : found.span.end] == "panels B and C of Fig. 4"


def test_references_stand_where_they_say() -> None:
    sentence = "Walls grew (lower panel of Fig. 3) and fell (Supplementary Figs. 2A, red arrow, 4)."
    assert [sentence[found.span.start : found.span.end] for found in references(sentence)][:2] == [
        "lower panel of Fig. 3",
        "Supplementary Figs. 2A, red arrow",
    ]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "Walls were thick (Fig. 1A), but the nuclei of mutants were small (Fig. 1B).",
            {"A": "Walls were thick (Fig. 1A)", "B": "the nuclei of mutants were small (Fig. 1B)."},
        ),
        (
            "Mice were lean (Fig. 1A); however, the old rats were fat (Fig. 1B), as expected.",
            {
                "A": "Mice were lean (Fig. 1A)",
                "B": "the old rats were fat (Fig. 1B), as expected.",
            },
        ),
        (
            "Although the walls were thin (Fig. 1A), the cells were alive (Fig. 1B).",
            {
                "A": "Although the walls were thin (Fig. 1A)",
                "B": "the cells were alive (Fig. 1B).",
            },
        ),
        # Without a subject or verb of its own a piece is no statement.
        (
            "The CD4 (Fig. 1A), CD8 (Fig. 1B) and CD19 (Fig. 1C) cells rose.",
            dict.fromkeys("ABC", "The CD4 (Fig. 1A), CD8 (Fig. 1B) and CD19 (Fig. 1C) cells rose."),
        ),
        (
            "The wall was thick (Fig. 1A), but was lost with age (Fig. 1B).",
            dict.fromkeys("AB", "The wall was thick (Fig. 1A), but was lost with age (Fig. 1B)."),
        ),
        (
            "A histogram and an image of the grains are shown in Fig. 1A and B, respectively.",
            {
                "A": "A histogram are shown in Fig. 1A and B.",
                "B": "an image of the grains are shown in Fig. 1A and B.",
            },
        ),
        (
            "Fig. 1A–C show the lungs, the hearts and the livers, respectively, of mice.",
            {
                "A": "Fig. 1A–C show the lungs, of mice.",
                "B": "Fig. 1A–C show the hearts, of mice.",
                "C": "Fig. 1A–C show the livers, of mice.",
            },
        ),
        # Values are not what the panels show.
        (
            "In Fig. 1A and B the mean was 3 and 4, respectively.",
            dict.fromkeys("AB", "In Fig. 1A and B the mean was 3 and 4, respectively."),
        ),
    ],
)
def test_each_panel_gets_its_own_statement(sentence: str, expected: dict[str, str]) -> None:
    said = {panel: one.text for one in statements(sentence) for panel in one.panels}
    assert said == expected


def test_a_figure_cited_as_a_whole_is_told_from_its_panels() -> None:
    whole, panel = statements("Walls were thick (Fig. 1), but the cells were small (Fig. 1B).")
    assert (whole.is_figure_level, panel.is_figure_level) == (True, False)


PARAGRAPH = (
    "Mice were bred as told by Smith et al. before. Walls were thick (Fig. 2A, B), but the cells "
    "of old mice were small (Supplementary Fig. 2A). As in Fig. 2, none died. Rats differ (3C)."
)


def mention(*links: str) -> Mention:
    refs = [
        Reference(PARAGRAPH.index(link), PARAGRAPH.index(link) + len(link), [], False)
        for link in links
    ]
    return Mention(PARAGRAPH, refs, [], "body")


def test_citances_are_the_sentences_that_cite_the_figure() -> None:
    first, second = citances_of(mention("Fig. 2A"), "Figure 2.")
    assert first.text.startswith("Walls were thick")
    assert first.container == "body"
    assert (first.panels, first.is_linked) == (("A", "B"), True)
    assert first.statement_of("A") == "Walls were thick (Fig. 2A, B)"
    assert (second.text, second.panels) == ("As in Fig. 2, none died.", ())
    assert (second.is_figure_level, second.is_linked) == (True, False)


def test_the_supplement_with_the_same_number_is_another_figure() -> None:
    (only,) = citances_of(mention(), "Supplementary Fig. 2")
    assert only.statement_of("A") == "the cells of old mice were small (Supplementary Fig. 2A)."


def test_a_link_counts_where_its_words_tell_nothing() -> None:
    start = PARAGRAPH.index("3C")
    link = Reference(start, start + 2, ["C"], False)
    (only,) = citances_of(Mention(PARAGRAPH, [link], [], "body"), None)
    assert (only.text, only.panels) == ("Rats differ (3C).", ("C",))


@pytest.mark.parametrize(
    ("words", "linked"),
    [
        ("Supplementary Figure 1", "Figure 1"),
        ("Supplementary Figure S2", "S2"),
        ("their Figure 1", "Figure 1"),
    ],
)
def test_a_link_does_not_make_another_figure_this_one(words: str, linked: str) -> None:
    text = f"Genes are common ({words})."
    start = text.index(linked)
    link = Reference(start, start + len(linked), [], False)
    assert citances_of(Mention(text, [link], [], "body"), "Figure 1") == []


def test_a_panel_published_as_a_figure_is_cited_by_its_own_letter() -> None:
    text = "Walls are seen in Fig. 2A. Cells are seen in Fig. 2B."
    found = citances_of(Mention(text, [], [], "body"), "Fig. 2B")
    assert [one.text for one in found] == ["Cells are seen in Fig. 2B."]


def test_a_sentence_stored_twice_is_one_citance() -> None:
    assert len(citances([mention("Fig. 2A"), mention("Fig. 2A")], "Fig. 2")) == 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            "Fig. Figs Figure 1 2 12 S3 A B a i ( ) [ ] , ; – - . and to left panel vs. respectively "
            "of in Smith 2010 Supplementary Appendix — figure supplement T cells were é ′".split()
        ),
        max_size=30,
    ),
    st.sampled_from(["", " "]),
)
def test_any_sentence_is_read_and_references_stay_inside_it(words: list[str], glue: str) -> None:
    sentence = glue.join(words)
    for found in references(sentence):
        assert 0 <= found.span.start < found.span.end <= len(sentence)
        assert len(set(found.panels)) == len(found.panels)
    for one in statements(sentence):
        assert one.text


@pytest.mark.parametrize(
    "piece", ["Fig. 2A, ", "Fig. 2", "A, ", "2A–", "(a)", "Smith and ", "S1 ", "panel A ", "left, "]
)
def test_long_hostile_sentences_are_read(piece: str) -> None:
    references("Fig. 1 " + piece * 4_000)


@pytest.mark.shared
def test_real_sentences_are_read_as_by_hand(shared_data: Path) -> None:
    lines = (shared_data / "cases" / "citances.jsonl").read_text().splitlines()
    right = found_all = gold_all = 0
    for case in map(json.loads, lines):
        gold = {
            (ref["kind"], ref["figure"], panel)
            for ref in case["refs"]
            for panel in ref["panels"] or [""]
        }
        found = {
            (one.kind, one.figure, panel)
            for one in references(case["sentence"])
            for panel in one.panels or ("",)
        }
        right, found_all, gold_all = (
            right + len(found & gold),
            found_all + len(found),
            gold_all + len(gold),
        )
    assert 2 * right / (found_all + gold_all) >= 0.9
