"""Requests for PubMed data by PMID: in batches, and in halves if a batch fails or is incomplete.

Every response is cached when it arrives, so that an interrupted run repeats no request.
"""

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from biovl.enrich.answers import CITED_IN, PubmedRecord, read_citations, read_records
from biovl.enrich.cache import FAILED, RecordCache
from biovl.enrich.client import EntrezClient, ServiceError, Unanswered

IDS_PER_REQUEST = 200
"""Ids per request, as NCBI recommends."""

MERGED = "merged into "
UNASKED = "answers about ids not asked for"

_DOUBT = 4
"""Consecutive failures after which a harmless request is sent, to decide whether the ids or the
service are the cause."""
_HARMLESS = 1
"""A PMID for which any response will do; it is the first one."""
_TRIES_BETWEEN = 2
"""Attempts for requests that only locate the id that causes an error."""

Row = dict[str, Any]
Fetch = Callable[[list[int], Counter[str], int | None], tuple[list[Row], list[int]]]
"""Function from ids to the resolved rows and the unresolved ids."""


class EntrezRequests:
    """Requests records and citations of PMIDs from the E-utilities. Thread-safe."""

    def __init__(self, client: EntrezClient, *, clock: Callable[[], float] = time.time) -> None:
        """Prepare requests.

        Args:
            client: Sends requests.
            clock: Returns Unix time, stored with every response.
        """
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._failures = 0

    def records(self, pmids: Sequence[int], cache: RecordCache) -> None:
        """Request the records of at most 200 PMIDs, and cache them.

        Raises:
            ServiceError: If the service is unreachable, or no longer responds.
        """
        self._settle(pmids, self._ask_records, cache)

    def citations(self, pmids: Sequence[int], cache: RecordCache) -> None:
        """Request the citing articles of at most 200 PMIDs, and cache them.

        Raises:
            ServiceError: If the service is unreachable, or no longer responds.
        """
        self._settle(pmids, self._ask_citations, cache)

    def _settle(self, pmids: Sequence[int], fetch: Fetch, cache: RecordCache) -> None:
        groups, troubles = [list(pmids)], Counter[str]()
        while groups:
            group = groups.pop()
            is_between = 1 < len(group) < len(pmids)
            try:
                rows, open_ids = fetch(group, troubles, _TRIES_BETWEEN if is_between else None)
            except Unanswered as error:
                alone = len(group) == 1
                self._count_failure(error, is_verdict=alone, fetch=fetch)
                rows = [self._row(group[0], f"{FAILED}{error}")] if alone else []
                open_ids = [] if alone else group
            else:
                self._failures = 0
            if rows:
                cache.store(rows, troubles)
                troubles = Counter()
            middle = (len(open_ids) + 1) // 2
            groups += [half for half in (open_ids[middle:], open_ids[:middle]) if half]

    def _count_failure(self, error: Unanswered, *, is_verdict: bool, fetch: Fetch) -> None:
        """Count a failed request, and check with a harmless one whether the service still responds.

        It is checked if the failure would be recorded for a single id (``is_verdict``), and after
        ``_DOUBT`` consecutive failures.

        Raises:
            ServiceError: If it does not respond.
        """
        with self._lock:
            self._failures += 1
            if not is_verdict and self._failures < _DOUBT:
                return
        try:
            fetch([_HARMLESS], Counter(), None)
        except Unanswered as other:
            raise ServiceError(
                f"the service failed for the requested ids ({error}) and for PMID {_HARMLESS} "
                f"({other}). Received responses are cached: the same command resumes with the "
                "rest."
            ) from error
        self._failures = 0

    def _ask_records(
        self, pmids: list[int], troubles: Counter[str], tries: int | None
    ) -> tuple[list[Row], list[int]]:
        parameters = {"db": "pubmed", "retmode": "xml", "id": ",".join(map(str, pmids))}
        records = self._client.request(
            "efetch", parameters, read_records, troubles=troubles, tries=tries
        )
        requested = set(pmids)
        # By PMID: unknown ids are silently omitted from a response, and its order is arbitrary.
        rows = [self._found(pmid, records[pmid]) for pmid in pmids if pmid in records]
        missing = [pmid for pmid in pmids if pmid not in records]
        others = [record for pmid, record in records.items() if pmid not in requested]
        if others:
            troubles[UNASKED] += len(others)
        if others and len(pmids) > 1:
            # A missing id may have been merged into another; a request for it alone shows that.
            return rows, missing
        if missing and len(others) == 1:
            (other,) = others
            merged = dataclasses.replace(other, status=f"{MERGED}{other.pmid}")
            return [self._found(missing[0], merged)], []
        return [*rows, *(self._row(pmid, "missing") for pmid in missing)], []

    def _ask_citations(
        self, pmids: list[int], troubles: Counter[str], tries: int | None
    ) -> tuple[list[Row], list[int]]:
        parameters = {
            "dbfrom": "pubmed",
            "db": "pubmed",
            "linkname": CITED_IN,
            "retmode": "xml",
            # One by one: comma-separated ids get one combined response.
            "id": [str(pmid) for pmid in pmids],
        }
        citations = self._client.request(
            "elink", parameters, read_citations, troubles=troubles, tries=tries
        )
        others = len(citations.keys() - set(pmids))
        if others:
            troubles[UNASKED] += others
        rows = [
            self._row(pmid, "ok") | {"cited_by": citations[pmid]}
            for pmid in pmids
            if pmid in citations
        ]
        missing = [pmid for pmid in pmids if pmid not in citations]
        if missing and len(pmids) == 1:
            return [self._row(pmids[0], "missing")], []
        return rows, missing

    def _found(self, pmid: int, record: PubmedRecord) -> Row:
        row = self._row(pmid, record.status)
        if record.status == "deleted":
            return row
        return {**dataclasses.asdict(record), **row, "answered_pmid": record.pmid}

    def _row(self, pmid: int, status: str) -> Row:
        return {"pmid": pmid, "status": status, "asked_at": int(self._clock())}
