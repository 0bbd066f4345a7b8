"""Columns of PubMed's data for articles, joined by PMID."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.core.records import plain_doi
from biovl.enrich.cache import RECORDS, RecordCache, RowIndex
from biovl.enrich.fetching import MERGED

ARTICLE_COLUMNS = ["article_id", "pmid", "doi"]
"""Columns read from ``articles/``."""

NO_PMID, NOT_A_PMID, OTHER_ARTICLE = "no pmid", "not a pmid", "another article"
_PMID = re.compile(r"\s*(?:PMID:?\s*)?0*([1-9]\d{0,8})\s*", re.IGNORECASE | re.ASCII)

_RECORD_COLUMNS = pa.schema(
    [
        pa.field("entrez_status", pa.string(), nullable=False),
        pa.field("entrez_pmid", pa.string()),
        RECORDS.field("mesh_terms"),
        pa.field("pubmed_published", pa.string()),
        pa.field("pubmed_published_from", pa.string()),
        pa.field("publication_types", pa.list_(pa.string())),
        pa.field("pubmed_keywords", pa.list_(pa.string())),
        pa.field("retracted_in_pubmed", pa.bool_()),
    ]
)
_CITATION_COLUMNS = pa.schema(
    [
        pa.field("cited_by_pmids", pa.list_(pa.string())),
        pa.field("cited_by_date", pa.string()),
        pa.field("cited_by_status", pa.string(), nullable=False),
    ]
)


def schema(*, citations: bool) -> pa.Schema:
    """Return the schema of the published columns, with or without citations."""
    return pa.unify_schemas([_RECORD_COLUMNS, *([_CITATION_COLUMNS] if citations else [])])


def pmid_of(text: str | None) -> int:
    """Return an article's PMID as a number, 0 if it has none."""
    match = _PMID.fullmatch(text or "")
    return int(match[1]) if match else 0


def pmids_of(articles: pa.Table) -> np.ndarray:
    """Return the PMIDs of articles as numbers, shape [N]; 0 without a PMID."""
    return np.array([pmid_of(text) for text in articles["pmid"].to_pylist()], np.int64)


class PubMedAnswers:
    """Cached responses for PMIDs: records and citing articles."""

    def __init__(
        self,
        records: tuple[RecordCache, RowIndex],
        citations: tuple[RecordCache, RowIndex] | None = None,
    ) -> None:
        """Prepare the join; nothing is read yet."""
        self._records, self._citations = records, citations

    def join(self, articles: pa.Table) -> tuple[pa.Table, Counter[str]]:
        """Return the PubMed columns of articles, row for row, and counts of their values.

        Args:
            articles: Rows with ``ARTICLE_COLUMNS``.
        """
        rows = [self._row(article) for article in articles.to_pylist()]
        table = pa.Table.from_pylist(rows, schema(citations=self._citations is not None))
        counts: Counter[str] = Counter()
        for row in rows:
            status = row["entrez_status"]
            counts[f"status/{'merged' if status.startswith(MERGED) else status}"] += 1
            counts["with mesh terms"] += bool(row.get("mesh_terms"))
            counts["retracted"] += bool(row.get("retracted_in_pubmed"))
            if self._citations is not None:
                counts[f"citations/{row['cited_by_status']}"] += 1
                counts["cited"] += bool(row.get("cited_by_pmids"))
        return table, counts

    def _row(self, article: Mapping[str, Any]) -> dict[str, Any]:
        pmid = pmid_of(article["pmid"])
        if not pmid:
            status = NOT_A_PMID if (article["pmid"] or "").strip() else NO_PMID
            return {"entrez_status": status, "cited_by_status": status}
        cache, index = self._records
        record = cache.row(index, pmid)
        status, answered = record["status"], record["answered_pmid"]
        pairs = [] if answered is None else _ids(article, record)
        agrees = any(ours == theirs for ours, theirs in pairs) if pairs else None
        if answered == pmid and agrees is False and len(pairs) > 1:
            # Neither DOI nor PMCID: the article states the PMID of another one.
            status, answered = OTHER_ARTICLE, None
        elif answered != pmid and agrees is False:
            # The record of another article was returned: nothing is known about this one.
            status, answered = "missing", None
        if answered is None or (agrees is None and status.startswith(MERGED)):
            return {
                "entrez_status": status,
                "entrez_pmid": None if answered is None else str(answered),
                "cited_by_status": status,
            }
        return {
            "entrez_status": status,
            "entrez_pmid": str(answered),
            "mesh_terms": record["mesh_terms"],
            "pubmed_published": record["published"],
            "pubmed_published_from": record["published_from"],
            "publication_types": record["publication_types"],
            "pubmed_keywords": record["keywords"],
            "retracted_in_pubmed": record["retracted"],
            **self._cited_by(answered),
        }

    def _cited_by(self, pmid: int) -> dict[str, Any]:
        if self._citations is None:
            return {}
        cache, index = self._citations
        row = cache.row(index, pmid)
        if row["cited_by"] is None:
            return {"cited_by_status": row["status"]}
        return {
            "cited_by_pmids": [str(number) for number in row["cited_by"]],
            "cited_by_date": datetime.fromtimestamp(row["asked_at"], UTC).date().isoformat(),
            "cited_by_status": row["status"],
        }


def _ids(article: Mapping[str, Any], record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the DOIs and PMCIDs of an article and of a record, where both are known."""
    own = {"doi": article["doi"], "pmcid": article["article_id"]}
    return [
        (plain_doi(value.strip().lower()), plain_doi(record[name].strip().lower()))
        for name, value in own.items()
        if value and record[name] and (name == "doi" or value.upper().startswith("PMC"))
    ]
