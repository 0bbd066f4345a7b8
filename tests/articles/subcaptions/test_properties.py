"""What holds of every caption, however odd."""

import re
import string
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from biovl.articles.subcaptions.markers import MOST, markers
from biovl.articles.subcaptions.splitting import LONGEST, SplitCaption, split_caption
from biovl.core.records import Span

_PIECES = [
    *("(A)", "(B)", "(C)", "(A, B)", "(C–E)", "A.", "B.", "a)", "b)", "Panel A", "C:", "a ", "(i)"),
    *("(left)", "(right)", "(n = 5)", "CT of the lung", "shows", "and", ",", ";", ". ", "\n", " "),
    *("Scale bars, 1 cm.", "The arrows in (A)", "μ", "（", "）", "(", ")", "[", "\u0301", "А", "أ"),
]
_CAPTIONS = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=30).map(" ".join),
    st.lists(st.sampled_from(_PIECES), max_size=30).map("".join),
    st.text(max_size=200),
)
_SPANS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 10)).map(lambda s: Span(s[0], s[0] + s[1])),
    max_size=5,
)


def covers(split: SplitCaption, caption: str) -> bool:
    """Return whether preamble, parts and trailing text are the caption, without a gap."""
    if not split.parts:
        return split.preamble == caption.strip()
    spans = [span for part in split.parts for span in part.spans]
    return (
        all(before.end == after.start for before, after in pairwise(spans))
        # Nor is a bracket that opens before the first one.
        and split.preamble == caption[: spans[0].start].strip().rstrip(" \n([（")
        # Punctuation that closes the last part is of no text.
        and split.trailing == caption[spans[-1].end :].strip().lstrip(") ,;").lstrip()
    )


@settings(max_examples=150, deadline=None)
@example("(A) (B) The arrows in (A) a  (A) , A.", [])
@given(_CAPTIONS, _SPANS)
def test_every_character_belongs_somewhere(caption: str, bold: list[Span]) -> None:
    split = split_caption(caption, bold=bold)
    assert covers(split, caption)
    assert 0 <= split.confidence <= 1
    assert all(part.labels for part in split.parts)


@settings(max_examples=60, deadline=None)
@given(_CAPTIONS)
def test_no_word_of_a_part_is_invented(caption: str) -> None:
    for part in split_caption(caption).parts:
        words = set(re.findall(r"\w+", caption[part.spans[0].start : part.spans[-1].end]))
        assert set(re.findall(r"\w+", part.text)) <= words


@pytest.mark.parametrize("space", [" ", "\n\n"])
def test_a_caption_may_begin_with_spaces(space: str) -> None:
    caption = f"{space}A femur B tibia C skull"
    assert split_caption(caption).labels() == ("A", "B", "C")
    assert covers(split_caption(caption), caption)


@settings(max_examples=50, deadline=None)
@given(_CAPTIONS, st.sets(st.sampled_from(string.ascii_letters)), st.sets(st.text(max_size=3)))
def test_any_hint_is_accepted(caption: str, cited: set[str], seen: set[str]) -> None:
    assert covers(split_caption(caption, cited=cited, seen=seen), caption)


@pytest.mark.parametrize("count", [2, 26])
def test_a_caption_may_have_as_many_panels_as_letters(count: int) -> None:
    letters = string.ascii_uppercase[:count]
    split = split_caption(" ".join(f"({letter}) View {letter}{letter}." for letter in letters))
    assert split.labels() == tuple(letters)


def test_fifty_panels_in_pairs() -> None:
    labels = [f"{letter}{number}" for letter in string.ascii_uppercase[:25] for number in (1, 2)]
    split = split_caption(" ".join(f"({label}) Section at level {label}x." for label in labels))
    assert split.labels() == tuple(labels)


@pytest.mark.parametrize(
    "unit",
    [
        *("(", ")", "(A) ", "A, ", "A,", "(A", "A. ", "a; b ", "left, right ", "A and B ", "and "),
        *("(A) x, (B) y; ", "A–", "panel A ", "A x B y C z ", "A" * 50, "\n", ". "),
    ],
)
def test_a_table_pasted_as_a_caption_stays_whole(unit: str) -> None:
    """Anything but linear time would not end."""
    caption = unit * (LONGEST // len(unit))
    assert covers(split_caption(caption), caption)


def test_a_text_of_megabytes_stays_whole() -> None:
    text = "(A) x, " * 1_000_000
    assert split_caption(text) == SplitCaption(text.strip(), (), "", None, 0.0)


def test_work_is_bounded_by_the_number_of_markers() -> None:
    assert markers("(A) x. " * MOST) == []
    few = "(A) Text. (B) Text, and more of it. " * 100
    assert 0 < len(markers(few)) <= MOST
    assert covers(split_caption(few), few)
