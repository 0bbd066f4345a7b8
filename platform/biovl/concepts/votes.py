"""Votes of reviewers about clusters, and their CSV format, compatible with spreadsheets.

``resolution`` counts them.
"""

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from biovl.concepts.taxonomy import Taxonomy
from biovl.core import spreadsheets
from biovl.core.errors import ConfigError

COLUMNS = (
    *("cluster_id", "key", "reviewer", "panel_type", "panel_subtype", "global_concepts"),
    *("local_concepts", "practice", "created"),
)
"""Columns of a CSV file with votes. Lists are joined by semicolons."""

_SEPARATOR = ";"
_MAX_CELL = 10_000
"""Maximum characters of a cell; a longer one is not a vote."""
_MAX_ID = 2**31 - 1
# Prefixes that spreadsheets interpret as formulas (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, kw_only=True)
class ReviewVote:
    """A reviewer's description of most images of a cluster."""

    cluster_id: int
    key: str
    """Key of the cluster when it was reviewed; it changes with its members."""
    reviewer: str
    panel_type: str
    panel_subtype: str | None
    global_concepts: tuple[str, ...]
    local_concepts: tuple[str, ...]
    practice: bool = False
    """Whether this is a practice vote, which does not count."""
    created: str
    """Time in ISO 8601; UTC by default. Empty counts as earlier than any other."""


def reviewer_key(name: str) -> str:
    """Return the key of a reviewer: the name in NFKC, without case and extra whitespace."""
    return " ".join(unicodedata.normalize("NFKC", name).split()).casefold()


def validate_vote(vote: ReviewVote, taxonomy: Taxonomy) -> ReviewVote:
    """Return a vote with the taxonomy's spelling and order, without duplicates.

    Raises:
        ConfigError: If a name is not in the taxonomy (the message has the nearest names), a panel
            type has the wrong subtype, or there is no global concept, or none for a local concept.
    """
    panel = taxonomy.panel(vote.panel_type, vote.panel_subtype)
    global_concepts = {taxonomy.global_concept(name) for name in vote.global_concepts}
    if not global_concepts:
        raise ConfigError("there is no global concept; expected one or more")
    local_concepts = {taxonomy.local_concept(name) for name in vote.local_concepts}
    for name in local_concepts:
        above = taxonomy.globals_of(name)
        if global_concepts.isdisjoint(above):
            raise ConfigError(
                f"local concept {name!r} is without its global one: expected "
                f"{' or '.join(above)}, found {', '.join(sorted(global_concepts))}"
            )
    return replace(
        vote,
        panel_type=panel.panel_type,
        panel_subtype=panel.panel_subtype,
        global_concepts=tuple(name for name in taxonomy.concepts if name in global_concepts),
        local_concepts=tuple(name for name in taxonomy.local_concepts if name in local_concepts),
    )


def read_votes(data: bytes) -> tuple[list[ReviewVote], list[tuple[int, str]]]:
    """Return the votes of a CSV file, and its invalid rows.

    All of ``COLUMNS`` are required, in any order; other columns are ignored. Names are not compared
    with a taxonomy: see ``validate_vote``.

    Returns:
        Votes in the order of the file; and line (from 1) and reason of each invalid row.

    Raises:
        ConfigError: If the file is not CSV in UTF-8 with these columns.
    """
    try:
        text = spreadsheets.decode(data)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"votes must be CSV in UTF-8: {spreadsheets.encoding_hint(error)}"
        ) from error
    # Only the line ends of CSV: str.splitlines would split at others too.
    lines = list(io.StringIO(text, newline=""))
    first = lines[0] if lines else ""
    named = spreadsheets.named_delimiter(first)
    delimiter = named or spreadsheets.delimiter_of(first, ",", COLUMNS)
    rows = _rows(lines, delimiter, begin=1 if named else 0)
    _, header = next(rows, (1, []))
    if isinstance(header, str):
        raise ConfigError(f"the header of the votes is not CSV: {header}")
    names = [name.strip() for name in header]
    missing = [name for name in COLUMNS if names.count(name) != 1]
    if missing:
        raise ConfigError(
            f"votes need a column {', '.join(missing)}, each once and separated by commas; the "
            f"header has: {', '.join(names)[:500] or 'nothing'}"
        )
    votes: list[ReviewVote] = []
    defects: list[tuple[int, str]] = []
    for line, cells in rows:
        if isinstance(cells, str):
            defects.append((line, cells))
        elif any(cell.strip() for cell in cells):
            try:
                votes.append(_vote(names, cells))
            except ValueError as error:
                defects.append((line, str(error)))
    return votes, defects


