"""Members of each cluster to show to reviewers, with thumbnails.

A task takes some parts of the table and reads only the row groups that hold a member. Its result is
sorted by cluster, so that the pieces of all tasks merge a few clusters at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.concepts.blocks import read_rows
from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.cluster_steps import read_array, row_name
from biovl.core.artifacts import Draft
from biovl.core.folders import Folder
from biovl.core.tables import Table, TablePart, open_part, write_table
from biovl.images.decode import decode_rgb
from biovl.images.encode import thumbnail

LONGER_SIDE_PX = 320
"""Side of a thumbnail, in pixels."""

MEMBERS = "members.parquet"

MEMBER_SCHEMA = pa.schema(
    [
        pa.field("cluster_id", pa.int32()),
        pa.field("rank", pa.int32()),
        pa.field("row_id", pa.string()),
        pa.field("caption", pa.string()),
        pa.field("distance", pa.float32()),
        pa.field("width_px", pa.int32()),
        pa.field("height_px", pa.int32()),
        pa.field("thumbnail", pa.binary()),
    ]
)

WANTED = np.dtype([("cluster", "<i4"), ("rank", "<i4"), ("row", "<i8"), ("distance", "<f4")])
"""A member to show, before its image is read."""

_PER_TASK = 512
_READ_ROWS = 64
_MERGED_CLUSTERS = 256


def members_by_row(members_M: np.ndarray) -> np.ndarray:
    """Return the members to show, as ``WANTED``, in the order of the table.

    Args:
        members_M: ``summary.MEMBER``, sorted by cluster and then in display order.
    """
    clusters = members_M["cluster"]
    found = np.empty(len(members_M), WANTED)
    for name in ("cluster", "row", "distance"):
        found[name] = members_M[name]
    found["rank"] = np.arange(len(clusters)) - np.searchsorted(clusters, clusters)
    return found[np.argsort(found["row"], kind="stable")]


def tasks(wanted_M: np.ndarray) -> int:
    """Return the number of tasks that read the members' images."""
    return -(-len(wanted_M) // _PER_TASK)


def read_members(config: ClusterConfig, table: Table, name: str, number: int) -> dict[str, Any]:
    """Write the members of a task, sorted by cluster.

    Args:
        config: Configuration of the job.
        table: Table with the images.
        name: Name of the array of members in the draft.
        number: Number of the task.

    Returns:
        The receipt: the number of images that cannot be decoded.
    """
    folder = Draft(config.out).folder
    own = read_array(folder, name)[number * _PER_TASK : (number + 1) * _PER_TASK]
    rows = list(_read(table, own))
    found = pa.Table.from_pylist(rows, MEMBER_SCHEMA)
    found = found.sort_by([("cluster_id", "ascending"), ("rank", "ascending")])
    write_table(folder, _piece(number), found, row_group_size=_PER_TASK // 4)
    return {"undecodable": sum(row["thumbnail"] is None for row in rows)}


def _read(table: Table, own: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield the task's cluster members as rows of ``MEMBER_SCHEMA``, by row group."""
    folder = Folder(table.uri)
    names = [name for name in {"image", "caption", table.id_column} if name and name in table.names]
    begin = 0
    for part in table.parts:
        low, high = np.searchsorted(own["row"], [begin, begin + part.rows])
        if low < high:
            here = own[low:high]
            for member, values in _of_part(folder, part, here["row"] - begin, here, names):
                row = int(member["row"]) - begin
                own_id = values.get(table.id_column or "")
                name = f"{part.name}:{row}" if own_id is None else row_name(own_id)
                yield _member(member, values, name)
        begin += part.rows


def _of_part(
    folder: Folder, part: TablePart, rows: np.ndarray, own: np.ndarray, names: list[str]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    with open_part(folder, part.path) as file:
        metadata = file.metadata
        ends = np.cumsum([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)])
    for group in np.unique(np.searchsorted(ends, rows, side="right")):
        first, stop = (int(ends[group - 1]) if group else 0), int(ends[group])
        at = first
        last = int(rows[rows < stop].max()) + 1
        for batch in read_rows(folder, part.path, first, last, names, batch_rows=_READ_ROWS):
            for index in np.flatnonzero((rows >= at) & (rows < at + batch.num_rows)):
                taken = batch.slice(int(rows[index]) - at, 1).to_pylist()[0]
                yield own[index], taken
            at += batch.num_rows


def _member(member: Any, values: dict[str, Any], row_id: str) -> dict[str, Any]:
    data, caption = values["image"], values.get("caption")
    # Hugging Face datasets store a struct.
    if isinstance(data, Mapping):
        data = data.get("bytes")
    decoded = decode_rgb(data).pixels if isinstance(data, bytes) else None
    height, width = (None, None) if decoded is None else decoded.shape[:2]
    return {
        "cluster_id": int(member["cluster"]),
        "rank": int(member["rank"]),
        "row_id": row_id,
        "caption": caption if isinstance(caption, str) else "",
        "distance": float(member["distance"]),
        "width_px": width,
        "height_px": height,
        "thumbnail": None if decoded is None else thumbnail(decoded, longer_side_px=LONGER_SIDE_PX),
    }


def merge(config: ClusterConfig, clusters: int, pieces: int) -> None:
    """Write ``members.parquet`` from the pieces of all tasks: one row group per cluster."""
    folder = Draft(config.out).folder
    order = [("cluster_id", "ascending"), ("rank", "ascending")]
    with (
        folder.writer(MEMBERS) as stream,
        pq.ParquetWriter(stream, MEMBER_SCHEMA, compression="zstd") as writer,
    ):
        for first in range(0, clusters, _MERGED_CLUSTERS):
            last = min(first + _MERGED_CLUSTERS, clusters) - 1
            found = [_between(folder, _piece(number), first, last) for number in range(pieces)]
            table = pa.concat_tables(found).sort_by(order)
            ids = table["cluster_id"].to_numpy()
            for cluster in range(first, last + 1):
                low, high = np.searchsorted(ids, [cluster, cluster + 1])
                writer.write_table(table.slice(low, high - low))


def _between(folder: Folder, name: str, first: int, last: int) -> pa.Table:
    filters = [("cluster_id", ">=", first), ("cluster_id", "<=", last)]
    path = folder.at(name)
    return pq.read_table(path, filesystem=folder.filesystem, filters=filters)


def read_cluster(uri: str, cluster: int) -> pa.Table:
    """Return the members of one cluster from the published file, without reading others."""
    return _between(Folder(uri), MEMBERS, cluster, cluster)


def _piece(number: int) -> str:
    return f".draft/members/{number:06d}.parquet"
