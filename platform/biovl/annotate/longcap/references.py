"""Removal of references from sentences: to figures, tables and works.

Only parenthetical references are removed: in brackets, superscript, or after the last comma.
References that are part of the sentence are kept: ``Figure 2 shows …``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from biovl.articles.captions import readable
from biovl.core.records import Span

_HEAD = (
    r"(?:(?:[Ss]ee|[Cc]f\.?|e\.g\.,?|i\.e\.,?|[Aa]lso|[Rr]efer\sto|[Aa]s|[Ss]hown\sin|[Cc]ompare|"
    r"[Dd]ata\sin|[Ii]n)\s)*"
    r"(?:(?:[Ss]uppl(?:\.|ement(?:ary|al))?|[Aa]dditional|[Ee]xtended\s[Dd]ata|[Oo]nline)\s)?"
    r"(?:[Ff]ig(?:ures?|ura|s|uras)?\b|FIGS?|FIGURES?|[Tt]ab(?:les?)?\b|TABLES?|[Vv]ideos?|[Mm]ovies?|"
    r"[Ff]iles?|[Ss]chemes?|[Pp]lates?|[Dd]atasets?|[Aa]ppendix|[Tt]exts?|[Ss]ections?|Eqs?\b|[Ee]quations?)"
)
_LETTER = r"[A-Za-z](?:[ivx]{0,3}|\d)['′]?"
# A closing bracket without an opening one ends the bracket around the reference.
# As are "Figure 2(E–G)" and "Figure 2 (a, b)"; "p value" and "t test" are no panels.
_IN_BRACKETS = rf"\({_LETTER}(?:\s?[,&–-]\s?{_LETTER})*\)"
_PANEL = (
    rf"(?:{_IN_BRACKETS}|{_LETTER})"
    r"(?![A-Za-z\d]|-(?!panel)[a-z]{2}|(?<=[pPtT])\s(?:value|test)s?\b)"
)
_NUMBER = (
    rf"(?:[SEA]?\d{{1,3}}(?:\.\d{{1,2}})?(?:\s?[,.:]?\s?{_PANEL})?(?![A-Za-z\d])|[IVX]{{1,5}}\b)"
)
_JOINT = r"(?:\s?[,&/–—-]\s?(?:and\s)?|\s(?:and|to|or|through)\s|(?:,?\s|\s?[–—-]\s?)panels?\s)"
# In "Fig. 2A, n = 10", "Fig. 2A, 12 mice" and "Fig. 2A, a section", what follows is no panel.
_NO_VALUE = r"(?!\s?[=<>≤≥≈%])"
_NO_WORDS = (
    r"(?!\s(?!(?:and|to|or|through|panels?|in|for|as|see|with|both|upper|lower|left|right|top|bottom"
    r"|insets?)\b)[a-z])"
)
# eLife's "Figure 2—figure supplement 1A,B", and PLOS' "S8 Table".
_PART = (
    r"(?:\s?[—–-]+\s?(?:[Ff]igure\s[Ss]upplements?|[Ss]ource\s(?:[Dd]ata|[Cc]ode)|[Vv]ideos?)"
    rf"\s\d+[A-Za-z]?(?:\s?[,–-]\s?(?:\d+[A-Za-z]?(?![A-Za-z\d]){_NO_VALUE}{_NO_WORDS}"
    rf"|(?!a\s[a-z])[A-Za-z](?![A-Za-z\d]|-[a-z]{{2}}){_NO_VALUE}))*)?"
)
_PLACES = (
    rf"{_NUMBER}{_PART}(?:{_JOINT}"
    rf"(?:{_NUMBER}{_PART}{_NO_VALUE}{_NO_WORDS}|(?!a\s[a-z]){_PANEL}{_NO_VALUE}))*"
)
_SUPPLEMENT = r"S\d{1,3}\s(?:Tables?|Figs?|Texts?|Files?|Appendix|Videos?|Movies?|Datasets?)\b"
_ONE = rf"(?:{_SUPPLEMENT}|{_HEAD}\.?\s?{_PLACES})"
_REFERENCE = re.compile(rf"{_ONE}(?:{_JOINT}{_ONE})*")
_BEHIND_COMMA = re.compile(rf"\s*[,;]\s+({_REFERENCE.pattern})\s*$")
_SEE = re.compile(rf"[,;]\s*[Ss]ee\s(?:also\s)?({_REFERENCE.pattern})\s*(?=\.?\s*$)")
_IS_FIGURE = re.compile(r"[Ff]ig|FIG")
_BRACKET = re.compile(
    # Alternatives that exclude each other: otherwise an open bracket would be tried in 2^n ways.
    r"[(\[]((?:[^()\[\]]|\([A-Za-z\d,–-]{1,5}\)"
    rf"|(?!\([A-Za-z\d,–-]{{1,5}}\)){_IN_BRACKETS}){{1,300}})[)\]]"
)
_WORKS = re.compile(r"\d{1,4}(?:\s?[,;–-]\s?\d{1,4})*")
_NUMBERED_WORKS = re.compile(r"(?<=[a-z\d%)”’.,;\s])\[\s?\d{1,4}(?:\s?[,;–-]\s?\d{1,4})*\s?\]")
_BEFORE_INTERVAL = re.compile(r"(?:\b(?:CI|IQR|range|intervals?|domain)|[=×∈⊂~])[\s,:]*$")
_VALUE_BEFORE = re.compile(
    r"(?:\b(?:median|mean|was|were|is|of|versus|vs\.?)|=)\s(\d+(?:\.\d+)?)\s$"
)
_DATE_WORDS = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Spring|Summer|Autumn|Fall|Winter|Early|Mid|Late|to|of"
    r"|and|early|mid|late|spring|summer|autumn|winter)\b\.?"
)
_AUTHORS = re.compile(
    rf"(?!(?:{_DATE_WORDS}[\s,–—-]*)+(?:19|20)\d\d)"
    r"(?:(?:see|reviewed (?:in|by)|e\.g\.|for (?:a )?review,?|cf\.),?\s)*"
    r"[A-ZÀ-Ž][^\d;]{1,80}?,?\s(?:19|20)\d\d[a-z]?(?:,\s?(?:(?:19|20)\d\d)?[a-z]?)*",
)
# Words that introduce a bracket.
_NEEDS_MORE = re.compile(
    r"(?:\b(?:in|by|of|from|on|with|to|see|at|per|and|or|than|under|following|ref|refs|reference|"
    r"references|equation|equations|eq|eqs|study|studies))\s*$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\s*(?:;|,\s(?:and|but|whereas|while|although)\s)")
_NEW_CLAUSE = re.compile(r"\s*(?:;|,\s(?:whereas|while)\s)\s*")
_TIDY = (
    (re.compile(r"[ \t\xa0\u2009]+"), " "),
    (re.compile(r" ([,.;:!?)\]])"), r"\1"),
    (re.compile(r"([(\[]) "), r"\1"),
    (re.compile(r",(?=[,.;:])"), ""),
    # What is left of "(Table 1, [34])".
    (re.compile(r"[,;]\s*(?=[)\]])"), ""),
    (re.compile(r"^[\s,;.]+"), ""),
    (re.compile(r"(?<!\.)\.\.$"), "."),
)


_FEWEST_WORDS = 2


@dataclass(frozen=True, slots=True)
class OwnReference:
    """Position of a reference to the figure in a sentence, and the panels it names."""

    start: int
    panels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """A bracket with a reference, and the text that remains of it."""

    start: int
    end: int
    kind: str
    """Kind of reference: ``own`` figure, ``other`` figures, or ``works``."""
    left: str


def without_references(
    sentence: str, own: Sequence[OwnReference] = (), superscripts: Sequence[Span] = ()
) -> str:
    """Return a sentence without parenthetical references and without clauses on other figures.

    ``The tumour shrank (Fig. 2A) [12], and weight was the same (Fig. 3).`` gives for figure 2 ``The
    tumour shrank (A).``

    Args:
        sentence: The sentence as published.
        own: References of the sentence to the figure.
        superscripts: Superscript spans of the sentence: citation numbers are removed, exponents
            kept.
    """
    gone = _works(sentence, superscripts)
    raised = [span for span in superscripts if span not in gone]
    brackets = list(_brackets(sentence, own))
    start, stop = _own_clause(sentence, brackets)
    see = _SEE.search(sentence)
    if see and see.start() > start:
        stop = min(stop, see.start())
    cuts = [(span.start, span.end, "") for span in gone]
    cuts += [(item.start, item.end, f"({item.left})" if item.left else "") for item in brackets]
    pieces, end = [], start
    for first, last, left in sorted(cuts):
        if first < end or last > stop:
            continue
        pieces += [_readable(sentence, end, first, raised), left]
        end = last
    pieces.append(_readable(sentence, end, stop, raised))
    text = _tidied("".join(pieces), ends=sentence.rstrip()[-1:])
    # Capitalize the clause if it is now the sentence; keep mRNA.
    begins = start > 0 and re.match(r"[a-z]{2,}\s|a\s", text)
    return text[:1].upper() + text[1:] if begins else text


def is_only_references(sentence: str) -> bool:
    """Return whether a sentence has almost no words apart from references: ``And Fig. 3C.``."""
    return len(re.findall(r"[^\W\d_]{2,}", _REFERENCE.sub("", sentence))) < _FEWEST_WORDS


def _works(sentence: str, superscripts: Sequence[Span]) -> list[Span]:
    """Return the spans in which a sentence cites works by numbers, superscript or in brackets."""
    spans = [
        span
        for span in superscripts
        if _WORKS.fullmatch(sentence[span.start : span.end].strip())
        and re.search(r"(?:[a-z]{4}|[.,;:)\]”])$", sentence[max(0, span.start - 4) : span.start])
    ]
    for match in _NUMBERED_WORKS.finditer(sentence):
        before = sentence[max(0, match.start() - 16) : match.start()]
        is_index = re.search(r"(?<![A-Za-z])[A-Za-z]$", before) is not None
        if _is_interval(before, match.group()):
            continue
        if not is_index and not _NEEDS_MORE.search(before):
            spans.append(Span(match.start(), match.end()))
    return spans


def _is_interval(before: str, bracket: str) -> bool:
    """Return whether a bracket is an interval, not works: ``95% CI [1, 4]``, ``range [0, 1]``."""
    numbers = [int(number) for number in re.findall(r"\d+", bracket)]
    if len(numbers) < 2:
        return False
    if 0 in numbers or _BEFORE_INTERVAL.search(before):
        return True
    value = _VALUE_BEFORE.search(before)
    return value is not None and len(numbers) == 2 and numbers[0] <= float(value[1]) <= numbers[1]


def _brackets(sentence: str, own: Sequence[OwnReference]) -> Iterator[_Found]:
    for bracket in _BRACKET.finditer(sentence):
        if _NEEDS_MORE.search(sentence[max(0, bracket.start() - 16) : bracket.start()]):
            continue
        place = bracket.start(1)
        left, kinds = [], set[str]()
        for part in re.split(r"(;\s?)", bracket[1]):
            here = [ref for ref in own if place <= ref.start < place + len(part)]
            kind, rest = _part(part, here)
            place += len(part)
            if not part.startswith(";"):
                kinds.add(kind)
                left.append((kind, rest))
        if kinds <= {"text"}:
            continue
        # Text about another figure is removed with it, if text about this one remains.
        kept = [rest for kind, rest in left if rest and not (kind == "other" and "own" in kinds)]
        kind = "own" if "own" in kinds else "other" if "other" in kinds else "works"
        yield _Found(bracket.start(), bracket.end(), kind, "; ".join(dict.fromkeys(kept)))


def _part(part: str, own: Sequence[OwnReference]) -> tuple[str, str]:
    """Return what a part of a bracket refers to, and its other text."""
    text = part.strip()
    panels = ", ".join(dict.fromkeys(label.replace(".", "") for ref in own for label in ref.panels))
    kind = "own" if own else "other"
    reference = _REFERENCE.match(text)
    if reference:
        rest = text[reference.end() :].strip(" ,:")
        # "(see Fig. 3 for examples)" is meaningless without the figure.
        if kind == "other" or rest.startswith("for "):
            rest = ""
        if not _IS_FIGURE.search(reference[0]) and not own:
            kind = "works"
        return kind, ", ".join(filter(None, [panels, rest]))
    behind = _BEHIND_COMMA.search(text)
    if behind:
        if not _IS_FIGURE.search(behind[0]) and not own:
            kind = "works"
        return kind, ", ".join(filter(None, [text[: behind.start()], panels]))
    if own and re.fullmatch(rf"{_PLACES}", text):
        return kind, panels
    if _AUTHORS.fullmatch(text):
        return "works", ""
    return "text", text


def _own_clause(sentence: str, found: Sequence[_Found]) -> tuple[int, int]:
    """Return the span of a sentence that is about the figure, as separated by clauses."""
    start, stop = 0, len(sentence)
    figures = [item for item in found if item.kind in ("own", "other")]
    own = [number for number, item in enumerate(figures) if item.kind == "own"]
    if not own:
        return start, stop
    last = figures[own[-1]]
    ends_elsewhere = last is not figures[-1] and not sentence[figures[-1].end :].strip(" .")
    if ends_elsewhere and _CLAUSE.match(sentence, last.end):
        stop = last.end
    if own[0] > 0:
        clause = _NEW_CLAUSE.match(sentence, figures[own[0] - 1].end)
        if clause:
            start = clause.end()
    return start, stop


def _readable(sentence: str, start: int, stop: int, raised: Sequence[Span]) -> str:
    inside = [span for span in raised if start <= span.start and span.end <= stop]
    marks = [span.start - start for span in inside if span.start > start]
    own = [Span(span.start - start, span.end - start) for span in inside]
    return readable(sentence[start:stop], own) if marks else sentence[start:stop]


def _tidied(text: str, *, ends: str) -> str:
    for pattern, by in _TIDY:
        text = pattern.sub(by, text)
    text = text.strip().rstrip(",;:")
    if text and text[-1] not in ".!?" and ends and ends in ".!?":
        text += ends
    return text
