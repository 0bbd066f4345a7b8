"""An article's front matter: ids, journal, dates and licence."""

import calendar
import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from biovl.articles import licenses
from biovl.articles.glossary import are_abbreviations
from biovl.articles.text import detach, plain, plain_or_none, plain_readable

_PMCID = re.compile(r"(?:PMC)?(\d+)(?:\.(\d+))?", re.IGNORECASE)
_PMCID_TYPES = ("pmcid", "pmc", "pmcid-ver", "pmc-id", "pmcaid")
# Abstracts of these types are not the main abstract.
_OTHER_ABSTRACTS = frozenset(
    "graphical toc teaser precis web-summary executive-summary key-points plain-language-summary "
    "lay-abstract editors-summary patient synopsis short highlights author-highlights".split()
)
# The only abstract of some articles has one of these types.
_SUMMARIES = frozenset(("executive-summary", "short"))
GRAPHICAL_ABSTRACTS = frozenset("graphical toc teaser precis web-summary visual".split())
_MONTHS = {
    name: number
    for number, name in enumerate(
        "jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1
    )
}
# Not in brackets: "Temozolomide (TMZ; Temodar)".
_SEPARATOR = r"[{}]\s(?![^()]{{,99}}\))"
_KEYWORD_SECTIONS = etree.XPath(
    "front/article-meta/abstract//sec[@sec-type='kwd-group']"
    "[not(ancestor::sec[@sec-type='kwd-group'])]"
)
_RETRACTED = frozenset(("retracted-article", "retracted"))
# A notice refers to the article it retracts as "retracted-article"; the inverse relation is these.
_RETRACTED_BY = frozenset(("retraction-forward", "retracted-by"))
_PUBLICATION = frozenset(
    "epub ppub pub epub-ppub collection publication original-publication epreprint "
    "publication-year epub-original preprint".split()
)


def separate_keywords(article: etree._Element) -> None:
    """Make a ``<kwd-group>`` of each section of an abstract that lists keywords, in place.

    Europe PMC publishes them as a paragraph: ``Keywords: growth, cell wall``.
    """
    sections = _KEYWORD_SECTIONS(article)
    for section in sections:
        words, title = (
            " ".join("".join(part.itertext()).split()) if part is not None else ""
            for part in (section, next(section.iter("title", "bold"), None))
        )
        group = etree.SubElement(article.find("front/article-meta"), "kwd-group")
        etree.SubElement(group, "title").text = title
        listed = words.removeprefix(title).lstrip(": ")
        is_one = are_abbreviations(group)
        # "Diabetes Mellitus, Type 2; Obesity" are two.
        signs = ";" if "; " in listed else ";,"
        for word in [listed] if is_one else re.split(_SEPARATOR.format(signs), listed):
            etree.SubElement(group, "kwd").text = word
    detach(sections)


def _is_author(name: etree._Element) -> bool:
    """Return whether a name is an author's: the first of alternatives, in no biography."""
    alternatives = next(name.iterancestors("name-alternatives"), name)
    is_first = next(alternatives.iter("name", "string-name")) is name
    contributor = next(name.iterancestors("contrib", "bio"), None)
    if contributor is None:
        return is_first
    role = contributor.get("contrib-type", "author")
    return is_first and contributor.tag == "contrib" and role == "author"


def front_matter(article: etree._Element) -> dict[str, Any]:
    """Return the fields of ``ArticleContent`` in the ``<front>`` of a prepared article."""
    front = article.find("front")
    if front is None:
        front = article.find("front-stub")
    meta = front.find("article-meta") if front is not None else None
    if meta is None:
        meta = front if front is not None else etree.Element("article-meta")
    pmcid, version = _pmcid(meta)
    published = _published(meta)
    journal = _journal(front)
    title = plain_readable(meta.find("title-group/article-title"))
    return {
        "pmcid": pmcid,
        "version": version,
        "pmid": _id(meta, "pmid"),
        "doi": _id(meta, "doi"),
        "title": title,
        "abstract": _abstract(meta),
        "authors": _unique(
            f"{plain(name.find('given-names'))} {plain(name.find('surname'))}".strip()
            or plain(name)
            for group in meta.iterfind("contrib-group")
            if group.get("content-type") != "editor"
            for name in group.iter("name", "string-name")
            if _is_author(name)
        ),
        "keywords": _unique(
            word
            for group in meta.iterfind("kwd-group")
            if not are_abbreviations(group)
            for word in _keywords(group)
        ),
        "subjects": _unique(
            plain(subject) for subject in meta.iterfind("article-categories//subject")
        ),
        "journal": journal,
        "published": published,
        "article_type": article.get("article-type") or None,
        "language": language_of(article),
        "license": licenses.license_of(
            list(meta.iterchildren("permissions", "license", "copyright-statement"))
        ),
        "citation": _citation(meta, journal, published),
        "retracted": _retracted(article, meta),
    }


