"""Letters and numbers in captions that are no panels."""

import pytest

from biovl.articles.subcaptions.splitting import SplitCaption, split_caption


@pytest.mark.parametrize(
    "caption",
    [
        "Retinal scans. (A-1) Left eye.",
        "C–D) Micrographs of control (C) and treated (D) cells.",
        "(A) Growth curves. b) Not a panel of this figure.",
        "Structure of vitamin A and vitamin B in milk.",
        "Uptake of As(V) and Cr(VI) by roots over time.",
        "Rates of growth (g) and mortality (m) of larvae.",
        "Bars with different letters (a–e) differ significantly (P < 0.05).",
        "Means with the same letters (a, b, c) are equal.",
        "Plasma glucose after test meals (G, glucose; R, rice; Ra, raisins).",
        "The dependency of E = E(α) on heating.",
        "Synthesis of (E)-11-tetradecenol and (6E,11Z)-hexadecadienal.",
        "Growth of E. coli, C. albicans and B. subtilis on agar.",
        "Lines fit three conditions: (1) slow drift; (2) fast drift; or (3) no drift.",
        "Construction of the sensor. (1) Cleaning, (2) coating with antibody, (3) blocking and (4) reading.",
        "Setup with (1) a lamp, (2) a lens, and (3) a camera.",
        "Structures of the acids found: oleic acid (1), linoleic acid (2), palmitic acid (3).",
        "Phylogeny of wheat. A, B, and D indicate its three subgenomes.",
        "Arrows of a, e mark bands of the first parent, b of the second.",
        "E, eye; P, palate; T, tongue; H, heart.",
        "A section of the head. A, antenna; B, brain; C, crop.",
        "Route to the drug. Reagents and conditions: (a) NaH, THF; (b) HCl, 2 h; (c) EDC.",
        "Hepatitis A, B and C in travellers.",
        "Blood groups A, B, AB and O in donors.",
        "See Fig. 1 (A) for the setup and Fig. 2 (B) for the rig.",
        "Top, numbers indicate molecular weights. The blot is one of three.",
        "Patients (n = 12) of group A and group B were compared (p < 0.05).",
        "Overview of the method.",
        "",
        "A total of 40 mice were used. B cells were counted by flow cytometry.",
        "Plot of log10(p) against f(z) for all z.",
        "Types of cell death. The red line is the model of Smith et al. (a) and others.",
        "One panel only. (A) The whole heart of an adult mouse.",
        "The dots move from left to right and from top to bottom.",
    ],
)
def test_a_caption_without_panels_stays_whole(caption: str) -> None:
    assert split_caption(caption) == SplitCaption(caption, (), "", None, 0.0)


@pytest.mark.parametrize(
    "caption",
    [
        "Leaf area (A), height (B), girth (C) and mass (D) of seedlings (mean ± S.E.) in shade.",
        "Steps: (a) dark, (b) dim, (c) lit, (d) bright. The last lasts 2 s, i.e., one breath.",
    ],
)
def test_the_second_of_two_initials_is_no_label(caption: str) -> None:
    assert len(split_caption(caption).labels()) == 4


def test_a_label_may_follow_a_line_that_ends_in_one_letter() -> None:
    found = split_caption("Uptake of vitamin E.\nA, in roots. B, in leaves.")
    assert found.labels() == ("A", "B")
