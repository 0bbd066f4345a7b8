"""The list of tables in the documentation is that of the data."""

from dataclasses import replace

import pytest

from benchmarks import reproduce
from biovl.chain.reproduce.papers import read_papers
from biovl.plan.steps import Cost, Planner

HOURS = 3
"""The column of the hours."""


def rows(markdown: str) -> list[list[str]]:
    """Return the cells of a table, line by line."""
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def on_the_page() -> list[list[str]]:
    found = reproduce.TABLES.search(reproduce.PAGE.read_text())
    assert found
    return rows(found[0])


def test_the_page_lists_the_tables_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # Hours of training are computed for some tables, below: each model takes seconds.
    monkeypatch.setattr(Planner, "pretrain", lambda _: Cost(job="pretrain", hours=1.0))
    listed, there = rows(reproduce.listing(read_papers())), on_the_page()
    assert [bool(row[HOURS]) for row in listed] == [bool(row[HOURS]) for row in there]
    for row in (*listed, *there):
        del row[HOURS]
    assert listed == there, "run benchmarks/reproduce.py docs"


def test_the_page_has_the_hours_of_tables() -> None:
    papers = read_papers()
    # One without training, and one whose models differ in nothing but their batches.
    names = ("biomedica_16", "biomedclip_s6")
    few = replace(papers, tables={name: papers.tables[name] for name in names})
    _, _, *listed = rows(reproduce.listing(few))
    there = [row for row in on_the_page() if row[0].strip("`") in names]
    assert sorted(listed) == sorted(there), "run benchmarks/reproduce.py docs"
