"""Origin of a corpus's figures, so that cards and pages describe them correctly."""

from collections.abc import Mapping
from typing import Any, Literal

Origin = Literal["literature", "own", "synthetic"]

SYNTHETIC = "(synthetic)"
"""Suffix of the journal name in every article of ``biovl.sample``."""


def origin(stats: Mapping[str, Any]) -> Origin:
    """Return the kind of data in a corpus, derived from the journals of its articles.

    Args:
        stats: Content of a corpus's ``stats.json``: ``journals`` is read.

    Returns:
        ``synthetic`` if all articles are from ``biovl.sample``, ``own`` if no article names a
        journal (a table of private images), otherwise ``literature``.
    """
    journals = [row["journal"] for row in stats["journals"]["top"]]
    if not journals:
        return "own"
    all_synthetic = all(name.endswith(SYNTHETIC) for name in journals)
    is_stated = not stats["journals"]["articles_without"]
    return "synthetic" if all_synthetic and is_stated else "literature"
