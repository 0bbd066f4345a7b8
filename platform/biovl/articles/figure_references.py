"""Panels in a figure reference, and ranges of figures.

Text inside a reference is trusted. In the text after it, a letter counts only if it cannot be a
word, a statistic or another figure's panel: sentences are not interpreted, unlike in ``citances``.
"""

import re
from string import ascii_letters

LOOK_AHEAD = 40
"""Characters after a reference in which its panels may continue."""

_DASH = "-–—‒‐‑−"
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_NUMBER = re.compile(r"\d+|[IVX]+(?=\()")
# A letter, a few of them ("AB", "Ad", "iii"), or a letter with a digit or a prime ("A1", "B′").
_ITEM = re.compile(
    r"(?P<open>[(\[]\s?)?(?P<label>[A-Za-z](?:[A-Za-z]{1,3}|\d{1,2}|['′’″]{1,3})?)(?![^\W_])"
    r"(?P<close>\s?[)\]])?"
)
_JOINT = re.compile(
    rf"""
    (?: (?P<range> \s*[{_DASH}]\s* | \s+(?:to|through)\s+ )
      | \s*[,&/+]\s*(?:(?:and|&)\s*)? | \s+(?:and|or|&|[ye](?!\s+[ao]\s+\w))\s+ | ;\s?(?=[(\[]) )
    (?:(?P<number>\d+)\s?)?
    """,
    re.VERBOSE,
)
# Between number and panel inside a reference: "2(a)", "2 A", "4, C", "1-A", "1, panels a and g".
_INSIDE = re.compile(rf"(?P<apart>\s?[{_DASH}.,:]?\s?(?:panels?\s|parts?\s)?)(?=[(\[]?[A-Za-z])")
_NAMED = re.compile(r",?\s?\(?(?:panels?|Panels?)\s(?=\(?[A-Za-z])")
# The last number of "A1–3".
_SAME_LETTER = re.compile(rf"\s?[{_DASH}]\s?(\d{{1,2}})(?![\w.])")
NUMBERED = re.compile(
    r"(?!E1\d|P\d|T[12])"
    rf"(?=[A-RT-Z]1?\d(?:(?:\s?[{_DASH},]\s?(?:and\s)?|\s(?:and|to)\s)[A-RT-Z]?1?\d){{0,8}}"
    r"\s?(?:[)\];]|\Z))"
)
"""Panels with a number at the end of a reference: ``Fig. 3, A1–A3)``, but not ``Fig. 3, S1``,
``Fig. 3, E14`` (an age) or ``Fig. 3, T2`` (a weighting)."""
_PROSE_BEHIND = re.compile(
    rf"""
    \s*[=<>≤≥≈~±%]                              # p < 0.05
    | [{_DASH}][A-Za-z]{{2}} | \s(?:cell|lymph|value)  # B-cell, T cells
    | \.\s?[a-z]                                # E. coli
    """,
    re.VERBOSE,
)
_WORD_BEHIND = re.compile(r"\s+(?!(?:and|or|to|through|y|e)\b|&)[\w(]")
_WORDS = frozenset({"a", "A", "I"})
_LONGEST_LABEL = 200
"""Characters; a longer label is a text, and the pattern would take quadratic time."""
# "Fig. 2.—", "Figure-2", "FIGURE S2 |", "Figure 2—figure supplement 3".
_LABEL = re.compile(
    rf"(?:(?P<kind>[A-Za-z](?:.*?[A-Za-z])??)[{_DASH}\s.]*)?(?P<prefix>(?:\b|(?<=[a-z]))[SA])?"
    rf"(?P<number>\d+)[{_DASH}\s.:|]*"
)
_FIGURE = re.compile(r"\bfig(?:ures?|uras?|s)?\.?$")
_RANGE_JOINT = re.compile(
    rf"\)?\s*(?:[{_DASH}]|\b(?:to|through)\b)\s*\(?(?:fig(?:ure)?s?\b\.?\s*)?", re.IGNORECASE
)
_COMPARED = re.compile(
    r"\b(?:compar\w+|relative|similar\w*)\s+\(?(?:fig(?:ure)?s?\b\.?\s*)?$", re.IGNORECASE
)
_PANEL_RANGE_JOINT = re.compile(rf"(?:\(?[A-Za-z])?\)?\s*(?:[{_DASH}]|\b(?:to|through)\b)\s*\(?")


