"""Captions in several styles at once, with panels inside panels, and in other scripts."""

import pytest

from tests.articles.subcaptions.cases import read


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "(A) Heat map of all genes. Volcano plots of liver (B), lung (C) and brain (D) samples.",
            [
                "",
                "A: Heat map of all genes.",
                "B,C,D: Volcano plots of",
                "B: liver",
                "C: lung",
                "D: brain",
                "B,C,D: samples.",
                "",
            ],
        ),
        (
            "(A–D) Frontal (A,B) and sagittal (C,D) sections of embryos.",
            ["", "A,B: Frontal", "C,D: sagittal", "sections of embryos."],
        ),
        (
            "(A) Sketch of the model. (B,C) Fitted (B) and measured (C) profiles.",
            ["", "A: Sketch of the model.", "B: Fitted", "C: measured", "B,C: profiles.", ""],
        ),
        (
            "Melatonin assay. (A) Chromatogram. (a) Without melatonin. (b) With melatonin. (B) Statistics of all runs.",
            [
                "Melatonin assay.",
                "A: Chromatogram.",
                "A.a: Without melatonin.",
                "A.b: With melatonin.",
                "B: Statistics of all runs.",
                "",
            ],
        ),
        (
            "Cells. (A) Wild type and (B, C) mutant. (C) is an enlargement of the box in (B). The arrows in (A) mark vesicles.",
            [
                "Cells.",
                "A: Wild type",
                "B,C: mutant.",
                "C: is an enlargement of the box in (B).",
                "A: The arrows in (A) mark vesicles.",
                "",
            ],
        ),
        (
            "A, Effects of the drug on growth (a) and migration (b). B, Effects of the drug on survival (a) and division (b).",
            [
                "",
                "A: Effects of the drug on growth (a) and migration (b).",
                "B: Effects of the drug on survival (a) and division (b).",
                "",
            ],
        ),
        (
            "Damage in black circles (a). b Infiltration of the vesicles",
            ["", "a: Damage in black circles", "b: Infiltration of the vesicles", ""],
        ),
        (
            "c Mean values of all groups. (a) Sketch. (b) Photograph of the rig.",
            ["c Mean values of all groups.", "a: Sketch.", "b: Photograph of the rig.", ""],
        ),
        (
            "Bone from the cave. Clockwise from top left: rib of a goat (Capra), femur of a seal, jaw of a hen, and shell of a turtle. Scale bar, 1 cm.",
            [
                "Bone from the cave.",
                "top left: rib of a goat (Capra)",
                "top right: femur of a seal",
                "bottom right: jaw of a hen",
                "bottom left: shell of a turtle.",
                "Scale bar, 1 cm.",
            ],
        ),
        (
            "Plates after growth. Left: 10 mg, middle 100 mg, right 316 mg. Temperature was constant.",
            [
                "Plates after growth.",
                "left: 10 mg",
                "middle: 100 mg",
                "right: 316 mg.",
                "Temperature was constant.",
            ],
        ),
        (
            "А. Контрольная группа мышей. Б. Опытная группа мышей. В. Обе группы через год.",
            [
                "",
                "А: Контрольная группа мышей.",
                "Б: Опытная группа мышей.",
                "В: Обе группы через год.",
                "",
            ],
        ),
        (
            "肺部CT图像。（A）治疗前。（B）治疗后。",
            ["肺部CT图像。", "A: 治疗前。", "B: 治疗后。", ""],
        ),
        (
            "(A) Staining for p53 (a), p21 (b) or Ki67 (c). (B) Staining of young (a) and (c) or old (b) and (d) mice for p53 (a) and (b) and p21 (c) and (d).",
            [
                "",
                "A: Staining for p53 (a), p21 (b) or Ki67 (c).",
                "B: Staining of young (a) and (c) or old (b) and (d) mice for p53 (a) and (b) and p21 (c) and (d).",
                "",
            ],
        ),
        (
            "(A) Weight. Error bars, SD. (B) Length. Error bars, SEM. Scale bars, 1 cm.",
            ["", "A: Weight. Error bars, SD.", "B: Length. Error bars, SEM.", "Scale bars, 1 cm."],
        ),
        (
            "Photographs demonstrating (A) the wound, followed by (B) its closure.",
            ["Photographs demonstrating", "A: the wound, followed by", "B: its closure.", ""],
        ),
        (
            "Loss of weight in treated mice.(A) Weight of the body. (B) Weight of the liver.",
            [
                "Loss of weight in treated mice.",
                "A: Weight of the body.",
                "B: Weight of the liver.",
                "",
            ],
        ),
        (
            "a Shoot length and b root length under stress. Asterisks, P < 0.05",
            ["", "a: Shoot length", "b: root length", "under stress. Asterisks, P < 0.05"],
        ),
        (
            "(A) Gene map. (B) Wet and (C) dry weight of roots in spring. Bars show the mean.",
            [
                "",
                "A: Gene map.",
                "B: Wet",
                "C: dry",
                "B,C: weight of roots in spring.",
                "Bars show the mean.",
            ],
        ),
        (
            "(A) Gene map. Weight of (B) roots and (C) shoots of rye. It was measured twice. (D) Sketch.",
            [
                "",
                "A: Gene map.",
                "B,C: Weight of",
                "B: roots",
                "C: shoots",
                "B,C: of rye. It was measured twice.",
                "D: Sketch.",
                "",
            ],
        ),
        (
            "Cells were kept warm, and then (A) lysed; or subjected to (B) heat, or (C) cold.",
            [
                "Cells were kept warm, and then",
                "A: lysed",
                "B,C: subjected to",
                "B: heat",
                "C: cold.",
                "",
            ],
        ),
        (
            "(A–D) Liver (A and C) and lung (B and D). (A, B) Day 1; (C, D) day 8. Bar, 5 µm. (E) Blot.",
            [
                "",
                "A,C: Liver",
                "B,D: lung",
                "A,B: Day 1",
                "C,D: day 8.",
                "A,B,C,D: Bar, 5 µm.",
                "E: Blot.",
                "",
            ],
        ),
        (
            "Photographs of the leaves (a before drying, b after drying (40 °C), c after a year). Bar, 1 cm.",
            [
                "Photographs of the leaves",
                "a: before drying",
                "b: after drying (40 °C)",
                "c: after a year.",
                "Bar, 1 cm.",
            ],
        ),
        (
            "Diffraction patterns of (A) sodium and (B) iron, XPS spectra of (C) sodium and (D) iron.",
            [
                "",
                "A,B: Diffraction patterns of",
                "A: sodium",
                "B: iron",
                "C,D: XPS spectra of",
                "C: sodium",
                "D: iron.",
                "",
            ],
        ),
        (
            "Fluxes of rice: daily carbon of the (A) leaves and (B) roots; and water of the (C) leaves and (D) roots. Bars, SD.",
            [
                "Fluxes of rice:",
                "A,B: daily carbon of the",
                "A: leaves",
                "B: roots",
                "C,D: water of the",
                "C: leaves",
                "D: roots.",
                "Bars, SD.",
            ],
        ),
        (
            "(A) Map of the sites, common structure of (B) soils and sands.",
            ["", "A: Map of the sites", "B: common structure of soils and sands.", ""],
        ),
        (
            "Biofilms were measured (A) by staining after one hour and (B) by counting after a day.",
            [
                "Biofilms were measured",
                "A: by staining after one hour",
                "B: by counting after a day.",
                "",
            ],
        ),
        (
            "(A) Cells at rest. (B) Sketch of them. (C) Traces of cells. States 1 to 3 are those in (A, B).",
            [
                "",
                "A: Cells at rest.",
                "B: Sketch of them.",
                "C: Traces of cells. States 1 to 3 are those in (A, B).",
                "",
            ],
        ),
        (
            "(A) Map. (B) IL-2 and (C) TNF were measured in brains of mice. Means are shown.",
            [
                "",
                "A: Map.",
                "B: IL-2",
                "C: TNF",
                "B,C: were measured in brains of mice.",
                "Means are shown.",
            ],
        ),
        (
            "Profiles of a gene (A) in tissues of oat, (B) in response to salt and (C) on wounding at noon.",
            [
                "Profiles of a gene",
                "A: in tissues of oat",
                "B: in response to salt",
                "C: on wounding at noon.",
                "",
            ],
        ),
        (
            "a Uptake of oat. b Uptake of rye. In (a) blue lines are controls. Bars in a and b, 5 µm",
            [
                "",
                "a: Uptake of oat.",
                "b: Uptake of rye.",
                "a: In (a) blue lines are controls.",
                "Bars in a and b, 5 µm",
            ],
        ),
        (
            "(A) Maps of brains. (B) Histograms of them. GM = gray matter, WM = white matter.",
            [
                "",
                "A: Maps of brains.",
                "B: Histograms of them.",
                "GM = gray matter, WM = white matter.",
            ],
        ),
        (
            "(A) Cells at rest for t = 0 h. Cells at t = 4 h (B), 8 h (C) and 9 h (D). (E) Means are shown in (B) and (C).",
            [
                "",
                "A: Cells at rest for t = 0 h.",
                "B,C,D: Cells at t =",
                "B: 4 h",
                "C: 8 h",
                "D: 9 h",
                "E: Means are shown in (B) and (C).",
                "",
            ],
        ),
        (
            "(A) Cells. (B) Counts of cells. (C) Mass of cells. Means and errors are shown in (B) and (C).",
            [
                "",
                "A: Cells.",
                "B: Counts of cells.",
                "C: Mass of cells.",
                "B,C: Means and errors are shown in (B) and (C).",
                "",
            ],
        ),
        (
            "(a) Map of the gene; names as in Figure 1 (b) Whole embryos. (c) Sections.",
            [
                "",
                "a: Map of the gene; names as in Figure 1",
                "b: Whole embryos.",
                "c: Sections.",
                "",
            ],
        ),
        (
            "Reliability of voxels. A & B area V1 (entire area); C & D area MT.",
            ["Reliability of voxels.", "A,B: area V1 (entire area)", "C,D: area MT.", ""],
        ),
        (
            "Mobility of two proteins. Data in (A) are from the first, while (B) shows the second.",
            [
                "Mobility of two proteins. Data in",
                "A: are from the first",
                "B: shows the second.",
                "",
            ],
        ),
        (
            "Volumes for (a1) (a2) the first film and (b1) (b2) the second film.",
            ["Volumes for", "a1,a2: the first film", "b1,b2: the second film.", ""],
        ),
        (
            "(a,b). Tumour of a woman. a First scan of the abdomen. b Second scan of the abdomen.",
            [
                "(a,b). Tumour of a woman.",
                "a: First scan of the abdomen.",
                "b: Second scan of the abdomen.",
                "",
            ],
        ),
        (
            "(A) Splicing assay. The same colours are used throughout this figure. (B) Survival assay. Arrows as described in (A).",
            [
                "",
                "A: Splicing assay. The same colours are used throughout this figure.",
                "B: Survival assay. Arrows as described in (A).",
                "",
            ],
        ),
        (
            "Wild-type (A, C) and mutant (B, D) retina. Embryos in panels A and B face left.",
            [
                "",
                "A,C: Wild-type",
                "B,D: mutant",
                "A,C,B,D: retina.",
                "A,B: Embryos in panels A and B face left.",
                "",
            ],
        ),
        (
            "Retina (A) and cornea (B) of mice. The arrow in B points to a lesion (dot in A). Note the pupil.",
            [
                "",
                "A: Retina",
                "B: cornea",
                "A,B: of mice.",
                "B: The arrow in B points to a lesion (dot in A).",
                "Note the pupil.",
            ],
        ),
        (
            "The model is drawn both (A) as a net of genes and (B) as one of the sums.",
            ["The model is drawn both", "A: as a net of genes", "B: as one of the sums.", ""],
        ),
        (
            "(A) Heart of type B mice. (B) Heart of group A mice.",
            ["", "A: Heart of type B mice.", "B: Heart of group A mice.", ""],
        ),
        (
            "Spores. a–c sporangia: a ovoid, b round, c flat; d oogonium; e antheridium.",
            [
                *("Spores.", "a,b,c: sporangia", "a: ovoid", "b: round", "c: flat"),
                *("d: oogonium", "e: antheridium.", ""),
            ],
        ),
        (
            "a Sketch of the cell. (b) Spectrum of the cell. c Model of both, d Residuals",
            [
                "",
                "a: Sketch of the cell.",
                "b: Spectrum of the cell.",
                "c: Model of both",
                "d: Residuals",
                "",
            ],
        ),
        (
            "(أ) الصورة الأولى. (ب) الصورة الثانية.",
            ["", "أ: الصورة الأولى.", "ب: الصورة الثانية.", ""],
        ),
    ],
)
def test_a_caption_in_several_styles(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        # A name with a digit is no number,
        ("Staining for p53 (A) and 53BP1 (B).", ["Staining for", "A: p53", "B: 53BP1", ""]),
        # nor is the verb of one item, or of a clause about it, that of all items.
        (
            "(A) Plot and (B) terms that are enriched. (C) Blot.",
            ["", "A: Plot", "B: terms that are enriched.", "C: Blot.", ""],
        ),
        (
            "(A) Mice were weighed and (B) tumors were measured. (C) Blot.",
            ["", "A: Mice were weighed", "B: tumors were measured.", "C: Blot.", ""],
        ),
        (
            "(A) Flow chart and (B) number of patients. (C) Blot.",
            ["", "A: Flow chart", "B: number of patients.", "C: Blot.", ""],
        ),
        (
            "(A) Cells fixed, then (B) stained with dye. (C) Blot.",
            ["", "A: Cells fixed, then", "B: stained with dye.", "C: Blot.", ""],
        ),
        # A species and a kind of cell are no panels;
        (
            "(A) Map. (B) Blot. In C. elegans, it is low. (C) Plot.",
            ["", "A: Map.", "B: Blot. In C. elegans, it is low.", "C: Plot.", ""],
        ),
        (
            "(A) Map. (B) Blot. In A cells, it is low. (C) Plot.",
            ["", "A: Map.", "B: Blot. In A cells, it is low.", "C: Plot.", ""],
        ),
        # a member's scale bar is not that of its group, and what images show is not said of all.
        (
            "(A,B) Cells. (A) At rest. Bar, 5 µm. (B) Moved. Bar, 9 µm. (C) Blot.",
            ["", "A,B: Cells.", "A: At rest. Bar, 5 µm.", "B: Moved. Bar, 9 µm.", "C: Blot.", ""],
        ),
        (
            "(A) Map. (B) TEM of livers. The images show mitochondria.",
            ["", "A: Map.", "B: TEM of livers. The images show mitochondria.", ""],
        ),
    ],
)
def test_what_only_looks_like_it_is_of_several_labels(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected
