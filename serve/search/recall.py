"""What recall was measured for such a query, when the index was built."""

from collections.abc import Mapping
from typing import Any

from biovl.index.query import Kind, Query


def recall_at_10(index: Mapping[str, Any], query: Query, kind: Kind | None) -> float | None:
    """Return the share of the ten nearest that such queries find; None where nothing was measured.

    Several parts, words, several targets and settings of one's own were not measured. An exact
    search misses nothing.

    Args:
        index: ``about()["index"]``; its ``recall`` is by whose vectors and by kind of query.
        query: What was searched.
        kind: What it was made from; None if that is not one thing.
    """
    if query.words is not None or len(query.over) > 1:
        return None
    if query.exact:
        return 1.0
    if query.settings or kind is None:
        return None
    measured: Any = index.get("recall")
    for step in (query.over[0], kind):
        measured = measured.get(step) if isinstance(measured, Mapping) else None
    if isinstance(measured, Mapping):
        measured = measured.get("recall_at_10")
    return float(measured) if isinstance(measured, int | float) else None
