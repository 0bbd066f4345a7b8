"""An independent reading of JATS: plain lxml, no code of ours. What our reader is judged by."""

import copy
import re
from collections import Counter

from lxml import etree

_SPACE = re.compile(r"\s+")
# The DOI of a figure of eLife is no part of its caption; neither are source data.
_OWN_DOI = re.compile(r"\s*DOI:\s*http\S+\s*")
_FLOATS = ("fig", "fig-group", "table-wrap")


def bare(text: str) -> str:
    """Return a text without white space: where it stands between blocks is a choice."""
    return _SPACE.sub("", text)


def tree(xml: bytes) -> etree._Element:
    root = etree.fromstring(
        xml.strip(), etree.XMLParser(resolve_entities=False, remove_comments=True, remove_pis=True)
    )
    for element in root.iter("{*}*"):
        if "MathML" not in element.tag:
            element.tag = etree.QName(element).localname
    return root


def is_plain(element: etree._Element) -> bool:
    """Return whether a text has but one reading: no formula, no symbol published as an image."""
    return next(element.iter("tex-math", "inline-graphic", "{*}math", etree.Entity), None) is None


def captions(root: etree._Element) -> list[tuple[str | None, str | None]]:
    """Return id and own caption of every figure in order; None for a caption with two readings."""
    found = []
    for figure in root.iter("fig"):
        own = figure.findall("caption")
        # What surrounds these speaks for them too.
        grouped = next(figure.iterancestors("fig-group", "abstract"), None) is not None
        beside = any(child.tag in ("p", "list", "legend", "attrib") for child in figure)
        single = len(own) < 2 and not grouped and not beside and all(map(is_plain, own))
        for data in own[0].findall(".//supplementary-material") if own else ():
            data.clear()
        for paragraph in own[0].findall("p") if own else ():
            if _OWN_DOI.fullmatch("".join(paragraph.itertext())):
                paragraph.clear()
        text = bare("".join(own[0].itertext())) if own else ""
        found.append((figure.get("id"), text if single else None))
    return found


def mentions(root: etree._Element) -> Counter[tuple[str, str]]:
    """Return each pair of a figure's id and a paragraph that cites it, paragraphs without floats."""
    ids = [figure.get("id") for figure in root.iter("fig")]
    unique = {name for name, count in Counter(ids).items() if name and count == 1}
    pairs = {
        (name, paragraph)
        for xref in root.iter("xref")
        for name in xref.get("rid", "").split()
        if name in unique
        # A caption's title inside a float belongs to no paragraph around that float.
        and (paragraph := next(xref.iterancestors("p", *_FLOATS), None)) is not None
        and paragraph.tag == "p"
        and is_plain(paragraph)
    }
    return Counter((name, bare(_without_floats(paragraph))) for name, paragraph in pairs)


def _without_floats(paragraph: etree._Element) -> str:
    kept = copy.deepcopy(paragraph)
    for float_ in list(kept.iter(*_FLOATS)):
        parent = float_.getparent()
        if float_ is kept or parent is None:
            continue
        place = parent.index(float_)
        tail = float_.tail or ""
        parent.remove(float_)
        if place:
            parent[place - 1].tail = (parent[place - 1].tail or "") + tail
        else:
            parent.text = (parent.text or "") + tail
    return "".join(kept.itertext())
