"""Acronyms that an article defines, for spelling them out in captions.

Acronyms are found in brackets or lists, as in Schwartz and Hearst (PSB 2003), but with stricter
rules: a letter of the short form must start a word of the long form, or occur in a word that an
earlier letter starts. Uncertain matches are left out: a caption with an acronym is better than a
wrong one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

LONGEST = 160
"""Maximum characters of a long form, and of the text examined before a bracket."""

_MOST_LETTERS = 12
_GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "κ": "kappa"} | {
    "λ": "lambda",
    "μ": "mu",
    "ω": "omega",
    "σ": "sigma",
    "τ": "tau",
    "θ": "theta",
}
_NUMBERS = {"1": ("one", "first"), "2": ("two", "second", "di"), "3": ("three", "third", "tri")} | {
    "4": ("four", "fourth", "tetra")
}
_LETTER = "A-Za-zΑ-Ωα-ω"
_TOKEN = rf"(?<![{_LETTER}\d])[{_LETTER}\d][{_LETTER}\d+/.&'’*-]{{0,13}}[{_LETTER}\d+*]"
_BRACKET = re.compile(rf"[(\[]\s?([^()\[\]\n]{{2,{LONGEST}}}?)\s?[)\]]")
_INTRODUCED = re.compile(
    r"^(?:(?:hereafter|hereinafter|henceforth|abbreviated(?: as| to)?|termed|called|also|or|as|"
    r"referred to as|known as|i\.e\.,?|the|named)\s+)+"
)
_QUOTES = "\"'“”‘’«» "
_BEFORE = re.compile(rf"({_TOKEN})[\"”’]?\s?$")
# "A", "iii" and ranges of them, "A-C", "B1–B4", "A, B and D": panels of a figure.
_PANEL = r"(?:[A-Za-z]\d?|[ivx]{2,4})['′]?"
_PANELS = rf"{_PANEL}(?:\s?(?:[-–—,&/+]|and|to)\s?{_PANEL})*"
_PANEL_RANGE = re.compile(r"([A-Z])\d?['′]?(?P<joint>[-/&+])([A-Z])\d?['′]?")
# Brackets inside a long form: short forms, cited works. Not panels, which begin a new text, nor
# "limits of quantification (LOQ) and detection (LOD)", where the first long form ends.
_INNER = re.compile(
    rf"\s+[(\[](?!\s*{_PANELS}\s*[)\]])[^()\[\]]*[)\]](?!,?\s+(?:and|or|versus|vs)\b)"
)
_CUT = re.compile(r"[;:()\[\]\n]|[.!?,]\s")
# Prefixes of chemical names: "5-", "4′,6-", "N-", "γ-"; an isotope, "18F-", is not part of the
# name.
_LOCANT = re.compile(r"(?:\d{1,2}[′']{0,2}(?:,\d{1,2}[′']{0,2})*|[NODLSp]\d?|[α-ω])[-‐‑–]")
_ISOTOPE = re.compile(r"\[?\d{1,3}m?[A-Z][a-z]?\]?[-‐‑–]?")
_FRONT = re.compile(r"[\w′',./+\[\]‐‑–-]*$")
_CITED = re.compile(r"(?<=[a-z]{4})\d{1,3}$")
_PIECE = re.compile(r"[^\W_]+(?:['’]s\b)?")
_MARKER = re.compile(
    rf"(?:^|[;.:(\n]\s*|,\s+(?:and\s+)?|\band\s+)({_TOKEN})"
    r"(?=(?P<joint>\s*[,:=]\s+|=|\s+[–—-]+\s+|"
    r"\s+(?:indicates|denotes|stands\s+for|represents|means|is)\s+))"
)
_LIST_END = re.compile(r"[;\n(\[)\]]|[.,](?=\s|$)")
_HEADING = re.compile(
    r"^\s*(?:list of |key to )?(?:abbreviations?|acronyms?|glossary)\b.{0,40}", re.I
)
_LINE = re.compile(rf"({_TOKEN})(?:\s|\s?[,:=–—-]\s?)(\S.{{2,{LONGEST}}}?)\s?[.;]?")
_LISTED = 3
"""Weight of a definition in a list of abbreviations, in number of brackets."""
_FUNCTION_WORDS = frozenset(
    "a an and as at by de for from in into la of on or per the to via with within".split()
)
_NOT_FIRST = _FUNCTION_WORDS | frozenset(
    "are was were be been each both all using between this that these those than then which who "
    "not no we our their its after before during including called named termed such also only "
    "either whereas while when where because if but so is has have had can may".split()
)
_NO_ACRONYMS = frozenset("USA UK US EU II III IV VI VII VIII IX XI XII OK ID PhD MD NY CA".split())


@dataclass(frozen=True, slots=True, order=True)
class Acronym:
    """A short form and its long form."""

    short: str
    long: str


def acronyms_of(texts: Iterable[str], listed: str = "") -> list[Acronym]:
    """Return the acronyms that texts of one article define, by short form.

    If one is defined in two ways, the more frequent definition is used; on a tie, none.

    Args:
        texts: Abstract, body and captions; lines are paragraphs.
        listed: The article's list of abbreviations, ``MRI: magnetic resonance imaging`` per line.
    """
    # Patterns that meet runs of spaces would take quadratic time.
    texts = [_folded(text) for text in texts]
    found: dict[str, Counter[str]] = {}
    readings: dict[str, Counter[str]] = {}
    defined = (definition for text in texts for definition in _definitions(text))
    for short, long, weight in (*defined, *_as_listed(_folded(listed))):
        # A superscript number of a cited work: "Model Intercomparison Project19".
        cited = _CITED.search(long)
        long = long[: cited.start()] if cited and cited[0] not in short else long
        long = _without_half_quotes(long)
        key = _stems(long)
        found.setdefault(short, Counter())[key] += weight
        readings.setdefault(f"{short} {key}", Counter())[long] += weight
    acronyms = []
    words = _words(texts)
    for short, counts in sorted(found.items()):
        (key, most), *others = counts.most_common(2)
        if not others or others[0][1] < most:
            # Of equally frequent spellings, the first one.
            long = readings[f"{short} {key}"].most_common(1)[0][0]
            acronyms.append(Acronym(short, _as_within(long, words)))
    return acronyms


def _without_half_quotes(long: str) -> str:
    """Return a long form without a quotation mark that was opened before it."""
    for opening, closing in ("“”", "«»", '""'):
        if long.count(closing) == 1 and (opening == closing or opening not in long):
            long = long.replace(closing, "")
    return long


def is_short_form(token: str) -> bool:
    """Return whether a token may be an acronym: MRI, mTOR, TNF-α, T2D, 3D; not Fig, II, S2 or A.

    Panels, ``A-C`` or ``A/B``, and possessives, ``WHO's``, are not acronyms.
    """
    capitals = sum(letter.isupper() for letter in token)
    letters = sum(letter.isalpha() for letter in token)
    other = any(letter.isdigit() or letter in _GREEK for letter in token)
    if token in _NO_ACRONYMS or token[0] in "/'.’*+-" or letters + other < 2:
        return False
    if _is_panels(token) or token.endswith(("'s", "’s")):
        return False
    if len(token) == 2 and token[0].isdigit():
        return token[1].isupper()
    return letters >= 2 and (capitals >= 2 or (capitals == 1 and other)) and "." not in token


def _is_panels(token: str) -> bool:
    panels = _PANEL_RANGE.fullmatch(token)
    if panels is None:
        return False
    apart = ord(panels[3]) - ord(panels[1])
    # "E/I" is excitation to inhibition, "S-W" Shapiro-Wilk.
    return apart >= 0 and panels[1] < "N" if panels["joint"] == "-" else apart == 1


def _definitions(text: str) -> Iterator[tuple[str, str, int]]:
    for bracket in _BRACKET.finditer(text):
        for short, long in _in_bracket(text, bracket):
            yield *_singular(short, long), 1
    yield from _in_lists(text)


def _as_listed(text: str) -> Iterator[tuple[str, str, int]]:
    for line in text.split("\n"):
        short, stated, long = line.partition(": ")
        if not stated or ";" in long:
            # Several definitions in one line, as in a sentence.
            yield from _in_lists(f"Abbreviations\n{line}")
            continue
        long = _INNER.sub("", long).strip(f"{_QUOTES}.")
        # Glossaries also explain words: the first letter of an acronym must start its long form.
        if re.fullmatch(_TOKEN, short) and is_short_form(short) and _is_phrase(long):
            first = _PIECE.search(long)
            begins = first and _covers((short[0].lower(),), _spelled(first[0].lower()))
            if begins and len(short) < len(long) <= LONGEST:
                yield *_singular(short, long), _LISTED


def _in_bracket(text: str, bracket: re.Match[str]) -> Iterator[tuple[str, str]]:
    first, _, rest = re.sub(r"[;,]\s", "\n", bracket[1], count=1).partition("\n")
    inside = _INTRODUCED.sub("", first.strip(_QUOTES)).strip(_QUOTES)
    before = text[max(0, bracket.start() - LONGEST) : bracket.start()]
    if bracket.start() > LONGEST:
        # The examined text starts with a whole word.
        before = before[before.find(" ") + 1 :]
    short = rest.strip(_QUOTES)
    if re.fullmatch(_TOKEN, inside) and is_short_form(inside):
        # "computed tomography (CT) angiography (CTA)": earlier brackets are not part of the long
        # form.
        long = _long_form_before(inside, _INNER.sub("", before))
        # "single- and multi-walled nanotubes (SWNT, MWNT)" is neither.
        also = re.fullmatch(_TOKEN, short) is not None and is_short_form(short)
        if long and not (also and re.search(r"\b(?:and|or)\b|[/,]", long)):
            yield inside, long
        return
    if re.fullmatch(_TOKEN, short) and is_short_form(short) and (long := long_form(short, first)):
        yield short, long
        return
    named = _BEFORE.search(before)
    if named and is_short_form(named[1]) and long_form(named[1], first) == first.strip(_QUOTES):
        yield named[1], first.strip(_QUOTES)


def _long_form_before(short: str, text: str) -> str | None:
    """Return the long form at the end of a text, for the short form after it, if it is complete."""
    cuts = list(_CUT.finditer(text))
    clause = text[cuts[-1].end() :] if cuts else text
    long = long_form(short, clause)
    if long is None:
        return None
    start = len(clause.rstrip(_QUOTES)) - len(long)
    # The beginning of its first word: "5-" of 5-aminolevulinic acid.
    front = _FRONT.search(clause[:start])
    prefix = front[0] if front else ""
    if cuts and start == len(prefix):
        # "2-(N-morpholino)ethanesulfonic acid" and "4′, 6-diamidino-2-phenylindole" are cut.
        has_locant = prefix[:1].isdigit() and re.search(r"\d[′']*,\s$", text[: cuts[-1].end()])
        if cuts[-1][0] in ")]" or has_locant:
            return None
    if not prefix or _ISOTOPE.fullmatch(prefix):
        return long
    return f"{prefix}{long}" if _LOCANT.fullmatch(prefix) else None


def _in_lists(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield what "MRI, magnetic resonance imaging; CT, computed tomography" defines."""
    is_list = False
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        markers = [found for found in _MARKER.finditer(line) if is_short_form(found[1])]
        listed = 0
        for number, marker in enumerate(markers):
            end = markers[number + 1].start() if number + 1 < len(markers) else len(line)
            item = line[marker.end("joint") : end]
            stop = _LIST_END.search(item)
            stated = (item[: stop.start()] if stop else item).strip(_QUOTES)
            stated = re.sub(r",?\s+and$", "", stated)
            is_whole = bool(stated) and long_form(marker[1], stated) == stated
            # "immune dysregulation, enteropathy, X-linked" continues after its comma.
            is_cut = stop is not None and stop[0] == "," and item[stop.end() :].strip(" ,and") != ""
            # A declared list of abbreviations is trusted.
            if is_whole or ((heading or is_list) and not is_cut and _is_phrase(stated)):
                yield *_singular(marker[1], stated), _LISTED
                listed += 1
        own = None if listed else _LINE.fullmatch(line)
        if own and is_short_form(own[1]) and long_form(own[1], own[2]) == own[2]:
            yield *_singular(own[1], own[2]), _LISTED
            listed += 1
        is_list = bool(heading) or (is_list and listed > 0)


