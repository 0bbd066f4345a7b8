"""Captions whose labels stand before their text."""

import pytest

from biovl.articles.subcaptions.splitting import split_caption
from tests.articles.subcaptions.cases import read


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "Mouse lungs. (A) Axial CT. (B) Coronal CT.",
            ["Mouse lungs.", "A: Axial CT.", "B: Coronal CT.", ""],
        ),
        (
            "Mouse lungs. (a) Axial CT; (b) coronal CT; and (c) volume rendering. Scale bars, 1 cm.",
            [
                "Mouse lungs.",
                "a: Axial CT",
                "b: coronal CT",
                "c: volume rendering.",
                "Scale bars, 1 cm.",
            ],
        ),
        (
            "Mouse lungs. [a] Axial CT. [b] Coronal CT.",
            ["Mouse lungs.", "a: Axial CT.", "b: Coronal CT.", ""],
        ),
        (
            "(A): Weight (g); (B): Length (cm); (C): Age at death (d). Values are means ± SD.",
            [
                "",
                "A: Weight (g)",
                "B: Length (cm)",
                "C: Age at death (d).",
                "Values are means ± SD.",
            ],
        ),
        # Where panels have sentences of their own, the last one has, too.
        (
            "Reporter assays. (A) Constructs. Boxes are exons. (B) Luciferase activity. Bars show "
            "the activity of plasmids with each promoter.",
            [
                "Reporter assays.",
                "A: Constructs. Boxes are exons.",
                "B: Luciferase activity. Bars show the activity of plasmids with each promoter.",
                "",
            ],
        ),
        (
            "Growth. (A) Weight by day. *P < 0.05. (B) Length by day. ** P = 0.004.",
            ["Growth.", "A: Weight by day. *P < 0.05.", "B: Length by day. ** P = 0.004.", ""],
        ),
        (
            "Growth. (A) Weight by day. (B) Length by day. ** P = 0.004.",
            ["Growth.", "A: Weight by day.", "B: Length by day.", "** P = 0.004."],
        ),
        (
            "Strains. (A) Tree. (B) Insertions. Figure 4—source data 1. Coordinates of insertions.",
            [
                "Strains.",
                "A: Tree.",
                "B: Insertions.",
                "Figure 4—source data 1. Coordinates of insertions.",
            ],
        ),
        (
            "(A)— Skull from above. (B)— Skull from below.",
            ["", "A: Skull from above.", "B: Skull from below.", ""],
        ),
        (
            "A) Survival of treated mice. B) Weight of treated mice over 12 weeks.",
            ["", "A: Survival of treated mice.", "B: Weight of treated mice over 12 weeks.", ""],
        ),
        (
            "Kidney sections. a) Control; b) diabetic; c) diabetic with insulin.",
            ["Kidney sections.", "a: Control", "b: diabetic", "c: diabetic with insulin.", ""],
        ),
        (
            "Kidney sections. A. Control. B. Diabetic. C–E. Diabetic with insulin. F. Quantification.",
            [
                "Kidney sections.",
                "A: Control.",
                "B: Diabetic.",
                "C,D,E: Diabetic with insulin.",
                "F: Quantification.",
                "",
            ],
        ),
        (
            "Kidney sections. A, control animals. B, diabetic animals. C, diabetic animals with insulin.",
            [
                "Kidney sections.",
                "A: control animals.",
                "B: diabetic animals.",
                "C: diabetic animals with insulin.",
                "",
            ],
        ),
        (
            "Kidney sections. A: control; B: diabetic; C: diabetic with insulin.",
            ["Kidney sections.", "A: control", "B: diabetic", "C: diabetic with insulin.", ""],
        ),
        (
            "Kidney sections. A = control. B = diabetic.",
            ["Kidney sections.", "A: control.", "B: diabetic.", ""],
        ),
        (
            "Kidney sections. a Control animals at week 4. b Diabetic animals at week 4. c Both at week 8",
            [
                "Kidney sections.",
                "a: Control animals at week 4.",
                "b: Diabetic animals at week 4.",
                "c: Both at week 8",
                "",
            ],
        ),
        (
            "A Map of the study area. B Rainfall over ten years.",
            ["", "A: Map of the study area.", "B: Rainfall over ten years.", ""],
        ),
        (
            "a-c Control embryos at day 9. d-f Mutant embryos at day 9",
            ["", "a,b,c: Control embryos at day 9.", "d,e,f: Mutant embryos at day 9", ""],
        ),
        (
            "Retinal scans. Panel A: left eye. Panel B: right eye.",
            ["Retinal scans.", "A: left eye.", "B: right eye.", ""],
        ),
        (
            "Retinal scans. Panels A and B show the left eye. Panels C and D show the right eye.",
            ["Retinal scans.", "A,B: show the left eye.", "C,D: show the right eye.", ""],
        ),
        (
            "Retinal scans. (A,B) Left eye. (C,D) Right eye.",
            ["Retinal scans.", "A,B: Left eye.", "C,D: Right eye.", ""],
        ),
        (
            "Retinal scans. (A and B) Left eye. (C to E) Right eye.",
            ["Retinal scans.", "A,B: Left eye.", "C,D,E: Right eye.", ""],
        ),
        (
            "Retinal scans. (A–C) Left eye. (D) Right eye.",
            ["Retinal scans.", "A,B,C: Left eye.", "D: Right eye.", ""],
        ),
        (
            "Retinal scans. (A)–(C) Left eye. (D) and (E) Right eye.",
            ["Retinal scans.", "A,B,C: Left eye.", "D,E: Right eye.", ""],
        ),
        (
            "(A1) Raw image. (A2) Filtered image. (B) Histogram of both.",
            ["", "A1: Raw image.", "A2: Filtered image.", "B: Histogram of both.", ""],
        ),
        (
            "Spectra. (A1–D1) Before heating. (A2–D2) After heating.",
            ["Spectra.", "A1,B1,C1,D1: Before heating.", "A2,B2,C2,D2: After heating.", ""],
        ),
        (
            "Western blots of liver.A) Control liver. B) Treated liver.",
            ["Western blots of liver.", "A: Control liver.", "B: Treated liver.", ""],
        ),
        (
            "Western blots. (A) Control liver. (B Treated liver. (C) Loading control.",
            ["Western blots.", "A: Control liver. (B Treated liver.", "C: Loading control.", ""],
        ),
        (
            "Male genitalia: A lateral view B dorsal view C ventral view.",
            ["Male genitalia:", "A: lateral view", "B: dorsal view", "C: ventral view.", ""],
        ),
        (
            "Beetle larva. Head 3A from above 3B from below 3C in profile.",
            ["Beetle larva. Head", "A: from above", "B: from below", "C: in profile.", ""],
        ),
        (
            "T2-weighted MRI (a axial view, b coronal view, c sagittal view) of a tumour.",
            [
                "T2-weighted MRI",
                "a: axial view",
                "b: coronal view",
                "c: sagittal view) of a tumour.",
                "",
            ],
        ),
        (
            "Crystal structures of a) the native enzyme and b) its mutant.",
            ["Crystal structures of", "a: the native enzyme", "b: its mutant.", ""],
        ),
        (
            "Decay of (A) gamma rays, (B) beta rays, and (C) neutrons.",
            ["Decay of", "A: gamma rays", "B: beta rays", "C: neutrons.", ""],
        ),
        (
            "Growth at temperatures of (a) 4 °C, (b) 20 °C and (c) 37 °C. Bars show SEM.",
            ["Growth at temperatures of", "a: 4 °C", "b: 20 °C", "c: 37 °C.", "Bars show SEM."],
        ),
        (
            "(I) Photographs of wounds stained for collagen at day 3. (II) Photographs of wounds stained for elastin at day 3. (III) Wounds at day 9.",
            [
                "",
                "I: Photographs of wounds stained for collagen at day 3.",
                "II: Photographs of wounds stained for elastin at day 3.",
                "III: Wounds at day 9.",
                "",
            ],
        ),
        (
            "Fish hearts. (A) Ventricle. (B) Atrium. (C) Valve. (D) Aorta. (E) Gill. (F) Vein. (G) Sinus. (H) Pericardium. (I) Heart rate.",
            [
                "Fish hearts.",
                "A: Ventricle.",
                "B: Atrium.",
                "C: Valve.",
                "D: Aorta.",
                "E: Gill.",
                "F: Vein.",
                "G: Sinus.",
                "H: Pericardium.",
                "I: Heart rate.",
                "",
            ],
        ),
        (
            "Fig. 2: (A) Growth of oat. (B) Growth of rye.",
            ["Fig. 2:", "A: Growth of oat.", "B: Growth of rye.", ""],
        ),
    ],
)
def test_a_label_before_its_text(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "Drying of leaves at (a) 50 °C and (b) 60 °C. Reduction of mass is given as mean.",
            ["Drying of leaves at", "a: 50 °C", "b: 60 °C.", "Reduction of mass is given as mean."],
        ),
        (
            "Copper content of (a) the leaf, and (b) the root, measured by spectrometry.",
            ["Copper content of", "a: the leaf", "b: the root", "measured by spectrometry."],
        ),
        *(
            (f"Growth. (A) Wheat. (B) Rye. {last}", ["Growth.", "A: Wheat.", "B: Rye.", last])
            for last in (
                "(For interpretation of the colours, see the web version.)",
                "OS old seeds, YS young seeds",
                "NT, non-treated.",
                "I bars denote 95% confidence intervals.",
                "Created with BioRender.com.",
                "Uncropped blots are shown in the supplement.",
                "Three biological replicates were performed.",
                "Dashed lines represent medians.",
                "H&E, ×100.",
                "H&E; scale bar = 50 μm.",
                "Notes: n = 6 per field.",
                "Five plants per group were used.",
                "Vertical bars represent standard errors.",
                "aP < 0.05 vs control.",
                "ACoA, anterior coat area.",
                "Maps were created with ArcGIS.",
                "The experiment was repeated three times.",
                "C, cortex; X, xylem.",
                "Labels: C, cortex; X, xylem.",
                "Hematoxylin and eosin stain; original magnification, ×200.",
                "Levels of significant difference are indicated by stars.",
                "“*” denotes a difference from the control.",
                "Chromosomes were counterstained with DAPI (blue).",
                "The data underlying this figure are in S1 Data.",
                "The left column in each graph is the control.",
            )
        ),
        (
            "Roots. (A) Wheat stained with PAS. (B) Rye. H&E, ×100.",
            ["Roots.", "A: Wheat stained with PAS.", "B: Rye. H&E, ×100.", ""],
        ),
        (
            "(a) Wheat. Reprinted from [1]. (b) Rye. Adapted from [2].",
            ["", "a: Wheat. Reprinted from [1].", "b: Rye. Adapted from [2].", ""],
        ),
        (
            "Roots. (a) Wheat. The box is enlarged in (b). (b) Its tip. (c) Rye.",
            ["Roots.", "a: Wheat. The box is enlarged in (b).", "b: Its tip.", "c: Rye.", ""],
        ),
        (
            "(A) Tree. (B) Map. Symbols correspond to clades in (A).",
            ["", "A: Tree.", "B: Map. Symbols correspond to clades in (A).", ""],
        ),
        (
            "A beetle. A head, side view B wing C leg D egg. Bars: 1 mm (A, B); 2 mm (C, D).",
            [
                *("A beetle.", "A: head, side view", "B: wing", "C: leg", "D: egg."),
                "Bars: 1 mm (A, B); 2 mm (C, D).",
            ],
        ),
        (
            "Growth of cereals. Notes: (A) Wheat. (B) Rye.",
            ["Growth of cereals. Notes:", "A: Wheat.", "B: Rye.", ""],
        ),
        (
            "(A–C′) Chambers. (D) Counts.",
            ["", "A,B,C,C′: Chambers.", "D: Counts.", ""],
        ),
        (
            "Formulas of (A) wax, (B) resin; (C) chromatogram of both.",
            ["", "A,B: Formulas of", "A: wax", "B: resin", "C: chromatogram of both.", ""],
        ),
        (
            "Rats: (A) wild type, (B) mutant; (C) images of both.",
            ["Rats:", "A: wild type", "B: mutant", "C: images of both.", ""],
        ),
        (
            "A cyst. A. Radiograph. B. Section. C. Photomicrograph of it.",
            ["A cyst.", "A: Radiograph.", "B: Section.", "C: Photomicrograph of it.", ""],
        ),
        # A noun, no participle.
        (
            "(a) Mature leaf and (b) mature seed of wheat.",
            ["", "a: Mature leaf", "b: mature seed", "of wheat."],
        ),
        (
            "(A) Mice at birth. (B) Mice at weaning. In both panels, bars show the mean.",
            ["", "A: Mice at birth.", "B: Mice at weaning.", "In both panels, bars show the mean."],
        ),
        (
            "(A) Chromosomes of a male.\n(B) Chromosomes of a female.\nThe arrow is at one of them.",
            [
                "",
                "A: Chromosomes of a male.",
                "B: Chromosomes of a female.",
                "The arrow is at one of them.",
            ],
        ),
        (
            "Levels in rats. (A) Level after i.v. (2 mg/kg) dosing. (B) Level after p.o. (9 mg/kg) dosing. Each point represents the mean ± S.D. (n = 4).",
            [
                "Levels in rats.",
                "A: Level after i.v. (2 mg/kg) dosing.",
                "B: Level after p.o. (9 mg/kg) dosing.",
                "Each point represents the mean ± S.D. (n = 4).",
            ],
        ),
        (
            "Cyst of a knee. (A) Axial and (B) coronal MR images show a cyst. (C) Axial CT.",
            [
                "Cyst of a knee.",
                "A: Axial",
                "B: coronal",
                "A,B: MR images show a cyst.",
                "C: Axial CT.",
                "",
            ],
        ),
        (
            "Foxes of Wales. (A) Counts in 2015. (B) Locations of the dens. Base map from OpenStreetMap.",
            [
                "Foxes of Wales.",
                "A: Counts in 2015.",
                "B: Locations of the dens.",
                "Base map from OpenStreetMap.",
            ],
        ),
        (
            "(A) Light image. (B) Electron image. CL: cuticular layer, CW: cell wall. Bar 5 μm.",
            [
                "",
                "A: Light image.",
                "B: Electron image.",
                "CL: cuticular layer, CW: cell wall. Bar 5 μm.",
            ],
        ),
        (
            "(A) Roots. (B) Shoots. wt (−): untreated wild type, wt (+): treated wild type.",
            [
                "",
                "A: Roots.",
                "B: Shoots.",
                "wt (−): untreated wild type, wt (+): treated wild type.",
            ],
        ),
        (
            "a Plan of the edit. b Bands of the gel. RNP ribonucleoprotein, GUS β-glucuronidase",
            [
                "",
                "a: Plan of the edit.",
                "b: Bands of the gel.",
                "RNP ribonucleoprotein, GUS β-glucuronidase",
            ],
        ),
        (
            "(A) Gene. (B) Protein. ET EIGs, ethylene-induced genes; ET, ethylene vs. air.",
            [
                "",
                "A: Gene.",
                "B: Protein.",
                "ET EIGs, ethylene-induced genes; ET, ethylene vs. air.",
            ],
        ),
        (
            "(A) Mass. (B) Height. YFP, yellow fluorescent protein. Asterisks: P < 0.05.",
            ["", "A: Mass.", "B: Height.", "YFP, yellow fluorescent protein. Asterisks: P < 0.05."],
        ),
        (
            "(A) Mass. (B) Height of plants. ∗∗ differs from controls.",
            ["", "A: Mass.", "B: Height of plants.", "∗∗ differs from controls."],
        ),
        (
            "(A) Mass. (B) Height of plants. NB: plants were watered daily.",
            ["", "A: Mass.", "B: Height of plants.", "NB: plants were watered daily."],
        ),
        (
            "(A) Roots. (B) Shoots of plants. Top: control, bottom: drought.",
            ["", "A: Roots.", "B: Shoots of plants. Top: control, bottom: drought.", ""],
        ),
        (
            "(A) Azan stain. (B) Silver stain. Note that blue is collagen; (C) density and (D) "
            "height were measured.",
            [
                "",
                "A: Azan stain.",
                "B: Silver stain. Note that blue is collagen",
                "C: density",
                "D: height",
                "C,D: were measured.",
                "",
            ],
        ),
        (
            "Frogs. (A) Male from a road (89 m elev.); (B) Female without tadpoles. Note the large "
            "yolk reserves of these; (C) a male at a pool; (D) dorsal and ventral views of tadpoles.",
            [
                "Frogs.",
                "A: Male from a road (89 m elev.)",
                "B: Female without tadpoles. Note the large yolk reserves of these",
                "C: a male at a pool",
                "D: dorsal and ventral views of tadpoles.",
                "",
            ],
        ),
        # A sentence about all, although one behind it is about some.
        (
            "(A) Rice in 2016. (B) Weight of grains. Data are means ± SD. Arrows in (A) mark awns.",
            [
                *("", "A: Rice in 2016.", "B: Weight of grains."),
                *("A,B: Data are means ± SD.", "A: Arrows in (A) mark awns.", ""),
            ],
        ),
        (
            "(A) Roots. Magnification: 10X. (B) Shoots. Magnification: 63X.",
            ["", "A: Roots. Magnification: 10X.", "B: Shoots. Magnification: 63X.", ""],
        ),
        # Not "n:" of "Magnification:", but "n=" of "n=3".
        (
            "(A) Roots. Magnification: 10X. (B) Shoots. n: number of plants; P: level of significance.",
            [
                *("", "A: Roots. Magnification: 10X.", "B: Shoots."),
                "n: number of plants; P: level of significance.",
            ],
        ),
        (
            "(A) ALT. n=3 mice per group. (B) AST. n=5 mice per group. Insets in (A) show cells.",
            [
                *("", "A: ALT. n=3 mice per group.", "B: AST. n=5 mice per group."),
                *("A: Insets in (A) show cells.", ""),
            ],
        ),
    ],
)
def test_what_follows_the_last_panel_is_its_own_or_all_of_theirs(
    caption: str, expected: list[str]
) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "(A) Rates of cells. (B) Rates of all. Medians are given as in panel (A). (C) Controls.",
            [
                "",
                "A: Rates of cells.",
                "B: Rates of all. Medians are given as in panel (A).",
                "C: Controls.",
                "",
            ],
        ),
        (
            "(A) Map. Fragments of BamHI [B] and EcoRI [E] are shown. (B) Southern blot.",
            [
                "",
                "A: Map. Fragments of BamHI [B] and EcoRI [E] are shown.",
                "B: Southern blot.",
                "",
            ],
        ),
        (
            "(i) Heart. (ii) Lung. iii. Liver. iv. Kidney.",
            ["", "i: Heart.", "ii: Lung.", "iii: Liver.", "iv: Kidney.", ""],
        ),
        (
            "(A) Heart. (B) Lung. C. E. coli colonies. (D) Kidneys.",
            ["", "A: Heart.", "B: Lung.", "C: E. coli colonies.", "D: Kidneys.", ""],
        ),
        # Abbreviations and initials in another style than the labels.
        (
            "Films. (A) Growth. (B) Wells. T: Treated, C: Control.",
            ["Films.", "A: Growth.", "B: Wells.", "T: Treated, C: Control."],
        ),
        (
            "Cress. (A) In a ditch. (B) Its edible part. Author: C. Guijarro-Real",
            [
                *("Cress.", "A: In a ditch."),
                *("B: Its edible part. Author: C. Guijarro-Real", ""),
            ],
        ),
        (
            "(A) Growth at 20 °C. (B) Gas exchange. Cond, conductance; Ci, intercellular CO2.",
            [
                *("", "A: Growth at 20 °C."),
                *("B: Gas exchange.", "Cond, conductance; Ci, intercellular CO2."),
            ],
        ),
        (
            "(A) Map. (B) Clones. L, N, and C indicate the whole protein and its ends.",
            ["", "A: Map.", "B: Clones. L, N, and C indicate the whole protein and its ends.", ""],
        ),
        # In a gap of the alphabet, the same is a label.
        (
            "Amounts of (a) zinc, b: iron, and (c) lead were given.",
            ["Amounts of", "a: zinc", "b: iron", "c: lead", "were given."],
        ),
    ],
)
def test_letters_that_are_no_labels_begin_no_panel(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "EDX spectrum of both alloys: (A) Raw spectrum. (B) Fitted spectrum.",
            ["EDX spectrum of both alloys:", "A: Raw spectrum.", "B: Fitted spectrum.", ""],
        ),
        (
            "Growth of cells. Related to Figure 1\n(A) Mass of cells. (B) Height of cells.",
            [
                "Growth of cells. Related to Figure 1",
                "A: Mass of cells.",
                "B: Height of cells.",
                "",
            ],
        ),
        (
            "Views of the mantle: control larva (A); treated larva (B).",
            ["Views of the mantle:", "A: control larva", "B: treated larva", ""],
        ),
        (
            "Trajectories obtained by tracking (a) animal ID 1 (b) animal ID 2 (c) animal ID 3.",
            [
                "Trajectories obtained by tracking",
                "a: animal ID 1",
                "b: animal ID 2",
                "c: animal ID 3.",
                "",
            ],
        ),
    ],
)
def test_what_precedes_the_first_label_is_about_all(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "a. Thalos, b. Athos, c. Fathos.",
            ["", "a: Thalos", "b: Athos", "c: Fathos.", ""],
        ),
        (
            "Canal 1 (A), seen from the side; canal 2 (B), seen from above.",
            ["", "A: Canal 1 seen from the side", "B: canal 2 seen from above.", ""],
        ),
        (
            "Leaf (A) (bar = 1 cm), stem (B) (bar = 2 cm), and root (C).",
            ["", "A: Leaf (bar = 1 cm)", "B: stem (bar = 2 cm)", "C: root", ""],
        ),
        (
            "(A) Control; (B) specimen No. 1 with toxin; (C) specimen No. 8 without.",
            ["", "A: Control", "B: specimen No. 1 with toxin", "C: specimen No. 8 without.", ""],
        ),
        (
            "Leaves of Pinus krempfii (Lec.) Chang (A) and cones of Pinus strobus (B).",
            ["", "A: Leaves of Pinus krempfii (Lec.) Chang", "B: cones of Pinus strobus", ""],
        ),
    ],
)
def test_stops_within_an_item_do_not_end_it(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "Larvae exposed to (A) 0, (B) 0.5 and (C) 2.0 mg of zinc.",
            ["Larvae exposed to", "A: 0", "B: 0.5", "C: 2.0", "mg of zinc."],
        ),
        (
            "(A) Mass, (B) height, and (C) area of the longest leaf of each were measured at noon.",
            [
                "",
                "A: Mass",
                "B: height",
                "C: area",
                "of the longest leaf of each were measured at noon.",
            ],
        ),
        (
            "(a) Mice. (b) Rats. (c) Dogs. For both panels b and c, bars are means.",
            [
                "",
                "a: Mice.",
                "b: Rats.",
                "c: Dogs.",
                "b,c: For both panels b and c, bars are means.",
                "",
            ],
        ),
        (
            "(A) Leaf extract. (B) Particles. AgNP indicates silver nanoparticle.",
            ["", "A: Leaf extract.", "B: Particles.", "AgNP indicates silver nanoparticle."],
        ),
        (
            "(A) Mass of men. (B) Mass of women. (C) Mass of all. Both the mass and its square "
            "are significant at the level of .01 in (A) and at that of .05 in (C).",
            [
                "",
                "A: Mass of men.",
                "B: Mass of women.",
                "C: Mass of all.",
                "A,C: Both the mass and its square are significant at the level of .01 in (A) and "
                "at that of .05 in (C).",
                "",
            ],
        ),
    ],
)
def test_what_several_items_share_is_about_each(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "(A) Motifs of proteins. (B) Exons of genes. The tree in both figures is of MEGA.",
            [
                "",
                "A: Motifs of proteins.",
                "B: Exons of genes.",
                "The tree in both figures is of MEGA.",
            ],
        ),
        (
            "(A) Cells. (B) Extracts of cells. All assays were repeated three times.",
            ["", "A: Cells.", "B: Extracts of cells.", "All assays were repeated three times."],
        ),
        (
            "(A) Mass. (B) Height of mice (n = 6); ∗p < .05 vs. vehicle; #p < .05 vs. sham.",
            [
                "",
                "A: Mass.",
                "B: Height of mice (n = 6)",
                "∗p < .05 vs. vehicle; #p < .05 vs. sham.",
            ],
        ),
        (
            "(A) Leaves at 1.5 m; (B) at 2.0 m; LT: tillering stage; JT: jointing stage.",
            ["", "A: Leaves at 1.5 m", "B: at 2.0 m", "LT: tillering stage; JT: jointing stage."],
        ),
        (
            "(A) Roots. (B) Shoots of plants. CK: water was sprayed. IAA: a hormone was sprayed.",
            [
                "",
                "A: Roots.",
                "B: Shoots of plants.",
                "CK: water was sprayed. IAA: a hormone was sprayed.",
            ],
        ),
        # A key that has begun, and a bracket, are not ended by a semicolon.
        (
            "(A) Rats. (B) Dogs of both kinds (HM, managed; CP, treated with CP; CK, control).",
            [
                "",
                "A: Rats.",
                "B: Dogs of both kinds (HM, managed; CP, treated with CP; CK, control).",
                "",
            ],
        ),
        # Each panel has its own scale and its own signs of significance.
        (
            "(A) Root. Scale bar, 1 mm. *, p < .02 versus controls. (B) Shoot. Bars = 5 mm. #, p < .05.",
            [
                "",
                "A: Root. Scale bar, 1 mm. *, p < .02 versus controls.",
                "B: Shoot. Bars = 5 mm. #, p < .05.",
                "",
            ],
        ),
        (
            "(A) Bands after 12 min; lane 1 of (B) represents the marker, lane 2 the samples.",
            [
                "",
                "A: Bands after 12 min",
                "B: lane 1 of",
                "B: represents the marker, lane 2 the samples.",
                "",
            ],
        ),
        (
            "(A) Yield. (B) Mass. The significance of differences is shown by *(P ≤ 0.05).",
            [
                "",
                "A: Yield.",
                "B: Mass.",
                "The significance of differences is shown by *(P ≤ 0.05).",
            ],
        ),
        (
            "(A) Roots in June. (B) Height. The others are the same as in Figure 2.",
            ["", "A: Roots in June.", "B: Height.", "The others are the same as in Figure 2."],
        ),
    ],
)
def test_keys_and_statistics_end_the_last_item(caption: str, expected: list[str]) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "Mass. (A) Rice. (B) Oat. (C) Rye. Plants grew at 20 °C.",
            ["Mass.", "A: Rice.", "B: Oat.", "C: Rye.", "Plants grew at 20 °C."],
        ),
        # Panels that begin alike may be long, or two.
        (
            "(A) Levels of iron in the leaves of young rice plants. "
            "(B) Levels of zinc in the roots of old oat plants. Actin served as a control.",
            [
                "",
                "A: Levels of iron in the leaves of young rice plants.",
                "B: Levels of zinc in the roots of old oat plants.",
                "Actin served as a control.",
            ],
        ),
    ],
)
def test_text_behind_panels_of_one_short_sentence_is_about_all(
    caption: str, expected: list[str]
) -> None:
    assert read(caption) == expected


