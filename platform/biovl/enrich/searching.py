"""Queries of the E-utilities: all ids that match, regardless of their number."""

import logging
from datetime import date, timedelta

from biovl.core.errors import SourceError
from biovl.enrich.answers import SearchResult, read_found
from biovl.enrich.client import EntrezClient

PAGE = 9_999
"""Ids per response: NCBI documents 10,000 as the maximum, but PubMed truncates to 9,999."""

_FIRST_DAY, _LAST_DAY = date(1700, 1, 1), date(2199, 12, 31)

_log = logging.getLogger(__name__)


def esearch(client: EntrezClient, db: str, term: str, *, limit: int | None = None) -> list[str]:
    """Return the ids of a database that match a query, without duplicates, in the service's order.

    Pages are read from the history server, where the result is a snapshot. PubMed returns only the
    first 9,999: larger results are requested by date of entry into PubMed, the last entries first,
    in windows that are halved until each is small enough. A warning is logged if the service does
    not know a phrase of the query: it searches without that.

    Args:
        client: Sends requests.
        db: ``pubmed``, ``pmc`` …; ids of PMC are the digits of PMCIDs.
        term: Query, as in the search field of the website.
        limit: Maximum number of ids; the first ones in the order of the service, or if it is
            more than 9,999 in PubMed, those that entered it last. None: all.

    Raises:
        SourceError: If the query is rejected, its result is incomplete, or more than 9,999 of its
            ids entered PubMed on one day.
        Unanswered: If the service keeps failing.
        ServiceError: If it is unreachable, or rejects everything.
    """
    most = PAGE if limit is None else min(limit, PAGE)
    first = _page(client, db, term, {"usehistory": "y", "retmax": str(most)})
    if first.unknown:
        _log.warning(
            "the search %r of %s was made without %s, unknown there: check the spelling",
            *(term, db, ", ".join(map(repr, first.unknown))),
        )
    if limit is not None and len(first.ids) >= limit:
        return first.ids[:limit]
    count = first.count if limit is None else min(first.count, limit)
    if db == "pubmed" and first.count > PAGE:
        ids = _by_windows(client, term, _FIRST_DAY, _LAST_DAY)
    else:
        ids = _rest(client, db, term, first, count)
    unique = list(dict.fromkeys(ids))[:limit]
    # Between the requests for windows, PubMed may gain or lose some articles.
    changed = first.count // 100 if first.count > PAGE else 0
    if len(unique) < count - changed:
        raise SourceError(
            f"the search {term!r} of {db} finds {first.count:,} ids, but only {len(unique):,} "
            "could be retrieved: search again, or in narrower terms"
        )
    return unique


def _rest(client: EntrezClient, db: str, term: str, first: SearchResult, count: int) -> list[str]:
    """Return at least ``count`` ids of a result, page by page, if it has so many."""
    ids = list(first.ids)
    while len(ids) < count:
        place = {"retstart": str(len(ids))}
        if first.webenv:
            place |= {"WebEnv": first.webenv, "query_key": first.query_key, "usehistory": "y"}
        page = _page(client, db, term, place)
        if not page.ids:
            break
        ids += page.ids
    return ids


def _by_windows(client: EntrezClient, term: str, begin: date, end: date) -> list[str]:
    window = {
        "datetype": "edat",
        "mindate": begin.strftime("%Y/%m/%d"),
        "maxdate": end.strftime("%Y/%m/%d"),
    }
    page = _page(client, "pubmed", term, {**window, "usehistory": "y"})
    if page.count <= PAGE:
        return _rest(client, "pubmed", term, page, page.count)
    if begin == end:
        raise SourceError(
            f"the search {term!r} finds {page.count:,} articles that came into PubMed on {begin}, "
            f"and no more than {PAGE:,} of a day can be retrieved: use narrower terms"
        )
    middle = begin + (end - begin) // 2
    return [
        *_by_windows(client, term, middle + timedelta(days=1), end),
        *_by_windows(client, term, begin, middle),
    ]


def _page(client: EntrezClient, db: str, term: str, more: dict[str, str]) -> SearchResult:
    parameters = {"db": db, "term": term, "retmax": str(PAGE), "retmode": "xml", "retstart": "0"}
    result = client.request("esearch", {**parameters, **more}, read_found)
    if result.refused:
        raise SourceError(f"the search {term!r} of {db} was rejected: {result.refused}")
    return result
