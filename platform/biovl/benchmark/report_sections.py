"""Sections of radiology reports by their headings: FINDINGS, IMPRESSION and others.

A heading is a known word, or words in capitals, before a colon. Line breaks are not needed: reports
are often stored without them.
"""

import re
from collections.abc import Sequence

_KNOWN = (
    "findings?|impressions?|conclusions?|indication|(?:clinical )?history|technique|comparisons?"
    "|exam(?:ination)?|procedure|reason for (?:this )?exam(?:ination)?|recommendations?"
    "|notifications?|wet read|addendum|clinical (?:information|indication|data)|views?"
)
_HEADING = re.compile(rf"(?:^|(?<=[\s.:?!]))((?i:{_KNOWN})|[A-Z][A-Z /&,()-]{{2,60}}[A-Z)])\s*:")


def sections(text: str, names: Sequence[str]) -> str | None:
    """Return the named sections of a report, joined in their order; None if it has none of them.

    Args:
        text: The report.
        names: Headings in any case and number: ``findings`` matches ``FINDING:`` as well.
    """
    wanted = {_singular(name) for name in names}
    pieces = _HEADING.split(text)
    found = [
        body.strip()
        for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)
        if any(_singular(part) in wanted for part in re.split(r"\s+and\s+|/|&", heading.lower()))
    ]
    kept = [body for body in found if body]
    return "\n\n".join(kept) or None


def _singular(name: str) -> str:
    return name.strip().lower().removesuffix("s")