def _retracted(article: etree._Element, meta: etree._Element) -> bool | None:
    """Return True for an article that states its own retraction; not for the retraction notice."""
    kinds = {related.get("related-article-type") for related in meta.iterfind("related-article")}
    return True if article.get("article-type") in _RETRACTED or kinds & _RETRACTED_BY else None


def language_of(element: etree._Element) -> str | None:
    """Return the language that an element states, without its region: ``en``."""
    tag = element.get("{http://www.w3.org/XML/1998/namespace}lang", "")
    return tag.partition("-")[0].strip().lower() or None


def _id(meta: etree._Element, kind: str) -> str | None:
    for element in meta.iterfind("article-id"):
        if element.get("pub-id-type") == kind:
            return plain_or_none(element)
    return None


def _pmcid(meta: etree._Element) -> tuple[str | None, str | None]:
    """Return PMCID and version. Reads only the article's own ids, not those of references."""
    pmcid = version = None
    for kind in _PMCID_TYPES:
        match = _PMCID.fullmatch(_id(meta, kind) or "")
        if match:
            pmcid = pmcid or f"PMC{match[1]}"
            version = version or match[2]
    stated = plain_or_none(meta.find("article-version"))
    return pmcid, version or (stated if stated and stated[0].isdigit() else None)


def _journal(front: etree._Element | None) -> str | None:
    if front is None:
        return None
    for path in (
        "journal-meta/journal-title-group/journal-title",
        "journal-meta/journal-title",
        "journal-meta/journal-id",
    ):
        title = plain_or_none(front.find(path))
        if title:
            return title
    return None


def _abstract(meta: etree._Element) -> str | None:
    abstracts = meta.findall("abstract")
    for abstract in abstracts:
        if not abstract.get("abstract-type"):
            return plain_readable(abstract)
    for excluded in (_OTHER_ABSTRACTS, _OTHER_ABSTRACTS - _SUMMARIES):
        for abstract in abstracts:
            if abstract.get("abstract-type") not in excluded:
                return plain_readable(abstract)
    return None


def _published(meta: etree._Element) -> str | None:
    """Return the earliest publication date.

    A date that another one states more precisely (``2010`` and ``2010-07-18``) does not count.
    """
    dates: set[str] = set()
    late: set[str] = set()
    for element in meta.iterfind("pub-date"):
        kind = element.get("pub-type") or element.get("date-type") or "pub"
        if kind in _PUBLICATION:
            date = _iso(element)
            if date:
                # A collection's date is that of a volume, often only a year.
                (late if kind in ("collection", "publication-year") else dates).add(date)
    known = dates or late
    return min(
        (date for date in known if not any(other.startswith(f"{date}-") for other in known)),
        default=None,
    )


def _iso(date: etree._Element) -> str | None:
    year = plain(date.find("year"))[:4]
    if not re.fullmatch(r"[12]\d{3}", year):
        return None
    month_text = plain(date.find("month"))
    is_number = month_text.isdecimal() and len(month_text) <= 2
    month = int(month_text) if is_number else _MONTHS.get(month_text[:3].lower(), 0)
    if not 1 <= month <= 12:
        return year
    day = plain(date.find("day"))
    days = calendar.monthrange(int(year), month)[1]
    if day.isdecimal() and len(day) <= 2 and 1 <= int(day) <= days:
        return f"{year}-{month:02d}-{int(day):02d}"
    return f"{year}-{month:02d}"


def _citation(meta: etree._Element, journal: str | None, published: str | None) -> str | None:
    """Return PMC's citation format: ``Journal. 2011-07-18; 6(7):e123-130``."""
    if journal is None:
        return None
    volume, issue = plain(meta.find("volume")), plain(meta.find("issue"))
    first = plain(meta.find("fpage")) or plain(meta.find("elocation-id"))
    last = plain(meta.find("lpage"))
    pages = f"{first}-{last}" if first and last and last != first else first
    where = volume + (f"({issue})" if issue else "") + (f":{pages}" if pages else "")
    return f"{journal}. {published or ''}{'; ' if published and where else ''}{where}".strip()


def _keywords(group: etree._Element) -> Iterator[str]:
    """Yield the keywords of a group, also of one whose ``<kwd>`` is a list.

    A comma alone separates nothing: ``Carcinoma, Hepatocellular`` is one term. Nor does any sign in
    brackets: ``Temozolomide (TMZ; Temodar)``.
    """
    words = [plain(word) for word in group.iter("kwd")]
    signs = ";," if len(words) == 1 and words[0].count(", ") > 1 else ";"
    for word in words:
        parts = re.split(_SEPARATOR.format(signs), word)
        yield from (part.strip(" ;").removeprefix("and ") for part in parts)


def _unique(texts: Any) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))
