"""Which letters are labels: group labels, abbreviations, references, ranges and positions."""

import pytest

from biovl.articles.subcaptions.splitting import split_caption
from tests.articles.subcaptions.cases import read


@pytest.mark.parametrize(
    ("caption", "labels"),
    [
        ("(A) Flux from the cytosol (C) to the nucleus (N). (B) Model of the flux.", "AB"),
        ("(A) Western blot of controls (C) and treated (T) cells. (B) Its quantification.", "AB"),
        ("(A) Blot. Cells as shown in (C) were used. (B) Quantification.", "AB"),
        ("(A) H&E stain. (B) Periodic acid-Schiff stain (for details see (C)).", "AB"),
        ("Flux. (A) Into the cytosol (C) and nucleus (N). (B) Model. (C) Residuals.", "ABC"),
        ("Comparison of treatment groups: (A) placebo, n = 20; group (B) drug.", ""),
        ("Maps of C (A), N (B) and O (C) in the sample.", "ABC"),
        ("Carbon (C; a), nitrogen (N; b) and phosphorus (P; c) in leaves.", "abc"),
        ("Skulls. (A) Cat. (B) Dog. (C) Hen. (E) Rat. (F) Ape.", "ABCEF"),
        ("(a)–(d) Radiographs of the hip over four years.", "abcd"),
        ("(A) through (D) Fundus photographs of the patient.", "ABCD"),
        ("In panels (A) through (D), the flow is shown. In (E) through (H), the heat.", "ABCDEFGH"),
        ("Boat recordings (A – Lowe Boat, B – Polar Kraft).", "AB"),
        ("Photograph of the patient (a: front, b: back).", "ab"),
        ("Fig 1a: Axial CT. Fig 1b: Coronal CT.", "ab"),
        ("(1) Control cells. (2) Cells with the drug. (3) Washout.", "123"),
        ("The ten blocks (A2, B1, B2 and C1) of the area below.", ""),
        ("Voxels in the first (A&C) and second condition (B&D).", "ACBD"),
        ("(E) Map of the genes. (G) Spectra of the cells. (H) Model. (I) Residuals.", "EGHI"),
        ("(A) Map of the genes. (D) Spectra of the cells. (E) Model. (F) Residuals.", "ADEF"),
        ("α, Plot of raised (right) and lowered genes (left). β, Scheme of the assay.", "αβ"),
        ("Panel 1: control. Panel 2: drug. Panel 3: washout.", "123"),
    ],
)
def test_the_words_around_a_letter_tell_whether_it_is_a_label(caption: str, labels: str) -> None:
    assert split_caption(caption).labels() == tuple(labels)


def test_roman_numerals_that_start_sentences_are_labels_beside_groups() -> None:
    found = split_caption("Growth. (i) Control group (n = 5). (ii) Group A. (iii) Group B.")
    assert found.labels() == ("i", "ii", "iii")


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "Claims. (a)(c)(d) Mean claims on a ring (a), a star (c), and a lattice (d). (b) Claims of all.",
            [
                "Claims.",
                "a,c,d: Mean claims on",
                "a: a ring",
                "c: a star",
                "d: a lattice",
                "b: Claims of all.",
                "",
            ],
        ),
        (
            "(A–C) Sections of (A) control, (B) sham and (C) treated bone. (D–E) Scans of (D) control and (E) treated bone.",
            [
                "",
                "A,B,C: Sections of",
                "A: control",
                "B: sham",
                "C: treated bone.",
                "D,E: Scans of",
                "D: control",
                "E: treated bone.",
                "",
            ],
        ),
        (
            "(A) Map. (B–E) Cells of liver (B) and lung (D) at noon. Nuclei are blue.",
            [
                "",
                "A: Map.",
                "B,C,D,E: Cells of",
                "B: liver",
                "D: lung",
                "B,C,D,E: at noon. Nuclei are blue.",
                "",
            ],
        ),
        (
            "Tendons. Upper row shows low magnification. Lower row shows high magnification.",
            [
                "Tendons.",
                "upper row: shows low magnification.",
                "lower row: shows high magnification.",
                "",
            ],
        ),
        (
            "The left-hand panel shows cases. The right-hand panel shows suburbs.",
            ["", "left: shows cases.", "right: shows suburbs.", ""],
        ),
        (
            "Growth of (A) oat, (B) rye and (C) maize in spring. Bars are means.",
            ["Growth of", "A: oat", "B: rye", "C: maize", "in spring. Bars are means."],
        ),
        (
            "Flow. (A, B) Time series of runs. They branch off from (A) slow and (B) fast ramps. (C) Map.",
            [
                "Flow.",
                "A,B: Time series of runs. They branch off from",
                "A: slow",
                "B: fast",
                "A,B: ramps.",
                "C: Map.",
                "",
            ],
        ),
        (
            "From left to right: CT, MRI and PET. Bars, 1 cm.",
            ["", "left: CT", "middle: MRI", "right: PET.", "Bars, 1 cm."],
        ),
        (
            "Particles. Left: round; middle and right: flat.",
            ["Particles.", "left: round", "middle,right: flat.", ""],
        ),
    ],
)
def test_groups_and_positions(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected
