"""Write the files of an index from its parts; vectors and thumbnails are streamed.

Filters, words and the recall measurement memory-map these files. They are therefore written to a
local folder: the published one, or a temporary one that is uploaded to the bucket when complete.
"""

import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa

from biovl.core.artifacts import MANIFEST, Draft
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import open_part
from biovl.index import metadata, vectors
from biovl.index import rows as parts
from biovl.index.config import IndexConfig
from biovl.index.copies import is_local, sha256_of
from biovl.index.filters import FilterTable
from biovl.index.metadata import MetadataTable
from biovl.index.postings import ArrayFile
from biovl.index.previous import CONTENTS, THUMBNAILS
from biovl.index.units import ROW, hash_of, part
from biovl.index.words import Words

# Shapes: N rows, S rows of the sample, D embedding.


@contextlib.contextmanager
def workplace(out: str) -> Iterator[Path]:
    """Yield ``out`` if it is local, else a temporary folder: see ``publish_files``."""
    if is_local(out):
        yield Path(Folder(out).path)
        return
    with tempfile.TemporaryDirectory(prefix="biovl-index-") as name:
        yield Path(name)


def write_vectors(config: IndexConfig, place: Path, name: str, shape: tuple[int, int]) -> None:
    """Write the unit vectors as ``<name>.f16.npy``: float16, shape [N, D]."""
    with ArrayFile(place / f"{name}.f16.npy", np.dtype("<f2"), shape) as file:
        for data in _gathered(config, name, shape[0]):
            file.write(np.frombuffer(data, "<f2"))


def train(config: IndexConfig, place: Path, name: str, factory: str) -> bytes:
    """Return an empty index trained on a sample of ``<name>.f16.npy``."""
    vectors_ND = np.load(place / f"{name}.f16.npy", mmap_mode="r")
    count = vectors.sample_rows(factory, len(vectors_ND))
    rng = np.random.default_rng(config.seed)
    rows_S = np.sort(rng.choice(len(vectors_ND), count, replace=False))
    return vectors.to_bytes(vectors.train(factory, vectors_ND[rows_S]))


def write_index(config: IndexConfig, place: Path, name: str, rows: int) -> None:
    """Write ``<name>.faiss`` from the encoded parts. Holds all codes in memory once."""
    folder = Draft(config.out).folder
    data = (folder.read(parts.filled_path(name, n)) for n in range(parts.part_count(config, rows)))
    index = vectors.merge_parts(folder.read(parts.trained_path(name)), data)
    faiss.write_index(index, str(place / f"{name}.faiss"))


def write_rows(config: IndexConfig, place: Path, rows: int, units: int) -> Counter[str]:
    """Write the metadata table, its lookup, thumbnails and content hashes.

    Returns:
        Number of rows by licence group.

    Raises:
        ArtifactError: If a vector belongs to another pair than its row.
    """
    folder = Draft(config.out).folder
    with (place / THUMBNAILS).open("wb") as stream:
        for unit in range(units):
            stream.write(folder.read(part("thumbnails", unit)))
    groups: Counter[str] = Counter()
    with (
        (place / "table.arrow").open("wb") as stream,
        ArrayFile(place / CONTENTS, np.dtype(np.uint8), (rows, 16)) as contents,
    ):
        tables = _tables(config, _records(config, rows, contents))
        metadata.write_table(_counted(tables, groups), stream)
    with pa.memory_map(str(place / "table.arrow")) as file:
        reader = pa.ipc.open_file(file)
        batches = (
            reader.get_batch(n).column("figure_id") for n in range(reader.num_record_batches)
        )
        ids = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
        metadata.write_lookup(ids, place / "lookup")
    return groups


def _records(config: IndexConfig, rows: int, contents: ArrayFile) -> Iterator[np.ndarray]:
    """Yield the records of each part; write the content hashes."""
    for data in _gathered(config, "rows", rows):
        own_W = np.frombuffer(data, ROW)
        contents.write(own_W["content"])
        yield own_W