@pytest.mark.parametrize(
    "last",
    [
        # Another panel has a second sentence, too;
        "(A) Rice. Plants were young. (B) Oat. (C) Rye. Plants grew at 20 °C.",
        # the sentence goes on about its panel;
        "(A) Rice. (B) Oat. (C) Rye. It grew at 20 °C.",
        # long panels differ, and each has words of its own;
        "(A) Map of all fields in the north. (B) Mass of rice at the end of each year of the study. "
        "(C) Tree of all species that grew in one of the fields. Branches have lengths.",
        # the last label is without text.
        "(A) Rice. (B) Oat. (C). Plants grew at 20 °C.",
    ],
)
def test_text_behind_the_last_panel_is_about_it(last: str) -> None:
    split = split_caption(last)
    assert split.trailing == ""
    assert split.parts[-1].text.endswith((".", "°C."))


def test_text_behind_the_members_of_a_group_is_about_the_group() -> None:
    caption = (
        "(A,B) Growth of (A) rice and (B) oat. (C,D) Growth of (C) rye and (D) teff. See Table S1."
    )
    assert read(caption)[-2:] == ["C,D: See Table S1.", ""]


@pytest.mark.parametrize(
    "caption",
    [
        "The mesh of the model. The dashed line in (b) shows the path of the analysis.",
        "The vector. LB, left border; P, promoter of the gene; RB, right border.",
        "Box plots are of all plants; lower and upper box limits are the quartiles.",
        "Bland-Altman plot. The middle line is the mean; upper and lower lines indicate 1.96 SD.",
        "Maps. For each chromosome, left and right vertical lines indicate both maps, respectively.",
    ],
)
def test_references_and_borders_are_no_panels(caption: str) -> None:
    assert split_caption(caption).parts == ()
