"""The steps of clustering, as functions of a block or a part. Their results are in the draft.

.draft/moments/000000.npz     PCA: count, mean and scatter of a block
.draft/projected/000000.npy   coordinates of a block's usable rows; .rows.npy: their row numbers
.draft/kmeans/000003.npy      centroids after three iterations; kmeans.json: inertia so far
.draft/assigned/000000.npy    for every row of a block: cluster, distance, hash of its id
"""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.concepts import kmeans, pca
from biovl.concepts.blocks import (
    EmbeddedTable,
    block_count,
    block_range,
    read_rows,
    read_vectors,
    stretches,
)
from biovl.concepts.cluster_config import ClusterConfig
from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError, NothingUsable
from biovl.core.folders import Folder
from biovl.core.tables import COLUMNS, Table

# Shapes: N rows of a block, U those with a usable embedding, K clusters, C components.

ASSIGNED = np.dtype([("cluster", "<i4"), ("distance", "<f4"), ("id", "<u8")])
"""Record of a row: its cluster (-1: none), distance to the centroid, a hash of its id."""

COLUMN_SCHEMA = pa.schema(
    [pa.field("cluster_id", pa.int32()), pa.field("cluster_distance", pa.float32())]
)


def measure(config: ClusterConfig, source: EmbeddedTable, number: int) -> dict[str, Any]:
    """Write the moments of a block; return its number of usable rows, and defects of the others."""
    found, reasons = pca.empty_moments(source.dim), Counter[str]()
    for vectors in read_vectors(source, *block_range(source.table, config.block_rows, number)):
        found = pca.merge(found, pca.moments(vectors.vectors_UD))
        reasons.update(vectors.reasons)
    stream = io.BytesIO()
    np.savez(stream, count=found.count, mean=found.mean_D, scatter=found.scatter_DD)
    Draft(config.out).folder.write(_moments(number), stream.getvalue())
    return {"usable": found.count, "without_embedding": dict(reasons)}


def fit(config: ClusterConfig, source: EmbeddedTable, number: int) -> dict[str, Any]:
    """Write ``pca.npz``, from the moments of all blocks in order.

    Raises:
        ConfigError: If the usable rows do not suffice for the components or clusters.
    """
    folder = Draft(config.out).folder
    found = pca.empty_moments(source.dim)
    for block in range(block_count(source.table, config.block_rows)):
        with np.load(io.BytesIO(folder.read(_moments(block))), allow_pickle=False) as stored:
            own = pca.Moments(
                count=int(stored["count"]), mean_D=stored["mean"], scatter_DD=stored["scatter"]
            )
        found = pca.merge(found, own)
    if not found.count:
        raise NothingUsable(
            f"none of the {source.table.rows:,} rows has a usable {source.column}: there is "
            "nothing to cluster; look at the defects that the manifest of the embedding counts"
        )
    if config.clusters > found.count:
        raise ConfigError(
            f"clusters is {config.clusters:,}, but only {found.count:,} of the "
            f"{source.table.rows:,} rows have a usable {source.column}: choose fewer clusters"
        )
    fitted = pca.fit(found, config.components)
    folder.write("pca.npz", pca.to_bytes(fitted))
    return {"components": len(fitted.components_CD), "kept": fitted.explained}


def project(config: ClusterConfig, source: EmbeddedTable, number: int) -> dict[str, Any]:
    """Write the PCA coordinates of usable rows; return the row count and the largest |value|."""
    folder = Draft(config.out).folder
    fitted = pca.from_bytes(folder.read("pca.npz"))
    coordinates = [np.empty((0, len(fitted.components_CD)), np.float32)]
    is_usable = [np.empty(0, bool)]
    for vectors in read_vectors(source, *block_range(source.table, config.block_rows, number)):
        coordinates.append(fitted.project(vectors.vectors_UD))
        is_usable.append(vectors.is_usable_N)
    found_UC = np.concatenate(coordinates)
    rows_U = np.flatnonzero(np.concatenate(is_usable)).astype(np.uint32)
    write_array(folder, _rows(number), rows_U)
    write_array(folder, projected_path(number), found_UC)
    return {"usable": len(rows_U), "largest": float(np.abs(found_UC).max(initial=0))}


class HeldBlocks:
    """Projected blocks of a worker, for repeated iteration.

    As many as fit in the cache stay in memory; the rest is read each time, one block ahead.
    """

    def __init__(self, out: str, numbers: list[int], grid: float, cache_bytes: int) -> None:
        self._folder, self._numbers, self._grid = Draft(out).folder, numbers, grid
        self._room_bytes = cache_bytes
        self._held: dict[int, np.ndarray] = {}

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number and the rows of every block, on the grid, float32, shape [U, C]."""
        ahead = [number for number in self._numbers if number not in self._held]
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._read, ahead.pop(0)) if ahead else None
            for number in self._numbers:
                block_UC = self._held.get(number)
                if block_UC is None and coming is not None:
                    block_UC = coming.result()
                    coming = pool.submit(self._read, ahead.pop(0)) if ahead else None
                    if block_UC.nbytes <= self._room_bytes:
                        self._room_bytes -= block_UC.nbytes
                        self._held[number] = block_UC
                if block_UC is not None:
                    yield number, block_UC

    def one(self, number: int) -> np.ndarray:
        """Return the coordinates of a block's usable rows. float32, [U, C]."""
        block_UC = self._held.get(number)
        return self._read(number) if block_UC is None else block_UC

    def _read(self, number: int) -> np.ndarray:
        return kmeans.on_grid(read_array(self._folder, projected_path(number)), self._grid)