def _tables(config: IndexConfig, records: Iterator[np.ndarray]) -> Iterator[pa.Table]:
    """Yield the rows of the metadata table, checked against the records of the vectors."""
    corpus = Folder(config.corpus)
    first = done = 0
    own_W = np.empty(0, ROW)
    with open_part(corpus, "index.parquet") as file:
        for batch in file.iter_batches(batch_size=16_384):
            end = first + batch.num_rows
            while not len(own_W) or own_W["position"][-1] < end:
                more = next(records, None)
                if more is None:
                    break
                own_W = np.concatenate([own_W, more])
            here = own_W[: int(np.searchsorted(own_W["position"], end))]
            if len(here):
                about = pa.Table.from_batches([batch]).take(pa.array(here["position"] - first))
                yield _table(config, about, here, done)
            own_W = own_W[len(here) :]
            first, done = end, done + len(here)
    if len(own_W) or next(records, None) is not None:
        raise ArtifactError(f"{config.corpus}/index.parquet has {first} rows, fewer than before")


def _table(config: IndexConfig, about: pa.Table, here: np.ndarray, first: int) -> pa.Table:
    table = metadata.from_index_rows(
        about,
        concepts=metadata.CONCEPTS if config.concept_columns is None else config.concept_columns,
        image_type=config.image_type_column or metadata.IMAGE_TYPE,
        labels=config.label_columns,
    )
    for row, (figure_id, pair) in enumerate(
        zip(table["figure_id"].to_pylist(), here["pair"], strict=True)
    ):
        if hash_of(figure_id.encode()) != pair.tobytes():
            raise ArtifactError(f"row {first + row}: the vector is not that of {figure_id}")
    is_absent = here["thumbnail_size"] == 0
    for name in ("thumbnail_offset", "thumbnail_size"):
        values = pa.array(here[name].astype(np.int64), mask=is_absent)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), values)
    return table


def _counted(tables: Iterator[pa.Table], groups: Counter[str]) -> Iterator[pa.Table]:
    for table in tables:
        groups.update(table["license_group"].to_pylist())
        yield table


def _gathered(config: IndexConfig, kind: str, rows: int) -> Iterator[bytes]:
    folder = Draft(config.out).folder
    for number in range(parts.part_count(config, rows)):
        yield folder.read(parts.gathered_path(kind, number))


def publish_files(out: str, place: Path) -> dict[str, dict[str, Any]]:
    """Upload the files of the index if they are to be in a bucket.

    Returns:
        Size and SHA-256 of every file, by relative path.
    """
    if not is_local(out):
        return Folder(out).upload(place)
    described = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_file() and not name.startswith(".draft/") and name != MANIFEST:
            described[name] = {"size_bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return described


_PARTS = {
    ".faiss": "codes and cells",
    ".f16.npy": "vectors",
    "table.arrow": "table",
    "lookup/": "table",
    "filters/": "filters",
    "words/": "words",
    "thumbnails.bin": "thumbnails",
}


def bytes_by_part(described: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the size in bytes of each part of an index; ``contents.npy`` is not counted.

    All parts except thumbnails are memory-mapped when the index is opened. Searching reads codes,
    cells, filters and words completely; vectors, table and thumbnails only for hits and refined
    candidates.
    """
    sizes: Counter[str] = Counter()
    for name, about in described.items():
        for where, kind in _PARTS.items():
            if name.endswith(where) or name.startswith(where):
                sizes[kind] += about["size_bytes"]
    return dict(sizes)


def write_filters_and_words(place: Path) -> list[str]:
    """Write the files for filters and word search; return the filter fields without values."""
    table = MetadataTable.open(place)
    FilterTable.build(table, place / "filters")
    batches = (batch.to_pylist() for batch in table.column("caption").iterchunks())
    Words.build(itertools.chain.from_iterable(batches), place / "words")
    facets = FilterTable.open(place / "filters").facets()
    return sorted(name for name, values in facets.items() if not values)
