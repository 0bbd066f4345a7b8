"""Queries of a figure: its caption, and a sentence of the article that cites it.

Labels of figures are removed from both. "Fig. 3" says where an article prints a figure and nothing
of its content; a model that reads printed numbers could match it. Letters of panels stay in
captions, where they belong to the description of what can be seen.
"""

import re
from collections.abc import Sequence

from biovl.articles.captions import readable
from biovl.articles.citances import Citance, citances, references
from biovl.core.records import Mention, Reference

# A number with letters of panels: "4A-C", "1a, b and d", but only "1" of "1 a cell".
_NUMBER = r"[SA]?\d+(?:[a-z]\b(?:(?:[-–—]|,\s*(?:and\s+)?|\s*&\s*|\s+and\s+)[a-z]\b)*)?"
_KIND = r"(?:fig(?:ure|\.)?|scheme|plate|image)"
_LABEL = re.compile(
    r"^\s*(?:(?:supplementary|supplemental|extended data|additional file)\s+)?"
    rf"(?:{_KIND}s\.?\s*{_NUMBER}(?:\s*(?:[-–—]|,|,?\s+and\s|&)\s*{_NUMBER})*"
    rf"|{_KIND}\.?\s*{_NUMBER})"
    r"(?:\s*[-–—]\s*(?:figure supplement|source data|video)\s*\d+)*\s*[.:|–—-]*\s*",
    re.IGNORECASE,
)
_REMAINS = re.compile(r"\bfig(?:ure|s|ures)?\b\.?\s*\(?[SA]?\d|\bpanels?\b", re.IGNORECASE)
"""Traces of a reference that the grammar has not read whole."""
_ONE, _SEVERAL = "\0", "\1"
"""Stand for a reference in the singular and in the plural."""
_MARK = f"[{_ONE}{_SEVERAL}]"
_FILLER = r"(?:see|also|as|in|e\.g\.|i\.e\.|cf\.?|and|left|right|top|bottom|upper|lower|middle|\W)"
_IN_BRACKETS = re.compile(rf"\s*[(\[]{_FILLER}*{_MARK}(?:{_FILLER}|{_MARK})*[)\]]", re.IGNORECASE)
_IN_LIST = re.compile(
    rf"\s*[;,]\s*(?:see\s+)?{_MARK}(?=\s*[;,)\]])|(?<=[(\[]){_MARK}\s*[;,]\s*", re.IGNORECASE
)
_BODY = ("body", "abstract")
_OBJECT = "\ufffc"
"""Stands for a formula that is an image."""


def without_label(caption: str) -> str:
    """Return a caption on one line, without the figure's label and formula placeholders."""
    return " ".join(_LABEL.sub("", caption.replace(_OBJECT, " "), count=1).split())


def caption_query(caption: str, min_words: int) -> str | None:
    """Return a caption without the figure's label; None if it has too few words."""
    text = without_label(caption)
    return text if len(text.split()) >= min_words else None


def mention_query(mentions: Sequence[Mention], label: str | None, min_words: int) -> str | None:
    """Return the longest sentence that cites this figure and no other, without its references.

    None if no such sentence has enough words.

    Args:
        mentions: Paragraphs that cite the figure.
        label: Label of the figure in the article.
        min_words: Minimum number of words.
    """
    body = [_readable(one) for one in mentions if one.container in _BODY]
    found = [
        text
        for citance in citances(body, label)
        if (text := without_references(citance)) is not None
        and len(text.split()) >= min_words
        and _OBJECT not in text
    ]
    return max(found, key=lambda text: (len(text), text), default=None)


def _readable(mention: Mention) -> Mention:
    """Return a mention with marked powers, ``10^6``, and its references at their new places."""

    def place(position: int) -> int:
        before = [span for span in mention.superscripts if span.end <= position]
        return len(readable(mention.text[:position], before))

    return Mention(
        text=readable(mention.text, mention.superscripts),
        refs=[
            Reference(place(one.start), place(one.end), one.panels, one.implied)
            for one in mention.refs
        ],
        superscripts=[],
        container=mention.container,
    )


def without_references(citance: Citance) -> str | None:
    """Return a citing sentence without references to figures; None if that is not possible.

    A reference in brackets is removed with them; "Figure 2 shows" becomes "The figure shows". For a
    sentence that also cites another figure the result is None: it describes both. "Figures 2A and
    2B show" becomes "The figures show".
    """
    own = {(one.figure, one.kind) for one in citance.references}
    cited = references(citance.text)
    if any((one.figure, one.kind) not in own for one in cited):
        return None
    spans = {(one.span.start, one.span.end) for one in [*cited, *citance.references]}
    text, last = "", 0
    for start, end in sorted(spans):
        if start >= last and end > start:
            is_plural = re.match(r"fig(?:ure)?s\b|.*\band\b", citance.text[start:end], re.I)
            text += citance.text[last:start] + (_SEVERAL if is_plural else _ONE)
            last = end
    text = _IN_BRACKETS.sub("", text + citance.text[last:])
    text = _IN_LIST.sub("", text)
    for mark, words in ((_ONE, "figure"), (_SEVERAL, "figures")):
        text = re.sub(rf"^\W*{mark}", f"The {words}", text).replace(mark, f"the {words}")
    text = re.sub(r"\s+([.,;:])", r"\1", " ".join(text.split()))
    return None if _REMAINS.search(text) else text
