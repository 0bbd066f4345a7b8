"""Sections of radiology reports by their headings: FINDINGS, IMPRESSION and others.

A heading is a known word at the start of a line or sentence, before a colon. Line breaks are not
needed: reports are often stored without them. ``LUNGS:`` and ``PLEURAL EFFUSION:`` are not
headings, but belong to a section. If an unknown section is requested, any words in capitals before
a colon are a heading, except anatomical structures such as ``LUNGS:``.
"""

import re
from collections.abc import Sequence

_ONE = (
    "findings?|impressions?|conclusions?|indication|(?:clinical )?history|technique|comparisons?"
    "|exam(?:ination)?|procedure|reason for (?:this )?exam(?:ination)?|recommendations?"
    "|notifications?|wet read|addendum|clinical (?:information|indication|data)|views?"
    "|(?:dictated|read|reviewed|approved|(?:electronically )?signed)(?: by)?"
)
_KNOWN = rf"(?:{_ONE})(?:(?: and |\s?[/&]\s?)(?:{_ONE}))*"
_UPPER = rf"(?:{_ONE.upper()})(?:(?: AND |\s?[/&]\s?)(?:{_ONE.upper()}))*"
_IS_KNOWN = re.compile(_KNOWN)
_PARTS = (
    "lungs?|pleurae?|pleural spaces?|heart|cardiac|(?:cardio)?mediastinum|hila|airways?|vessels"
    "|vasculature|bones?|osseous structures|bony structures|soft tissues?|chest wall|diaphragms?"
    "|(?:upper )?abdomen|tubes|lines|devices|support devices"
)
_STARTS = r"(?:^|(?<=\n)|(?<=[.:?!])|(?<=[\n.:?!]\s)|(?<=[.:?!]\s\s))"
_CAPITALS = r"[A-Z][A-Z /&,()-]{2,60}[A-Z)]"
_KNOWN_HEADING = rf"(?:(?:^|(?<=[\s.:?!])){_UPPER}|{_STARTS}(?i:{_KNOWN}))\s*:"
_HEADING = re.compile(_KNOWN_HEADING)
_ANY_HEADING = re.compile(
    rf"{_KNOWN_HEADING}|{_STARTS}"
    rf"(?!(?i:(?:{_PARTS})(?:(?: and |, |/| & )(?:{_PARTS}))*)\s*:){_CAPITALS}\s*:"
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
    pattern = _HEADING if all(map(_IS_KNOWN.fullmatch, wanted)) else _ANY_HEADING
    headings = list((_LOWER if text.islower() else pattern).finditer(text))
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
