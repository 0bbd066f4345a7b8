"""Parsing and validation of a model's answers; ``steps`` retries once after a malformed answer."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lxml import etree

from biovl.annotate.longcap.context import words_of
from biovl.articles.citances.extraction import references
from biovl.core.xml import parse_xml

FEASIBLE, NOT_FEASIBLE = "FEASIBLE", "NOT_FEASIBLE"

REFUSED = "refused"
TALKS = "speaks of its task"
TRUNCATED = "truncated"
MALFORMED = "malformed"
TOO_SHORT, TOO_LONG = "too short", "too long"
OTHER_LANGUAGE = "not in English"
OTHER_FIGURES = "names other figures"
INCONSISTENT = "says what was not feasible"
INVENTED = "says what was not drafted"
NOTHING_FEASIBLE = "nothing is feasible"

_MOST_CHARS = 40_000
_MOST_FEATURES = 400
_FENCE = re.compile(r"\A\s*```(?:xml)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
# "H&E" and "p < 0.05", which models leave unescaped: no entity and no tag begins like that.
_UNESCAPED = re.compile(r"&(?!#?\w+;)|<(?![A-Za-z/])")
_REFUSAL = re.compile(
    # "Collagen type I cannot …" is none.
    r"(?<!\btype\s)(?<!\bclass\s)(?<!\bphase\s)(?<!\bstage\s)(?<!\bgrade\s)(?<!\bgroup\s)"
    r"(?<!\blevel\s)(?<!\bpart\s)(?<!\bfactor\s)(?<!\bsubunit\s)(?-i:\bI)"
    r"(?:(?:['’]m|\sam)\s(?:sorry|unable|not\sable)|\s(?:can(?:no|['’])t|cannot|won['’]t))|"
    r"\b(?:as\san\sAI|(?:AI|language)\s(?:assistant|model)\b.{0,40}\b(?:cannot|can['’]t|unable)|"
    r"unable\sto\s(?:assist|help|provide|comply)|can['’]?t\s(?:assist|help)|"
    r"against\smy\s(?:guidelines|policy))",
    re.IGNORECASE,
)
_TALK = re.compile(
    r"</?(?:article|draft|assessment|feature|keep|remove)\b|\bprevious instructions?\b|"
    r"\bsystem prompt\b|(?-i:\b(?:FEASIBLE|NOT_FEASIBLE)\b)|"
    r"\b(?:the|this) (?:draft(?! (?:genom|assembl|sequence|chromosom))|original caption"
    r"|provided (?:image|text|caption))\b",
    re.IGNORECASE,
)
_ENGLISH = frozenset(
    "the a an of in and with to by for at on from is are was were as that shows shown after be been"
    " has have had will not no or but its their this these those both each which who than".split()
)
_LEAST_ENGLISH = 0.08
"""Function words are at least a fifth of the words of an English caption."""
_LEAST_LATIN = 0.8
_MOST_REMOVED = 0.8
"""Share of a removed feature's distinctive words above which a caption still contains it."""
_MOST_NEW = 0.25
"""Share of a refined caption's words that neither draft nor kept features contain."""


class Malformed(Exception):
    """An answer is not the requested XML; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A claim in a draft caption, and whether the image alone supports it."""

    text: str
    feasible: bool
    rationale: str


def read_caption(answer: str) -> str:
    """Return the caption in a model's answer.

    Raises:
        Malformed: If it is not exactly one ``<caption>`` with text.
    """
    root = _root(answer, "caption")
    if len(root):
        raise Malformed("<caption> has tags in it")
    text = " ".join((root.text or "").split())
    if not text:
        raise Malformed("<caption> is empty")
    return text


def read_features(answer: str) -> list[Feature]:
    """Return the features in a model's answer to the step assess.

    Raises:
        Malformed: If it is not an ``<assessment>`` of complete features.
    """
    root = _root(answer, "assessment")
    if not 0 < len(root) <= _MOST_FEATURES:
        raise Malformed(f"<assessment> has {len(root)} features, expected 1 to {_MOST_FEATURES}")
    if (root.text or "").strip() or any((child.tail or "").strip() for child in root):
        raise Malformed("<assessment> has text outside of its features")
    return [_feature(child) for child in root]


