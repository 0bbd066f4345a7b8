"""Parse responses of NCBI's E-utilities into records, keyed by the ids that they contain.

A response with status 200 may be an error, an HTML page, truncated, or about other ids than those
requested. Invalid responses raise NotAnAnswer, and the caller must check for missing ids.
"""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from biovl.articles.pubmed_dates import date_in, publication_date, text_of
from biovl.core.xml import parse_xml

_NO_KNOWN_IDS = "id list is empty"
_UNKNOWN = {
    "PhraseNotFound": "phrasesnotfound",
    "FieldNotFound": "fieldsnotfound",
    "QuotedPhraseNotFound": "quotedphrasesnotfound",
}
"""Elements of esearch's ``ErrorList`` and ``WarningList``, with their names in JSON."""
_RETRACTED = "Retracted Publication"
_RETRACTIONS = {"RetractionIn", "RetractedandRepublishedIn"}
CITED_IN = "pubmed_pubmed_citedin"
"""The link from an article to those that cite it."""


class NotAnAnswer(ValueError):
    """A response is invalid; the message states what was received."""


@dataclass(frozen=True, slots=True)
class Qualifier:
    """A subheading of a MeSH heading: ``diagnostic imaging`` of ``Lung Neoplasms``."""

    qualifier: str
    ui: str
    major: bool


@dataclass(frozen=True, slots=True)
class MeshTerm:
    """A MeSH heading with its qualifiers, as in PubMed."""

    descriptor: str
    ui: str
    major: bool
    """Whether the descriptor is a major topic. If a heading has qualifiers, they are marked
    instead."""
    qualifiers: list[Qualifier]


@dataclass(frozen=True, slots=True, kw_only=True)
class PubmedRecord:
    """Record of an article in PubMed."""

    pmid: int
    status: str
    """Kind of record: ``ok``, ``book`` or ``deleted``."""
    doi: str | None = None
    pmcid: str | None = None
    mesh_terms: list[MeshTerm] = field(default_factory=list)
    published: str | None = None
    """Publication date, ISO 8601 at the published precision."""
    published_from: str | None = None
    """XML element of the publication date: ArticleDate, PubDate, MedlineDate …"""
    publication_types: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    retracted: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Parsed response of esearch: ids that match a query."""

    count: int
    """Total number of results, of which ``ids`` may be a part."""
    ids: list[str]
    webenv: str
    query_key: str
    refused: str
    """Reason why the query was rejected; otherwise empty."""
    unknown: list[str]
    """Phrases and fields of the query that the service does not find, and searched without."""


def read_records(data: bytes) -> dict[int, PubmedRecord]:
    """Return the records of a ``PubmedArticleSet`` by PMID; empty if no id is known.

    Raises:
        NotAnAnswer: If the response is invalid.
    """
    root = _root(data, ("PubmedArticleSet", "eFetchResult"))
    if root is None:
        return {}
    records: dict[int, PubmedRecord] = {}
    versions: dict[int, int] = {}
    for element in root:
        for record, version in _records(element):
            # An article may have several versions: the last one is valid.
            if version >= versions.get(record.pmid, 0):
                records[record.pmid], versions[record.pmid] = record, version
    return records


def read_citations(data: bytes) -> dict[int, list[int]]:
    """Return the PMIDs that cite each PMID of an ``eLinkResult``, sorted; ``[]`` if not cited.

    Raises:
        NotAnAnswer: If the response is invalid, or combines several ids.
    """
    root = _root(data, ("eLinkResult",))
    citing: dict[int, list[int]] = {}
    for links in () if root is None else root.iterfind("LinkSet"):
        own = [number for number in map(_number, links.iterfind("IdList/Id")) if number]
        if len(own) > 1:
            raise NotAnAnswer("citations of several ids together")
        if own:
            (pmid,) = own
            ids = {
                _number(element)
                for linked in links.iterfind("LinkSetDb")
                if text_of(linked.find("LinkName")) == CITED_IN
                for element in linked.iterfind("Link/Id")
            }
            citing[pmid] = sorted(ids - {0})
    return citing


def read_found(data: bytes) -> SearchResult:
    """Return the results of esearch, from XML or JSON.

    Raises:
        NotAnAnswer: If the response is invalid.
    """
    if data.lstrip().startswith(b"{"):
        return _found_in_json(data)
    root = _root(data, ("eSearchResult",), errors_are_answers=True)
    if root is None:
        raise NotAnAnswer("empty answer")
    return _search_result(
        text_of(root.find("Count")),
        [text_of(element) for element in root.iterfind("IdList/Id")],
        text_of(root.find("WebEnv")),
        text_of(root.find("QueryKey")),
        text_of(root.find("ERROR")),
        [text_of(element) for name in _UNKNOWN for element in root.iterfind(f"*/{name}")],
    )


def _found_in_json(data: bytes) -> SearchResult:
    try:
        # NCBI writes line breaks into the strings of its errors.
        answer = json.loads(data, strict=False)
    except ValueError as error:
        raise NotAnAnswer("malformed JSON") from error
    result = answer.get("esearchresult")
    if not isinstance(result, dict):
        raise NotAnAnswer(_error_of(answer))
    return _search_result(
        str(result.get("count", "")),
        [str(number) for number in result.get("idlist", [])],
        str(result.get("webenv", "")),
        str(result.get("querykey", "")),
        str(result.get("ERROR", "")),
        [
            str(phrase)
            for name in _UNKNOWN.values()
            for messages in ("errorlist", "warninglist")
            for phrase in (result.get(messages) or {}).get(name, [])
        ],
    )


def _search_result(
    count: str, ids: list[str], webenv: str, query_key: str, refused: str, unknown: list[str]
) -> SearchResult:
    if re.search(r"backend|temporar|unavailable|timed? ?out|try again|exception", refused, re.I):
        # A temporary error.
        raise NotAnAnswer(f"error: {refused[:200]}")
    if not refused and not count.isdecimal():
        raise NotAnAnswer("a search without its count")
    number = int(count) if count.isdecimal() else 0
    return SearchResult(number, ids, webenv, query_key, refused, unknown)


def _root(
    data: bytes, expected: tuple[str, ...], *, errors_are_answers: bool = False
) -> etree._Element | None:
    """Return the root of a response, or None if it reports that no id is known."""
    data = data.removeprefix(codecs.BOM_UTF8)
    begin = data.lstrip()[:1]
    if begin == b"{":
        try:
            raise NotAnAnswer(_error_of(json.loads(data, strict=False)))
        except json.JSONDecodeError as error:
            raise NotAnAnswer("malformed JSON") from error
    if begin != b"<":
        raise NotAnAnswer("text instead of XML" if begin else "empty answer")
    # NCBI's responses name a DTD but contain no declarations.
    if b"<!ENTITY" in data:
        raise NotAnAnswer("XML that declares entities")
    try:
        root = parse_xml(data)
    except etree.XMLSyntaxError as error:
        is_page = re.match(rb"\s*<(!doctype\s+)?html", data[:200], re.I)
        raise NotAnAnswer("a web page" if is_page else "malformed XML") from error
    is_expected = root.tag in expected
    for element in root.iter("ERROR") if not (errors_are_answers and is_expected) else ():
        text = text_of(element)
        if _NO_KNOWN_IDS in text.lower():
            return None
        raise NotAnAnswer(f"error: {text[:200]}")
    if not is_expected:
        name = str(root.tag).lower()
        raise NotAnAnswer("a web page" if name == "html" else f"unexpected <{str(root.tag)[:40]}>")
    if root.tag == "eFetchResult":
        raise NotAnAnswer("an empty eFetchResult")
    return root


def _error_of(answer: object) -> str:
    # The full text may contain the API key.
    error = answer.get("error") if isinstance(answer, dict) else None
    return f"error: {str(error)[:200]}" if error else "JSON instead of XML"


def _records(element: etree._Element) -> Iterator[tuple[PubmedRecord, int]]:
    if element.tag == "PubmedArticle":
        citation = element.find("MedlineCitation")
        pmid = _number(None if citation is None else citation.find("PMID"))
        if citation is not None and pmid:
            yield _article(element, citation, pmid), _version(citation.find("PMID"))
    elif element.tag == "PubmedBookArticle":
        book = element.find("BookDocument")
        pmid = _number(None if book is None else book.find("PMID"))
        if book is not None and pmid:
            yield _book(book, pmid), _version(book.find("PMID"))
    elif element.tag == "DeleteCitation":
        for gone in element.iterfind("PMID"):
            if _number(gone):
                yield PubmedRecord(pmid=_number(gone), status="deleted"), 0


def _article(element: etree._Element, citation: etree._Element, pmid: int) -> PubmedRecord:
    types = _texts(citation.iterfind("Article/PublicationTypeList/PublicationType"))
    notices = {link.get("RefType") for link in citation.iter("CommentsCorrections")}
    date, origin = publication_date(element, citation)
    ids = element.find("PubmedData/ArticleIdList")
    return PubmedRecord(
        pmid=pmid,
        status="ok",
        doi=_id(ids, "doi"),
        pmcid=_id(ids, "pmc"),
        mesh_terms=[
            MeshTerm(
                descriptor=text_of(heading.find("DescriptorName")),
                ui=heading.find("DescriptorName").get("UI", ""),
                major=heading.find("DescriptorName").get("MajorTopicYN") == "Y",
                qualifiers=[
                    Qualifier(text_of(name), name.get("UI", ""), name.get("MajorTopicYN") == "Y")
                    for name in heading.iterfind("QualifierName")
                ],
            )
            for heading in citation.iterfind("MeshHeadingList/MeshHeading")
            if heading.find("DescriptorName") is not None
        ],
        published=date,
        published_from=origin,
        publication_types=types,
        keywords=_texts(citation.iterfind("KeywordList/Keyword")),
        retracted=_RETRACTED in types or not notices.isdisjoint(_RETRACTIONS),
    )


def _book(book: etree._Element, pmid: int) -> PubmedRecord:
    date = date_in(book.find("Book/PubDate"))
    return PubmedRecord(
        pmid=pmid,
        status="book",
        doi=_id(book.find("ArticleIdList"), "doi"),
        pmcid=_id(book.find("ArticleIdList"), "pmc"),
        published=date,
        published_from="PubDate" if date else None,
        publication_types=_texts(book.iterfind("PublicationType")),
        keywords=_texts(book.iterfind("KeywordList/Keyword")),
    )


def _id(ids: etree._Element | None, kind: str) -> str | None:
    for element in () if ids is None else ids.iterfind("ArticleId"):
        if element.get("IdType") == kind:
            return text_of(element) or None
    return None


def _number(element: etree._Element | None) -> int:
    """Return an id, 0 if there is none."""
    text = text_of(element)
    return int(text) if text.isascii() and text.isdecimal() else 0


def _version(element: etree._Element) -> int:
    text = element.get("Version", "1")
    return int(text) if text.isascii() and text.isdecimal() else 1


def _texts(elements: Iterator[etree._Element]) -> list[str]:
    return list(dict.fromkeys(text for text in map(text_of, elements) if text))
