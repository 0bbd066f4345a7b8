"""Columns with PubMed's data about articles: requests and join.

1. records    200 PMIDs per request: MeSH terms, dates, types, keywords
2. citations  200 per request: the citing articles
3. join       a part of columns for every part of ``articles/``

NCBI's limit applies per address or key, so one process sends the requests, with a few threads that
share the limit. Parsing takes a small part of the time between two requests, so there are no Ray
tasks. An interrupted job resumes from its cached responses.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TextIO

import numpy as np

from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest
from biovl.core.counts import counts_below
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import COLUMNS, read_table, write_table
from biovl.enrich.cache import (
    CITATIONS,
    FAILED,
    NOTHING,
    RECORDS,
    RecordCache,
    RowIndex,
    first_of_each,
)
from biovl.enrich.client import EntrezClient
from biovl.enrich.config import EnrichConfig
from biovl.enrich.fetching import IDS_PER_REQUEST, EntrezRequests
from biovl.enrich.joining import ARTICLE_COLUMNS, PubMedAnswers, pmids_of, schema
from biovl.runtime.failures import check_usable
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

_ARTICLES = "articles/"
_DAY_S = 86_400
_THREADS = 8
"""Threads that read and write parts: in a bucket, most of the time is latency."""

FORMAT = 2
"""Version of the output format; see ``output_format`` of ``Draft.begin``."""


@entry_point
def enrich(config: EnrichConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Request PubMed's data about the articles of a harvest and publish it row for row.

        out/
          part-000000-000.parquet …   the parts of articles/, with the same names and rows:
                                      joining.schema
          manifest.json               rows by status, and failed attempts by reason

    Raises:
        ArtifactError: If there are no articles, or ``out`` holds something else or is being written
            by another process.
        ServiceError: If PubMed is unreachable or rejects everything; the job can be resumed.
        StorageError: If a disk or bucket fails; the job can be resumed.
    """
    report = Progress("enrich", progress)
    inputs, names = _harvest_of(config)
    # The bytes depend only on the responses, not on who served them or how fast; no key is stored.
    job = Job.of(
        config,
        COLUMNS,
        inputs,
        output_format=FORMAT,
        without=["cache", "entrez", "may_be_empty"],
    )
    published = job.find_published()
    if published is not None:
        return published
    with job.begin(plans=["began"]) as draft:
        work = _Work(config, draft, names, report)
        work.request()
        receipts = work.join()
        counts = work.counts(receipts)
        statuses = counts["status"]
        known = sum(statuses.get(name, 0) for name in ("ok", "merged", "book"))
        check_usable(
            known,
            f"{counts['rows']:,} articles of {config.articles}: PubMed knows none of them",
            statuses,
            may_be_empty=config.may_be_empty,
        )
        warnings = _warnings(counts)
        report.warn(warnings)
        manifest = job.manifest(
            counts=counts,
            files={
                name.removeprefix(_ARTICLES): {key: receipt[key] for key in ("rows", "size_bytes")}
                for name, receipt in zip(names, receipts, strict=True)
            },
            notes={
                "columns": schema(citations=config.citations).names,
                "rows_of": _ARTICLES,
                "service": "NCBI E-utilities: efetch db=pubmed"
                + (", elink pubmed_pubmed_citedin" if config.citations else ""),
            },
            warnings=warnings,
        )
        return draft.publish(manifest)


def estimate(config: EnrichConfig) -> str:
    """Return the number of requests, and their minimum time under the rate limit, as text.

    Raises:
        ArtifactError: If there are no articles.
    """
    _, names = _harvest_of(config)
    pmids = pmids_of_harvest(config, names)
    known = 0
    if config.cache:
        oldest = time.time() - config.max_age_days * _DAY_S
        index = RecordCache(Folder(config.cache), "records", RECORDS).index(
            oldest=oldest, began=math.inf
        )
        known = len(pmids) - len(index.missing(pmids))
    requests = math.ceil((len(pmids) - known) / IDS_PER_REQUEST) * (2 if config.citations else 1)
    rate = config.entrez.rate()
    return (
        f"{len(pmids):,} PMIDs, of which {known:,} are in the cache\n"
        f"{requests:,} requests, at {rate:g} a second {requests / rate / 3600:.2f} h or more\n"
    )


