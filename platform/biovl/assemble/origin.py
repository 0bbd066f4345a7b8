"""Where the figures of a corpus come from, so that cards and pages say what is true of them."""

from collections.abc import Mapping
from typing import Any, Literal

Origin = Literal["literature", "own", "synthetic"]

SYNTHETIC = "(synthetic)"
"""Ends the journal's name in every article of ``biovl.sample``."""


def origin(stats: Mapping[str, Any]) -> Origin:
    """Return what kind of data a corpus holds, by the journals of its articles.

    Args:
        stats: Of a corpus, as in ``stats.json``: ``journals`` is read.

    Returns:
        ``synthetic`` if every journal is of the sample, ``own`` if no article names a journal (a
        table of private images), else ``literature``.
    """
    journals = [row["journal"] for row in stats["journals"]["top"]]
    if not journals:
        return "own"
    all_synthetic = all(name.endswith(SYNTHETIC) for name in journals)
    is_stated = not stats["journals"]["articles_without"]
    return "synthetic" if all_synthetic and is_stated else "literature"