def panels_in(reference: str, after: str) -> list[str]:
    """Return the panels of a reference, in order and without duplicates.

    Ranges are expanded: ``A–C`` gives A, B, C. Letters keep their case. A part of a panel is
    written with a point: ``3Ad–f`` gives A.d, A.e, A.f.

    Args:
        reference: Text of the reference: ``Fig. 2A–C``, ``3``, ``B``.
        after: The following text, of which ``LOOK_AHEAD`` characters are read. A letter directly
            after the number (``d, e``), in brackets, or in a list that continues counts; a word of
            the sentence (``A total of``) and the panel of another figure (``and 4B``) do not.
    """
    found = _Panels()
    number, end = _read_reference(found, reference)
    # A reference with words, or with a bracket around its number, is complete in itself.
    if reference[end:].strip() or reference.startswith("("):
        return found.unique()
    if len(after) >= LOOK_AHEAD:
        # The end of what is looked at may be the first letter of a longer word.
        after = after[:LOOK_AHEAD].rstrip(ascii_letters)
    if not after or after[0] in ").;]":
        return found.unique()
    if found.labels:
        joint = _JOINT.match(after)
        if joint and joint["number"] in (None, number):
            _read_list(found, after, joint.end(), number, joint, is_prose=True)
    elif number is not None:
        _read_behind_number(found, after, number)
    return found.unique()


def figure_number(label: str | None) -> tuple[str, int] | None:
    """Return type and number of a label: ``Fig. S3.`` gives ``("figure s", 3)``.

    The type is all text in front of the last number.
    """
    if not label or len(label) > _LONGEST_LABEL:
        return None
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        return None
    kind = _FIGURE.sub("figure", (match["kind"] or "figure").strip(" .").lower())
    return (f"{kind} {match['prefix'].lower()}" if match["prefix"] else kind), int(match["number"])


def is_range_joint(between: str) -> bool:
    """Return whether the text between two references makes them the ends of a range."""
    return len(between) < LOOK_AHEAD and _RANGE_JOINT.fullmatch(between.strip()) is not None


def is_comparison(before: str, first: str, between: str, last: str) -> bool:
    """Return whether ``to`` between two references compares them: ``compare Fig. 4 to Fig. 6``.

    Panels of two figures are not the ends of a range: ``Figure 4F to Figure 6A``.
    """
    if re.search(r"\bto\b", between) is None:
        return False
    is_of_panels = bool(panels_in(first, "") and panels_in(last, ""))
    return is_of_panels or _COMPARED.search(before) is not None


def is_panel_range_joint(between: str) -> bool:
    """Return whether a range of panels runs from a reference into the next one.

    PLOS links ``Figure 3A–3C`` as ``Figure 3`` and ``3``, with ``A–`` between them. Where both cite
    one figure, ``panels_in`` also finds the panels in between if ``after`` includes the second
    reference.
    """
    return len(between) < LOOK_AHEAD and _PANEL_RANGE_JOINT.fullmatch(between.strip()) is not None


class _Panels:
    """Labels parsed so far, and the context for the next one."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.parent = ""
        """``A`` while the parts of panel A are listed: ``Ad, e``."""

    def unique(self) -> list[str]:
        return list(dict.fromkeys(self.labels))

    def add(self, label: str, *, is_range_end: bool) -> None:
        if is_range_end:
            self.labels += _between(self.labels[-1], self.parent + label)
        self.labels.append(self.parent + label)


def _read_reference(found: _Panels, reference: str) -> tuple[str | None, int]:
    """Return the figure's number, if stated, and how much of the reference was parsed."""
    number = None
    end = 0
    for match in _NUMBER.finditer(reference):
        number, end = match[0], match.end()
        inside = _INSIDE.match(reference, end)
        if inside is None:
            continue
        is_direct = not inside["apart"] or NUMBERED.match(reference, inside.end()) is not None
        stop = _read_list(found, reference, inside.end(), number, is_direct=is_direct)
        if found.labels:
            return number, stop
    if number is None:
        named = _NAMED.match(reference)
        end = _read_list(found, reference, named.end() if named else 0, None)
        if reference[end:].strip():
            found.labels.clear()
    return number, end


def _read_behind_number(found: _Panels, after: str, number: str) -> None:
    """Parse the panels after a reference that ends in its number."""
    if after[0] in "([" or after[0].isalpha():
        end = _read_list(found, after, 0, number, is_direct=True)
        if after[0] in "([" and not set(")]") & set(after[: end + 1]):
            found.labels.clear()
        return
    named = _NAMED.match(after)
    if named is not None:
        _read_list(found, after, named.end(), number)
        return
    if after.startswith(", ") and NUMBERED.match(after, 2):
        _read_list(found, after, 2, number, is_direct=True)
        return
    start = len(after) - len(after.lstrip(" ,\xa0" + _DASH))
    if not 1 <= start <= 2 or start == len(after):
        return
    end = _read_list(found, after, start, number, is_prose=True)
    # Behind a space or comma only a list that is closed, or a range, is surely one.
    is_open = after[start] in "(["
    closed_by = after[start : end + 1] if is_open else after[end : end + 1]
    closings = ")]" if is_open else ")].,;:"
    if not any(closing in closed_by for closing in closings) and len(found.labels) < 3:
        found.labels.clear()


