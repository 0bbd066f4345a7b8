"""Panels of a figure reference, and ranges of figures. Precision first: no guess from a sentence."""

import re

_LETTER = r"(?:[A-Z]|[a-z])"
_DASH = r"[-–—‒‐−]"
_LABEL = rf"{_LETTER}(?:\d{{1,2}}|'|′)?"
_JOIN = rf"(?:\s*(?:,|;|&|\+|/)\s*(?:and\s+|&\s*)?|\s+(?:and|to)\s+|\s*{_DASH}\s*)"
_ITEM = rf"\(?{_LABEL}\)?(?![A-Za-z])"
_LIST = rf"{_ITEM}(?:{_JOIN}(?:\d+\s?)?{_ITEM})*"
# Right behind the number, or in brackets behind a space: "2A", "2(a)", "2 (A, B)"; or bare: "A".
_IN_TEXT = re.compile(
    rf"(?:\d+|[IVX]+(?=\())\s?(?P<close>{_LIST})|\d+\s+(?P<apart>\({_LABEL}\)|[A-Z](?![A-Za-z]))"
)
_BARE = re.compile(rf"\s*\(?(?P<list>{_LIST})\)?\s*")
_AFTER = re.compile(rf"(?P<direct>{_LIST})|\s?(?P<bracketed>\({_LABEL}(?:{_JOIN}{_LABEL})*\)(?:{_JOIN}\({_LABEL}\))*)")
_GOES_ON = re.compile(rf"(?P<list>{_JOIN}{_ITEM}(?:{_JOIN}{_ITEM})*)")
_RANGE = re.compile(rf"({_LETTER})\)?\s*(?:{_DASH}|to)\s*(?:\d+\s?)?\(?({_LETTER})(?![\w])")
_EACH = re.compile(rf"(?<![A-Za-z])({_LABEL})(?![A-Za-z])")
_NUMBER = re.compile(r"(?P<kind>[A-Za-z][A-Za-z .]*?)[\s.]*(?P<prefix>[SA])?(?P<number>\d+)\.?")
_JOINT = re.compile(
    rf"\s*\)?\s*(?:{_DASH}|to|through|until)\s*(?:\(?\s*(?:figs?|figures?)\.?\s*)?", re.IGNORECASE
)
_WORDS = frozenset("a A I".split())
_KINDS = {"fig": "figure", "figs": "figure", "figures": "figure", "figure": "figure"}


def panels_in(reference: str, after: str) -> list[str]:
    """Return the panels that a reference names, in order and without doubles.

    Args:
        reference: Text of the reference: ``Fig. 2A–C``, ``3``, ``B``.
        after: What follows it in the paragraph. Letters right behind (``d, e``) or in brackets
            count; a word of the sentence (``A total of``) does not.
    """
    found: list[str] = []
    inside = _IN_TEXT.search(reference)
    bare = _BARE.fullmatch(reference) if inside is None else None
    if inside is not None:
        found += _expanded(inside["close"] or inside["apart"])
    elif bare is not None:
        found += _expanded(bare["list"])
    if not reference or not reference.rstrip().endswith(tuple(".)")):
        ends_in_panel = bool(found) and reference.rstrip()[-1:].isalpha()
        match = (_GOES_ON if ends_in_panel else _AFTER).match(after)
        if match is not None:
            letters = match[0]
            following = after[match.end() :]
            if not _is_word(letters, following):
                last = found[-1:] if letters.lstrip()[:1] in "-–—‒‐−" else []
                found += _expanded("".join(last) + letters)
    return list(dict.fromkeys(found))


def figure_number(label: str | None) -> tuple[str, int] | None:
    """Return kind and number of a label: ``Fig. S3.`` gives ``("figure s", 3)``."""
    match = _NUMBER.fullmatch((label or "").strip())
    if match is None:
        return None
    kind = match["kind"].strip(" .").lower()
    kind = _KINDS.get(kind, kind)
    return (f"{kind} {match['prefix'].lower()}" if match["prefix"] else kind), int(match["number"])


def is_range_joint(between: str) -> bool:
    """Return whether the text between two references makes them the ends of a range."""
    return len(between) < 20 and _JOINT.fullmatch(between) is not None


def _expanded(letters: str) -> list[str]:
    """Return every panel of a list: ``A–C, e`` gives A, B, C, e."""
    found = []
    position = 0
    for match in _RANGE.finditer(letters):
        found += _EACH.findall(letters[position : match.start()])
        first, last = match[1], match[2]
        if first.isupper() == last.isupper() and ord(first) < ord(last):
            found += [chr(code) for code in range(ord(first), ord(last) + 1)]
        else:
            found += [first, last]
        position = match.end()
    return found + _EACH.findall(letters[position:])


def _is_word(letters: str, following: str) -> bool:
    """Return whether a list of letters is rather the article or pronoun of a sentence."""
    words = _EACH.findall(letters)
    if letters[:1].isspace() or letters[:1] in ",;":
        # ", a" and " A" begin a clause as often as they name a panel.
        return bool(words) and words[-1] in _WORDS and following[:1] == " "
    return False
