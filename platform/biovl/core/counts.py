"""Counts of rows by name, as the units of a job add them up and a manifest shows them."""

from collections import Counter
from typing import Any


def counts_below(seen: Counter[str], prefix: str) -> dict[str, int]:
    """Return the counts whose names begin with a prefix, sorted by the rest of their names."""
    return {
        name.removeprefix(prefix): count
        for name, count in sorted(seen.items())
        if name.startswith(prefix)
    }


def usable_and_defective(seen: Counter[str], prefix: str) -> dict[str, Any]:
    """Return the counts of a table by defect; the name of usable rows is the prefix alone."""
    defects = counts_below(seen, prefix)
    usable = defects.pop("", 0)
    defective = sum(defects.values())
    return {
        "seen": usable + defective,
        "usable": usable,
        "defective": defective,
        "defects": defects,
    }