def _read_list(
    found: _Panels,
    text: str,
    position: int,
    number: str | None,
    joint: re.Match[str] | None = None,
    *,
    is_direct: bool = False,
    is_prose: bool = False,
) -> int:
    """Add the panels listed from a position on; return where the last of them ends.

    Args:
        found: Earlier panels; extended in place.
        text: The reference or the text after it.
        position: Where the list starts.
        number: The figure's, which may be repeated in the list: ``3A, 3B``.
        joint: The separator between the list and earlier panels, if any.
        is_direct: Whether the list directly follows the number: only there is ``AB`` two panels.
        is_prose: Whether the first label could be a word of the sentence; later ones always could.
    """
    end = position
    is_open = False
    while (item := _ITEM.match(text, position)) is not None:
        labels = _labels_of(item, found, is_direct=is_direct)
        if not labels or (is_prose and _is_prose(item, text, found)):
            break
        is_range = joint is not None and bool(joint["range"]) and bool(found.labels)
        for label in labels:
            found.add(label, is_range_end=is_range)
        end = item.end()
        if item["label"][1:].isdigit() and (last := _SAME_LETTER.match(text, end)) is not None:
            found.add(item["label"][0] + last[1], is_range_end=True)
            end = last.end()
        is_open = is_open or bool(item["open"])
        if item["close"]:
            if not is_open:
                # The bracket was opened before the reference: "(Fig. 2A and B), but …".
                return item.start("close")
            is_open = False
        joint = _JOINT.match(text, end)
        if joint is None or joint["number"] not in (None, number):
            break
        position = joint.end()
        is_direct = joint["number"] is not None
        is_prose = not is_direct
    return end


def _labels_of(item: re.Match[str], found: _Panels, *, is_direct: bool) -> list[str]:
    """Return the labels that one item of a list denotes, and update the parent panel.

    Empty if it is not a panel label.
    """
    text = item["label"]
    is_bracketed = bool(item["open"] or item["close"])
    if len(text) == 1:
        if found.parent and text.isupper():
            found.parent = ""
        return [text]
    if text[1] in "'′’″":
        return [text]
    if text[1].isdigit():
        goes_on = bool(found.labels) and found.labels[-1][-1].isdigit()
        return [text] if is_direct or goes_on or item["open"] else []
    if text in _ROMAN and (is_bracketed or found.parent or found.labels[-1:] == ["i"]):
        return [text]
    if not is_direct:
        return []
    if text[0].isupper() and (text[1:] in _ROMAN or (len(text) == 2 and text[1].islower())):
        found.parent = text[0] + "."
        return [text[1:]]
    codes = [ord(letter) for letter in text]
    is_run = codes == list(range(codes[0], codes[0] + len(codes)))
    return list(text) if is_run and text != "st" else []


def _is_prose(item: re.Match[str], text: str, found: _Panels) -> bool:
    """Return whether a letter is more likely a word, a statistic or the start of a name."""
    label = item["label"]
    if item["close"]:
        return False
    if _PROSE_BEHIND.match(text, item.end()):
        return True
    if label in _WORDS and _WORD_BEHIND.match(text, item.end()):
        return True
    # "Fig. 2A, a" goes on in words; "Fig. 6a and B)" is a slip.
    other_case = bool(found.labels) and found.labels[0][0].isupper() != label[0].isupper()
    return other_case and not found.parent and text[item.end() : item.end() + 1] not in set(")];")


def _between(first: str, last: str) -> list[str]:
    """Return the labels strictly between the ends of a range; none if it is invalid."""
    stem, _, start = first.rpartition(".")
    stem = f"{stem}." if stem else ""
    stop = last.rpartition(".")[2]
    if start in _ROMAN and stop in _ROMAN and len(start + stop) > 2:
        return [stem + roman for roman in _ROMAN[_ROMAN.index(start) + 1 : _ROMAN.index(stop)]]
    if start[1:] == stop[1:] and start[0].isupper() == stop[0].isupper():
        letters = range(ord(start[0]) + 1, ord(stop[0]))
        return [f"{stem}{chr(code)}{start[1:]}" for code in letters]
    if start[0] == stop[0] and start[1:].isdigit() and stop[1:].isdigit():
        numbers = range(int(start[1:]) + 1, int(stop[1:]))
        return [f"{stem}{start[0]}{number}" for number in numbers]
    return []
