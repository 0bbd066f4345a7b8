"""The list of tables in the documentation is that of the data."""

from benchmarks import reproduce


def test_the_page_lists_the_tables_as_they_are() -> None:
    assert reproduce.page() == reproduce.PAGE.read_text(), "run benchmarks/reproduce.py docs"
