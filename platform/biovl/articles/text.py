"""The text of JATS elements: exact, with block boundaries as newlines and marks as offsets.

Visiting every node in Python costs more than parsing. So a tree is prepared once, in place: block
boundaries get a mark, formulas one text representation. After that, the text of any element is one
call into libxml2. References, superscripts and bold ranges are marked in the same way; references
and bold ranges only in the captions and paragraphs whose offsets are needed.
"""

import html.entities
import re
from collections.abc import Callable, Iterable
from functools import cache

from lxml import etree

from biovl.articles.captions import readable
from biovl.articles.formulas import FORMULA, MATH, MATHML, read_formula, read_tex
from biovl.core.records import Span

BLOCK = "\u2029"
"""Unicode's paragraph separator; one in the published text has the same meaning."""

# Unicode noncharacters: legal in XML, never part of a text.
REF, REF_END = "\ufdd0", "\ufdd1"
SUP, SUP_END = "\ufdd2", "\ufdd3"
BOLD, BOLD_END = "\ufdd4", "\ufdd5"
_OPENING = {REF: REF_END, SUP: SUP_END, BOLD: BOLD_END}
_CLOSING = {end: start for start, end in _OPENING.items()}
_MARK = re.compile("([\ufdd0-\ufdd5])")
_UNICODE_SPACES = "\x85\xa0\u1680\u2028\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)

OBJECT = "\ufffc"
"""Unicode's object replacement character represents a symbol that was published as an image."""

_ENDS_BLOCK = frozenset(
    "p title subtitle list-item def-item tr verse-line caption sec attrib permissions ref".split()
)
_IS_BLOCK = frozenset(
    "list def-list disp-formula disp-quote table-wrap boxed-text preformat supplementary-material "
    "fig fig-group verse-group speech statement chem-struct-wrap array code fn media".split()
)
_SPACED = frozenset(
    "label td th break hr term def alt-text long-desc legend speaker kwd object-id".split()
)
_PREPARED = (
    *_ENDS_BLOCK,
    *_IS_BLOCK,
    *_SPACED,
    *FORMULA,
    MATHML + "annotation-xml",
    "inline-graphic",
    "tex-math",
)


def prepare(root: etree._Element) -> None:
    """Mark the blocks of a tree and reduce each formula to one representation, in place."""
    has_math = cache(_has_math)
    for element in root.iter(*_PREPARED):
        tag = element.tag
        if tag in _ENDS_BLOCK:
            tail = element.tail
            element.tail = BLOCK + tail if tail else BLOCK
            _separate(element, BLOCK)
        elif tag in _SPACED:
            element.tail = " " + (element.tail or "")
            _separate(element, " ")
        elif tag in _IS_BLOCK:
            element.tail = BLOCK + (element.tail or "")
            _put_before(element, BLOCK)
        elif tag in FORMULA:
            read_formula(element, tag.removeprefix(MATHML))
        elif tag == "tex-math":
            read_tex(element, has_math)
        elif tag == "inline-graphic":
            around = element.getparent()
            if not (len(element) or has_math(around, MATH) or has_math(around, "tex-math")):
                element.text = OBJECT
        else:
            element.clear(keep_tail=True)


def mark_all(elements: Iterable[etree._Element], opening: str) -> None:
    """Insert a pair of marks around the text of each element, in place."""
    for element in elements:
        mark(element, opening)


def mark(element: etree._Element, opening: str) -> None:
    """Insert a pair of marks around the text of an element, in place."""
    element.text = opening + (element.text or "")
    element.tail = _OPENING[opening] + (element.tail or "")


def resolve_entities(root: etree._Element) -> str | None:
    """Replace entity references by their HTML 5 characters, in place.

    The DTD that defines them is never loaded; its names are those of HTML.

    Returns:
        The first reference without a known character, or None.
    """
    entities = list(root.iter(etree.Entity))
    characters = {entity: html.entities.html5.get(entity.name + ";") for entity in entities}
    for entity, character in characters.items():
        if character is None:
            return str(entity.text)
    detach(entities, lambda entity: characters[entity] or "")
    return None


def detach(
    elements: Iterable[etree._Element], instead: Callable[[etree._Element], str] = lambda _: ""
) -> None:
    """Replace elements with the text that ``instead`` returns, keeping the text after each."""
    chosen = dict.fromkeys(elements)
    for first in [element for element in chosen if element.getprevious() not in chosen]:
        # The texts of neighbours are joined once: one by one takes quadratic time.
        parent, before = first.getparent(), first.getprevious()
        run = [first]
        while (following := run[-1].getnext()) in chosen:
            run.append(following)
        kept = "".join(instead(element) + (element.tail or "") for element in run)
        for element in run:
            element.tail = None
            parent.remove(element)
        if before is not None:
            before.tail = (before.tail or "") + kept or None
        else:
            parent.text = (parent.text or "") + kept or None


