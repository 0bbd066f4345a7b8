"""Markdown tables, plain ones and number formats."""

from collections.abc import Collection, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; numeric columns are right-aligned."""
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float | None) or row[i] == "" for row in rows)
        for i in range(len(heads))
    ]
    lines = [heads, ["---:" if right else "---" for right in numeric], *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    if isinstance(value, int):
        return f"{value:,}"
    # Names come from articles: escape what would end the cell or start markup.
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def plain_table(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Return a table in plain text, by line; columns not in ``left`` are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    sides = ["<" if column in left else ">" for column in range(len(widths))]
    return [
        "  " + "  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True))
        for row in rows
    ]


def percent(share: float) -> str:
    """Format a fraction of 1 as a percentage."""
    return f"{share:.1%}"


def size(size_bytes: int) -> str:
    """Format a size in bytes with a decimal unit (1 kB = 1,000 bytes)."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes / 1000:.1f} kB"
