"""The requested articles: a list of ids, or the results of a search in PMC or PubMed."""

import re
from collections.abc import Sequence

import numpy as np
from lxml import etree

from biovl.core.errors import SourceError
from biovl.core.filesystems import open_location
from biovl.core.xml import parse_xml
from biovl.enrich.answers import NotAnAnswer
from biovl.enrich.client import EntrezClient
from biovl.enrich.searching import esearch
from biovl.harvest.pmc.settings import Config

_ID = re.compile(r"(?:PMC)?([1-9]\d{0,11})(?:\.\d+)?", re.IGNORECASE)
_AT_ONCE = 200
"""Ids per request, the maximum that NCBI recommends."""


def requested_articles(config: Config) -> np.ndarray | None:
    """Return the numbers of the requested articles, sorted; None for all articles.

    Raises:
        SourceError: If the list is invalid, or the search has no results.
        BiovlError: If the search fails.
    """
    if config.ids:
        return _listed(config.ids)
    if config.search:
        return _found(config)
    return None


def _listed(uri: str) -> np.ndarray:
    filesystem, path = open_location(uri)
    try:
        with filesystem.open_input_stream(path) as stream:
            lines = stream.read().decode("utf-8-sig", "replace").splitlines()
    except OSError as error:
        raise SourceError(f"source.ids: {uri} cannot be read: {error}") from error
    numbers = set()
    for place, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip().strip(",;\"'")
        if not text:
            continue
        match = _ID.fullmatch(text)
        if match is None:
            raise SourceError(
                f"source.ids: {uri}, line {place}: expected a PMCID such as PMC7096724, got "
                f"{text[:50]!r}"
            )
        numbers.add(int(match[1]))
    if not numbers:
        raise SourceError(f"source.ids: {uri} contains no PMCID")
    return np.array(sorted(numbers), np.int64)


def _found(config: Config) -> np.ndarray:
    with EntrezClient(config.entrez) as client:
        if config.search_in == "pmc":
            ids = esearch(client, "pmc", config.search, limit=config.search_limit)
        else:
            term = f"({config.search}) AND pubmed pmc[sb]"
            pmids = esearch(client, "pubmed", term, limit=config.search_limit)
            ids = _in_pmc(client, pmids)
    numbers = {int(number) for number in ids if _ID.fullmatch(number)}
    if not numbers:
        raise SourceError(f"source.search: {config.search!r} has no results in {config.search_in}")
    return np.array(sorted(numbers), np.int64)


def _in_pmc(client: EntrezClient, pmids: Sequence[str]) -> list[str]:
    """Return the PMC numbers of those articles that are in PMC."""
    found: list[str] = []
    for start in range(0, len(pmids), _AT_ONCE):
        form = {
            **{"dbfrom": "pubmed", "db": "pmc", "linkname": "pubmed_pmc", "retmode": "xml"},
            "id": pmids[start : start + _AT_ONCE],
        }
        found += client.request("elink", form, _linked)
    return found


def _linked(answer: bytes) -> list[str]:
    try:
        root = parse_xml(answer)
    except etree.XMLSyntaxError as error:
        raise NotAnAnswer("no XML") from error
    if root.tag != "eLinkResult":
        raise NotAnAnswer(f"a {root.tag}")
    return [element.text or "" for element in root.iterfind("LinkSet/LinkSetDb/Link/Id")]
