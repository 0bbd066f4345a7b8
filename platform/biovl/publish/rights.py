"""Select the rows that may be redistributed, and record the reason for each other row."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from biovl.articles import rights
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.records import LicenseGroup
from biovl.core.tables import open_part

ARTICLE = "its article: "
"""Prefix of reasons of the article: captions and citing paragraphs are text of the article."""

_PARQUET = ".parquet"
READS = (*rights.READS, "source_uri")
"""Columns that determine the rights of a row; older folders lack some."""


@dataclass(frozen=True)
class RequestedRows:
    """Selection of rows for publishing, among those that may be redistributed."""

    groups: tuple[LicenseGroup, ...] = ()
    """Licence groups to include; empty: all."""
    third_party: bool = False


@dataclass
class RightsCount:
    """Row counts by licence, with the reasons for rows that may not be redistributed."""

    groups: Counter[str] = field(default_factory=Counter)
    """Number of rows by licence group."""
    licenses: Counter[str] = field(default_factory=Counter)
    """Number of redistributable rows by licence; the key is empty if none is stated."""
    held_back: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Number of rows that may not be redistributed, by (reason, licence group, licence)."""

    def add(self, rows: pa.Table, reasons: pa.Array) -> None:
        """Add rows to the counts; ``reasons`` is null for redistributable rows."""
        groups = rows["license_group"].to_pylist()
        self.groups.update(groups)
        held = pc.is_valid(reasons)
        stated = pc.fill_null(rows["license"].cast(pa.string()), "")
        self.licenses.update(stated.filter(pc.invert(held)).to_pylist())
        licenses = [name or "none stated" for name in stated.filter(held).to_pylist()]
        kept_back = rows["license_group"].filter(held).to_pylist()
        self.held_back.update(
            zip(reasons.filter(held).to_pylist(), kept_back, licenses, strict=True)
        )

    @property
    def refused(self) -> int:
        """Number of rows that may not be redistributed."""
        return self.held_back.total()

    def lines(self) -> list[str]:
        """Return a line of text per reason, the most frequent first."""
        ordered = sorted(self.held_back.items(), key=lambda item: (-item[1], item[0]))
        return [
            f"{count:,}: {reason} ({license_}, {group})"
            for (reason, group, license_), count in ordered
        ]


def reasons(rows: pa.Table, requested: RequestedRows) -> pa.Array:
    """Return the reason why each row may not be redistributed; null if it may.

    Args:
        rows: ``license`` and ``license_group``, and those columns of
            ``biovl.articles.rights.READS`` that exist.
        requested: Licence groups to include, and whether to include third-party figures.

    Returns:
        The first reason that applies. Shape [N], string.
    """
    accepted = (rights.OF_OTHERS,) if requested.third_party else ()
    asked_for = f"licence group not {' or '.join(requested.groups)}"
    result: list[str | None] = []
    columns = [name for name in rights.READS if name in rows.column_names]
    for row in rows.select(columns).to_pylist():
        reason = rights.reason_to_withhold(row, accepted)
        if reason is None and requested.groups and row["license_group"] not in requested.groups:
            reason = asked_for
        result.append(reason)
    return pa.array(result, pa.string())


def rights_of(
    uri: str, kind: str, requested: RequestedRows, *, with_articles: bool = False
) -> RightsCount:
    """Count the redistributable rows of a folder, without reading images.

    Args:
        uri: A published corpus, figures or panels.
        kind: Kind of the folder.
        requested: Licence groups to include, and whether to include third-party figures.
        with_articles: Whether to count the rows of articles as well, which have full texts. Some
            have no figures.
    """
    counts, folder = RightsCount(), Folder(uri)
    if kind == "corpus":
        for rows in groups_of(folder, "index.parquet", READS):
            counts.add(rows, reasons(rows, requested))
        return counts
    for name in part_names(folder, "figures"):
        of_articles = article_reasons(folder, name, requested)
        for rows in groups_of(folder, name, READS):
            counts.add(rows, figure_reasons(rows, of_articles, requested))
    for name in part_names(folder, "articles") if with_articles else ():
        for rows in groups_of(folder, name, READS):
            counts.add(rows, reasons(rows, requested))
    return counts


def article_reasons(folder: Folder, part: str, requested: RequestedRows) -> pa.Table:
    """Return ``source_uri`` and ``reason`` of the articles that may not be redistributed.

    Args:
        folder: Figures or panels.
        part: A part of the figures; the articles of its unit are read.
        requested: Licence groups to include, and whether to include third-party figures.
    """
    unit = part.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    pieces = [
        pa.table({"source_uri": pa.nulls(0, pa.string()), "reason": pa.nulls(0, pa.string())})
    ]
    for name in part_names(folder, "articles"):
        if name.startswith(f"articles/part-{unit}-"):
            for rows in groups_of(folder, name, READS):
                why = reasons(rows, requested)
                held = pc.is_valid(why)
                uris = _whole(rows["source_uri"].filter(held))
                pieces.append(pa.table({"source_uri": uris, "reason": why.filter(held)}))
    return pa.concat_tables(pieces)


def figure_reasons(rows: pa.Table, of_articles: pa.Table, requested: RequestedRows) -> pa.Array:
    """Return the reason why each figure may not be redistributed: its own, else its article's.

    Args:
        rows: Rows as for ``reasons``, with ``source_uri``.
        of_articles: Result of ``article_reasons``.
        requested: Licence groups to include, and whether to include third-party figures.
    """
    place = pc.index_in(rows["source_uri"], of_articles["source_uri"].combine_chunks())
    theirs = pc.binary_join_element_wise(ARTICLE, of_articles["reason"].take(_whole(place)), "")
    return _whole(pc.coalesce(reasons(rows, requested), theirs))


def groups_of(
    folder: Folder, name: str, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the row groups of a Parquet file; of ``columns``, only those that exist.

    Raises:
        ArtifactError: If the file has no licence columns.
    """
    with open_part(folder, name) as parquet:
        present = parquet.schema_arrow.names
        if "license_group" not in present:
            raise ArtifactError(f"{folder.described}/{name} has no column license_group")
        read = present if columns is None else [column for column in columns if column in present]
        if columns is not None and "third_party" in present:
            # Captions are read only if there is no credit column.
            read = [column for column in read if column != "caption"]
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group, columns=read)


def part_names(folder: Folder, table: str) -> list[str]:
    """Return the relative paths of the parts of a table."""
    return [f"{table}/{name}" for name in folder.names(table, _PARQUET)]


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