class _Work:
    """One run of a job; its state is in the draft and the cache."""

    def __init__(
        self, config: EnrichConfig, draft: Draft, names: Sequence[str], report: Progress
    ) -> None:
        self._config, self._draft, self._names, self._report = config, draft, names, report
        self._source = Folder(config.articles)
        folder = Folder(config.cache) if config.cache else draft.folder
        prefix = "" if config.cache else ".draft/entrez/"
        self._records = RecordCache(folder, f"{prefix}records", RECORDS)
        self._citations = RecordCache(folder, f"{prefix}citations", CITATIONS)
        # Stored, so that a resumed job considers the same responses expired.
        self._began = int(draft.once("began", lambda: int(time.time())))
        self._oldest = self._began - config.max_age_days * _DAY_S
        self._pmids = self._citable = np.zeros(0, np.int64)
        self._found = NOTHING
        self._cited: RowIndex | None = None

    def request(self) -> None:
        """Request the PubMed data that is not in the cache, or has expired there."""
        pmids = pmids_of_harvest(self._config, self._names)
        if "email" not in self._config.entrez.credentials():
            self._report.say("NCBI requires a contact address: set NCBI_EMAIL")
        with EntrezClient(self._config.entrez) as client:
            asker = EntrezRequests(client)
            self._pmids = pmids
            self._found = self._settle("records", pmids, asker.records, self._records)
            if not self._config.citations:
                return
            # In the order of rows, like the records, so that a part needs few files of the cache.
            answered = self._found.answered_N[np.searchsorted(self._found.pmids_N, pmids)]
            self._citable = first_of_each(answered[answered > 0])
            self._cited = self._settle("citations", self._citable, asker.citations, self._citations)

    def _settle(
        self,
        name: str,
        pmids: np.ndarray,
        ask: Callable[[Sequence[int], RecordCache], None],
        cache: RecordCache,
    ) -> RowIndex:
        """Return the index of all requested ids, after requesting the missing ones."""
        index = cache.index(oldest=self._oldest, began=self._began)
        missing = index.missing(pmids).tolist()
        size = IDS_PER_REQUEST
        batches = [missing[first : first + size] for first in range(0, len(missing), size)]
        if not batches:
            return index
        self._report.say(f"{name} of {len(pmids):,} PMIDs; {len(missing):,} to request")
        self._report.stage(f"{name}, request", len(batches))
        with ThreadPoolExecutor(self._config.entrez.connections) as pool:
            pending = [pool.submit(ask, batch, cache) for batch in batches]
            try:
                for one in as_completed(pending):
                    one.result()
                    self._report.add()
            finally:
                for one in pending:
                    one.cancel()
        return cache.index(oldest=self._oldest, began=self._began)

    def join(self) -> list[dict[str, Any]]:
        """Write the parts that have no receipt yet; return the receipts of all parts."""
        cited = (self._citations, self._cited) if self._cited is not None else None
        answers = PubMedAnswers((self._records, self._found), cited)
        finished = set(self._draft.note_names("joined"))
        keys = [f"joined/{number:06d}" for number in range(len(self._names))]
        pending = [number for number, key in enumerate(keys) if key not in finished]
        self._report.stage("joining part", len(keys), done_before=len(finished))
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(lambda number: self._join(answers, keys[number], number), pending):
                self._report.add()
        return [self._draft.read_note(key) or {} for key in keys]

    def _join(self, answers: PubMedAnswers, key: str, number: int) -> None:
        name = self._names[number]
        table, counts = answers.join(read_table(self._source, name, ARTICLE_COLUMNS))
        file = write_table(self._draft.folder, name.removeprefix(_ARTICLES), table)
        self._draft.note(key, {**file, "counts": dict(counts)})

    def counts(self, receipts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the counts of all rows, and the failed attempts."""
        counted = sum((Counter(receipt["counts"]) for receipt in receipts), Counter[str]())
        troubles = self._found.troubles_of(self._pmids)
        counts = {
            "rows": sum(receipt["rows"] for receipt in receipts),
            "pmids": len(self._pmids),
            "status": counts_below(counted, "status/"),
            "with_mesh_terms": counted["with mesh terms"],
            "retracted": counted["retracted"],
        }
        if self._cited is not None:
            troubles += self._cited.troubles_of(self._citable)
            counts["citations"] = counts_below(counted, "citations/")
            counts["cited"] = counted["cited"]
        return {**counts, "troubles": dict(sorted(troubles.items()))}


def _harvest_of(config: EnrichConfig) -> tuple[list[Input], list[str]]:
    """Return the harvest as a manifest input, and the sorted names of its article parts."""
    harvest = read_manifest(config.articles, "figures")
    names = sorted(name for name in harvest.files if name.startswith(_ARTICLES))
    if not names:
        raise ArtifactError(f"{config.articles} holds no parts of articles")
    known = fingerprint(config.articles)
    return [Input(name="articles", uri=config.articles, fingerprint=known)], names


def pmids_of_harvest(config: EnrichConfig, names: Sequence[str]) -> np.ndarray:
    """Return the distinct PMIDs of articles, in the order of their rows. Shape [N]."""
    source = Folder(config.articles)
    with ThreadPoolExecutor(_THREADS) as pool:
        read = pool.map(lambda name: pmids_of(read_table(source, name, ["pmid"])), names)
        pmids = np.concatenate(list(read))
    return first_of_each(pmids[pmids > 0])


def _warnings(counts: Mapping[str, Any]) -> list[str]:
    """Return a warning if requests about some articles failed.

    If the record of an article failed, so did its citing articles.
    """
    statuses = counts.get("citations", counts["status"])
    failed = sum(count for name, count in statuses.items() if name.startswith(FAILED))
    if not failed:
        return []
    return [
        f"{failed:,} of {counts['rows']:,} articles: the requests about their PMIDs failed (status "
        f'"{FAILED}…"). The same command does not repeat them; a job with another out does, and '
        "with the same cache only them"
    ]
