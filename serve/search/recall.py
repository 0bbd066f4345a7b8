"""Recall of a kind of query, as measured when the index was built."""

from collections.abc import Mapping
from typing import Any

from biovl.index.query import Kind, Query


def recall_at_10(
    index: Mapping[str, Any], query: Query, kind: Kind | None, *, is_exact: bool
) -> float | None:
    """Return the recall@10 measured for queries of a kind; None if it was not measured.

    It is not measured for queries with words, with several parts, over both images and captions, or
    with non-default search settings. The recall of an exact search is 1.

    Args:
        index: ``about()["index"]``; its ``recall`` is by vectors searched and kind of query.
        query: The query.
        kind: Modality of the query; None if it has several parts.
        is_exact: Whether the query was compared with every matching vector, as where few match.
    """
    if query.words is not None or len(query.over) > 1:
        return None
    if is_exact:
        return 1.0
    if query.settings or kind is None:
        return None
    measured: float | None = index.get("recall", {}).get(query.over[0], {}).get(kind)
    return measured