def _is_phrase(text: str) -> bool:
    words = text.split()
    return (
        1 <= len(words) <= 10 and sum(map(str.islower, text)) >= 4 and not is_short_form(words[0])
    )


def long_form(short: str, before: str) -> str | None:
    """Return the long form that a text ends with, for the acronym in the following bracket.

    Prefers the candidate with most letters at the start of a word, then the shortest.
    """
    letters = [letter for letter in short.removesuffix("s").lower() if letter.isalnum()]
    if not 2 <= len(letters) <= _MOST_LETTERS:
        return None
    before = before.rstrip(_QUOTES)
    # As in the paper, at most twice as many words as letters.
    pieces = list(_PIECE.finditer(before))[-2 * len(letters) - 5 :]
    if not pieces or before[pieces[-1].end() :].strip("’' "):
        return None
    words = [_spelled(piece[0].lower()) for piece in pieces]
    may_begin = [_may_begin(before, piece) for piece in pieces]
    found = _aligned(tuple(letters), tuple(words), tuple(may_begin))
    if found is None:
        return None
    if found == len(pieces) - 1 and found and pieces[-2][0][0].lower() == letters[0]:
        # Prefer both words: "central complex (CX)".
        return None
    long = before[pieces[found].start() :]
    is_longer = len(long) > len(short) and sum(map(str.islower, long)) >= 3
    has_short = re.search(rf"(?<!\w){re.escape(short)}(?!\w)", long)
    is_noun = not long.endswith("ly")
    return long if is_longer and is_noun and not has_short and len(long) <= LONGEST else None


