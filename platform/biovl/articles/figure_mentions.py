"""Locations of figures in an article, and the paragraphs that cite them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from biovl.articles import text
from biovl.articles.figure_references import (
    LOOK_AHEAD,
    figure_number,
    is_comparison,
    is_panel_range_joint,
    is_range_joint,
    panels_in,
)
from biovl.articles.text import plain
from biovl.core.records import Mention, Reference, Span

_SCOPES = ("sub-article", "response")
# The nearest of these ancestors of a paragraph determines its kind; without one it is the body.
_CONTAINERS = {
    "caption": "caption",
    "abstract": "abstract",
    "trans-abstract": "abstract",
    "table-wrap": "table",
    "fn": "footnote",
    "boxed-text": "box",
    "sub-article": "response",
    "response": "response",
    "back": "back",
}
# References outside of paragraphs are in one of these.
_BLOCKS = ("title", "td", "th", "list-item", "def", "attrib", "verse-line", "caption")
_RANGE_IN_TEXT = re.compile(r"(?<!\d)(\d{1,6})\s?[-–—‒‐]\s?(\d{1,6})(?!\d)")
# What precedes a link that is only a sign: "Fig. 3a ▶", "Figs. 1a–1d ▶".
_BEFORE_SIGN = re.compile(r"(\d+)(?:[^\d▸▶►]|(?<=[-–,])\d){0,20}\Z")
_MAX_RANGE = 20
_MAX_GROUP = 100
"""Maximum number of figures of a group that a reference to the group cites."""

MOST_TEXT = 100_000_000
"""Maximum characters of paragraphs, and of a group's caption, in the figures of one article: each
figure has a copy, and thousands of figures in one paragraph would fill the memory."""


@dataclass(frozen=True)
class FigureContext:
    """A ``<fig>`` and its context in the published article."""

    figure: etree._Element
    key: str
    """Unique key of the figure in the article: its id, or its number in document order if it has
    none."""
    parent_key: str | None
    group: etree._Element | None
    scope: etree._Element | None
    """The sub-article or response that contains the figure: ids are unique only inside one."""
    section_titles: list[etree._Element]
    abstract: etree._Element | None


def figure_places(article: etree._Element) -> list[FigureContext]:
    """Return every ``<fig>`` in document order, including floats and supplements."""
    keys: dict[etree._Element, str] = {}
    taken: set[str] = set()
    places = []
    titles: dict[etree._Element, etree._Element | None] = {}
    for number, figure in enumerate(article.iter("fig"), start=1):
        parents = {
            element.tag: element
            for element in reversed(list(figure.iterancestors("fig", "fig-group", "abstract")))
        }
        # Document order is stable even if ids are missing, or duplicated by a reply to a reviewer.
        key = figure.get("id") or f"fig-{number}"
        if key in taken:
            key = f"{key}-{number}"
        taken.add(key)
        keys[figure] = key
        parent = parents.get("fig")
        sections = list(figure.iterancestors("sec"))
        for section in sections:
            if section not in titles:
                titles[section] = section.find("title")
        places.append(
            FigureContext(
                figure=figure,
                key=key,
                parent_key=keys[parent] if parent is not None else None,
                group=parents.get("fig-group"),
                scope=next(figure.iterancestors(*_SCOPES), None),
                section_titles=[
                    title
                    for section in reversed(sections)
                    if (title := titles[section]) is not None
                ],
                abstract=parents.get("abstract"),
            )
        )
    return places


def cited_figures(article: etree._Element, places: list[FigureContext]) -> list[list[Mention]]:
    """Return the paragraphs that cite each figure, in document order.

    Marks the references of those paragraphs in place; superscripts must be marked.
    """
    found: list[list[Mention]] = [[] for _ in places]
    cited = _references_to(article, places)
    paragraphs: dict[etree._Element, list[etree._Element]] = {}
    for xref in cited:
        paragraphs.setdefault(_paragraph(xref), []).append(xref)
    numbering = _Numbering(places)
    text.mark_all(cited, text.REF)
    stored = 0
    for paragraph, own in paragraphs.items():
        content, spans = text.without_marks(text.with_marks(paragraph))
        # A nested paragraph is separate, but its references are marked in this text, too.
        marked = [xref for xref in paragraph.iter("xref") if xref in cited]
        where = dict(zip(marked, spans[text.REF], strict=True))
        places_cited = [(cited[xref], where[xref]) for xref in own]
        by_figure: dict[int, list[Reference]] = defaultdict(list)
        for index, reference in _named(content, places_cited, numbering):
            by_figure[index].append(reference)
        for index, reference in _implied(content, places_cited, numbering):
            by_figure[index].append(reference)
        around = next(paragraph.iterancestors(*_CONTAINERS), None)
        container = _CONTAINERS[around.tag] if around is not None else "body"
        stored += len(content) * len(by_figure)
        if stored > MOST_TEXT:
            break
        for index, references in by_figure.items():
            references.sort(key=lambda reference: (reference.start, reference.end))
            found[index].append(Mention(content, references, spans[text.SUP], container))
    return found


def _references_to(
    article: etree._Element, places: list[FigureContext]
) -> dict[etree._Element, list[int]]:
    """Return the xrefs to figures in document order, and the figures of each."""
    targets: dict[tuple[etree._Element | None, str], list[int]] = defaultdict(list)
    for index, place in enumerate(places):
        group_id = place.group.get("id") if place.group is not None else None
        if name := place.figure.get("id"):
            targets[place.scope, name].append(index)
        if group_id and len(targets[place.scope, group_id]) < _MAX_GROUP:
            targets[place.scope, group_id].append(index)
    known = {name for _, name in targets}
    has_scopes = next(article.iter(*_SCOPES), None) is not None
    cited: dict[etree._Element, list[int]] = {}
    if not known:
        return cited
    # Determined by the target of the id and not by ref-type, which may be missing or wrong.
    for xref in article.iter("xref"):
        names = xref.get("rid", "")
        if names not in known and " " not in names:
            continue
        scope = next(xref.iterancestors(*_SCOPES), None) if has_scopes else None
        found = [
            index
            for name in names.split()
            for index in targets.get((scope, name)) or targets.get((None, name)) or ()
        ]
        figures = list(dict.fromkeys(found))
        # The American Chemical Society links "Figure 3", and once more the number in it.
        if figures and cited.get(next(xref.iterancestors("xref"), None)) != figures:
            cited[xref] = figures
    return cited


class _Numbering:
    """Figures by the number of their label, to expand ranges."""

    def __init__(self, places: list[FigureContext]) -> None:
        self.of: dict[int, tuple[etree._Element | None, str, int]] = {}
        self.figure: dict[tuple[etree._Element | None, str, int], int] = {}
        for index, place in enumerate(places):
            number = figure_number(plain(place.figure.find("label")))
            if number is not None:
                self.of[index] = (place.scope, *number)
                self.figure.setdefault(self.of[index], index)


def _named(
    content: str, cited: list[tuple[list[int], Span]], numbering: _Numbering
) -> Iterator[tuple[int, Reference]]:
    """Yield the figures of references, with their panels.

    A reference to several figures has panels only if all have one number: SciELO publishes a figure
    once per language, in a group.
    """
    for place, (figures, span) in enumerate(cited):
        stop = span.end + LOOK_AHEAD
        if place + 1 < len(cited):
            next_figures, next_span = cited[place + 1]
            between = content[span.end : next_span.start]
            # "Figure 3A–3C" names panel B between two references to one figure.
            if next_figures != figures or not is_panel_range_joint(between):
                stop = min(stop, next_span.start)
        panels: list[str] = []
        numbers = {numbering.of.get(index) for index in figures}
        if len(figures) == 1 or (len(numbers) == 1 and None not in numbers):
            reference = content[span.start : span.end]
            if not any(map(str.isalnum, reference)):
                start = max(0, span.start - LOOK_AHEAD)
                before = _BEFORE_SIGN.search(content, start, span.start)
                stated = None if before is None else int(before[1])
                is_own = any(number and number[2] == stated for number in numbers)
                reference = before[0] if before and is_own else ""
            panels = panels_in(reference, content[span.end : stop])
        for index in figures:
            yield index, Reference(span.start, span.end, panels, False)


def _implied(
    content: str, cited: list[tuple[list[int], Span]], numbering: _Numbering
) -> Iterator[tuple[int, Reference]]:
    """Yield the figures inside cited ranges: ``Figs. 3–5`` cites Figure 4 without naming it."""
    named = {(index, span) for figures, span in cited for index in figures}
    for first, last, span in _ranges(content, cited, numbering):
        scope, kind, start = numbering.of[first]
        if last - start > _MAX_RANGE:
            continue
        for number in range(start + 1, last + 1):
            index = numbering.figure.get((scope, kind, number))
            if index is not None and (index, span) not in named:
                yield index, Reference(span.start, span.end, [], True)


def _ranges(
    content: str, cited: list[tuple[list[int], Span]], numbering: _Numbering
) -> Iterator[tuple[int, int, Span]]:
    """Yield each range: its first figure, the last number cited only implicitly, and its span.

    ``Figs. 3–5`` in one reference implies 4 and 5; from reference ``Fig. 3`` to ``Fig. 5``, only 4.
    """
    for place, (figures, span) in enumerate(cited):
        for match in _RANGE_IN_TEXT.finditer(content, span.start, span.end):
            for index in figures:
                if index in numbering.of and numbering.of[index][2] == int(match[1]):
                    yield index, int(match[2]), span
        if place + 1 == len(cited):
            continue
        (last_figure, *_), end = cited[place + 1]
        first, last = numbering.of.get(figures[-1]), numbering.of.get(last_figure)
        if first is None or last is None or first[:2] != last[:2]:
            continue
        between = content[span.end : end.start]
        if is_range_joint(between) and not is_comparison(
            content[max(0, span.start - LOOK_AHEAD) : span.start],
            content[span.start : span.end],
            between,
            content[end.start : end.end],
        ):
            yield figures[-1], last[2] - 1, Span(span.start, end.end)


def _paragraph(xref: etree._Element) -> etree._Element:
    """Return the paragraph of a reference: the nearest ``<p>``, else the nearest block."""
    for tags in (("p",), _BLOCKS):
        paragraph = next(xref.iterancestors(*tags), None)
        if paragraph is not None:
            return paragraph
    return xref.getparent()
