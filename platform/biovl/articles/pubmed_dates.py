"""Publication dates in PubMed records: ISO 8601 at the published precision."""

import re
from datetime import date

from lxml import etree

_MONTHS = {
    name: number
    for number, name in enumerate(
        "jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1
    )
}
_MONTH = "|".join(name + r"[a-z]*\.?" for name in _MONTHS)
_MEDLINE_DATE = re.compile(
    rf"(?:\b(?P<before>{_MONTH})(?:[ ./-]+\w+\.?){{0,2}}?[ ,]+)?"
    rf"\b(?P<year>[12]\d{{3}})\b(?:[ /-]+(?P<month>{_MONTH})(?:[ ]+(?P<day>\d{{1,2}})\b)?)?",
    re.IGNORECASE,
)


def publication_date(
    element: etree._Element, citation: etree._Element
) -> tuple[str | None, str | None]:
    """Return the publication date of an article, and the name of its XML element.

    The earlier of the electronic and the issue date; of two that agree, the more precise one.
    """
    issue = citation.find("Article/Journal/JournalIssue/PubDate")
    stated = None if issue is None else issue.find("MedlineDate")
    dates = [
        (date_in(citation.find("Article/ArticleDate")), "ArticleDate"),
        (date_in(issue), "PubDate"),
        (medline_date(text_of(stated)), "MedlineDate"),
    ]
    known = [(text, origin) for text, origin in dates if text]
    if not known:
        # Without either: the date reported to PubMed, and last the date of that report.
        for status in ("epublish", "ppublish", "aheadofprint", "pubmed", "entrez"):
            for event in element.iterfind("PubmedData/History/PubMedPubDate"):
                if event.get("PubStatus") == status and date_in(event):
                    return date_in(event), f"History/{status}"
        return None, None
    first = min(known)[0]
    return max((pair for pair in known if pair[0].startswith(first)), key=lambda pair: len(pair[0]))


def date_in(element: etree._Element | None) -> str | None:
    """Return the date of an element with Year, Month and Day, or fewer of them."""
    if element is None:
        return None
    return _iso(
        text_of(element.find("Year")), text_of(element.find("Month")), text_of(element.find("Day"))
    )


def medline_date(text: str) -> str | None:
    """Return the beginning of a period as it is printed: ``1998 Dec-1999 Jan`` gives ``1998-12``.

    A season has no date of its own: ``Winter 2003`` gives ``2003``.
    """
    match = _MEDLINE_DATE.search(text)
    if match is None:
        return None
    if match["before"]:
        return _iso(match["year"], match["before"], "")
    return _iso(match["year"], match["month"] or "", match["day"] or "")


def _iso(year: str, month_text: str, day: str) -> str | None:
    """Return a date at its precision: an invalid month or day is left out."""
    if not re.fullmatch(r"[12]\d{3}", year):
        return None
    is_number = month_text.isdecimal()
    month = int(month_text) if is_number else _MONTHS.get(month_text[:3].lower(), 0)
    if not 1 <= month <= 12:
        return year
    try:
        return date(int(year), month, int(day)).isoformat()
    except ValueError:
        return f"{year}-{month:02d}"


def text_of(element: etree._Element | None) -> str:
    """Return the text of an element and its descendants, with normalized white space."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