def write_votes(votes: Iterable[ReviewVote]) -> bytes:
    """Return votes as CSV that ``read_votes`` reads."""
    return to_csv(COLUMNS, map(cells_of, votes))


def cells_of(vote: ReviewVote) -> list[str]:
    """Return a vote as the cells of a row."""
    return [
        str(vote.cluster_id),
        vote.key,
        vote.reviewer,
        vote.panel_type,
        vote.panel_subtype or "",
        _SEPARATOR.join(vote.global_concepts),
        _SEPARATOR.join(vote.local_concepts),
        str(vote.practice).lower(),
        vote.created,
    ]


def to_csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Return UTF-8 CSV; cells that spreadsheets would interpret as formulas are escaped."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(header)
    writer.writerows([escape_formula(str(cell)) for cell in row] for row in rows)
    return stream.getvalue().encode()


def escape_formula(cell: str) -> str:
    """Return a cell with an apostrophe before a formula prefix.

    A cell that already has such an apostrophe gets another, so that ``read_votes`` can undo it.
    """
    return f"'{cell}" if cell.lstrip("'").startswith(_FORMULA) else cell


def _plain(cell: str) -> str:
    cell = cell.strip()
    return cell[1:] if cell.startswith("'") and escape_formula(cell[1:]) == cell else cell


def _rows(
    lines: Sequence[str], delimiter: str, begin: int
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line's number and the cells of each row, or why it is invalid.

    An unclosed quote would consume the rest of the file: then only its line is invalid.
    """
    while begin < len(lines):
        following = (lines[number] for number in range(begin, len(lines)))
        reader = csv.reader(following, delimiter=delimiter, strict=True)
        try:
            cells: list[str] | str = next(reader)
            used = reader.line_num
        except csv.Error as error:
            cells, used = f"not CSV: {error}", 1
        yield begin + 1, cells
        begin += used


def _vote(names: Sequence[str], cells: Sequence[str]) -> ReviewVote:
    """Return the vote of a row.

    Raises:
        ValueError: If it is none.
    """
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells, expected {len(names)}")
    row = {name: _plain(cell) for name, cell in zip(names, cells, strict=True) if name in COLUMNS}
    for name, cell in row.items():
        if len(cell) > _MAX_CELL:
            raise ValueError(f"{name} is {len(cell):,} characters long; at most {_MAX_CELL:,}")
    for name in ("key", "reviewer", "panel_type"):
        if not row[name]:
            raise ValueError(f"{name} is empty")
    if row["practice"].lower() not in ("true", "false"):
        raise ValueError(f"practice must be true or false, got {row['practice']!r:.100}")
    return ReviewVote(
        cluster_id=_cluster_id(row["cluster_id"]),
        key=row["key"],
        reviewer=row["reviewer"],
        panel_type=row["panel_type"],
        panel_subtype=row["panel_subtype"] or None,
        global_concepts=_list(row["global_concepts"]),
        local_concepts=_list(row["local_concepts"]),
        practice=row["practice"].lower() == "true",
        created=_created(row["created"]),
    )


def _cluster_id(cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 10 and int(cell) <= _MAX_ID):
        raise ValueError(f"cluster_id must be a whole number, got {cell!r:.100}")
    return int(cell)


def _created(cell: str) -> str:
    try:
        if cell:
            moment(cell)
    except ValueError as error:
        raise ValueError(
            f"created must be a time such as 2025-03-01T12:30:00Z, got {cell!r:.100}"
        ) from error
    return cell


def moment(created: str) -> datetime:
    """Return the time of a vote, for comparison; empty is earlier than any other.

    Raises:
        ValueError: If it is not a time in ISO 8601.
    """
    if not created:
        return datetime.min.replace(tzinfo=UTC)
    found = datetime.fromisoformat(created)
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(f"{created} is before the first year or after the last") from error


def _list(cell: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in cell.split(_SEPARATOR) if name.strip())
