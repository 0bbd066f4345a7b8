"""Which credits withhold a figure, and which texts are none."""

import pytest

from biovl.articles.credits import is_legend, is_of_others


@pytest.mark.parametrize(
    ("caption", "of_others"),
    [
        ("Photograph published with permission of the parents.", False),
        ("Images are reproduced with permission from the patient.", False),
        ("Image used with written permission from the patient's family.", False),
        ("Photo used with permission of the patient and her parents.", False),
        ("From A to C, with permission of the participants.", False),
        ("Used with the kind permission of both legal guardians.", False),
        ("Reprinted with permission.", True),
        ("A kidney, with permission of the publisher.", True),
        ("Adapted from Figures 1 and S3 of Lee et al.", True),
        ("Modified from Fig. 2A.", False),
        ("The tree is adapted from De Boer et al.", True),
        ("The tree is adapted and redrawn from (D’Hont et al., 2008; Lee, 2015).", True),
        ("The map is adapted from Lee [41].", True),
        ("Flowchart, adapted from Lee ( 21 ).", True),
        ("The pathway is adapted from (37).", True),
        ("The pathway is modified from the study by Lee et al.", True),
        ("Illustrations by Ann Lee, 2017, included with permission.", True),
        ("Areas are taken from (A) and modified from Day (1).", False),
        ("Biopsies were taken from the RUL and LLL.", False),
        ("Images were taken from the WT and KO mice.", False),
        ("Images were taken from WT (24) and KO (22) mice.", False),
        ("Copyright (2008) Society of Cells.", True),
        ("Cells, (c) 2008, the Society of Cells.", True),
        ("Map data (c) 2008–2012 Google.", True),
        ("Maps of (A) 2014, (B) 2015, (C) 2016 and 2017.", False),
        ("Yield in (a) 2014, (b) 2015, (c) 2016. Bars are SD.", False),
        ("Courtesy: A. Lee, Institute of Cells.", True),
        ("Leaf by courtesy, A.L. (co-author).", False),
        ("Reproduced with permission from Elsevier.", True),
        ("Reproduced with permission of the patient and the publisher.", True),
        ("Photo used with permission of the Family Archive.", True),
        ("Images of the patient, used with permission from the journal.", True),
        ("Photo of the parents. Reprinted with permission from [12].", True),
    ],
)
def test_the_permission_of_a_patient_is_no_credit(caption: str, of_others: bool) -> None:
    assert is_of_others(caption, None) is of_others


@pytest.mark.parametrize(
    ("caption", "of_others"),
    [
        ("Photo credit: Wenmei He.", False),
        ("Leaves. Photos by M. Luna de Oliveira and He W. (B) Roots.", False),
        ("Image courtesy of Dr. Márcia L. de Oliveira.", False),
        ("Photo credit: Weimin Li.", True),
        ("Photo credit: Li He.", True),
        ("Photos by Wenmei He and Ann Lee.", True),
        ("Photo: Gray Herbarium of Harvard University.", True),
        ("Pictures taken by Ann Lee.", True),
        ("Photo by AL. Photo: WH; illustrations by the authors.", False),
        ("Photographs were taken by Canon EOS 600D. Drawings by Adobe Illustrator CS6.", False),
        ("Data reproduced from Fig 2 for clarity.", False),
        ("Reproduced from Figs. 1–4 from Ref. [23].", True),
        ("Reprinted from Fig. 1 of Ann Lee.", True),
    ],
)
def test_a_photographer_is_a_third_party_unless_an_author(caption: str, of_others: bool) -> None:
    assert is_of_others(caption, None, ["Wenmei He", "Márcia Luna de Oliveira"]) is of_others


def test_photographers_are_not_considered_where_authors_are_unknown() -> None:
    assert not is_of_others("Photo by Ann Lee.", None)
    assert is_of_others("Photo credit: Ann Lee.", None)


@pytest.mark.parametrize(
    ("credit", "of_others"),
    [
        ("Source: own calculations.", False),
        ("Source: The authors.", False),
        ("Source: Authors' own elaboration", False),
        ("Fonte: Dados da pesquisa (2022).", False),
        ("Fonte: os autores", False),
        ("Fonte: Elaborado pelos autores, 2020.", False),
        ("Fuente: elaboración propia.", False),
        ("Fonte: Arquivo pessoal", False),
        ("Fonte: os autores.\nSource: the authors.", False),
        ("Fonte: os autores.\n© 2020 Elsevier", True),
        ("Source: Own calculations with data from NBS (2024).", True),
        ("Source: NBS (2024).", True),
        ("Fonte: IBGE", True),
        ("J. Smith", True),
    ],
)
def test_the_authors_themselves_are_no_third_party(credit: str, of_others: bool) -> None:
    assert is_of_others("A map.", credit) is of_others


@pytest.mark.parametrize(
    ("attribution", "legend"),
    [
        ("(A) Scheme of cells in growth medium. (B) Oil Red O staining. Scale bar = 100 μm.", True),
        ("Reprinted from the first part of this study of cells, which grew in a medium.", False),
        (
            "Fotografia de células em cultura, com meio de crescimento; foto: J. Silva, São Paulo.",
            False,
        ),
        ("Image credit: Cheng-Lin Li.", False),
        ("Abbreviation: CT, computed tomography.", True),
        ("Note: Photo by A. Lee.", False),
        ("Dr. J. Smith, Department of Pathology", False),
    ],
)
def test_an_attribution_without_words_of_credit_is_a_legend(attribution: str, legend: bool) -> None:
    assert is_legend(attribution) is legend
