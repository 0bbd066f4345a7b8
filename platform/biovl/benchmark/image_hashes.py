"""Detection of duplicate images without a model: by file hash and by perceptual hash."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble import duplicates
from biovl.benchmark.datasets import Images
from biovl.benchmark.leakage import HASH, SAME_FILE, NearDuplicates
from biovl.core.folders import Folder
from biovl.core.tables import open_table, read_table
from biovl.images.decode import inspect
from biovl.images.hashing import sha256_hex
from biovl.index.search import Index

# Shapes: H benchmark images with an informative hash, M of the corpus, m of a chunk, P pairs.

LOOKS = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.string()),
        ("phash", pa.string()),
        ("width_px", pa.int64()),
        ("height_px", pa.int64()),
    ]
)
"""Schema of tables of image hashes; hashes and sizes are null for unreadable images."""

_CHUNK = 1 << 16
_AT_ONCE = 256


def looks(ids: Sequence[str], files: Sequence[bytes]) -> pa.Table:
    """Return the hashes of encoded images, as a table with the schema ``LOOKS``.

    All hashes are null for ``b""``. Undecodable files have a file hash only.
    """
    rows = []
    for name, data in zip(ids, files, strict=True):
        inspected = inspect(data)
        rows.append(
            {
                "id": name,
                "sha256": sha256_hex(data) if data else None,
                "phash": inspected.phash,
                "width_px": inspected.width_px if inspected.phash else None,
                "height_px": inspected.height_px if inspected.phash else None,
            }
        )
    return pa.Table.from_pylist(rows, LOOKS)


def looks_of(ids: Sequence[str], images: Images) -> pa.Table:
    """Return the hashes of a benchmark's images, as a table with the schema ``LOOKS``.

    All images are read and decoded.
    """
    parts = [LOOKS.empty_table()]
    for start in range(0, len(images), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(images))
        parts.append(looks(ids[start:stop], images.read(start, stop)))
    return pa.concat_tables(parts)


def looks_of_figures(uri: str) -> Iterator[pa.Table]:
    """Yield the stored hashes of each part of a published ``figures/``, with the schema ``LOOKS``.

    No image is read.

    Raises:
        ArtifactError: If the folder is not a harvest.
    """
    table, folder = open_table(uri), Folder(uri)
    for part in table.parts:
        names = ["figure_id", "image_sha256", "phash", "width_px", "height_px"]
        yield read_table(folder, part.path, names).rename_columns(LOOKS.names).cast(LOOKS)


def looks_of_index(index: Index) -> pa.Table:
    """Return the file hashes of the training figures of an index, with the schema ``LOOKS``.

    Perceptual hashes are null: only ``figures/`` has them. With an index alone, re-encoded images
    are found by their embeddings.
    """
    columns = [index.column(name) for name in ("figure_id", "image_sha256", "split")]
    table = pa.table(dict(zip(("id", "sha256", "split"), columns, strict=True)))
    trained = table.filter(pc.equal(table["split"], "train"))
    nulls = {name: pa.nulls(len(trained), LOOKS.field(name).type) for name in LOOKS.names[2:]}
    return pa.table({"id": trained["id"], "sha256": trained["sha256"], **nulls}, LOOKS)


class Hashes:
    """Searches a corpus for duplicates of a benchmark's images, by file and perceptual hash."""

    def __init__(self, images: pa.Table) -> None:
        """Sort a benchmark's hashes, ``LOOKS``, by every combination of bits that may agree."""
        known: dict[str, list[int]] = {}
        for row, sha in enumerate(images["sha256"].to_pylist()):
            if sha is not None:
                known.setdefault(sha, []).append(row)
        self._files, self._rows_of_file = pa.array(known, pa.string()), list(known.values())
        hash_N = duplicates.hash_bits(images["phash"].to_pylist())
        self._row_H = np.flatnonzero(duplicates.informative(hash_N))
        self._hash_H = hash_N[self._row_H]
        self._log_aspect_H = _log_aspect(images)[self._row_H]
        self._sorted = [
            (mask, order, (self._hash_H & mask)[order])
            for mask in duplicates.masks(max(len(self._hash_H), 2), duplicates.MAX_DISTANCE)
            for order in [np.argsort(self._hash_H & mask)]
        ]

    def near(self, corpus: pa.Table) -> Iterator[NearDuplicates]:
        """Yield duplicates of benchmark images in ``corpus``, a chunk with the schema ``LOOKS``."""
        ids = corpus["id"]
        at = pc.index_in(corpus["sha256"], self._files, skip_nulls=True)
        shared = np.flatnonzero(at.is_valid())
        rows = [self._rows_of_file[file] for file in at.drop_null().to_pylist()]
        # A benchmark may contain a file more than once.
        same = np.repeat(shared, [len(some) for some in rows])
        yield NearDuplicates(
            by=SAME_FILE,
            row_P=np.array([row for some in rows for row in some], np.int64),
            corpus_ids=ids.take(same).to_pylist(),
            closeness_P=np.ones(len(same)),
        )
        hash_M = duplicates.hash_bits(corpus["phash"].to_pylist())
        informative_M = np.flatnonzero(duplicates.informative(hash_M))
        log_aspect_M = _log_aspect(corpus)
        pairs = [np.empty((0, 2), np.int64)]
        for start in range(0, len(informative_M), _CHUNK):
            some_m = informative_M[start : start + _CHUNK]
            pairs.append(self._pairs(hash_M[some_m], log_aspect_M[some_m], some_m))
        pair_P2 = np.concatenate(pairs)
        differing_P = np.bitwise_count(self._hash_H[pair_P2[:, 0]] ^ hash_M[pair_P2[:, 1]])
        yield NearDuplicates(
            by=HASH,
            row_P=self._row_H[pair_P2[:, 0]],
            corpus_ids=ids.take(pair_P2[:, 1]).to_pylist(),
            closeness_P=1 - differing_P / 64,
        )

    def _pairs(self, hash_m: np.ndarray, log_aspect_m: np.ndarray, row_m: np.ndarray) -> np.ndarray:
        """Return each pair of near hashes once: rows of benchmark and corpus. [P, 2]."""
        pairs = [np.empty((0, 2), np.int64)]
        for mask, order_H, key_H in self._sorted:
            first_m = np.searchsorted(key_H, hash_m & mask, "left")
            count_m = np.searchsorted(key_H, hash_m & mask, "right") - first_m
            of_P = np.repeat(np.arange(len(hash_m)), count_m)
            begin_m = np.cumsum(count_m) - count_m
            place_P = order_H[np.arange(len(of_P)) - begin_m[of_P] + first_m[of_P]]
            near_P = (
                np.bitwise_count(self._hash_H[place_P] ^ hash_m[of_P]) <= duplicates.MAX_DISTANCE
            )
            gap_P = np.abs(self._log_aspect_H[place_P] - log_aspect_m[of_P])
            near_P &= gap_P <= np.log1p(duplicates.MAX_ASPECT_GAP)
            pairs.append(np.stack([place_P[near_P], row_m[of_P[near_P]]], axis=1))
        return np.unique(np.concatenate(pairs), axis=0)


def _log_aspect(images: pa.Table) -> np.ndarray:
    size = [images[name].fill_null(1).to_numpy().astype(float) for name in LOOKS.names[3:]]
    ratio: np.ndarray = np.log(size[0] / size[1])
    return ratio
