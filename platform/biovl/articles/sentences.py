"""Sentence boundaries in the running text of an article.

A full stop ends a sentence unless it belongs to an abbreviation, an initial or a number, or is
inside a bracket or a reference. After words that allow both ("et al.", "sp.", "panel B.") the next
word decides: sentences start with few words far more often than names do.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from biovl.core.records import Span

_MAX_BRACKET = 1_500
"""Characters; a bracket that is open for longer counts as unclosed."""

_CLOSERS = r"[)\]}”’\"'»]*"
# The end of a sentence, what closes with it, numbers of cited works behind it, white space.
_END = re.compile(
    rf"[.!?…。](?P<close>{_CLOSERS})"
    r"(?P<cited>(?:\[\d[\d,;\s–-]{0,30}\]|\d{1,3}(?:[,–-]\d{1,3}){0,9})?)"
    r"(?P<space>\s+)"
)
_GLUED = re.compile(
    r"(?<=[\w)\]][a-z)\]\d%])\.(?=(?:The|In|This|These|However|Moreover|Furthermore|We|It|As|To)(?:,|\s[a-z(]))"
    r"|(?<=[\w)\]][)\]])\.(?=[A-Z][a-z]+(?:,|\s[a-z(]))"
)
# References in brackets are no sentence of their own: "Cells grew. (Fig. 2A). They died."
_LONE_BRACKET = re.compile(
    r"(?:\((?:[^()\n]|\([^()\n]{0,20}\)){0,200}(?<![.!?])\)|\[[^\[\]\n]{0,200}(?<![.!?])\])\s?(?:\.(?=\s|\Z)|(?=\n|\Z))"
)
_REFERENCE = re.compile(
    r"\b(?:fig(?:ure)?s?|tables?|schemes?|videos?|movies?)\.?\s?[A-Z]{0,2}\d", re.IGNORECASE
)
_STARTS = re.compile(r"[(\[{“‘\"'«]*(?:[^\W\d_]|\d|[+∼~≥≤<>*†‡§#®▪•–—-])")
# Names that start in lower case and may start a sentence: p53, mRNA, siRNAs, α-tubulin, eGFP, qPCR.
_LOW_NAME = re.compile(r"(?:[a-z]{1,5}[A-Z0-9]|[α-ω][A-Za-z-]|[a-z]-[A-Z])")
_STARTERS = frozenset(
    """
    The This These That Those There Their They It Its In On At As An A By For From To With Within
    Without We Our He She Here His Her However Moreover Furthermore Additionally Thus Therefore
    Hence Then Then, When While Whereas Where Which Who Why How What If Is Are Was Were Has Have Had
    Although Because Since Despite Both All Each Some Most Many Several Such Similarly Interestingly
    Importantly Notably Finally First Second Third Next After Before During Between Among Also And
    But Or Nor Yet So No Not None Another Other Only One Two Three Four Five Six Given Based Using
    Overall Together Conversely Consistent Consistently Indeed Instead Nevertheless Nonetheless
    Subsequently Taken Under Upon Until Up Unlike Data Results Error Values Representative Scale Bar
    Bars Arrows Arrowheads Asterisks Note See Patients Cells Mice Animals Samples Statistical
    Significant Compared Moreover Surprisingly Specifically Accordingly Recently Previous Previously
    Further Once Even Through Throughout Toward Towards Against Across Via Later Currently Again
    """.split()
)
# Never the end of a sentence where a number, a name or an example follows.
_NEVER = frozenset(
    """
    fig figs eq eqs eqn eqns ref refs tab tabs sect secs chap ch suppl supp i.e e.g
    ie eg viz vs v cf approx ca c resp dr drs prof mr mrs ms st mt ft nos vol vols pp pls incl pers
    unpubl edn eds transl dept univ assoc fasc ser subgen subsect abb var subsp ssp cv f fo acad sci
    jan feb mar apr jun jul aug sep sept oct nov dec
    """.split()
)
# May end a sentence: the next word decides.
_PERHAPS = frozenset(
    """
    al etc sp spp inc ltd co corp gmbh u.s u.k u.s.a a.m p.m ph.d m.sc wt jr sr llc s.a s.l s.str
    b.v n.v d.c comb syn ed app comm gen
    """.split()
)
# A displayed formula is a line of its own: "is given by ⏎ E = mc2, ⏎ where m is the mass".
_RELATION = re.compile(r"[=<>≤≥≈∼~≃≅≡∝≠∈→←↔⇌⟶⟵∑∫∏√]|\\[A-Za-z]{2}")
_LONG_WORD = re.compile(r"(?<![\\\w])[A-Za-z][a-z]{3,}(?![\w}])")
_MOST_WORDS = 2
"""Long words in a line that is a formula."""
_GOES_ON = re.compile(r"(?!(?:i{1,3}|iv|vi{0,3}|ix)\b)[a-z]{2,}(?=[\s,])")
_ENDED = re.compile(rf"[.!?…。]{_CLOSERS}$")
# Words before a lone letter that is a name of its own: "hepatitis B. Then".
_WORD_BEFORE = re.compile(r"([^\s(\[{“‘\"'«]+)$")


def sentences(text: str, *, protected: Sequence[Span] = ()) -> list[Span]:
    """Return the sentences of a text, in order, without surrounding white space.

    Together they cover everything but white space. Blocks are lines in our texts, and a line break
    ends a sentence, unless a displayed formula or a word in lower case continues it. Linear in the
    length of the text.

    Args:
        text: Running text as ``articles.text`` returns it.
        protected: Ranges in which no sentence ends, such as references. May overlap.
    """
    found: list[Span] = []
    closed = _inside(text, protected)
    start = 0
    for line_end in _line_ends(text):
        cuts = [start, *_cuts(text, start, line_end, closed), line_end]
        for first, last in pairwise(cuts):
            piece = text[first:last]
            stripped = piece.strip()
            if stripped:
                lead = first + len(piece) - len(piece.lstrip())
                found.append(Span(lead, lead + len(stripped)))
        start = line_end
    return found


def _line_ends(text: str) -> Iterator[int]:
    """Yield the ends of lines that end a sentence, including the last."""
    place = 0
    before = ""
    for line in text.split("\n"):
        if before and not _continues(before, line):
            yield place - 1
        place += len(line) + 1
        before = line or before
    yield len(text)


def _continues(before: str, line: str) -> bool:
    """Return whether a line continues the sentence of the line before it."""
    if _ENDED.search(before[-8:]):
        # A formula may have a point of its own: "E = mc2. ⏎ where m is the mass".
        return line.startswith("where ") and _is_formula(before)
    return _GOES_ON.match(line) is not None or _is_formula(line)


def _is_formula(line: str) -> bool:
    words = _LONG_WORD.finditer(line)
    return _RELATION.search(line) is not None and sum(1 for _ in words) <= _MOST_WORDS


def _cuts(text: str, start: int, stop: int, closed: bytearray) -> Iterator[int]:
    """Yield the ends of sentences within one line, except the last."""
    ends = [
        (match.start(), match.end("cited"), match) for match in _END.finditer(text, start, stop)
    ]
    glued = [(match.start(), match.end(), None) for match in _GLUED.finditer(text, start, stop)]
    last = start
    for point, end, match in sorted([*ends, *glued], key=lambda item: item[0]):
        # A whole sentence in brackets has its point inside of them.
        in_brackets = match is not None and match["close"][:1] in (")", "]")
        if in_brackets and closed[point] and text[last:point].lstrip()[:1] in ("(", "["):
            point = match.end("close") - 1 if match is not None else point
        if closed[point] or (end < len(text) and closed[end]):
            continue
        if match is None or _is_end(text, last, point, match):
            last = end
            yield end


def _is_end(text: str, start: int, point: int, match: re.Match[str]) -> bool:
    """Return whether the full stop at a position ends a sentence that starts at another."""
    after = match.end()
    if not _STARTS.match(text, after):
        return False
    bracket = _LONE_BRACKET.match(text, after)
    if bracket is not None and _REFERENCE.search(bracket[0]):
        return False
    following = text[after : after + 24]
    first = following.lstrip("([{“‘\"'«")
    if first[:1].islower() and not _LOW_NAME.match(first):
        return False
    if text[point] != "." or match["close"] or match["cited"]:
        return not (
            text[point] == "."
            and match["cited"][:1].isdigit()
            and text[point - 1 : point].isdigit()
        )
    before = _WORD_BEFORE.search(text, max(start, point - 40), point)
    word = before[1] if before else ""
    low = word.lower()
    # In capitals these are names: MS for mass spectrometry, C for vitamin C.
    is_name = word.isupper() and low not in ("fig", "figs", "eq", "eqs", "no", "nos")
    if low in _NEVER and not is_name:
        return False
    next_word = re.match(r"[\w-]*", first)
    is_starter = next_word is not None and next_word[0] in _STARTERS
    if low in ("no", "p", "n", "t", "figure", "figures") and first[:1].isdigit():
        return False
    if (low in _PERHAPS and (not is_name or "." in low)) or _is_initial(word):
        return is_starter
    return True


def _is_initial(word: str) -> bool:
    """Return whether a word is an initial, or several: ``E``, ``J.R``, ``C.-H``."""
    return (
        re.fullmatch(r"(?:[^\W\d_]\.?-?){0,3}[^\W\d_]", word) is not None
        and (len(word) == 1 or "." in word)
        and word[0].isupper()
    )


def _inside(text: str, protected: Sequence[Span]) -> bytearray:
    """Return for each position between characters whether a bracket or protected range spans it."""
    closed = bytearray(len(text) + 1)
    for span in protected:
        start, end = max(span.start, 0), min(span.end, len(text))
        if end - start > 1:
            closed[start : end - 1] = b"\1" * (end - 1 - start)
    opened: list[tuple[str, int]] = []
    depth_start = -1
    pairs = {")": "(", "]": "["}
    for match in re.finditer(r"[()\[\]\n]", text):
        sign = match[0]
        if sign == "\n":
            opened.clear()
        elif sign in "([":
            opened.append((sign, match.start()))
        elif opened and opened[-1][0] == pairs[sign]:
            _, depth_start = opened.pop()
            if not opened or len(opened) < 2:
                length = match.start() - depth_start
                if length <= _MAX_BRACKET:
                    closed[depth_start : match.start()] = b"\1" * length
    return closed
