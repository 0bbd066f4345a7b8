"""Votes as CSV, and what the taxonomy makes of them."""

import csv
import io

import pytest

from biovl.concepts.taxonomy import load_taxonomy
from biovl.concepts.votes import (
    COLUMNS,
    ReviewVote,
    escape_formula,
    read_votes,
    validate_vote,
    write_votes,
)
from biovl.core.errors import ConfigError
from tests.concepts.ballots import PLOTS, vote

HEADER = ",".join(COLUMNS)
GOOD = "3,k3,ann,single,,Maps,map,false,2025-03-01T12:00:00Z"


def test_votes_come_back_as_they_were_written() -> None:
    votes = [
        vote("ann", "Maps/map, Tables", practice=True),
        vote('=a "b", c;\nd', "Maps", PLOTS, created=""),
        vote("'=quoted", ""),
        vote("''-5", "Maps", key="+1", created="2025-03-01T12:00:00.123456+02:00"),
        vote("Zoë", "Maps", cluster_id=2**31 - 1),
    ]
    assert read_votes(write_votes(votes)) == (votes, [])
    assert write_votes(read_votes(write_votes(votes))[0]) == write_votes(votes)


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@sum", "'=1", "\t=1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    (_, row) = csv.reader(io.StringIO(write_votes([vote(cell, "Maps")]).decode(), newline=""))
    assert row[2] == escape_formula(cell) == f"'{cell}"
    assert escape_formula("a=1") == "a=1"
    assert escape_formula("'quoted'") == "'quoted'"


def test_files_of_spreadsheets_are_read() -> None:
    text = f"\ufeffnotes,{HEADER}\r\nto do,{GOOD}\r\n\r\n,,,,,,,,,\r\n{'x' * 20_000},{GOOD}\r\n"
    votes, defects = read_votes(text.replace("false", "FALSE").encode())
    assert votes == [vote("ann", "Maps/map", cluster_id=3, key="k3")] * 2
    assert defects == []


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_first_line_of_excel_names_the_delimiter(delimiter: str) -> None:
    rows = (line.replace(",", delimiter) for line in (HEADER, GOOD, "x,,,"))
    votes, defects = read_votes("\r\n".join([f"sep={delimiter}", *rows]).encode())
    assert votes == [vote("ann", "Maps/map", cluster_id=3, key="k3")]
    assert defects == [(4, "4 cells, expected 9")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("3,k3", "2 cells, expected 9"),
        (GOOD + ",", "10 cells, expected 9"),
        (GOOD.replace("3,", "3.0,", 1), "cluster_id must be a whole number, got '3.0'"),
        (GOOD.replace("3,", "-1,", 1), "cluster_id must be a whole number"),
        (GOOD.replace("3,", "4294967296,", 1), "cluster_id must be a whole number"),
        (GOOD.replace("k3", ""), "key is empty"),
        (GOOD.replace("ann", " "), "reviewer is empty"),
        (GOOD.replace("single", ""), "panel_type is empty"),
        (GOOD.replace("false", ""), "practice must be true or false, got ''"),
        (GOOD.replace("2025-03-01T12:00:00Z", "3/1/25 12:00"), "created must be a time"),
        (GOOD.replace("2025-03-01T12:00:00Z", "0001-01-01T00:00:00+09:00"), "created must be a"),
        (GOOD.replace("map,", "m" * 10_001 + ","), "local_concepts is 10,001 characters long"),
        (GOOD.replace("ann", '"ann'), "not CSV"),
        (GOOD.replace("ann", '"ann"x'), "not CSV"),
    ],
)
def test_a_row_that_is_no_vote_is_told_and_the_others_are_read(row: str, reason: str) -> None:
    votes, ((line, told),) = read_votes(f"{HEADER}\n{GOOD}\n{row}\n{GOOD}\n".encode())
    assert (len(votes), line) == (2, 3)
    assert told.startswith(reason)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "column cluster_id, "),
        (b"\xff\xfe", "column cluster_id, "),
        (HEADER.encode() + b"\n\xe9", "CSV UTF-8"),
        (b"cluster_id,cluster\n", "column key, reviewer, panel_type.*cluster_id, cluster"),
        (HEADER.replace("practice", "practise").encode(), "column practice,.*practise"),
        (HEADER.replace(",", "/").encode(), "cluster_id/"),
        (f"{HEADER},key".encode(), "column key,"),
        (b'"cluster_id\n', "header.* CSV"),
    ],
)
def test_a_file_of_something_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_votes(data)


def test_names_of_a_vote_become_those_of_the_taxonomy() -> None:
    given = vote("ann", "PLOTS and charts/Box-Plot/line plot/boxplot, maps", PLOTS.upper())
    good = validate_vote(given, load_taxonomy())
    assert good == vote("ann", "Plots and Charts/box plot/line plot, Maps", PLOTS)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (vote("ann", "Map"), "global .*'Map'.*Maps"),
        (vote("ann", "Maps/mop"), "local .*'mop'.*map"),
        (vote("ann", ""), "global concept"),
        (
            vote("ann", "Maps/table"),
            "'table'.*Tables.*Maps",
        ),
        (vote("ann", "Maps", panel_subtype=PLOTS), "'single'.*plots"),
        (vote("ann", "Maps", panel_type="multiple"), "'multiple'"),
        (vote("ann", "Maps", "plots"), "'multiple'.*'plots'"),
    ],
)
def test_a_vote_that_cannot_be_is_refused(given: ReviewVote, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        validate_vote(given, load_taxonomy())
