"""Sections of radiology reports by their headings: FINDINGS, IMPRESSION and others.

A heading is a known word at the start of a line or sentence, or words in capitals, before a colon.
Line breaks are not needed: reports are often stored without them. ``LUNGS:`` and the like are no
headings, but parts of a section.
"""

import re
from collections.abc import Sequence

_KNOWN = (
    "findings?|impressions?|conclusions?|indication|(?:clinical )?history|technique|comparisons?"
    "|exam(?:ination)?|procedure|reason for (?:this )?exam(?:ination)?|recommendations?"
    "|notifications?|wet read|addendum|clinical (?:information|indication|data)|views?"
)
_PARTS = (
    "lungs?|pleurae?|pleural spaces?|heart|cardiac|(?:cardio)?mediastinum|hila|airways?|vessels"
    "|vasculature|bones?|osseous structures|bony structures|soft tissues?|chest wall|diaphragms?"
    "|(?:upper )?abdomen|tubes|lines|devices|support devices"
)
_STARTS = r"(?:^|(?<=\n)|(?<=[.:?!])|(?<=[\n.:?!]\s)|(?<=[.:?!]\s\s))"
_CAPITALS = r"[A-Z][A-Z /&,()-]{2,60}[A-Z)]"
_HEADING = re.compile(
    rf"(?:(?:^|(?<=[\s.:?!]))(?:{_KNOWN.upper()})"
    rf"|{_STARTS}(?:(?i:{_KNOWN})"
    rf"|(?!(?i:(?:{_PARTS})(?:(?: and |, |/| & )(?:{_PARTS}))*)\s*:){_CAPITALS}))\s*:"
)
# In "comparison none findings: lungs are clear", nothing else tells where a sentence starts.
_LOWER = re.compile(rf"(?:^|(?<=[\s.:?!]))(?:{_KNOWN})\s*:")


def sections(text: str, names: Sequence[str]) -> str | None:
    """Return the named sections of a report, joined in their order; None if it has none of them.

    Args:
        text: The report.
        names: Headings in any case and number: ``findings`` matches ``FINDING:`` as well.
    """
    wanted = {_singular(name) for name in names}
    headings = list((_LOWER if text.islower() else _HEADING).finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)] * bool(headings)
    found = [
        text[heading.end() : end].strip()
        for heading, end in zip(headings, ends, strict=True)
        if any(
            _singular(part) in wanted
            for part in re.split(r"\s+and\s+|/|&", heading[0].lower().rstrip(": \n"))
        )
    ]
    kept = [body for body in found if body]
    return "\n\n".join(kept) or None


def _singular(name: str) -> str:
    return name.strip().lower().removesuffix("s")
