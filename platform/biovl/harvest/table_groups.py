"""Rows of a table that must stay in one split: their groups, and columns that may name them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from biovl.harvest.table_rows import SPILLED

_GROUPS = re.compile(
    "patient|subject|participant|person|individual|volunteer|donor|animal|mouse|specimen|biopsy"
    "|study|case|mrn|accession|encounter|exam|visit|group",
    re.IGNORECASE,
)
"""Names of columns whose images look alike, and so belong into one split."""
_IDS = re.compile(r"(?:^|[^A-Za-z])(?:id|uid|no|nr|number)$|[a-z]I[Dd]$|[a-z]Uid$", re.IGNORECASE)


@dataclass
class ColumnStatistics:
    """Statistics of the table's columns that are not read."""

    names: dict[str, None] = field(default_factory=dict)
    rows: int = 0
    values: dict[str, set[str]] = field(default_factory=dict)
    """Values of unread columns that may identify a patient or similar."""
    filled: Counter[str] = field(default_factory=Counter)
    """Number of rows with a value, for the same columns."""
    undated: int = 0
    """Number of rows whose ``published`` is no ISO date."""

    def add(self, row: Mapping[str, Any], read: set[str]) -> None:
        """Count a row."""
        self.rows += 1
        self.names.update(dict.fromkeys(name for name in row if name != SPILLED))
        for name, value in row.items():
            if name in read or not (_GROUPS.search(name) or _IDS.search(name)):
                continue
            if value not in (None, "") and not isinstance(value, dict | list | bytes):
                self.values.setdefault(name, set()).add(str(value))
                self.filled[name] += 1

    def warnings(self, *, group: str, article: str) -> list[str]:
        """Return reasons why figures of one patient may be in several splits.

        Args:
            group: The table's name of the column with groups.
            article: That of the column with ids of articles.
        """
        if group in self.names:
            return []
        first = "no column says what must stay in one split: "
        if article in self.names:
            first += "rows that share an article_id do; a patient of several articles does not"
        else:
            first += f"each of the {self.rows:,} rows counts as an article of its own"
        found = [f"{first}. --set source.columns.group=COLUMN names the patient, or the like"]
        for name, values in sorted(self.values.items()):
            count = self.filled[name]
            if len(values) < count:
                found.append(
                    f"PATIENTS MAY LEAK ACROSS SPLITS: column {name} has {len(values):,} values in "
                    f"{count:,} rows; rows that share one are divided among train, val and test. "
                    f"--set source.columns.group={name} keeps them together"
                )
            elif _GROUPS.search(name):
                found.append(
                    f"column {name} is not read; where it names patients that another table "
                    f"repeats, --set source.columns.group={name}"
                )
        return found


def join_groups(articles: Iterable[list[dict[str, str]]]) -> None:
    """Merge groups that share an article, or a DOI: neither may be divided among splits."""
    above: dict[str, str] = {}
    whole = list(articles)
    told = Counter(doi for rows in whole for doi in {row["doi"].lower() for row in rows} if doi)

    def groups(rows: list[dict[str, str]]) -> list[str]:
        shared = [row["doi"].lower() for row in rows if told[row["doi"].lower()] > 1]
        return [*(row["group"] for row in rows if row["group"]), *shared]

    def root(group: str) -> str:
        while above.get(group, group) != group:
            above[group] = above.get(above[group], above[group])
            group = above[group]
        return group

    for rows in whole:
        roots = sorted({root(group) for group in groups(rows)})
        above.update(dict.fromkeys(roots, roots[0]) if roots else {})
    for rows in whole:
        shared = next((root(group) for group in groups(rows)), "")
        for row in rows:
            row["group"] = shared
