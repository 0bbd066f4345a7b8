"""Published captions as training text, with superscripts marked."""

import re
from collections.abc import Sequence

from biovl.core.records import Span

_NUMBER = re.compile(r"[+\-−–‑] ?\d+(?:[.,]\d+)*|\d+(?:[.,]\d+)*", re.ASCII)


def readable(text: str, superscripts: Sequence[Span]) -> str:
    """Return a text in which superscript numbers are distinguishable from the digits before them.

    ``10<sup>6</sup> cells`` is stored as ``106 cells`` and a span; the result is ``10^6 cells``.
    Only a number, with or without a sign, directly after a digit gets a ``^``: ``m2``, ``Ca2+``
    and ``1st`` are unambiguous and stay as published.

    Args:
        text: Text as stored, in ``Figure.caption`` or ``Mention.text``.
        superscripts: Superscript spans of the text, in code points, in order of their start.
    """
    places = [
        span.start
        for span in _joined(superscripts)
        if span.start > 0
        and text[span.start - 1] in "0123456789"
        and _NUMBER.fullmatch(text, span.start, span.end)
    ]
    ends = [*places, len(text)]
    return "^".join(text[start:end] for start, end in zip([0, *places], ends, strict=True))


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Return spans with adjacent ones merged: ``<sup>−</sup><sup>6</sup>`` is one power."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].end == span.start:
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined
