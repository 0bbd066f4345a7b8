"""Abbreviations listed in an article: glossaries, definition lists, notes."""

import re
from collections.abc import Iterator

from lxml import etree

from biovl.articles.text import plain

_TITLE = re.compile(r"(?:list of |key to )?(?:(?:\w+ )?abbreviations?|acronyms?|glossary)\b", re.I)
_LISTS = ("glossary", "def-list")
_SECTIONS = ("sec", "notes", "app", "ack", "fn")


def abbreviations(article: etree._Element) -> str | None:
    """Return the abbreviations listed in a prepared article, one per line; None without a list.

    A line is ``MRI: magnetic resonance imaging``; of keywords, as published. In the body, only
    ``<glossary>`` and ``<def-list>`` are read. Lists in replies and reviews are excluded.
    """
    lines: dict[str, None] = {}
    for part in ("front", "body", "back"):
        for root in article.iterfind(part):
            for listed in _lists(root):
                lines |= dict.fromkeys(_lines(listed))
    return "\n".join(lines) or None


def are_abbreviations(keywords: etree._Element) -> bool:
    """Return whether a ``<kwd-group>`` lists abbreviations."""
    kind = keywords.get("kwd-group-type", "").lower()
    return kind.startswith("abbr") or _TITLE.match(plain(keywords.find("title"))) is not None


def _lists(root: etree._Element) -> Iterator[etree._Element]:
    for element in root.iter(*_LISTS):
        if next(element.iterancestors(*_LISTS), None) is None:
            yield element
    yield from filter(are_abbreviations, root.iter("kwd-group"))
    # The body's sections are part of its text.
    for element in root.iter(*_SECTIONS) if root.tag != "body" else ():
        is_note = element.get("fn-type") in ("abbr", "abbreviations")
        is_titled = _TITLE.match(plain(element.find("title"))) is not None
        if (is_note or is_titled) and element.find(".//def-list") is None:
            yield element


def _lines(listed: etree._Element) -> Iterator[str]:
    if listed.tag == "kwd-group":
        yield from filter(None, map(plain, listed.iter("kwd")))
        return
    items = list(listed.iter("def-item"))
    for item in items:
        term, meaning = plain(item.find("term")).strip(" :"), plain(item.find("def"))
        if term and meaning:
            yield f"{term}: {' '.join(meaning.split())}"
    if not items:
        title = plain(listed.find("title"))
        yield from (line for line in plain(listed).split("\n") if line and line != title)
