"""Captions with their acronyms spelled out, once and never inside another name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biovl.annotate.longcap.expansion import acronyms_used, expand_acronyms
from biovl.articles.acronyms import Acronym
from tests.articles.acronym_cases import EXPANDED

KNOWN = [Acronym("CT", "computed tomography"), Acronym("MRI", "magnetic resonance imaging")]


@pytest.mark.parametrize(
    ("caption", "acronyms", "wanted"), EXPANDED, ids=[case[0] for case in EXPANDED]
)
def test_an_acronym_is_spelled_out_where_it_is_first_used(
    caption: str, acronyms: dict[str, str], wanted: str
) -> None:
    known = [Acronym(short, long) for short, long in acronyms.items()]
    assert expand_acronyms(caption, known) == wanted


@given(st.lists(st.sampled_from(["CT", "MRI", "CTs", "of", "the", "(CT)", ".", "MRI-T1", "/"])))
def test_what_was_spelled_out_is_not_spelled_out_again(words: list[str]) -> None:
    once = expand_acronyms(" ".join(words), KNOWN)
    assert expand_acronyms(once, KNOWN) == once


def test_acronyms_that_a_text_uses_are_told() -> None:
    known = [*KNOWN, Acronym("PET", "positron emission tomography"), Acronym("AR", "aortic root")]
    assert [
        item.short for item in acronyms_used("PET/CT and MRI-guided biopsy of AR-V7.", known)
    ] == [
        "CT",
        "MRI",
        "PET",
    ]
