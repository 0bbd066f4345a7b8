"""Panel labels in a reference: single ones, parts of a panel, ranges, positions."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from biovl.articles.citances import patterns
from biovl.articles.citances.patterns import ROMANS


@dataclass(slots=True)
class Item:
    """Parser state for one figure of a list."""

    figure: str
    prefix: str
    start: int
    end: int
    panels: list[str] = field(default_factory=list)
    newest: int = 0
    """Number of panels that were added by the last label or range."""
    parent: str = ""
    """Prefix ``A.`` while parts of panel A are parsed, otherwise empty."""
    place: int = -1
    """Index in ``panels`` of the first panel given by position; -1 if there is none."""
    outer: str | None = None
    """Prefix of panels that later words of the sentence name, "(panels E–H)": ``C.`` if these are
    panels of panel C, empty if they are the figure's; None if such words mean nothing."""

    def count_without_place(self) -> int:
        """Return how many panels at the end of the list have no position: 1 for ``A (left), B``."""
        count = 0
        for panel in reversed(self.panels):
            if panel.endswith(")"):
                break
            count += 1
        return count


def names_of(label: re.Match[str], item: Item, *, is_direct: bool) -> list[str]:
    """Return the panels that a label names, and update ``item.parent``; empty if it is no label."""
    text = label["label"]
    bracketed = bool(label["open"] or label["close"])
    last = item.panels[-1] if item.panels else ""
    if len(text) == 1:
        if item.parent and text.isupper():
            item.parent = ""
        return [item.parent + text]
    if text[1] in "'′’″`":
        return [text]
    if text[1].isdigit():
        goes_on = last[-1:].isdigit() and "." not in last
        return [text] if is_direct or goes_on or label["open"] else []
    if text in ROMANS and (bracketed or item.parent or last.rpartition(".")[2] in ROMANS):
        return [item.parent + text]
    if text.lower() in ROMANS and text.isupper() and last.isupper() and last.lower() in ROMANS:
        return [text]
    is_part = text[1:] in ROMANS or (text[0].isupper() and _is_part(text[1:]))
    if item.parent and not is_direct and is_part:
        item.parent = text[0] + "."
        return [item.parent + text[1:]]
    if text in ROMANS and len(last) == 1 and last.islower():
        # "1b, ii"
        item.parent = f"{item.panels.pop()}."
        return [item.parent + text]
    if not is_direct and not (label["open"] and label["close"] and text[1:] in ROMANS):
        return []
    if text in ROMANS or (text.isupper() and text.lower() in ROMANS):
        return [text]
    if text[0].isupper() and _is_part(text[1:]):
        item.parent = text[0] + "."
        return [item.parent + text[1:]]
    if text[1:] in ROMANS and ord(text[1]) != ord(text[0]) + 1:
        item.parent = text[0] + "."
        return [item.parent + text[1:]]
    codes = [ord(letter) for letter in text]
    rises = all(0 < after - before <= 3 for before, after in pairwise(codes))
    is_run = codes[-1] - codes[0] == len(text) - 1
    # Capitals with gaps are panels early in the alphabet: ``ACD``; "(QT)" is an abbreviation.
    return list(text) if rises and (is_run or (text.isupper() and text[0] <= "H")) else []


def _is_part(text: str) -> bool:
    """Return whether letters after a capital name a part of that panel: ``ii``, ``d``."""
    return text in ROMANS or (len(text) == 1 and text.islower())


def labels_between(first: str, last: str) -> list[str] | None:
    """Return the labels strictly between the ends of a range, None if they are not valid ends."""
    first, last = first.partition(" (")[0], last.partition(" (")[0]
    stem, _, start = first.rpartition(".")
    stop = last.rpartition(".")[2]
    stem = f"{stem}." if stem else ""
    if start in ROMANS and stop in ROMANS and len(start + stop) > 2:
        return [stem + roman for roman in ROMANS[ROMANS.index(start) + 1 : ROMANS.index(stop)]]
    if len(start + stop) > 2 and {start.lower(), stop.lower()} <= set(ROMANS) and stop.isupper():
        return [name.upper() for name in ROMANS[_roman(start) + 1 : _roman(stop)]]
    if stop[0] == start and not stop[1:].strip("'′’″`"):
        primes = len(stop[1:].replace("″", "′′"))
        return [start + "′" * count for count in range(1, primes)]
    if start[1:] == stop[1:] and start[0].isupper() == stop[0].isupper():
        # A descending range is a list of its ends.
        letters = range(ord(start[0]) + 1, ord(stop[0]))
        return [f"{stem}{chr(code)}{start[1:]}" for code in letters]
    if start[0] == stop[0] and start[1:].isdigit() and stop[1:].isdigit():
        return [f"{stem}{start[0]}{number}" for number in range(int(start[1:]) + 1, int(stop[1:]))]
    return [] if start[0] < stop[0] else None


def _roman(text: str) -> int:
    return ROMANS.index(text.lower())


_VERTICAL = frozenset({"upper", "lower", "top", "bottom"})


def places_in(words: str, noun: str | None) -> list[str]:
    """Return ``left`` and ``right`` of "left and right panels", ``top row`` of "top row"."""
    keep = noun.rstrip("s") if noun and noun.rstrip("s") in ("row", "column", "inset") else ""
    found: list[str] = []
    joint = ""
    for number, part in enumerate(patterns.PLACE_JOINT.split(words)):
        if number % 2:
            joint = part.strip()
            continue
        place = " ".join(part.lower().replace("-", " ").split())
        place = "inset" if place == "insets" else place
        # "top, right" is one place.
        if joint == "," and found[-1] in _VERTICAL and place in ("left", "right"):
            found[-1] = f"{found[-1]} {place}"
        else:
            found.append(place)
    return [f"{place} {keep}".rstrip() for place in found]


def panel_at(panel: str, place: str) -> str:
    """Return the name of a panel given by position: ``b (left)``, or ``left`` without a panel."""
    return f"{panel} ({place})" if panel else place
