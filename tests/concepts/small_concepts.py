"""A few clusters at known places, and tables of images near them.

Images are embedded in three numbers; the clusters are found by the last two: cluster 0 at (0, 0),
1 at (10, 0), 2 at (0, 10), 3 at (10, 10). Within 1, 2, 3, 4 of them are 95 % of 20 members each.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from biovl.concepts import members, pca
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint
from biovl.core.tables import COLUMNS, open_table

KEYS = ("k0", "k1", "k2", "k3")
CENTROIDS = np.array([[0, 0], [10, 0], [0, 10], [10, 10]], np.float32)

Points = Sequence[tuple[float, float] | str | None]
"""Where the images of a part are; a text: why there is no embedding; None: it is not finite."""


def write_table(folder: Path, parts: Sequence[int]) -> Path:
    """Write a plain table of images with so many rows a part."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(parts):
        table = pa.table(
            {
                "id": pa.array([f"{folder.name}-{number}-{row}" for row in range(rows)]),
                "image": pa.array([b"image"] * rows, pa.binary()),
            }
        )
        pq.write_table(table, folder / f"part-{number:06d}-000.parquet")
    return folder


def write_embedding(table: Path, parts: Sequence[Points], *, dim: int = 3, seed: int = 0) -> Path:
    """Publish the embedding of a table: a constant, then where each image is."""
    out = table / COLUMNS / "dinov2"
    config = {"annotator": {"name": "dinov2", "seed": seed}, "weights": ""}
    inputs = [open_table(str(table)).as_input()]
    draft = Draft.begin(str(out), COLUMNS, config, inputs)
    kind = pa.list_(pa.float16(), dim)
    for part, points in zip(open_table(str(table)).parts, parts, strict=True):
        vectors = [_vector(point, dim) for point in points]
        defects = [point if isinstance(point, str) else None for point in points]
        columns = {
            "dinov2": pa.array(vectors, kind),
            "dinov2_defect": pa.array(defects, pa.string()),
        }
        pq.write_table(pa.table(columns), out / part.name)
    notes = {"columns": ["dinov2", "dinov2_defect"], "embedding": "dinov2", "dim": dim}
    draft.publish(Manifest(kind=COLUMNS, config=config, inputs=inputs, counts={}, notes=notes))
    return out


def _vector(point: tuple[float, float] | str | None, dim: int) -> np.ndarray | None:
    if isinstance(point, str):
        return None
    if point is None:
        return np.full(dim, np.nan, np.float16)
    return np.array([5, *point, *[0] * (dim - 3)], np.float16)


def write_concepts(folder: Path, table: Path, parts: Sequence[Sequence[int | None]]) -> Path:
    """Publish the clusters of a table.

    Args:
        folder: Where.
        table: With its embedding.
        parts: The cluster of each row; None where there is no embedding.
    """
    made_from = open_table(str(table)).as_input()
    embedding = table / COLUMNS / "dinov2"
    inputs = [
        made_from,
        Input(name="embedding", uri=str(embedding), fingerprint=fingerprint(str(embedding))),
    ]
    columns = Draft.begin(str(folder / COLUMNS), COLUMNS, {}, inputs)
    for part, ids in zip(open_table(str(table)).parts, parts, strict=True):
        assigned = {
            "cluster_id": pa.array(ids, pa.int32()),
            "cluster_distance": pa.array([None if i is None else 0.5 for i in ids], pa.float32()),
        }
        pq.write_table(pa.table(assigned), folder / COLUMNS / part.name)
    columns.publish(Manifest(kind=COLUMNS, config={}, inputs=inputs, counts={}))
    stream = io.BytesIO()
    np.save(stream, CENTROIDS)
    (folder / "centroids.npy").write_bytes(stream.getvalue())
    space = pca.PCA(
        mean_D=np.array([5.0, 0, 0]),
        components_CD=np.array([[0.0, 1, 0], [0, 0, 1]]),
        variance_D=np.array([1.0, 1, 0]),
    )
    (folder / "pca.npz").write_bytes(pca.to_bytes(space))
    clusters = {
        "cluster_id": pa.array(range(4), pa.int32()),
        "key": pa.array(KEYS),
        "size": pa.array([20] * 4, pa.int64()),
        "distance_p95": pa.array([1, 2, 3, 4], pa.float32()),
    }
    pq.write_table(pa.table(clusters), folder / "clusters.parquet")
    with pq.ParquetWriter(folder / members.MEMBERS, members.MEMBER_SCHEMA) as writer:
        for cluster in range(4):
            writer.write_table(_members(cluster))
    Draft(str(folder)).publish(Manifest(kind="concepts", config={}, inputs=inputs, counts={}))
    return folder


def _members(cluster: int) -> pa.Table:
    """Return members of a colour of its own, and one whose image is damaged."""
    stream = io.BytesIO()
    Image.new("RGB", (32, 20), ["red", "green", "blue", "grey"][cluster]).save(stream, "JPEG")
    whole = {"rank": 0, "row_id": "a", "width_px": 32, "height_px": 20}
    rows = [{**whole, "thumbnail": stream.getvalue()}, {"rank": 1, "row_id": "b"}]
    same = {"cluster_id": cluster, "caption": "", "distance": 0.5}
    return pa.Table.from_pylist([{**same, **row} for row in rows], members.MEMBER_SCHEMA)
