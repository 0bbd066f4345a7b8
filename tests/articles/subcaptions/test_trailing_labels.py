"""Captions whose labels stand behind their text."""

import pytest

from tests.articles.subcaptions.cases import read


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Axial CT (A) and coronal CT (B).", ["", "A: Axial CT", "B: coronal CT", ""]),
        (
            "Teeth of rats before (A) and after (B) extraction. (C) Their roots.",
            [
                *("", "A,B: Teeth of rats", "A: before", "B: after", "A,B: extraction."),
                *("C: Their roots.", ""),
            ],
        ),
        (
            "Burns. Control (A, C) and treated (B, D) skin on days 1 (A, B) and 7 (C, D).",
            [
                *("Burns.", "A,C: Control", "B,D: treated", "A,C,B,D: skin on days"),
                *("A,B: 1", "C,D: 7", ""),
            ],
        ),
        (
            "(A, B) Liver and (C, D) lung, with low (A, C) and high (B, D) weight.",
            [
                *("", "A,B: Liver", "C,D: lung", "A,B,C,D: with", "A,C: low"),
                *("B,D: high", "weight."),
            ],
        ),
        (
            "Steel (a–c) and zinc (d–f) cooled at (a,d) 0 °C, (b,e) 1 °C, and (c,f) 2 °C.",
            [
                *("", "a,b,c: Steel", "d,e,f: zinc", "a,b,c,d,e,f: cooled at"),
                *("a,d: 0 °C", "b,e: 1 °C", "c,f: 2 °C.", ""),
            ],
        ),
        # Symbols in front of labels.
        (
            "Transpiration (E) (A, B), photosynthesis (P) (C, D) and CO2 (Ci) (E, F) of rice.",
            [
                *("", "A,B: Transpiration (E)", "C,D: photosynthesis (P)"),
                *("E,F: CO2 (Ci)", "of rice."),
            ],
        ),
        (
            "Leaves of rice in the sun (S) (A) and in the tent (T) (B) at noon.",
            ["Leaves of rice", "A: in the sun (S)", "B: in the tent (T)", "at noon."],
        ),
        (
            "Views of apo- (A) (C) and zinc (B) (D) states.",
            ["Views of", "A,C: apo-", "B,D: zinc", "states."],
        ),
        ("Yield by soil (A); by year (B).", ["Yield", "A: by soil", "B: by year", ""]),
        (
            "XRD patterns (a), FTIR spectra (b) and TGA curves (c) of the powder.",
            ["", "a: XRD patterns", "b: FTIR spectra", "c: TGA curves", "of the powder."],
        ),
        (
            "Gross specimen (left) and cut surface (right) of the tumor.",
            ["", "left: Gross specimen", "right: cut surface", "of the tumor."],
        ),
        (
            "Films at noon with (a) and without (b) shade.",
            ["Films at noon", "a: with", "b: without", "shade."],
        ),
        (
            "Photograph of the wing (a), electron micrograph (b) and model (c).",
            ["", "a: Photograph of the wing", "b: electron micrograph", "c: model", ""],
        ),
        (
            "Micrographs of untreated (a) and heated sections (b).",
            ["Micrographs of", "a: untreated", "b: heated sections", ""],
        ),
        (
            "The shape of wings (A) and the colour (B).",
            ["", "A: The shape of wings", "B: the colour", ""],
        ),
        (
            "The shape of the wing (A) and the leg (B).",
            ["The shape of", "A: the wing", "B: the leg", ""],
        ),
        (
            "Number of cells in mice of strain C57BL/6 (A), 129/Sv (B).",
            ["Number of cells in mice of", "A: strain C57BL/6", "B: 129/Sv", ""],
        ),
        (
            "Cells are shown in (A), and nuclei of cells are shown in (B).",
            ["", "A: Cells are shown in", "B: nuclei of cells are shown in", ""],
        ),
        (
            "Colon (A) share of cells (blue arrows, (B)), plasma (green arrows, (C)) of mice.",
            [
                "",
                "A: Colon",
                "B: share of cells (blue arrows",
                "C: plasma (green arrows",
                "of mice.",
            ],
        ),
        (
            "Relative expression of Sox2 (A) and Pax6 (B) in the neural tube.",
            ["Relative expression of", "A: Sox2", "B: Pax6", "in the neural tube."],
        ),
        (
            "Shoot length (a), root length (b) and leaf area (c) of seedlings under drought.",
            [
                "",
                "a: Shoot length",
                "b: root length",
                "c: leaf area",
                "of seedlings under drought.",
            ],
        ),
        (
            "Canopy height of wheat (panel A) and barley (panel B) in spring.",
            ["Canopy height of", "A: wheat", "B: barley", "in spring."],
        ),
        (
            "Images of plots on May 3rd (A and B) and June 8th(C and D).",
            ["Images of plots on", "A,B: May 3rd", "C,D: June 8th", ""],
        ),
        (
            "Transport before (A) and after surgery (B). Bars are means.",
            ["Transport", "A: before", "B: after surgery", "Bars are means."],
        ),
        (
            "CT of the knee (a) shows a fracture. Axial MRI (b and c) shows oedema of the marrow.",
            [
                "",
                "a: CT of the knee shows a fracture.",
                "b,c: Axial MRI shows oedema of the marrow.",
                "",
            ],
        ),
        (
            "Escherichia coli (A) and Listeria innocua (B) biofilms were grown for 24 h. The assay was repeated three times.",
            [
                "",
                "A: Escherichia coli",
                "B: Listeria innocua",
                "biofilms were grown for 24 h. The assay was repeated three times.",
            ],
        ),
        (
            "The mean error is shown in (A). The maximal error is shown in (B).",
            ["", "A: The mean error is shown in", "B: The maximal error is shown in", ""],
        ),
        (
            "Chest X-ray at admission (a). Chest X-ray at discharge (b).",
            ["", "a: Chest X-ray at admission", "b: Chest X-ray at discharge", ""],
        ),
        (
            "Femur of a theropod in anterior (A), lateral (B–C) and distal (D) views. Scale bar, 5 cm.",
            [
                "Femur of a theropod in",
                "A: anterior",
                "B,C: lateral",
                "D: distal",
                "views. Scale bar, 5 cm.",
            ],
        ),
        (
            "Spectra of the pure oil (A); chromatogram of the blend (B).",
            ["", "A: Spectra of the pure oil", "B: chromatogram of the blend", ""],
        ),
        (
            "Liver enzymes: ALT (A), AST (B), and bilirubin (C) in treated rats.",
            ["Liver enzymes:", "A: ALT", "B: AST", "C: bilirubin", "in treated rats."],
        ),
        (
            "Skull in dorsal (A), ventral (B) and lateral (C) views; and mandible in lateral (D) and medial (E) views.",
            [
                "",
                "A,B,C: Skull in",
                "A: dorsal",
                "B: ventral",
                "C: lateral",
                "A,B,C: views",
                "D,E: mandible in",
                "D: lateral",
                "E: medial",
                "D,E: views.",
                "",
            ],
        ),
        (
            "Tumour volume (A, left) and body weight (B, right) of mice.",
            ["", "A: Tumour volume left", "B: body weight right", "of mice."],
        ),
        (
            "Distributions of free starch (top row) and bound starch (bottom row).",
            ["Distributions of", "top row: free starch", "bottom row: bound starch", ""],
        ),
        (
            "Histology of lung (left) and liver (right) at day 3. Haematoxylin and eosin.",
            ["Histology of", "left: lung", "right: liver", "at day 3. Haematoxylin and eosin."],
        ),
        (
            "Rainfall maps for uninfected farms (top left), untested farms (bottom left), infected farms (top right), and closed farms (bottom right).",
            [
                "Rainfall maps for",
                "top left: uninfected farms",
                "bottom left: untested farms",
                "top right: infected farms",
                "bottom right: closed farms",
                "",
            ],
        ),
        (
            "Bone of mice. (A) Femurs. (B–D) Ratios of BV/TV (B), Tb.N (C), and Tb.Sp (D).",
            [
                "Bone of mice.",
                "A: Femurs.",
                "B,C,D: Ratios of",
                "B: BV/TV",
                "C: Tb.N",
                "D: Tb.Sp",
                "",
            ],
        ),
    ],
)
def test_a_label_behind_its_text(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        # Points are missing: what stands before a label that opens a sentence is of the last one.
        (
            "Cell death. (A) Left network. Hub proteins: TPT1; (B) Right network. Hub proteins: CDH1; (C) Both.",
            [
                "Cell death.",
                "A: Left network. Hub proteins: TPT1",
                "B: Right network. Hub proteins: CDH1",
                "C: Both.",
                "",
            ],
        ),
        (
            "(A) Blots of liver. GAPDH served as a loading control (B) Quantification of the blots.",
            [
                "",
                "A: Blots of liver. GAPDH served as a loading control",
                "B: Quantification of the blots.",
                "",
            ],
        ),
        (
            "Edema in mutant mice (a) The embryo is retarded in growth. (b) The heart is enlarged.",
            [
                "Edema in mutant mice",
                "a: The embryo is retarded in growth.",
                "b: The heart is enlarged.",
                "",
            ],
        ),
        # But where it needs the label, it is of it.
        (
            "(A) Growth over time. Shown in (B) Spartina anglica at noon.",
            ["", "A: Growth over time.", "B: Shown in Spartina anglica at noon.", ""],
        ),
        (
            "Dynamic range. Panel (a) represents the first assay, and (b), (c), and (d) the others, respectively. Dots are means.",
            [
                "Dynamic range.",
                "a: Panel represents the first assay",
                "b,c,d: the others, respectively.",
                "Dots are means.",
            ],
        ),
        (
            "(A) CT of the brain. (B) Sections (H,E) of the lesion. (C) MRI.",
            ["", "A: CT of the brain.", "B: Sections (H,E) of the lesion.", "C: MRI.", ""],
        ),
    ],
)
def test_sentences_without_their_point_end_where_the_next_panel_opens(
    caption: str, expected: list[str]
) -> None:
    assert read(caption) == expected