def _feature(element: etree._Element) -> Feature:
    parts = {child.tag: (child.text or "").strip() for child in element}
    if (
        element.tag != "feature"
        or sorted(parts) != ["label", "rationale", "text"]
        or len(element) != len(parts)
    ):
        raise Malformed("each <feature> must have one text, rationale and label")
    if any(len(child) for child in element):
        raise Malformed("a part of a <feature> has tags in it")
    if parts["label"] not in (FEASIBLE, NOT_FEASIBLE):
        raise Malformed(f"a label is neither {FEASIBLE} nor {NOT_FEASIBLE}")
    if not parts["text"]:
        raise Malformed("a feature has no text")
    return Feature(parts["text"], parts["label"] == FEASIBLE, parts["rationale"])


def _root(answer: str, tag: str) -> etree._Element:
    if len(answer) > _MOST_CHARS:
        raise Malformed(
            f"the answer has {len(answer)} characters, at most {_MOST_CHARS} are accepted"
        )
    fenced = _FENCE.match(answer)
    text = (fenced[1] if fenced else answer).strip()
    if "<!" in text or "<?" in text:
        raise Malformed("declarations such as <!DOCTYPE> are not allowed")
    text = _UNESCAPED.sub(lambda sign: html.escape(sign[0]), text)
    try:
        root = parse_xml(text.encode())
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Malformed(f"it is not XML ({str(error)[:120]})") from error
    if root.tag != tag or root.attrib:
        raise Malformed(f"it must be one <{tag}>")
    return root


def is_refusal(text: str) -> bool:
    """Return whether an answer is a refusal to describe the image."""
    return _REFUSAL.search(text[:400]) is not None


def rejection_reason(
    caption: str, *, own_label: str | None, known: str, least_words: int, most_words: int
) -> str | None:
    """Return the reason to reject a caption; None if it is accepted.

    Args:
        caption: Caption written by a model.
        own_label: Label of the figure: ``Figure 3``; others must not be named, except in ``known``.
        known: The original caption: the figures it names may be named, and its words repeated.
        least_words: Minimum length; a shorter caption has lost content.
        most_words: Maximum length.
    """
    if is_refusal(caption):
        return REFUSED
    if any(said[0].lower() not in known.lower() for said in _TALK.finditer(caption)):
        return TALKS
    words = caption.split()
    if len(words) < least_words:
        return TOO_SHORT
    if len(words) > most_words:
        return TOO_LONG
    if not _is_english(caption):
        return OTHER_LANGUAGE
    own = {(ref.kind, ref.figure) for ref in references(f"{own_label or ''} {known}")}
    if any((ref.kind, ref.figure) not in own for ref in references(caption)):
        return OTHER_FIGURES
    return None


def inconsistent(refined: str, draft: str, features: Sequence[Feature]) -> str | None:
    """Return the first inconsistency of a refined caption with the assessed features, or None."""
    refined_words = words_of(refined)
    feasible_words = words_of(" ".join(feature.text for feature in features if feature.feasible))
    for feature in features:
        if feature.feasible:
            continue
        # Words of this feature only: its other words may belong to a kept feature.
        own = {word for word in words_of(feature.text) - feasible_words if word not in _ENGLISH}
        if len(own) >= 2 and len(own & refined_words) > _MOST_REMOVED * len(own):
            return INCONSISTENT
    new = refined_words - words_of(draft) - feasible_words - _ENGLISH
    return INVENTED if len(new) > _MOST_NEW * max(len(refined_words), 1) else None


def _is_english(text: str) -> bool:
    letters = [sign for sign in text if sign.isalpha()]
    latin = sum(sign < "ɐ" or "Ͱ" <= sign <= "Ͽ" for sign in letters)
    words = [word.strip(".,;:()").lower() for word in text.split()]
    function_words = sum(word in _ENGLISH for word in words)
    is_short = len(words) < 12
    return latin >= _LEAST_LATIN * max(len(letters), 1) and (
        is_short or function_words >= _LEAST_ENGLISH * len(words)
    )