def sums(blocks: HeldBlocks, centroids_KC: np.ndarray, largest: float) -> kmeans.Sums:
    """Return the sums per cluster of a k-means iteration over a worker's blocks."""
    found = kmeans.Sums.none(*centroids_KC.shape)
    for number, block_UC in blocks:
        kmeans.add_block(found, number, block_UC, centroids_KC, largest)
    return found


def assign(
    config: ClusterConfig,
    table: Table,
    number: int,
    block_UC: np.ndarray,
    centroids_KC: np.ndarray,
) -> dict[str, Any]:
    """Write each row's cluster for a block; return the number of clustered rows and the inertia."""
    folder = Draft(config.out).folder
    first, stop = block_range(table, config.block_rows, number)
    assigned_N = np.zeros(stop - first, ASSIGNED)
    assigned_N["cluster"] = -1
    assigned_N["distance"] = np.nan
    assigned_N["id"] = id_hashes(table, first, stop)
    inertia = 0.0
    if len(block_UC):
        rows_U = read_array(folder, _rows(number))
        labels_U, _ = kmeans.nearest(block_UC, centroids_KC)
        # faiss computes distances from products, which is inexact for small distances.
        apart_UC = block_UC.astype(np.float64) - centroids_KC[labels_U]
        assigned_N["cluster"][rows_U] = labels_U
        squared_U = np.square(apart_UC).sum(axis=1)
        assigned_N["distance"][rows_U] = np.sqrt(squared_U)
        inertia = float(squared_U.sum())
    write_array(folder, assigned_path(number), assigned_N)
    return {"rows": len(block_UC), "inertia": inertia}


def id_hashes(table: Table, first: int, stop: int) -> np.ndarray:
    """Return a hash of the id of every row, uint64."""
    found = np.empty(stop - first, np.uint64)
    at = 0
    for ids in row_ids(table, first, stop):
        for text in ids:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            found[at] = int.from_bytes(digest, "little")
            at += 1
    return found


def row_ids(table: Table, first: int, stop: int) -> Iterator[list[str]]:
    """Yield lists of row names: the id of a row, or ``part:row`` if it has none."""
    folder = Folder(table.uri)
    for part, low, high in stretches(table.parts, first, stop):
        if table.id_column is None:
            yield [f"{part.name}:{row}" for row in range(low, high)]
            continue
        row = low
        for batch in read_rows(folder, part.path, low, high, [table.id_column]):
            yield [
                f"{part.name}:{number}" if own_id is None else row_name(own_id)
                for number, own_id in enumerate(batch.column(0).to_pylist(), start=row)
            ]
            row += batch.num_rows


def row_name(own_id: Any) -> str:
    """Return the id of a row as text; bytes as hexadecimal digits."""
    return own_id.hex() if isinstance(own_id, bytes) else str(own_id)


def write_columns(
    config: ClusterConfig, table: Table, renumbered_K: np.ndarray, number: int
) -> dict[str, Any]:
    """Write the columns of a part of the table.

    Args:
        config: Configuration of the job.
        table: Table that the columns are aligned with.
        renumbered_K: The final number of each cluster, -1 for a removed one.
        number: Number of the part.
    """
    folder, part = Draft(config.out).folder, table.parts[number]
    first = sum(before.rows for before in table.parts[:number])
    with (
        folder.writer(f"{COLUMNS}/{part.name}") as stream,
        pq.ParquetWriter(stream, COLUMN_SCHEMA, compression="zstd") as writer,
    ):
        for assigned_N in assigned_rows(config, first, first + part.rows):
            is_absent = assigned_N["cluster"] < 0
            ids = renumbered_K[assigned_N["cluster"]].astype(np.int32)
            arrays = [
                pa.array(ids, mask=is_absent),
                pa.array(assigned_N["distance"], mask=is_absent),
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=COLUMN_SCHEMA))
    size = folder.filesystem.get_file_info(folder.at(f"{COLUMNS}/{part.name}")).size
    return {"rows": part.rows, "size_bytes": size}


def assigned_rows(config: ClusterConfig, first: int, stop: int) -> Iterator[np.ndarray]:
    """Yield the assignments of a range of rows, at most a block at a time. Dtype ``ASSIGNED``."""
    folder, size = Draft(config.out).folder, config.block_rows
    for number in range(first // size, -(-stop // size)):
        begin = number * size
        yield read_array(folder, assigned_path(number))[max(first - begin, 0) : stop - begin]


def write_array(folder: Folder, name: str, values: np.ndarray) -> None:
    """Write an array as a ``.npy`` file."""
    with folder.writer(name) as stream:
        np.save(stream, values, allow_pickle=False)


def read_array(folder: Folder, name: str) -> np.ndarray:
    """Return an array that ``write_array`` wrote."""
    found: np.ndarray = np.load(io.BytesIO(folder.read(name)), allow_pickle=False)
    return found


def _moments(number: int) -> str:
    return f".draft/moments/{number:06d}.npz"


def projected_path(number: int) -> str:
    """Return the path of the coordinates of a block's usable rows."""
    return f".draft/projected/{number:06d}.npy"


def _rows(number: int) -> str:
    return f".draft/projected/{number:06d}.rows.npy"


def assigned_path(number: int) -> str:
    """Return the path of the clusters of a block's rows."""
    return f".draft/assigned/{number:06d}.npy"