def plain(element: etree._Element | None) -> str:
    """Return the text of an element without marks, one line per block; empty for None.

    The tree must have been prepared by ``prepare``.
    """
    return "" if element is None else without_marks(with_marks(element))[0]


def plain_readable(element: etree._Element | None) -> str | None:
    """Return the text of a prepared element with ``^`` before marked powers, or None."""
    if element is None:
        return None
    # For long texts five times faster than reading a str from lxml, for short ones slower.
    raw: bytes = etree.tostring(element, method="text", encoding="utf-8", with_tail=False)
    bare, spans = without_marks(_folded(raw.decode()))
    return readable(bare, spans[SUP]) or None


def plain_or_none(element: etree._Element | None) -> str | None:
    """Return the text of a prepared element, or None if there is none."""
    return plain(element) or None


def with_marks(element: etree._Element) -> str:
    """Return the text of a prepared element, blocks as lines, including its marks."""
    return _folded(etree.tostring(element, method="text", encoding="unicode", with_tail=False))


def without_marks(text: str) -> tuple[str, dict[str, list[Span]]]:
    """Return a text without its marks, and the spans they enclosed, in order of opening.

    The keys are the opening marks ``REF``, ``SUP`` and ``BOLD``.
    """
    if _MARK.search(text) is None:
        return text, {REF: [], SUP: [], BOLD: []}
    pieces: list[str] = []
    starts: dict[str, list[int]] = {REF: [], SUP: [], BOLD: []}
    ends: dict[str, list[int]] = {REF: [], SUP: [], BOLD: []}
    opened: dict[str, list[int]] = {REF: [], SUP: [], BOLD: []}
    length = 0
    last = "\n"
    # Texts and marks alternate, with a text first and last.
    parts = [*_MARK.split(text), ""]
    for place in range(0, len(parts), 2):
        piece, mark_found = parts[place], parts[place + 1]
        # A mark between two spaces, or at the edge of a line, leaves an extra space.
        if piece.startswith(" ") and last in " \n":
            piece = piece[1:]
        elif last == " " and (piece.startswith("\n") or not (piece or mark_found)):
            pieces[-1] = pieces[-1][:-1]
            length -= 1
        if piece:
            pieces.append(piece)
            length += len(piece)
            last = piece[-1]
        if mark_found in _OPENING:
            opened[mark_found].append(len(starts[mark_found]))
            starts[mark_found].append(length)
            ends[mark_found].append(length)
        elif mark_found and opened[_CLOSING[mark_found]]:
            opening = _CLOSING[mark_found]
            ends[opening][opened[opening].pop()] = length
    bare = "".join(pieces)
    return bare, {
        opening: [_span(bare, start, ends[opening][place]) for place, start in enumerate(found)]
        for opening, found in starts.items()
    }


def _span(text: str, start: int, end: int) -> Span:
    """Return a span without white space at its edges."""
    end = min(end, len(text))
    start = min(start, end)
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _folded(raw: str) -> str:
    """Return a text with one space for each run of white space and one newline between blocks."""
    if not raw.isascii():
        for space in _UNICODE_SPACES:
            raw = raw.replace(space, " ")
    lines = []
    for line in raw.split(BLOCK):
        # Most lines need no change, and checking costs a fifth of splitting and joining.
        if "\n" in line or "  " in line or "\t" in line:
            line = " ".join(line.split())
        else:
            line = line.strip()
        if line:
            lines.append(line)
    return "\n".join(lines)


def _put_before(element: etree._Element, text: str) -> None:
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + text
        return
    parent = element.getparent()
    if parent is not None:
        parent.text = (parent.text or "") + text


def _separate(element: etree._Element, text: str) -> None:
    """Insert a separator before an element if the text there would run into it."""
    before = element.getprevious()
    if before is None:
        parent = element.getparent()
        if parent is not None and parent.text and not parent.text[-1].isspace():
            parent.text += text
        elif parent is not None and parent.tag == "inline-graphic":
            # An image's description stands in its place.
            _separate(parent, text)
    # A block, a label or a white space before it has separated them already.
    elif not (before.tail and before.tail[-1].isspace()):
        before.tail = (before.tail or "") + text


def _has_math(parent: etree._Element | None, tag: str) -> bool:
    return parent is not None and parent.find(tag) is not None
