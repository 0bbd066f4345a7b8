"""Propagate labels of clusters to images, one part of the table at a time."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.concepts.blocks import NO_EMBEDDING, EmbeddedTable, Vectors, read_vectors
from biovl.concepts.clusters import Concepts
from biovl.concepts.kmeans import nearest
from biovl.concepts.resolution import Resolved
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import read_table

# Shapes: N rows, U those with a usable embedding, K clusters, L labelled ones, C components.

VOTES, NEAREST = "votes", "nearest"
"""Origin of a label: the image's own cluster, or the nearest cluster of a new image."""

TIED = "votes for its cluster are tied"
NO_VOTES = "no votes for its cluster"
FAR = "too far from every labelled cluster"
NO_LABELS = "no cluster is labelled"

_LABELS = pa.schema(
    [
        ("panel_type", pa.string()),
        ("panel_subtype", pa.string()),
        ("global_concepts", pa.list_(pa.string())),
        ("local_concepts", pa.list_(pa.string())),
    ]
)
SCHEMA = pa.schema(
    [
        ("cluster_id", pa.int32()),
        ("cluster_distance", pa.float32()),
        *_LABELS,
        ("label_source", pa.string()),
    ]
)
"""Schema of the columns: all null without an embedding, labels null without labels."""

_NONE = -1


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels of the labelled clusters, looked up by cluster."""

    table: pa.Table
    """One row per labelled cluster."""
    place_K: np.ndarray
    """Row of each cluster, -1 without labels."""
    is_tied_K: np.ndarray

    @property
    def clusters_L(self) -> np.ndarray:
        """Id of the labelled cluster in each row of ``table``."""
        return np.flatnonzero(self.place_K != _NONE)


def labels_of(resolved: Iterable[Resolved], clusters: int) -> Labels:
    """Return the labels of resolved clusters, looked up among all ``clusters``."""
    place_K, is_tied_K = np.full(clusters, _NONE), np.zeros(clusters, bool)
    rows: list[dict[str, Any]] = []
    for found in sorted(resolved, key=lambda item: item.cluster_id):
        is_tied_K[found.cluster_id] = not found.is_labelled
        if found.is_labelled:
            place_K[found.cluster_id] = len(rows)
            rows.append({name: getattr(found, name) for name in _LABELS.names})
    table = pa.Table.from_pylist(rows, schema=_LABELS)
    return Labels(table=table, place_K=place_K, is_tied_K=is_tied_K)


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """Rows with their clusters and labels, and the number of rows without labels by reason."""

    table: pa.Table
    """Rows with the columns of ``SCHEMA``."""
    unlabelled: Counter[str]


def of_members(assigned: pa.Table, labels: Labels) -> LabelledRows:
    """Return the labels of clustered images: those of their clusters.

    Args:
        assigned: ``cluster_id`` and ``cluster_distance``, null without an embedding.
        labels: Labels of the clusters.

    Raises:
        ArtifactError: If an image has a cluster without an entry in ``labels``.
    """
    ids_N = assigned["cluster_id"].fill_null(_NONE).to_numpy().astype(np.int64)
    if len(ids_N) and ids_N.max() >= len(labels.place_K):
        raise ArtifactError(
            f"there is an image of cluster {ids_N.max()}, and only {len(labels.place_K)} clusters"
        )
    has_cluster = ids_N != _NONE
    place_N = np.where(has_cluster, labels.place_K[ids_N], _NONE)
    is_tied_N = has_cluster & labels.is_tied_K[ids_N]
    unlabelled = Counter(
        {
            NO_EMBEDDING: int((~has_cluster).sum()),
            TIED: int(is_tied_N.sum()),
            NO_VOTES: int((has_cluster & ~is_tied_N & (place_N == _NONE)).sum()),
        }
    )
    distance = assigned["cluster_distance"].combine_chunks()
    return LabelledRows(
        table=_table(ids_N, distance, place_N, labels, VOTES), unlabelled=+unlabelled
    )


def of_new(
    vectors: Vectors, concepts: Concepts, labels: Labels, limits_K: np.ndarray
) -> LabelledRows:
    """Return the labels of images that were not clustered: those of the nearest labelled cluster.

    Args:
        vectors: Embeddings of the images.
        concepts: The clusters.
        labels: Labels of the clusters.
        limits_K: Maximum distance from each centroid for a label. Cluster and distance are set
            in any case.
    """
    rows = len(vectors.is_usable_N)
    ids_N, place_N = np.full(rows, _NONE), np.full(rows, _NONE)
    distance_N = np.full(rows, np.nan, np.float32)
    unlabelled, usable = Counter(vectors.reasons), int(vectors.is_usable_N.sum())
    clusters_L = labels.clusters_L
    if not len(clusters_L):
        unlabelled[NO_LABELS] += usable
    elif usable:
        points_UC = concepts.space.project(vectors.vectors_UD)
        centroids_LC = np.ascontiguousarray(concepts.centroids_KC[clusters_L])
        place_U, _ = nearest(points_UC, centroids_LC)
        # By subtraction, exact where faiss's products are not: distance 0 at the centroid.
        distance_U = np.linalg.norm(points_UC - centroids_LC[place_U], axis=1).astype(np.float32)
        is_near_U = distance_U <= limits_K[clusters_L[place_U]]
        ids_N[vectors.is_usable_N] = clusters_L[place_U]
        distance_N[vectors.is_usable_N] = distance_U
        place_N[vectors.is_usable_N] = np.where(is_near_U, place_U, _NONE)
        unlabelled[FAR] += int((~is_near_U).sum())
    distance = pa.array(distance_N, mask=ids_N == _NONE)
    return LabelledRows(
        table=_table(ids_N, distance, place_N, labels, NEAREST), unlabelled=+unlabelled
    )


def _table(
    ids_N: np.ndarray, distance: pa.Array, place_N: np.ndarray, labels: Labels, source: str
) -> pa.Table:
    has_label = place_N != _NONE
    # A null index takes a row of nulls.
    taken = labels.table.take(pa.array(place_N, mask=~has_label))
    sources = pa.array([source], pa.string()).take(
        pa.array(np.zeros(len(place_N), np.int64), mask=~has_label)
    )
    ids = pa.array(ids_N.astype(np.int32), mask=ids_N == _NONE)
    columns = [ids, distance, *taken.columns, sources]
    return pa.table(columns, names=SCHEMA.names).cast(SCHEMA)


def write_members(
    out: str, concepts: Concepts, labels: Labels, parts: Sequence[str], number: int
) -> dict[str, Any]:
    """Write the labels of a part of the clustered table, and return its receipt: row counts."""
    folder, part = concepts.columns, parts[number]
    found = read_table(folder, part, ["cluster_id", "cluster_distance"])
    return _write(out, part, iter([of_members(found, labels)]))


def write_new(
    out: str,
    concepts: Concepts,
    labels: Labels,
    limits_K: np.ndarray,
    source: EmbeddedTable,
    number: int,
) -> dict[str, Any]:
    """Write the labels of a part of another table, and return its receipt: row counts."""
    part = source.table.parts[number]
    first = sum(before.rows for before in source.table.parts[:number])
    read = read_vectors(source, first, first + part.rows)
    return _write(out, part.name, (of_new(vectors, concepts, labels, limits_K) for vectors in read))


def _write(out: str, part: str, pieces: Iterator[LabelledRows]) -> dict[str, Any]:
    folder, unlabelled, concepts = Folder(out), Counter[str](), Counter[str]()
    rows = labelled = 0
    with folder.writer(part) as stream, contextlib.ExitStack() as stack:
        writer = stack.enter_context(pq.ParquetWriter(stream, SCHEMA, compression="zstd"))
        for piece in pieces:
            writer.write_table(piece.table)
            rows += len(piece.table)
            unlabelled += piece.unlabelled
            source = piece.table["label_source"]
            labelled += len(source) - source.null_count
            names = piece.table["global_concepts"].combine_chunks().flatten()
            concepts.update(
                {item["values"]: item["counts"] for item in names.value_counts().to_pylist()}
            )
    size = folder.filesystem.get_file_info(folder.at(part)).size
    return {
        "rows": rows,
        "size_bytes": size,
        "labelled": labelled,
        "unlabelled": dict(sorted(unlabelled.items())),
        "global_concepts": dict(sorted(concepts.items())),
    }


def totals(receipts: Sequence[Mapping[str, Any]], source: str) -> dict[str, Any]:
    """Return the counts of all parts; ``source`` is the origin of the labels."""
    unlabelled, concepts = Counter[str](), Counter[str]()
    for receipt in receipts:
        unlabelled.update(receipt["unlabelled"])
        concepts.update(receipt["global_concepts"])
    return {
        "rows": sum(receipt["rows"] for receipt in receipts),
        "labelled": {source: sum(receipt["labelled"] for receipt in receipts)},
        "unlabelled": dict(sorted(unlabelled.items())),
        "global_concepts": dict(sorted(concepts.items())),
    }
