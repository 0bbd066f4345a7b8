"""Formulas of JATS as text: one representation each, with the signs without which it is misread."""

import re
from collections.abc import Callable
from string import ascii_lowercase

from lxml import etree

MATHML = "{http://www.w3.org/1998/Math/MathML}"
"""Namespace of MathML, the beginning of its tags."""

FORMULA = frozenset(
    MATHML + name
    for name in "mfrac msqrt mroot msub msup msubsup mfenced mspace annotation".split()
    + "munder mover munderover mtd mtr mlabeledtr".split()
)
"""Elements that ``read_formula`` reads."""

MATH = MATHML + "math"

_ROWS = frozenset(MATHML + name for name in "math mrow mstyle mpadded semantics".split())
"""Elements of MathML whose children are read one after the other."""
_APART = frozenset(MATHML + name for name in "mtext mspace annotation annotation-xml".split())
_TIMES = "\N{INVISIBLE TIMES}"
_OPENS = "([{∑∏∫√"
_BRACKETED = frozenset(MATHML + name for name in "mfenced msqrt mroot".split())
_LIMITS = {
    **{"msub": "_", "msup": "^", "msubsup": "_^"},
    **{"munder": "_", "mover": "^", "munderover": "_^"},
}
"""Signs of the scripts of an element, in order."""
_HAS_LIMITS = frozenset("∑∏∫∬∭∮⋃⋂⋁⋀⨁⨂")
_NOT_A_POWER = frozenset("st nd rd th º ª o".split())
"""Letters raised after a number that are an ordinal's ending or a degree sign."""
_ONE_TERM = re.compile(r"[+\-−–]?\s*(?:\d[\d.,]*|[^\W\d_])\s*[+\-−–]?")
_GOES_ON = ("=", "+", "×", "·", "<", ">", "≤", "≥", "≈")
_SPACE = MATHML + "mspace"
# "}{}" is what a converter of Oxford University Press and PeerJ left.
_TEX_BODY = re.compile(r"\\begin\{document\}(?:\s*\}\{\})?(.*?)\\end\{document\}", re.DOTALL)
# What displays a formula, and the macros that ARVO defines in each one.
_TEX_FRAME = re.compile(
    r"\\(?:begin|end)\{(?:equation|displaymath|eqnarray|align|gather|multline)\*?\}"
    r"|(?<!\\)\\[()]|\\newcommand\{\\\w+\}\{(?:[^{}]|\{[^{}]*\})*+\}"
)


def read_tex(
    element: etree._Element, has_math: Callable[[etree._Element | None, str], bool]
) -> None:
    """Keep MathML if it is an alternative to TeX; else reduce TeX to its body."""
    if has_math(element.getparent(), MATH):
        element.text = None
        return
    tex = element.text or ""
    body = _TEX_BODY.search(tex)
    element.text = _TEX_FRAME.sub("", body[1] if body else tex).strip().strip("$").strip()


def read_formula(element: etree._Element, name: str) -> None:
    """Insert the characters without which a formula would be misread: 1/2, not 12."""
    children = len(element)
    if name == "annotation":
        element.text = None
    elif name == "mfrac" and children == 2:
        _bracket(element[0])
        _bracket(element[1])
        is_binomial = element.get("linethickness", "").rstrip(ascii_lowercase) in ("0", "0.0")
        element[0].tail = " choose " if is_binomial else "/"
        if _is_factor(element):
            _bracket(element)
    elif name == "msqrt" and children:
        element.text = "√("
        element[-1].tail = ")" + (element[-1].tail or "").strip()
    elif name == "mroot" and children == 2:
        element.text, element[0].tail, element[1].tail = "(", ")^(1/", ")"
    elif children == 1 + len(_LIMITS.get(name, "-" * children)):
        base = "".join(element[0].itertext()).strip()
        # Below words such as lim and max; an x with something above or below it is a name.
        is_word = name == "munder" and len(base) > 1 and base.isalpha()
        if name == "munderover" or base in _HAS_LIMITS or is_word:
            _read_limits(element, _LIMITS[name])
        elif name in ("msup", "msubsup"):
            _read_power(element)
    elif name == "mfenced":
        separators = element.get("separators", ",").strip()
        for place, child in enumerate(element[:-1]):
            child.tail = separators[min(place, len(separators) - 1)] if separators else ""
        element.text = element.get("open", "(")
        closing = element.get("close", ")")
        if children:
            element[-1].tail = closing
        else:
            element.text += closing
    elif name == "mspace" and not element.get("width", "-").startswith("-"):
        element.text = " "
    elif name in ("mtd", "mtr", "mlabeledtr") and element.getnext() is not None:
        element.tail = " " if name == "mtd" or _is_one_line(element) else "; "


