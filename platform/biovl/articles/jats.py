"""JATS XML to an article's content in one pass: metadata, figures, captions and their mentions.

The XML is untrusted: nothing is fetched, no entity is expanded and no file is opened. XML that
cannot be parsed is a result with a reason, not an exception.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lxml import etree

from biovl.articles import licenses, text
from biovl.articles.content import ArticleContent, FigureContent, Graphic, License
from biovl.articles.credits import is_legend
from biovl.articles.figure_mentions import MOST_TEXT, FigureContext, cited_figures, figure_places
from biovl.articles.floats import move_floats, put_captions_in_figures
from biovl.articles.front import (
    GRAPHICAL_ABSTRACTS,
    front_matter,
    language_of,
    separate_keywords,
)
from biovl.articles.glossary import abbreviations
from biovl.articles.text import plain
from biovl.core.records import Mention
from biovl.core.xml import MAX_TREE_BYTES, parse_xml, tree_bytes

MALFORMED = "xml is malformed"
NOT_AN_ARTICLE = "xml is not a JATS article"
SEVERAL_ARTICLES = "xml holds several articles"
DECLARES_ENTITIES = "xml declares entities"
UNKNOWN_ENTITY = "xml uses an unknown entity"
TOO_LARGE = "xml too large"
DEFECTS = (
    *(MALFORMED, NOT_AN_ARTICLE, SEVERAL_ARTICLES, DECLARES_ENTITIES, UNKNOWN_ENTITY, TOO_LARGE),
)

_PROLOG_BYTES = 100_000
_HREF = "{http://www.w3.org/1999/xlink}href"
_HIGHWIRE_ID = "{http://schema.highwire.org/Journal}id"
_THUMBNAIL = re.compile(r"(?<![a-z])thumb(?:nail)?s?(?:\.\w+)?$")
_LABEL_IN_CAPTION = re.compile(r"(?:fig(?:ure)?|scheme|plate)\b\.?\s?[SA]?\d+\b", re.IGNORECASE)
# "<bold>Figure 1</bold>Cells" and "Figure 1.Cells" are a label and a text; "Fig. 1A" is a label.
# Possessive: with several ways to match marks, thousands of them would take quadratic time.
_MARKS = f"[{text.BOLD}{text.BOLD_END}{text.SUP}{text.SUP_END}]*+"
_GLUED_LABEL = re.compile(
    rf"^({_MARKS}(?i:(?:(?:supplement(?:ary|al)|extended data|additional)\s)?"
    r"(?:fig(?:ure|ura)?|scheme|plate|chart|graph|video|movie|table))\b\.?\s?[SEA]?\d+(?:[-–]\d+)?"
    rf"(?:{_MARKS}[.:|]{_MARKS}(?={_MARKS}[^\W\d_])"
    rf"|{text.BOLD_END}(?={_MARKS}[^\W\d_]{{2}})|(?={_MARKS}[A-Z][a-z]{{2}})))",
    re.MULTILINE,
)
# The second form is Europe PMC's.
_PMIDS = etree.XPath(
    "descendant::pub-id[@pub-id-type='pmid']/text()"
    " | descendant::ext-link[@ext-link-type='pmid']/@*[local-name()='href'][number(.) > 0]"
)
_ALT_TEXTS, _LONG_DESCRIPTIONS = (
    etree.XPath(
        "(. | graphic | media | alternatives | alternatives/graphic | alternatives/media)/" + name
    )
    for name in ("alt-text", "long-desc")
)
_MARKS_IN_TITLES = etree.XPath(
    "(front | front-stub)//article-title//*[self::fn"
    " or self::xref[@ref-type='fn' or @ref-type='author-notes']"
    # At the end: CYP2C19*2 is an allele.
    " or self::sup[translate(normalize-space(.), '*†‡§¶, ', '')=''"
    " and not(following-sibling::node()[translate(normalize-space(.), '*†‡§¶,', '')!=''])]]"
)
# eLife's captions and abstracts end with their own DOI, and captions then list source data. JoVE's
# end with a link to a larger image.
_NOT_IN_CAPTIONS = etree.XPath(
    "(.//fig/caption | .//abstract)/p[starts-with(normalize-space(.), 'DOI: http')"
    " and not(contains(substring-after(normalize-space(.), 'DOI: '), ' '))]"
    " | .//fig/caption//supplementary-material"
    " | .//ext-link[starts-with(normalize-space(.), 'Please click here to view a larger')]"
)
# Licences are read without regard to marks.
_SUPERSCRIPTS = etree.XPath(
    "descendant::sup[not(ancestor::permissions or ancestor::license"
    " or ancestor::copyright-statement)]"
)
_ABOUT_AUTHORS = re.compile(
    r"about (?:the )?authors?|authors?['’]?s? biograph(?:y|ies)", re.IGNORECASE
)
_KINDS = {
    "scheme": "scheme",
    "video": "video",
    "extended": "extended-data",
    "supplementary": "supplement",
    "supplemental": "supplement",
}


@dataclass(frozen=True)
class ParsedArticle:
    """Parsed content of an article, or its defect."""

    content: ArticleContent | None
    defect: str | None = None
    detail: str | None = None


def read_article(xml: bytes) -> ParsedArticle:
    """Parse the XML of one article.

    Args:
        xml: JATS or NLM DTD as PMC, PLOS, eLife, SciELO and bioRxiv publish it, also inside the
            wrapper of an E-utilities or OAI-PMH response.
    """
    if (need := tree_bytes(xml)) > MAX_TREE_BYTES:
        return ParsedArticle(None, TOO_LARGE, f"its tree would take {need / 1e6:.0f} MB")
    try:
        root = parse_xml(xml.lstrip())
    except (etree.XMLSyntaxError, ValueError) as error:
        # A bomb exceeds libxml2's limits before its declarations can be inspected.
        bomb = b"<!ENTITY" in xml[:_PROLOG_BYTES]
        return ParsedArticle(None, DECLARES_ENTITIES if bomb else MALFORMED, str(error)[:300])
    declared = _declared_entities(root)
    if declared:
        return ParsedArticle(None, DECLARES_ENTITIES, declared)
    articles = _articles(root)
    if len(articles) != 1:
        if articles:
            return ParsedArticle(None, SEVERAL_ARTICLES, str(len(articles)))
        return ParsedArticle(None, NOT_AN_ARTICLE, f"root element {etree.QName(root).localname}")
    article = articles[0]
    unknown = text.resolve_entities(article)
    if unknown:
        return ParsedArticle(None, UNKNOWN_ENTITY, unknown)
    return ParsedArticle(_content(article))


def _declared_entities(root: etree._Element) -> str | None:
    # A file that declares its own entities may point them to files or nest them into a bomb. No
    # publisher needs them: of 4,483 real articles none declares one.
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is None:
        return None
    return ", ".join(str(entity.name) for entity in dtd.iterentities())[:300] or None


def _articles(root: etree._Element) -> list[etree._Element]:
    if root.tag == "article":
        return [root]
    found = []
    for element in root.iter("{*}article"):
        namespace = etree.QName(element).namespace
        if namespace:
            prefix = f"{{{namespace}}}"
            for inner in element.iter(prefix + "*"):
                inner.tag = inner.tag.removeprefix(prefix)
        found.append(element)
    return found


def _content(article: etree._Element) -> ArticleContent:
    pmids: dict[str, None] = {}
    reference_lists = list(article.iter("ref-list"))
    for references in reference_lists:
        pmids |= dict.fromkeys(pmid.strip() for pmid in _PMIDS(references))
    text.detach(reference_lists)
    text.detach(_MARKS_IN_TITLES(article))
    text.detach(_NOT_IN_CAPTIONS(article))
    separate_keywords(article)
    places = figure_places(article)
    put_captions_in_figures(article)
    move_floats(article)
    text.prepare(article)
    text.mark_all(_SUPERSCRIPTS(article), text.SUP)
    # Fields that need no other marks are read before these are set.
    front = front_matter(article)
    full_text = text.plain_readable(article.find("body"))
    listed = abbreviations(article)
    for place in places:
        for part in place.figure.iterchildren("caption", "attrib"):
            text.mark_all(part.iter("bold"), text.BOLD)
    mentions = cited_figures(article, places)
    shared = _shared_texts(places)
    groups = {place.group for place in places if place.group is not None}
    group_images = {group: _images_of(_own_graphics(group)) for group in groups}
    figures = [
        _figure(place, found, front["language"], shared, group_images.get(place.group, []))
        for place, found in zip(places, mentions, strict=True)
    ]
    return ArticleContent(
        **front,
        reference_pmids=list(pmids),
        full_text=full_text,
        abbreviations=listed,
        figures=figures + _graphical_abstracts(article),
    )


def _shared_texts(places: list[FigureContext]) -> dict[etree._Element, list[str]]:
    """Return the captions of groups and the words of graphical abstracts, for all their figures.

    None where the copies for all figures are too long.
    """
    members = Counter(
        element
        for place in places
        for element in (place.group, place.abstract)
        if element is not None
    )
    texts = {
        element: [text.with_marks(part) for part in _shared_parts(element)] for element in members
    }
    return {
        element: parts if sum(map(len, parts)) * members[element] <= MOST_TEXT else []
        for element, parts in texts.items()
    }


def _shared_parts(element: etree._Element) -> list[etree._Element]:
    if element.tag == "fig-group":
        return list(element.iterfind("caption"))
    # A graphical abstract is described by the abstract's words; its title only says what it is.
    is_drawn = element.get("abstract-type") in GRAPHICAL_ABSTRACTS
    return [part for part in element if is_drawn and part.tag not in ("fig", "title")]


def _figure(
    place: FigureContext,
    mentions: list[Mention],
    language: str | None,
    shared: dict[etree._Element, list[str]],
    group_images: list[Graphic],
) -> FigureContent:
    figure = place.figure
    marked = "\n".join(filter(None, _captions(place, language, shared)))
    caption, spans = text.without_marks(_GLUED_LABEL.sub(r"\1 ", marked))
    label = plain(figure.find("label")).rstrip(" .:")
    if not label:
        stated = _LABEL_IN_CAPTION.match(caption)
        label = stated[0].rstrip(" .:") if stated else ""
    graphics = _graphics(figure)
    # SciELO publishes one image per group, whose figures are its caption in several languages.
    has_none = not graphics and figure.find(".//media") is None and place.parent_key is None
    if has_none and len(group_images) == 1:
        graphics = group_images
    permissions = figure.find("permissions")
    credit = "\n".join(
        filter(
            None,
            (
                plain(part)
                for holder in (figure, *figure.iterfind("graphic"), *figure.iterfind("media"))
                for part in holder
                if part.tag in ("attrib", "permissions") and not _is_legend(part)
            ),
        )
    )
    return FigureContent(
        key=place.key,
        xml_id=figure.get("id"),
        kind=_kind(place, label, has_graphics=bool(graphics)),
        parent_key=place.parent_key,
        label=label or None,
        caption=caption,
        caption_bold=spans[text.BOLD],
        caption_superscripts=spans[text.SUP],
        mentions=mentions,
        alt_text=_described(_ALT_TEXTS(figure), label)
        or _described(_LONG_DESCRIPTIONS(figure), label),
        credit=credit or None,
        section=" > ".join(filter(None, (plain(title) for title in place.section_titles))) or None,
        license=_own_license(permissions),
        graphics=graphics,
        has_video=figure.find(".//media") is not None,
    )


def _captions(
    place: FigureContext, language: str | None, shared: dict[etree._Element, list[str]]
) -> list[str]:
    """Return the texts of a caption in reading order, including marks.

    The caption of a group applies to all its members. Paragraphs next to a caption, and texts
    without credit in ``<attrib>``, are the end of its legend.
    """
    parts: list[str] = []
    if place.group is not None:
        parts += shared[place.group]
    own = place.figure.findall("caption")
    if len(own) > 1:
        same = [part for part in own if language_of(part) in (None, language)]
        own = same or own[:1]
    legend = [part for part in place.figure if _is_legend(part)]
    parts += [text.with_marks(part) for part in own + legend]
    if any(parts) or place.abstract is None:
        return parts
    return shared[place.abstract]


def _described(descriptions: list[etree._Element], label: str) -> str | None:
    """Return the descriptions of a figure and its images, one per line, each once.

    Elsevier's are often the label alone.
    """
    texts = dict.fromkeys(map(plain, descriptions))
    return "\n".join(text for text in texts if text and text.rstrip(" .:") != label) or None


def _is_legend(part: etree._Element) -> bool:
    if part.tag == "attrib":
        return part.getparent().tag == "fig" and is_legend(plain(part))
    return part.tag in ("p", "list", "legend", "statement", "fn", "fn-group")


def _kind(place: FigureContext, label: str, *, has_graphics: bool) -> str:
    if place.scope is not None:
        # SciELO publishes the whole article once more in another language.
        is_translated = place.scope.get("article-type") == "translation"
        return "translation" if is_translated else "author-response"
    if place.parent_key is not None or place.figure.get("specific-use") == "child-fig":
        return "supplement"
    if not has_graphics and place.figure.find(".//media") is not None:
        return "video"
    if place.abstract is not None:
        return "graphical-abstract"
    if (
        not label
        and place.section_titles
        and _ABOUT_AUTHORS.fullmatch(plain(place.section_titles[-1]))
    ):
        return "portrait"
    return _KINDS.get(label.partition(" ")[0].rstrip(".").lower(), "figure")


def _graphics(figure: etree._Element) -> list[Graphic]:
    """Return the published images of a figure, in order."""
    images = _images_of(_own_graphics(figure))
    if not images:
        images = _images_of(
            graphic
            for graphic in figure.iter("graphic")
            if graphic.get(_HREF)
            and next(graphic.iterancestors("caption", "table-wrap"), None) is None
        )
    if len(images) == 1 and (highwire := figure.get(_HIGHWIRE_ID)):
        # bioRxiv's packages name the file by this id, not by the href.
        images[0].hrefs.append(f"{highwire}.large")
    return images


def _own_graphics(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the graphics of a figure or group that are in none of its other children."""
    for child in element:
        if child.tag == "alternatives":
            yield from child.iter("graphic")
        elif child.tag == "graphic" or (
            child.tag == "media" and child.get("mimetype", "").lower() == "image"
        ):
            yield child


