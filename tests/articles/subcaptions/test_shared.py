"""What the items of a list of panels share, and how sure that is."""

import pytest

from biovl.articles.subcaptions.evidence import WEIGHTS
from biovl.articles.subcaptions.shared import chances, end_of_head, heads, start_of_tail, tails
from biovl.articles.subcaptions.splitting import split_caption


@pytest.mark.parametrize(
    ("text", "others", "item"),
    [
        ("Sections of liver ", [" and lung "], "liver "),
        ("Comparison of the morphology of the parents ", [" and the hybrids "], "the parents "),
        ("Distance of movements by truck ", [" and on foot "], "by truck "),
        ("Growth before ", [" and after "], "before "),
        ("Cells were stained with either DAPI ", [" or Hoechst "], "DAPI "),
        ("Photograph of the lesion ", [", dermoscopy "], "Photograph of the lesion "),
        ("Radiograph of the knee ", ["; histology of the lesion "], "Radiograph of the knee "),
        ("Liver ", [" and lung "], "Liver "),
        ("", [" and lung "], ""),
        ("Sections of liver ", [" "], "Sections of liver "),
    ],
)
def test_words_before_the_first_item_are_shared(text: str, others: list[str], item: str) -> None:
    cut = end_of_head(text, others)
    assert text[cut.at :] == item
    assert 0 < cut.chance <= 1


@pytest.mark.parametrize(
    ("others", "text", "tail"),
    [
        ([" Mass and "], " height of treated mice.", "of treated mice."),
        ([" Wet and "], " dry weight of roots in spring.", "weight of roots in spring."),
        ([" Map of the area and "], " photographs of treated mice.", ""),
        ([" Flow chart and "], " number of patients.", ""),
        ([" Plot and "], " terms that are enriched.", ""),
        ([" IL-2, ", " IL-6 and "], " TNF were measured.", "were measured."),
        ([" Mass and "], "", ""),
        ([" "], " height of mice", ""),
    ],
)
def test_words_behind_the_last_item_are_shared(others: list[str], text: str, tail: str) -> None:
    cut = start_of_tail(text, others)
    assert text[cut.at :] == tail
    assert 0 < cut.chance <= 1


@pytest.mark.parametrize("space", [" ", "\t", "\xa0", "\u2003"])
def test_other_white_space_is_no_word(space: str) -> None:
    for caption in (
        f"{space}Sections of liver (A) and lung (B).",
        f"Sections of liver ,{space}(A) and lung (B).",
        f"(A) Mass and (B) height,{space}",
        f"(A) Mass and (B){space}",
        f"Sections of{space}(A){space}and (B).",
    ):
        assert split_caption(caption).labels() in (("A", "B"), ())


def test_places_of_long_items_are_few_and_their_chances_add_up() -> None:
    text = "a word " * 10_000
    for cuts, weights in ((heads(text, [text]), "head"), (tails(text, [text]), "tail")):
        assert 2 < len(cuts) <= 61
        assert sum(chances(cuts, WEIGHTS[weights])) == pytest.approx(1)


def test_a_split_with_a_doubtful_cut_is_less_sure() -> None:
    sure = split_caption("Sections of liver (A) and lung (B).")
    doubtful = split_caption("Growth rates of those in cold rooms (A) and mass (B).")
    assert doubtful.labels() == sure.labels()
    assert doubtful.confidence < sure.confidence
