"""Statements of a sentence about each figure it cites: split by clauses, lists and "respectively".

"X grew (Fig. 1A), but Y shrank (Fig. 1B)" makes one statement about each panel. A sentence is only
split if each piece has its own verb; otherwise the whole sentence applies to all its panels.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from biovl.articles.citances.grammar import FigureReference, Kind, references
from biovl.articles.spans import SpanIndex
from biovl.core.records import Span

How = Literal["sentence", "clause", "respectively"]


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement of a sentence about some panels of one figure."""

    text: str
    """Words of the statement in their order; with "respectively", only the panel's own item."""
    span: Span
    """Range of the statement in the sentence, including omitted words."""
    figure: str
    kind: Kind
    panels: tuple[str, ...]
    """Panels that the statement is about; empty if the figure is cited as a whole."""
    how: How

    @property
    def is_figure_level(self) -> bool:
        """Whether no panel is named, so that the statement is about the whole figure."""
        return not self.panels


_FINITE = (
    r"is|are|was|were|has|have|had|do|does|did|can|could|may|might|will|would|shows?|exhibits?|"
    r"displays?|remains?|contains?|occurs?|became|becomes?|gave|gives?|fell|falls|rose|rises|grew|"
    r"reveals?|suggests?|indicates?|lacks?|appears?|demonstrates?|led|leads"
)
_VERB = re.compile(rf"\b(?:{_FINITE})\b")
_VERB_OR_PARTICIPLE = re.compile(rf"\b(?:{_FINITE}|[a-z]{{2,}}ed|found|seen|made|lost|kept)\b")
_STARTS_WITH_VERB = re.compile(rf"(?:{_FINITE}|also|not|then|[a-z]+ed)\b")
# After a reference and its closing bracket: where another clause starts.
_BOUNDARY = re.compile(
    r"\s?;\s?(?:(?:and|but|whereas|while|however,|in\scontrast,|by\scontrast,)\s)?"
    r"|\s?,?\s(?P<contrast>but|whereas|while|although|though|yet)\s"
    r"|\s?,\s(?P<and>and)\s|(?P<main>\s?,\s)"
)
_JOINS = re.compile(
    r"(?:[\s,;]{0,4}\b(?:and|but|whereas|while|although|though|yet|however|moreover|in contrast|"
    r"by contrast|on the other hand|in addition|furthermore|therefore|thus))?[\s,;]{0,4}$"
)
_CONCEDES = re.compile(r"(?:Al)?though\b|Whereas\b|While\b|Unlike\b")
_CLOSING = re.compile(r"[^()\[\]]{0,80}[)\]]")
_MIN_WORDS = 4
_MOST_ITEMS = 30
"""Maximum number of items of a list with "respectively": each is stored with the whole rest of the
sentence."""
_RESPECTIVELY = re.compile(r",?\s?\brespectively\b", re.IGNORECASE)
_ITEM_JOINT = re.compile(r"\s?,\s(?:and\s|or\s)?|\s(?:and|or)\s")
_LEADS_IN = re.compile(
    r"\s(?:(?:is|are|was|were|has been|have been|can be|could be)\s(?:also\s|further\s)?"
    r"(?:shown|seen|presented|depicted|displayed|given|illustrated|plotted|provided|summari[sz]ed|"
    r"reported|listed|compared|represented|visualized|demonstrated|observed|found)"
    r"|appears?|(?:shown|presented|depicted|displayed|illustrated|plotted|given))\sin\s(?:the\s)?$"
)
_SHOWS = re.compile(
    r"\s(?:shows?|depicts?|presents?|illustrates?|displays?|represents?|compares?|gives?|plots?|"
    r"reports?|summari[sz]es?|demonstrates?|provides?|lists?)\s"
)


def statements(sentence: str, found: list[FigureReference] | None = None) -> list[Statement]:
    """Return the statements of a sentence about the figures it cites, in order of their references.

    Args:
        sentence: Text of the sentence.
        found: References of the sentence; by default they are parsed.
    """
    cited = references(sentence) if found is None else found
    distributed = _distributed(sentence, cited)
    if distributed:
        return distributed
    made = []
    for piece, own, how in _clauses(sentence, cited):
        panels: dict[tuple[str, Kind], dict[str, None]] = {}
        for reference in own:
            key = reference.figure, reference.kind
            panels.setdefault(key, {}).update(dict.fromkeys(reference.panels))
        text = sentence[piece.start : piece.end]
        made += [
            Statement(text, piece, figure, kind, tuple(named), how)
            for (figure, kind), named in panels.items()
        ]
    return made