def _is_one_line(row: etree._Element) -> bool:
    """Return whether the next row of a table continues this one, or a comma separates them."""
    following = row.getnext()
    has_empty_cell = len(following) > 1 and not _spoken(following[0])
    first = next(
        (part for part in following.iter() if part.tag == _SPACE or (part.text or "").strip()),
        following,
    )
    return (
        has_empty_cell
        or first.tag == _SPACE
        or _spoken(following).startswith(_GOES_ON)
        or _spoken(row).endswith((",", ";", "."))
    )


def _read_limits(element: etree._Element, signs: str) -> None:
    """Insert the signs of the limits of an operator, such as a sum: ∑_(i=1)^n x, not ∑i=1nx."""
    limits = list(zip(signs, element, element[1:], strict=False))
    # Others are lines and accents.
    if not any(_is_limit(limit) for _, _, limit in limits):
        return
    for sign, before, limit in limits:
        if _is_limit(limit):
            before.tail = sign
            _bracket(limit)
    if _following(element)[:1] not in tuple(")]},.;"):
        element.tail = " "


def _is_limit(element: etree._Element) -> bool:
    return any(sign.isalnum() or sign == "∞" for sign in "".join(element.itertext()))


def _following(element: etree._Element) -> str:
    """Return the text of what follows an element in its formula; a full stop at the end of it."""
    for around in (element, *element.iterancestors()):
        if around.tag == MATH:
            break
        following = around.getnext()
        if following is not None:
            return _spoken(following)
    return "."


def _read_power(element: etree._Element) -> None:
    """Insert ``^`` before a power that could be read as part of its base: 10^6, not 106."""
    base, power = element[-2:]
    before, raised = ("".join(child.itertext()).strip() for child in (base, power))
    is_letter = raised[:1].isalpha() and raised not in _NOT_A_POWER
    if not (is_letter or raised[:1] in tuple("+-−–0123456789")):
        return
    inner = _inner(base).tag
    if len(element) == 2 and inner in (MATHML + "mfrac", MATHML + "mroot"):
        element.text = (element.text or "").strip() + "("
        before = base.tail = ")"
    elif inner in _BRACKETED:
        before += ")"
    elif not before:
        before = _before(element)
    if before[-1:].isdigit() or before[-1:] in tuple(")]}|"):
        base.tail = (base.tail or "").strip() + "^"
        is_fraction = next(power.iter(MATHML + "mfrac"), None) is not None
        if is_fraction or _ONE_TERM.fullmatch(raised) is None:
            _bracket(power)


def _before(element: etree._Element) -> str:
    """Return the text directly before an element, in its formula or in front of it."""
    for around in (element, *element.iterancestors()):
        before, parent = around.getprevious(), around.getparent()
        if before is not None:
            text = "".join(before.itertext()) + (before.tail or "")
        else:
            text = (parent.text if parent is not None else None) or ""
        if text:
            return text
    return ""


def _is_factor(element: etree._Element) -> bool:
    """Return whether a fraction stands beside a number, a name or another fraction."""
    around = element.getparent()
    if around is None or around.tag not in _ROWS:
        return False
    before, after = _spoken(element.getprevious())[-1:], _spoken(element.getnext())[:1]
    return (
        before.isalnum() or after.isalnum() or (before or "=") in ")]}" or (after or "=") in _OPENS
    )


def _spoken(element: etree._Element | None) -> str:
    """Return the text of a neighbour in a formula, empty if it is words."""
    if element is None or element.tag in _APART:
        return ""
    return "".join(element.itertext()).replace(_TIMES, "x").strip()


def _bracket(element: etree._Element) -> None:
    inner = _inner(element)
    if len(inner) > 1 and inner.tag not in _BRACKETED:
        inner.text = "(" + (inner.text or "").strip()
        inner[-1].tail = (inner[-1].tail or "").strip() + ")"


def _inner(element: etree._Element) -> etree._Element:
    """Return the content of rows that hold a single element."""
    while len(element) == 1 and element.tag in _ROWS:
        element = element[0]
    return element
