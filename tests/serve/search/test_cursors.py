import pytest

from serve.http.problems import Problem
from serve.search.cursors import Cursors, hash_of
from serve.search.messages import SearchRequest

CURSORS = Cursors(lambda: b"of all replicas")


def test_a_cursor_says_where_the_next_page_begins() -> None:
    text = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    assert CURSORS.read(text, "query") == (40, "bbbbbbbbbbbb")
    assert Cursors(lambda: b"of all replicas").read(text, "query") == (40, "bbbbbbbbbbbb")


def test_a_cursor_changed_in_any_letter_is_refused() -> None:
    text = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    for place, letter in enumerate(text):
        other = "A" if letter != "A" else "B"
        with pytest.raises(Problem) as refused:
            CURSORS.read(text[:place] + other + text[place + 1 :], "query")
        assert (refused.value.status, refused.value.slug) == (422, "bad-cursor")


def test_a_cursor_has_one_spelling() -> None:
    # 16 + 15 bytes: the last of 42 letters carries four bits that decode to nothing.
    text = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spellings = [text[:-1] + letter for letter in letters]
    accepted = [spelling for spelling in spellings if _reads(spelling)]
    assert accepted == [text]


def _reads(text: str) -> bool:
    try:
        CURSORS.read(text, "query")
    except Problem:
        return False
    return True


@pytest.mark.parametrize(
    "text", ["", "x", "====", "é", "\ud800", "a" * 100_000, "../../etc/passwd", "AAAA" * 10, "\0"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        CURSORS.read(text, "query")
    assert refused.value.slug == "bad-cursor"


def test_a_cursor_of_another_query_or_service_is_refused() -> None:
    text = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    assert not _reads(CURSORS.make(40, "bbbbbbbbbbbb", "another"))
    with pytest.raises(Problem):
        Cursors(lambda: b"another service").read(text, "query")


def test_a_cursor_of_another_index_is_stale() -> None:
    text = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    with pytest.raises(Problem) as stale:
        CURSORS.read(text, "query", index_version="cccccccccccc")
    assert (stale.value.status, stale.value.slug) == (410, "stale-cursor")


def test_a_cursor_holds_nothing_of_the_query() -> None:
    one = CURSORS.make(40, "bbbbbbbbbbbb", "query")
    two = CURSORS.make(40, "bbbbbbbbbbbb", "another")
    # Only the 16 bytes of the signature differ, and they say nothing without the secret.
    assert one[22:] == two[22:]


def test_pages_of_a_query_may_differ_in_size_but_not_in_what_is_asked() -> None:
    asked = SearchRequest(text="pleural effusion", k=20)
    assert hash_of(asked) == hash_of(SearchRequest(text="pleural effusion", k=50, cursor="x"))
    assert hash_of(asked) != hash_of(SearchRequest(text="effusion", k=20))
    assert hash_of(asked) != hash_of(SearchRequest(text="pleural effusion", exact=True))
