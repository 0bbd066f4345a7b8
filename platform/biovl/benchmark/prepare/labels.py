"""Labels in tables: numbers, words and their spellings to names of classes."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from biovl.benchmark.class_names import normalize

_WHOLE = re.compile(r"([+-]?\d+)\.0*")


class Labels:
    """Classes by their spellings, which are compared without case and separators."""

    def __init__(self, spellings: Mapping[str, Iterable[str]]) -> None:
        self._class_of = {
            normalize(spelling): name
            for name, others in spellings.items()
            for spelling in (name, *others)
        }

    def named(self, text: str) -> str | None:
        """Return the class of a cell, None if it is empty or unknown; ``1.0`` is ``1``."""
        whole = _WHOLE.fullmatch(text.strip())
        return self._class_of.get(normalize(whole[1] if whole else text))


def finding(text: str) -> int | None:
    """Parse the cell of a finding: 1 (present), 0 (absent), -1 (uncertain), or None if it is empty.

    Raises:
        ValueError: If the cell has any other value.
    """
    value = float(text) if text.strip() else None
    if value not in (1, 0, -1, None):
        raise ValueError(f"{text!r}, expected 1, 0, -1 or nothing")
    return None if value is None else int(value)


def drawn(names: Sequence[str], count: int, seed: int) -> list[str]:
    """Return a random sample of ``count`` names, sorted.

    Names are ranked by a hash of seed and name, and the first ``count`` are drawn: the result does
    not depend on the order of ``names``.
    """
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    return sorted(ranked[:count])