def _may_begin(text: str, piece: re.Match[str]) -> bool:
    if piece[0].lower() in _NOT_FIRST:
        return False
    if piece.start() == 0 or text[piece.start() - 1] not in "-–‐‑/’'":
        return True
    # "18F-fluorodeoxyglucose": a preceding isotope is not part of the word.
    prefix = re.search(r"[^\s]*$", text[: piece.start()])
    return prefix is not None and any(sign.isdigit() for sign in prefix[0])


def _spelled(word: str) -> str:
    return _GREEK.get(word, word)


def _aligned(
    letters: tuple[str, ...], words: tuple[str, ...], may_begin: tuple[bool, ...]
) -> int | None:
    """Return the index of the first word of the best long form; it ends with the last word."""
    most_skipped = 1 if len(letters) > 2 else 0
    none = (-1, 0, 0)

    @cache
    def best(left: int, word: int, skipped: int) -> tuple[int, int, int]:
        """Of the first letters and words: letters that begin words, -skipped words, first word."""
        if word < 0 or skipped > most_skipped:
            return none
        found = none
        is_last = word == len(words) - 1
        if not is_last:
            cost = words[word] not in _FUNCTION_WORDS
            found = best(left, word - 1, skipped + cost)
            if found != none:
                found = (found[0], found[1] - cost, found[2])
        for count in range(1, left + 1):
            if not _covers(letters[left - count : left], words[word]):
                continue
            if left > count:
                rest = best(left - count, word - 1, skipped)
                here = none if rest == none else (rest[0] + 1, rest[1], rest[2])
            else:
                here = (1, 0, word) if may_begin[word] else none
            found = max(found, here)
        return found

    starts, _, first = best(len(letters), len(words) - 1, 0)
    return first if starts > 0 else None


