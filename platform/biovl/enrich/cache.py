"""What PubMed answered, kept: a small Parquet file per answer, its rows known by PMID.

    records/<name>.parquet     one row per PMID asked for: its status and what its record says
    citations/<name>.parquet   one row per PMID asked for: its status and who cites it

Rows hold when they were asked for. Of a PMID in several files the newest row holds.
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
from biovl.core.artifacts import Folder
from biovl.enrich.answers import MeshTerm

FAILED = "failed: "
"""How the status of an id begins that the service could not answer. The next job asks again."""

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
"""Of 200 rows, some 10 kB each as Python has them."""
_TROUBLES = b"troubles"


@dataclass(frozen=True)
class Index:
    """Which file has the row of a PMID. Sorted by PMID; shape [N] each."""

    pmids_N: np.ndarray
    answered_N: np.ndarray
    """Of the record that came: another PMID where articles were merged, 0 where there is none."""
    files_N: np.ndarray
    """Numbers of ``names``."""
    names: Sequence[str]
    troubles: Sequence[Mapping[str, int]]
    """What went wrong before each file's answer came, by reason."""

    def missing(self, pmids: np.ndarray) -> np.ndarray:
        """Return those that no file has, each once, in their order."""
        return first_of_each(pmids[~np.isin(pmids, self.pmids_N)])

    def file_of(self, pmid: int) -> str:
        """Return the name of the file that has a PMID."""
        place = int(np.searchsorted(self.pmids_N, pmid))
        return self.names[int(self.files_N[place])]

    def troubles_of(self, pmids: np.ndarray) -> Counter[str]:
        """Return what went wrong before the answers about these PMIDs came, by reason."""
        files = np.unique(self.files_N[np.isin(self.pmids_N, pmids)])
        return sum((Counter(self.troubles[number]) for number in files), Counter[str]())


_NONE = np.zeros(0, np.int64)
NOTHING = Index(_NONE, _NONE, _NONE, (), ())
"""Nothing is known yet."""


def first_of_each(pmids: np.ndarray) -> np.ndarray:
    """Return PMIDs without those that came before, in their order."""
    _, first = np.unique(pmids, return_index=True)
    return pmids[np.sort(first)]


class Cache:
    """Answers of one kind in a folder, local or ``s3://``."""

    def __init__(self, folder: Folder, prefix: str, schema: pa.Schema) -> None:
        """Write nothing yet.

        Args:
            folder: Where files appear whole or not at all.
            prefix: Of the names in it: ``.draft/entrez/records``.
            schema: RECORDS or CITATIONS.
        """
        self._folder, self._prefix, self._schema = folder, prefix, schema
        self._rows = functools.lru_cache(_FILES_HELD)(self._read_rows)
        self._entries: dict[str, tuple[np.ndarray, dict[str, int]]] = {}

    def keep(self, rows: Sequence[Mapping[str, Any]], troubles: Mapping[str, int]) -> None:
        """Keep what one answer settled, and how often what went wrong before it came."""
        table = pa.Table.from_pylist([dict(row) for row in rows], self._schema)
        metadata = {_TROUBLES: json.dumps(dict(troubles), sort_keys=True)}
        pmids = ",".join(str(row["pmid"]) for row in rows)
        name = hashlib.blake2b(pmids.encode(), digest_size=12).hexdigest()
        with self._folder.writer(f"{self._prefix}/{name}.parquet") as stream:
            pq.write_table(table.replace_schema_metadata(metadata), stream, compression="zstd")
        # Answers that were too old had the same name.
        self._entries.pop(f"{name}.parquet", None)

    def index(self, *, oldest: float, began: float) -> Index:
        """Return what is known.

        Args:
            oldest: Unix time; rows asked for before are left out.
            began: Unix time; rows of ids that failed before are left out.
        """
        names = self._folder.names(self._prefix, ".parquet")
        new = [name for name in names if name not in self._entries]
        # Many and small; of a bucket most of the time is waiting.
        with ThreadPoolExecutor(_READERS) as readers:
            self._entries.update(zip(new, readers.map(self._entry, new), strict=True))
        found = [np.zeros((0, 5), np.int64)]
        for number, name in enumerate(names):
            entry, _ = self._entries[name]
            found.append(np.insert(entry, 4, number, axis=1))
        pmids_N, times_N, answered_N, failed_N, files_N = np.concatenate(found).T
        good_N = (times_N >= oldest) & ~((failed_N > 0) & (times_N < began))
        # Of each PMID the newest row, and of two of one second always the same.
        order_N = np.lexsort((files_N, times_N, pmids_N))
        order_N = order_N[good_N[order_N]]
        last = order_N[np.diff(pmids_N[order_N], append=-1) != 0]
        troubles = [self._entries[name][1] for name in names]
        return Index(pmids_N[last], answered_N[last], files_N[last], names, troubles)

    def _entry(self, name: str) -> tuple[np.ndarray, dict[str, int]]:
        """Return PMID, time, answered PMID and whether it failed, of each row; and troubles."""
        table = self._read(name, [key for key in _INDEXED if key in self._schema.names])
        asked_B = table["asked_at"].to_numpy()
        failed_B = pc.starts_with(table["status"], FAILED).to_numpy()
        answered = table["answered_pmid"] if "answered_pmid" in table.column_names else None
        answered_B = 0 * asked_B if answered is None else answered.fill_null(0).to_numpy()
        columns = (table["pmid"].to_numpy(), asked_B, answered_B, failed_B.astype(np.int64))
        metadata = table.schema.metadata or {}
        return np.stack(columns, axis=1), json.loads(metadata.get(_TROUBLES, b"{}"))

    def row(self, index: Index, pmid: int) -> dict[str, Any]:
        """Return the row of a PMID that the index has."""
        return self._rows(index.file_of(pmid))[pmid]

    def _read_rows(self, name: str) -> dict[int, dict[str, Any]]:
        return {row["pmid"]: row for row in self._read(name, None).to_pylist()}

    def _read(self, name: str, columns: list[str] | None) -> pa.Table:
        path = self._folder.at(f"{self._prefix}/{name}")
        with self._folder.filesystem.open_input_file(path) as stream:
            return pq.read_table(stream, columns=columns, use_threads=False)
