"""Cache of PubMed's responses: a small Parquet file per response, with rows by PMID.

    records/<name>.parquet     one row per requested PMID: its status and the fields of its record
    citations/<name>.parquet   one row per requested PMID: its status and the citing PMIDs

Rows are valid as of their request. If several files have a PMID, the newest row counts.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.core import records
from biovl.core.folders import Folder
from biovl.core.tables import write_table
from biovl.enrich.answers import MeshTerm

FAILED = "failed: "
"""Status prefix of an id for which the service failed. The next job requests it again."""

_KEY = [
    pa.field("pmid", pa.int64(), nullable=False),
    pa.field("status", pa.string(), nullable=False),
    pa.field("asked_at", pa.int64(), nullable=False),
]
MESH_TERMS: pa.DataType = records.schema(MeshTerm)
RECORDS = pa.schema(
    [
        *_KEY,
        pa.field("answered_pmid", pa.int64()),
        pa.field("doi", pa.string()),
        pa.field("pmcid", pa.string()),
        pa.field("mesh_terms", pa.list_(pa.struct(list(MESH_TERMS)))),
        pa.field("published", pa.string()),
        pa.field("published_from", pa.string()),
        pa.field("publication_types", pa.list_(pa.string())),
        pa.field("keywords", pa.list_(pa.string())),
        pa.field("retracted", pa.bool_()),
    ]
)
CITATIONS = pa.schema([*_KEY, pa.field("cited_by", pa.list_(pa.int64()))])

_INDEXED = ("pmid", "status", "asked_at", "answered_pmid")
_READERS = 8
_FILES_HELD = 64
"""Files held in memory: 200 rows each, some 10 kB per row as Python objects."""
_TROUBLES = b"troubles"


@dataclass(frozen=True)
class RowIndex:
    """Maps each PMID to the file with its row. Sorted by PMID; shape [N] each."""

    pmids_N: np.ndarray
    answered_N: np.ndarray
    """PMID of the returned record: that of the merged article, or 0 if there is no record."""
    files_N: np.ndarray
    """Index in ``names`` of the file with each PMID."""
    names: Sequence[str]
    troubles: Sequence[Mapping[str, int]]
    """Failed attempts before each file's response, by reason."""

    def missing(self, pmids: np.ndarray) -> np.ndarray:
        """Return the PMIDs that are not in the index, without duplicates, in their order."""
        return first_of_each(pmids[~np.isin(pmids, self.pmids_N)])

    def file_of(self, pmid: int) -> str:
        """Return the name of the file with the row of a PMID."""
        place = int(np.searchsorted(self.pmids_N, pmid))
        return self.names[int(self.files_N[place])]

    def troubles_of(self, pmids: np.ndarray) -> Counter[str]:
        """Count the failed attempts that preceded the responses with these PMIDs, by reason."""
        files = np.unique(self.files_N[np.isin(self.pmids_N, pmids)])
        return sum((Counter(self.troubles[number]) for number in files), Counter[str]())


_NONE = np.zeros(0, np.int64)
NOTHING = RowIndex(_NONE, _NONE, _NONE, (), ())
"""An empty index."""


def first_of_each(pmids: np.ndarray) -> np.ndarray:
    """Return PMIDs without duplicates, in order of first occurrence."""
    _, first = np.unique(pmids, return_index=True)
    return pmids[np.sort(first)]


class RecordCache:
    """Cached responses of one kind in a folder, local or ``s3://``."""

    def __init__(self, folder: Folder, prefix: str, schema: pa.Schema) -> None:
        """Prepare a cache; nothing is written yet.

        Args:
            folder: A folder with atomic writes.
            prefix: Prefix of the file names: ``.draft/entrez/records``.
            schema: RECORDS or CITATIONS.
        """
        self._folder, self._prefix, self._schema = folder, prefix, schema
        self._rows = functools.lru_cache(_FILES_HELD)(self._read_rows)
        self._entries: dict[str, tuple[np.ndarray, dict[str, int]]] = {}

    def store(self, rows: Sequence[Mapping[str, Any]], troubles: Mapping[str, int]) -> None:
        """Store the resolved rows of one response, and the failed attempts before it."""
        table = pa.Table.from_pylist([dict(row) for row in rows], self._schema)
        metadata = {_TROUBLES: json.dumps(dict(troubles), sort_keys=True)}
        pmids = ",".join(str(row["pmid"]) for row in rows)
        name = hashlib.blake2b(pmids.encode(), digest_size=12).hexdigest()
        table = table.replace_schema_metadata(metadata)
        write_table(self._folder, f"{self._prefix}/{name}.parquet", table)
        # Expired responses had the same name.
        self._entries.pop(f"{name}.parquet", None)

    def index(self, *, oldest: float, began: float) -> RowIndex:
        """Return an index of the stored rows.

        Args:
            oldest: Unix time; rows requested earlier have expired and are left out.
            began: Unix time of the start of the job; requests that failed earlier are left out, so
                that they are repeated.
        """
        names = self._folder.names(self._prefix, ".parquet")
        new = [name for name in names if name not in self._entries]
        # Many small files; in a bucket, most of the time is latency.
        with ThreadPoolExecutor(_READERS) as readers:
            self._entries.update(zip(new, readers.map(self._entry, new), strict=True))
        found = [np.zeros((0, 5), np.int64)]
        for number, name in enumerate(names):
            entry, _ = self._entries[name]
            found.append(np.insert(entry, 4, number, axis=1))
        pmids_N, times_N, answered_N, failed_N, files_N = np.concatenate(found).T
        good_N = (times_N >= oldest) & ~((failed_N > 0) & (times_N < began))
        # The newest row of each PMID; ties within a second are broken deterministically.
        order_N = np.lexsort((files_N, times_N, pmids_N))
        order_N = order_N[good_N[order_N]]
        last = order_N[np.diff(pmids_N[order_N], append=-1) != 0]
        troubles = [self._entries[name][1] for name in names]
        return RowIndex(pmids_N[last], answered_N[last], files_N[last], names, troubles)

    def _entry(self, name: str) -> tuple[np.ndarray, dict[str, int]]:
        """Return PMID, time, returned PMID and failure of each row; and failed attempts."""
        table = self._read(name, [key for key in _INDEXED if key in self._schema.names])
        asked_B = table["asked_at"].to_numpy()
        failed_B = pc.starts_with(table["status"], FAILED).to_numpy()
        answered = table["answered_pmid"] if "answered_pmid" in table.column_names else None
        answered_B = 0 * asked_B if answered is None else answered.fill_null(0).to_numpy()
        columns = (table["pmid"].to_numpy(), asked_B, answered_B, failed_B.astype(np.int64))
        metadata = table.schema.metadata or {}
        return np.stack(columns, axis=1), json.loads(metadata.get(_TROUBLES, b"{}"))

    def row(self, index: RowIndex, pmid: int) -> dict[str, Any]:
        """Return the row of a PMID that is in the index."""
        return self._rows(index.file_of(pmid))[pmid]

    def _read_rows(self, name: str) -> dict[int, dict[str, Any]]:
        return {row["pmid"]: row for row in self._read(name, None).to_pylist()}

    def _read(self, name: str, columns: list[str] | None) -> pa.Table:
        path = self._folder.at(f"{self._prefix}/{name}")
        with self._folder.filesystem.open_input_file(path) as stream:
            return pq.read_table(stream, columns=columns, use_threads=False)
