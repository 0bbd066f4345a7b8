"""Floats and captions in their places, before an article is read.

Figures and tables are moved after the paragraph or figure that contains them, so that no caption
becomes part of a paragraph's text and no figure gets the graphic of a nested figure.
"""

import re

from lxml import etree

from biovl.articles import text

_FLOATS = ("fig", "fig-group", "table-wrap", "table-wrap-group")
# "Figure 1. Cells" is a caption, "Figure 1 shows" is not.
_CAPTION = re.compile(r"\s*fig(?:ure|\.)?\s?\d+\s?[.:|]\s*\S", re.IGNORECASE)


def put_captions_in_figures(article: etree._Element) -> None:
    """Move captions that follow a figure into it: JoVE publishes them as paragraphs.

    The caption is the rest of the figure's paragraph, or the next paragraph if there is no rest.
    """
    for around in article.findall(".//p[fig]"):
        figure, *others = around.findall("fig")
        if others or figure.find("caption") is not None:
            continue
        words, before = "".join(around.itertext()), around.text or ""
        rest = len(before) + len("".join(figure.itertext()))
        if not words.strip():
            caption = around.getnext()
            if _is_caption(around.getprevious()) or not _is_caption(caption):
                continue
        elif around[0] is figure and not before.strip() and _CAPTION.match(words, rest):
            caption = etree.Element("p")
            caption.text, figure.tail = figure.tail, None
            caption.extend(figure.itersiblings())
        else:
            continue
        etree.SubElement(figure, "caption").append(caption)


def _is_caption(element: etree._Element | None) -> bool:
    if element is None or element.tag != "p":
        return False
    return _CAPTION.match("".join(element.itertext())) is not None


def move_floats(article: etree._Element) -> None:
    """Move floats after the outermost paragraph or figure that contains them, in document order."""
    hosts: dict[etree._Element, etree._Element] = {}
    for element in article.iter(*_FLOATS):
        around = list(element.iterancestors("p", "fig", "fig-group"))
        # A member stays in its group; the group itself is moved.
        if around and around[0].tag != "fig-group":
            hosts[element] = around[-1]
    text.detach(hosts, lambda _: " ")
    for element, host in reversed(hosts.items()):
        # lxml inserts before the text after the host.
        tail, host.tail = host.tail, None
        host.addnext(element)
        host.tail = tail
