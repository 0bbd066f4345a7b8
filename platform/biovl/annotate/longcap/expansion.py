"""Captions with acronyms spelled out at their first use."""

import re
from collections.abc import Sequence

from biovl.articles.acronyms import Acronym, acronyms_of, is_short_form, long_form

_WORD = re.compile(r"[^\W_]+")
_UNITS = frozenset(
    "m g s h v w c u l mg kg ng ug µg μg ml dl nm mm cm km ms min hr hz khz mhz ghz pa kpa mpa da "
    "kda bp kb mb gb cp cfu pfu iu mv ma na pa kv rpm mol mmol gy cgy ev kev mev db cc au ppm ppb "
    "sd se x".split()
)
_KEY = (
    r"(?:\s*[=:]\s*[a-z(]|\s*=\s*[A-ZÀ-Þ][a-zß-ÿ]"
    r"|\s(?:indicates?|denotes?|represents?|stands?\s+for|means?)\s)"
)
# A longer name: TNF-α, CD4+, AR-V7, ERK1/2, IL-6R, but not MRI-guided and PET/CT.
_GOES_ON = re.compile(r"[\w+*′’'^]|[-‐‑–](?![a-z]{3})|/(?![A-Za-z]{2})|\.\d")
_GOES_BEFORE = re.compile(
    r"(?:[\w+*.@#^’']|(?<![a-z]{3})(?<!\b(?:re|de|co))[-‐‑–]|(?<![A-Za-z]{2})/)$"
)
# In front of a vowel at the start of a sentence: "a EEG at rest. b ECG"; but "A UV image", and an
# article behind a panel in brackets.
_PANEL = re.compile(r"(?:^|[.!?]\s|\n)[aA] $")
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s|\n)\s*(?:\([A-Za-z\d]{1,2}\)\s*)?$")
_NUMBER_BEFORE = re.compile(r"\d\s?$")


def expand_acronyms(text: str, acronyms: Sequence[Acronym]) -> str:
    """Return a text with each acronym spelled out before its first use, and in brackets.

    ``MRI and CT. MRI shows`` gives ``Magnetic resonance imaging (MRI) and CT. MRI shows``.
    Acronyms that the text itself spells out or explains are unchanged, and so are lookalikes:
    a part of a longer name (``TNF-α`` for TNF), or a unit after a number.
    """
    by_short = {known.short: known.long for known in acronyms}
    if not by_short:
        return text
    done = {found.short for found in acronyms_of([text])}
    stems = _stemmed(text)
    done |= {short for short, long in by_short.items() if _stemmed(long).strip() in stems}
    longest_first = sorted(by_short, key=lambda short: (-len(short), short))
    short_forms = re.compile(rf"({'|'.join(map(re.escape, longest_first))})(s?)")
    pieces, end = [], 0
    for match in short_forms.finditer(text):
        short = match[1]
        if short in done or not _is_alone(text, match):
            continue
        if _explains(text, short):
            done.add(short)
            continue
        done.add(short)
        long = _spelled_out(text, match, by_short[short])
        pieces += [_with_article(text[end : match.start()], long), long]
        end = match.end()
    return "".join([*pieces, text[end:]])


def acronyms_used(text: str, acronyms: Sequence[Acronym]) -> list[Acronym]:
    """Return the acronyms that a text uses, in order."""
    tokens = set(re.findall(r"[^\s,;:()\[\]]+", text))
    words = tokens | {part for token in tokens for part in re.split(r"[/.]", token)}
    bare = {word.rstrip(".!?") for word in words}
    bare |= {word.removesuffix("s") for word in bare}
    bare |= {word.partition("-")[0] for word in bare if re.search(r"-[a-z]{3}", word)}
    return [known for known in acronyms if known.short in bare]


def _spelled_out(text: str, match: re.Match[str], long: str) -> str:
    if match[2]:
        long = _plural(long)
    if _SENTENCE_START.search(text[: match.start()][-24:]) and long[1:2].islower():
        long = long[0].upper() + long[1:]
    alone = text[match.start() - 1 : match.start()] in ("(", "[") and text[match.end() :][:1] in (
        ")",
        "]",
    )
    return f"{long}, {match[0]}" if alone else f"{long} ({match[0]})"


def _with_article(before: str, long: str) -> str:
    """Return the preceding text, with ``a`` or ``an`` to match the first sound; not a panel."""
    article = "an" if long[0].lower() in "aeio" or long.startswith(("ul", "un")) else "a"
    if article == "an" and not long.startswith("u") and _PANEL.search(before):
        return before
    return re.sub(r"\b([Aa])n?(?=\s$)", lambda found: found[1] + article.removeprefix("a"), before)


def _is_alone(text: str, match: re.Match[str]) -> bool:
    before, behind = text[max(0, match.start() - 6) : match.start()], text[match.end() :][:5]
    if _GOES_BEFORE.search(before) or _GOES_ON.match(behind):
        return False
    return not (match[1].lower() in _UNITS and _NUMBER_BEFORE.search(before))


def _explains(text: str, short: str) -> bool:
    """Return whether a text defines a short form: ``C, control`` or ``C = control``."""
    form = rf"(?<![\w-]){re.escape(short)}"
    listed = re.search(rf"{form}{_KEY}", text)
    if listed or re.search(rf"(?:^|[;.(]\s*){re.escape(short)}, [a-z]{{3,}}[^;,]*(?:;|$)", text):
        return True
    bracket = re.search(rf"{form}\s\(([^()]*)\)", text)
    return bracket is not None and long_form(short, bracket[1]) is not None


def _plural(long: str) -> str:
    head, of, rest = long.partition(" of ")
    if of:
        return f"{_plural(head)}{of}{rest}"
    if is_short_form(long.split()[-1]):
        return f"{long}s"
    if re.search(r"[^aeiou]y$", long):
        return f"{long[:-1]}ies"
    if long.endswith("sis"):
        return f"{long[:-2]}es"
    if long.endswith(("s", "ae", "ia")):
        return long
    return f"{long}es" if long.endswith(("x", "ch", "sh")) else f"{long}s"


def _stemmed(text: str) -> str:
    """Return the words of a text without plurals, for phrase search."""
    return f" {' '.join(word[0].lower().rstrip('s') for word in _WORD.finditer(text))} "
