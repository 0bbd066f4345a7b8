"""Citances: the sentences of an article that cite a figure, and their statements about its panels.

Paragraphs that link a figure are stored with it as mentions. A citance is one sentence of such a
paragraph. Links identify the figure; the grammar identifies the panels, and also finds sentences
with "Fig. 2" in plain text, without a link. ``figure_references`` reads the panels of links alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from biovl.articles.citances.grammar import FigureReference, Kind, references
from biovl.articles.citances.statements import Statement, statements
from biovl.articles.sentences import sentences
from biovl.articles.spans import SpanIndex
from biovl.core.records import Mention, Reference, Span

__all__ = [
    "Citance",
    "FigureReference",
    "Statement",
    "citances",
    "citances_of",
    "references",
    "statements",
]


@dataclass(frozen=True, slots=True)
class Citance:
    """A sentence that cites the figure, and its statements about panels."""

    text: str
    mention: Mention
    """The paragraph of the sentence."""
    span: Span
    """Range in the mention's text."""
    container: str
    """Part of the article: body, abstract, caption, table, footnote, box, back or response."""
    references: tuple[FigureReference, ...]
    """References to this figure. A ``span`` is relative to the sentence."""
    statements: tuple[Statement, ...]
    """Statements of the sentence about this figure."""
    implied: frozenset[FigureReference]
    """References inside a cited range: to Figure 4 in ``Figs. 3–5``."""

    @property
    def panels(self) -> tuple[str, ...]:
        """Cited panels of the figure, in order; empty if only the figure as a whole is cited."""
        named = (panel for reference in self.references for panel in reference.panels)
        return tuple(dict.fromkeys(named))

    @property
    def is_figure_level(self) -> bool:
        """Whether the sentence names no panel of the figure."""
        return not self.panels

    @property
    def is_linked(self) -> bool:
        """Whether the publisher linked one of the references."""
        return any(reference.by == "xref" for reference in self.references)

    def statement_of(self, panel: str) -> str | None:
        """Return the statement about a panel, else about the whole figure, else None."""
        own = [one.text for one in self.statements if panel in map(_panel, one.panels)]
        own = own or [one.text for one in self.statements if one.is_figure_level]
        return " ".join(dict.fromkeys(own)) or None


def citances(mentions: Iterable[Mention], figure_label: str | None) -> list[Citance]:
    """Return the sentences of all mentions that cite the figure, each sentence once."""
    found: dict[str, Citance] = {}
    for mention in mentions:
        for citance in citances_of(mention, figure_label):
            found.setdefault(citance.text, citance)
    return list(found.values())


def citances_of(mention: Mention, figure_label: str | None) -> list[Citance]:
    """Return the sentences of a mention that cite the figure, in order.

    Args:
        mention: A stored paragraph; its references are links to this figure.
        figure_label: Label of the figure in the article: ``Fig. 2``, ``S3 Fig``, ``Scheme 1``.
            Without it only linked references count.
    """
    named = references(figure_label) if figure_label else []
    known = named[0] if len(named) == 1 else None
    links = SpanIndex(mention.refs, _span)
    ranges = SpanIndex([link for link in mention.refs if link.implied], _span)
    protected = [_span(link) for link in mention.refs]
    found = []
    for span in sentences(mention.text, protected=protected):
        # A sentence may include a displayed formula, which is a line of its own.
        text = mention.text[span.start : span.end].replace("\n", " ")
        inside = links.starting_in(span.start, span.end)
        if not inside and known is None:
            continue
        cited = references(text)
        own = _own(text, span, cited, inside, known)
        if own:
            taken = {one.span for one in own}
            both = [*own, *(one for one in cited if one.span not in taken)]
            both.sort(key=lambda one: (one.span.start, one.span.end))
            own_statements = [
                one for one in statements(text, both) if (one.figure, one.kind) == _key(own[0])
            ]
            found.append(
                Citance(
                    text=text,
                    mention=mention,
                    span=span,
                    container=mention.container,
                    references=tuple(own),
                    statements=tuple(own_statements),
                    implied=_implied(own, span.start, ranges),
                )
            )
    return found


def _own(
    text: str,
    sentence: Span,
    cited: list[FigureReference],
    links: list[Reference],
    known: FigureReference | None,
) -> list[FigureReference]:
    """Return the references of a sentence to the given figure."""
    figure, kind = (known.figure, known.kind) if known else ("", "main")
    mine = [one for one in cited if known is not None and _key(one) == (figure, kind)]
    every, before = (SpanIndex(group, lambda one: one.span) for group in (cited, mine))
    own: list[FigureReference] = []
    for link in links:
        start, end = link.start - sentence.start, min(link.end - sentence.start, len(text))
        over = every.overlapping(start, end)
        same = [one for one in over if known is not None and _key(one) == (figure, kind)]
        if not same and known is not None and kind == "main" and any(map(_is_of_another, over)):
            # "Supplementary Figure 1" and "their Fig. 1" are linked to figure 1 by a program.
            continue
        same = same or [
            one for one in over if one.figure == figure or (known is None and len(over) == 1)
        ]
        if not same and not any(letter.isalnum() for letter in text[start:end]):
            # The link is an arrow or a sign after the reference: "Fig. 3a ▶".
            same = before.last_before(start)
        if not same:
            same = [FigureReference(figure, tuple(link.panels), kind, Span(start, end))]
        own += [replace(one, figure=figure or one.figure, kind=kind, by="xref") for one in same]
    taken = {one.span for one in own}
    # A figure whose label is "Figure 1B" is not cited by "Figure 1C".
    parts = set(known.panels) if known is not None else set()
    own += [
        one
        for one in mine
        if one.span not in taken and (not parts or not one.panels or parts & set(one.panels))
    ]
    return list(dict.fromkeys(sorted(own, key=lambda one: (one.span.start, one.span.end))))


def _is_of_another(one: FigureReference) -> bool:
    """Return whether the words name a figure that is not one of the article's main ones."""
    return one.kind in ("supplementary", "other-article")


def _implied(
    own: list[FigureReference], start: int, ranges: SpanIndex[Reference]
) -> frozenset[FigureReference]:
    """Return the references that overlap a link to a range; the sentence starts at ``start``."""
    return frozenset(
        one for one in own if ranges.overlapping(start + one.span.start, start + one.span.end)
    )


def _span(link: Reference) -> Span:
    return Span(link.start, link.end)


def _key(reference: FigureReference) -> tuple[str, Kind]:
    return reference.figure, reference.kind


def _panel(panel: str) -> str:
    """Return ``b`` of ``b (left)``."""
    return panel.partition(" (")[0]