def _clauses(
    sentence: str, cited: list[FigureReference]
) -> list[tuple[Span, list[FigureReference], How]]:
    """Return the pieces of a sentence with their references."""
    whole = Span(0, len(sentence))
    cuts = [(0, _VERB_OR_PARTICIPLE)]
    for one, two in pairwise(cited):
        closing = _CLOSING.match(sentence, one.span.end, max(two.span.start, one.span.end))
        boundary = _BOUNDARY.match(sentence, closing.end()) if closing is not None else None
        if boundary is None or boundary.end() > two.span.start:
            continue
        if boundary["main"] and not _CONCEDES.match(sentence):
            continue
        # After "and", a participle belongs to a noun: ", and the foci, revealed by …".
        cuts.append((boundary.end(), _VERB if boundary["and"] else _VERB_OR_PARTICIPLE))
    if len(cuts) == 1:
        return [(whole, cited, "sentence")]
    pieces: list[tuple[Span, list[FigureReference], How]] = []
    by_start = SpanIndex(cited, lambda reference: reference.span)
    for (start, verb), (stop, _) in pairwise([*cuts, (len(sentence), _VERB)]):
        own = by_start.starting_in(start, stop)
        piece = _trimmed(sentence, start, stop)
        if not _stands_alone(sentence, piece, own, verb):
            return [(whole, cited, "sentence")]
        pieces.append((piece, own, "clause"))
    return pieces


def _stands_alone(
    sentence: str, piece: Span, own: list[FigureReference], verb: re.Pattern[str]
) -> bool:
    """Return whether a piece has its own subject and verb, and balanced brackets."""
    words = sentence[piece.start : min([piece.end, *(item.span.start for item in own)])]
    return (
        len(words.split()) >= _MIN_WORDS
        and verb.search(words) is not None
        and _STARTS_WITH_VERB.match(words) is None
        and _is_balanced(sentence[piece.start : piece.end])
    )


def _is_balanced(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("[") == text.count("]")


def _trimmed(sentence: str, start: int, stop: int) -> Span:
    """Return a range without the signs and words that join it to its neighbours."""
    text = sentence[start:stop]
    text = _JOINS.sub("", text)
    lead = len(text) - len(text.lstrip())
    return Span(start + lead, start + len(text))


def _distributed(sentence: str, cited: list[FigureReference]) -> list[Statement]:
    """Return one statement for each panel of "X and Y are shown in Fig. 1A and B, respectively"."""
    word = _RESPECTIVELY.search(sentence)
    panels = [
        (reference, panel)
        for reference in cited
        for panel in (reference.panels or ("",))
        if word is not None and reference.span.start < word.start()
    ]
    if (
        word is None
        or not 2 <= len(panels) <= _MOST_ITEMS
        or len(panels) != sum(len(c.panels) or 1 for c in cited)
    ):
        return []
    first, last = cited[0].span, cited[-1].span
    lead_in = _LEADS_IN.search(sentence[: first.start])
    shows = _SHOWS.match(sentence, last.end)
    if lead_in is not None:
        region = Span(0, lead_in.start())
    elif shows is not None:
        region = Span(shows.end(), word.start())
    else:
        return []
    items = _items(sentence, region, len(panels))
    if not items or not all(_is_balanced(sentence[item.start : item.end]) for item in items):
        return []
    items[0] = _without_shared(sentence, items[0], items[1])
    made = []
    for item, (reference, panel) in zip(items, panels, strict=True):
        own = sentence[item.start : item.end]
        text = (
            f"{sentence[: items[0].start]}{own}{sentence[items[-1].end : word.start()]}"
            f"{sentence[word.end() :]}"
        )
        own_panels = (panel,) if panel else ()
        made.append(
            Statement(text, item, reference.figure, reference.kind, own_panels, "respectively")
        )
    return made


def _items(sentence: str, region: Span, count: int) -> list[Span]:
    """Return the items of a list if it has exactly ``count``; else none."""
    joints = list(_ITEM_JOINT.finditer(sentence, region.start, region.end))
    if len(joints) < count - 1:
        return []
    # An introduction may contain a comma: the last items of the list count.
    if len(joints) > count - 1:
        commas = [joint for joint in joints if "," in joint[0]]
        joints = [*commas[-(count - 2) :], joints[-1]] if count > 2 else joints[-1:]
        if count > 2 and len(joints) != count - 1:
            return []
        if (
            count == 2
            and len(
                [
                    joint
                    for joint in _ITEM_JOINT.finditer(sentence, region.start, region.end)
                    if "and" in joint[0]
                ]
            )
            > 1
        ):
            return []
    edges = [region.start, *(edge for joint in joints for edge in joint.span()), region.end]
    spans = [Span(edges[place], edges[place + 1]) for place in range(0, len(edges), 2)]
    return spans if all(span.end > span.start for span in spans) else []


def _without_shared(sentence: str, first: Span, second: Span) -> Span:
    """Return the first item without the part it shares with the second.

    For "the size of the left lobe and the right lobe" the first is "the left lobe".
    """
    own = list(re.finditer(r"\S+", sentence[first.start : first.end]))
    other = sentence[second.start : second.end].split()
    alike = {"a": "an"}
    opening = alike.get(other[0].lower(), other[0].lower()) if other else ""
    for word in reversed(own[1:][-len(other) - 2 :]):
        if alike.get(word[0].lower(), word[0].lower()) == opening:
            return Span(first.start + word.start(), first.end)
    return first
