"""Panel labels and lists of labels: interpretation of ``A``, ``c–e`` or ``A1, A2``."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_LATIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ALPHABETS: dict[str, Sequence[str]] = {
    "upper": _LATIN,
    "lower": _LATIN.lower(),
    "roman": ROMAN,
    "Roman": [numeral.upper() for numeral in ROMAN],
    "digit": [str(number) for number in range(1, 51)],
    "greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "cyrillic": "АБВГДЕЖЗИКЛМНОПРСТ",
    "cyrillic-lower": "абвгдежзиклмнопрст",
    "arabic": "أبجدهوزحطيكل",
}
_INDEX = {
    kind: {letter: index for index, letter in enumerate(letters, start=1)}
    for kind, letters in ALPHABETS.items()
}

DASH = r"\-–—‒‐‑−~"
_OTHER_SCRIPTS = "α-ωА-Та-тأبجدهوزحطيكلＡ-Ｚａ-ｚ"
_SUFFIX = r"(?:\d{1,2}|[ivx]{1,4}|['′″’]{1,2})?"
_ALIKE = (
    rf"(?:[A-Z]{_SUFFIX}|[IVX]{{2,5}})(?!\w)",
    rf"(?:[a-z]{_SUFFIX}|[ivx]{{2,5}})(?!\w)",
    r"\d{1,2}(?!\w)",
    rf"[{_OTHER_SCRIPTS}](?!\w)",
)
LABEL = f"(?:{'|'.join(_ALIKE)})"
# Atomic group: with two ways to match a space, a failing list would backtrack 2^30 times.
_JOINT = (
    rf"(?>\s?(?:,\s?(?:and\s|&\s?|or\s)?|;\s?(?:and\s)?|&|/|\+|[{DASH}]|\band\b|\bor\b|\bto\b"
    r"|\bthrough\b|、|，)\s?)"
)
# The labels of a list are of one kind: "A, a map of …" is one label and an article.
LIST = "(?:" + "|".join(rf"{one}(?:{_JOINT}{one}){{0,30}}" for one in _ALIKE) + ")"


@dataclass(frozen=True, slots=True)
class LabelValue:
    """One label as a position in an alphabet."""

    name: str
    kind: str
    index: int
    """Position in the sequence of labels, from 1."""


def readings(text: str, kind: str | None = None) -> Iterator[LabelValue]:
    """Yield each interpretation of a label: ``i`` is the letter i or Roman numeral 1."""
    plain = unicodedata.normalize("NFKC", text.strip()).replace("’", "'")
    core = plain.rstrip("'′″")
    for name, index in _INDEX.items():
        if core in index and kind in (None, name):
            yield LabelValue(plain, name, index[core])
    if len(core) > 1 and core[0].isascii() and core[0].isalpha():
        letter, rest = core[0], core[1:]
        name = "upper" if letter.isupper() else "lower"
        if kind not in (None, name):
            return
        if rest.isdigit():
            yield LabelValue(plain, name, _INDEX[name][letter])
        elif rest in _INDEX["roman"] and core not in _INDEX["roman"]:
            yield LabelValue(f"{letter}.{rest}", name, _INDEX[name][letter])


_ITEM = re.compile(rf"(?P<joint>{_JOINT})?(?P<label>{LABEL})")
_RANGE_JOINT = re.compile(rf"[{DASH}]|\bto\b|\bthrough\b")


def expand(text: str, kind: str) -> tuple[LabelValue, ...]:
    """Return the labels of a list such as ``A, C–E``, or nothing if they are not of one kind."""
    found: list[LabelValue] = []
    for match in _ITEM.finditer(text):
        label = next(readings(match["label"], kind), None)
        if label is None:
            return ()
        joint = match["joint"]
        # "A/C" is a word; "A/B" is a list.
        if found and joint in ("/", "+") and label.index != found[-1].index + 1:
            return ()
        if found and joint and _RANGE_JOINT.search(joint):
            between = _between(found[-1], label)
            if between is None:
                return ()
            found += between
        found.append(label)
    if [label.name for label in found] == ["H", "E"]:
        # A stain, hematoxylin and eosin.
        return ()
    # "(B and F; E10–E11)": panels and days.
    if {len(label.name) for label in found if label.name[1:].isdigit() or not label.name[1:]} >= {
        1,
        3,
    }:
        return ()
    return tuple(dict.fromkeys(found))


def _between(first: LabelValue, last: LabelValue) -> list[LabelValue] | None:
    """Return the labels inside a range, or nothing if it does not ascend."""
    letters = ALPHABETS[first.kind]
    if len(first.name) > 1 and first.name[1:].isdigit() and first.kind in ("upper", "lower"):
        if first.index == last.index and last.name[1:].isdigit():
            numbers = range(int(first.name[1:]) + 1, int(last.name[1:]))
            return [LabelValue(f"{first.name[0]}{n}", first.kind, first.index) for n in numbers]
        suffix = first.name[1:]
    else:
        suffix = ""
    if last.index <= first.index:
        return None
    # "A–C′" has a panel C, too.
    stop = last.index + (len(first.name) == 1 and last.name[1:] in ("′", "'"))
    return [
        LabelValue(letters[index - 1] + suffix, first.kind, index)
        for index in range(first.index + 1, stop)
    ]


def kinds_of(text: str) -> list[str]:
    """Return the alphabets to which the first label of a list may belong."""
    first = _ITEM.match(text)
    return [label.kind for label in readings(first["label"])] if first else []