def _images_of(graphics: Iterable[etree._Element]) -> list[Graphic]:
    """Return the images of graphics: those in one ``<alternatives>`` are one image.

    Thumbnails next to an image are none. Dove Press marks all its graphics as those of the print.
    """
    same: dict[etree._Element, Graphic] = {}
    for graphic in graphics:
        parent = graphic.getparent()
        image = same.setdefault(parent if parent.tag == "alternatives" else graphic, Graphic([]))
        if href := graphic.get(_HREF):
            (image.lesser if _is_lesser(graphic) else image.hrefs).append(href)
    whole = [image for image in same.values() if image.hrefs or not image.lesser]
    return whole or [Graphic(image.lesser) for image in same.values()]


def _is_lesser(graphic: etree._Element) -> bool:
    use = f"{graphic.get('specific-use', '')} {graphic.get('content-type', '')}".lower()
    name = (graphic.get(_HREF) or "").lower()
    is_print = re.search(r"\bprint\b", use) is not None
    return "thumb" in use or is_print or _THUMBNAIL.search(name) is not None


def _own_license(permissions: etree._Element | None) -> License | None:
    if permissions is None:
        return None
    own = licenses.license_of([permissions])
    return own if own.spdx else None


def _graphical_abstracts(article: etree._Element) -> list[FigureContent]:
    """Return graphical abstracts: images without a label, with the abstract as caption."""
    found: list[FigureContent] = []
    for abstract in article.iterfind("front/article-meta/abstract"):
        if abstract.get("abstract-type") not in GRAPHICAL_ABSTRACTS:
            continue
        if abstract.find(".//fig") is not None:
            continue
        words = "\n".join(filter(None, map(text.with_marks, _shared_parts(abstract))))
        caption, spans = text.without_marks(words)
        graphics = [graphic for graphic in abstract.iter("graphic") if graphic.get(_HREF)]
        if len(caption) * len(graphics) > MOST_TEXT:
            continue
        ids: dict[str, list[str | None]] = {}
        for graphic in graphics:
            ids.setdefault(graphic.get(_HREF), []).append(graphic.get("id"))
        for image in _images_of(graphics):
            xml_id = ids[image.hrefs[0]].pop(0)
            found.append(
                FigureContent(
                    key=xml_id or f"abstract{len(found) + 1}",
                    xml_id=xml_id,
                    kind="graphical-abstract",
                    caption=caption,
                    caption_superscripts=spans[text.SUP],
                    graphics=[image],
                )
            )
    return found