def _covers(letters: tuple[str, ...], word: str) -> bool:
    """Return whether letters are the first of a word and others in it, in order."""
    text = "".join(letters)
    if text.isdigit() and word.isdigit():
        return word.endswith(text)
    first = _GREEK.get(letters[0], letters[0])
    if not (word.startswith(first) or word.startswith(_NUMBERS.get(first, ("\0",)))):
        return False
    place = 0
    for letter in letters[1:]:
        place = word.find(letter, place + 1)
        if place < 0:
            return False
    return True


def _singular(short: str, long: str) -> tuple[str, str]:
    """Return both without the plural of the short form: ECs, endothelial cells."""
    if short[-1] != "s" or not is_short_form(short[:-1]) or not short[-2].isupper():
        return short, long
    # "regions of interest": the plural is that of the first word.
    head, of, rest = long.partition(" of ")
    if head.endswith(("yses", "theses", "noses", "stases")):
        head = f"{head[:-2]}is"
    elif head.endswith(("sses", "xes", "ches", "shes", "viruses", " gases")):
        head = head[:-2]
    elif re.search(r"[^s]ies$", head):
        head = f"{head[:-3]}y"
    elif re.search(r"[^suiSUI]s$", head):
        head = head[:-1]
    return short[:-1], f"{head}{of}{rest}"


def _stems(text: str) -> str:
    """Return the beginnings of the words: two spellings of one long form are equal."""
    return " ".join(piece[0].lower()[:5].rstrip("s") for piece in _PIECE.finditer(text))


def _as_within(long: str, words: Collection[str]) -> str:
    """Return a long form in its spelling within a sentence, if it occurs in one."""
    # A name of several words, "Gene Ontology", is unchanged.
    if not long[:2].istitle() or not long[1].isalpha() or re.search(r"[A-Z][a-z]", long[1:]):
        return long
    within = long[0].lower() + long[1:]
    return within if within.split()[0].rstrip("-") in words else long


def _words(texts: Iterable[str]) -> set[str]:
    """Return words of texts in lower case, and up to three that are joined: ``beta-amyloid``."""
    words: set[str] = set()
    for chunk in {chunk for text in texts for chunk in text.split()}:
        spans = [piece.span() for piece in re.finditer(r"\w+", chunk)]
        for at, (start, _) in enumerate(spans):
            if chunk[start].islower():
                words |= {chunk[start:end] for _, end in spans[at : at + 3]}
    return words


def _folded(text: str) -> str:
    """Return a text with single spaces."""
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))
