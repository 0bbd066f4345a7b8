"""Clusters and their members, read from ``concepts/`` one row group at a time."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.core import artifacts
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import translate_storage_errors
from biovl.core.folders import Folder

MEMBERS_SHOWN = 30
_CAPTION_CHARS = 4_000
_KEPT_SHEETS = 32
_MEMBERS = ("rank", "row_id", "caption", "distance", "width_px", "height_px", "thumbnail")


@dataclass(frozen=True)
class Cluster:
    """A cluster to label, with its size and cohesion."""

    cluster_id: int
    key: str
    """Hash of centroid and members, which changes with either."""
    size: int
    cohesion: float | None
    """Mean distance of the members from the centroid; None if unknown."""


@dataclass(frozen=True)
class Member:
    """An image of a cluster, shown to reviewers."""

    rank: int
    row_id: str
    caption: str
    distance: float | None
    width_px: int | None
    height_px: int | None
    thumbnail: bytes
    """Thumbnail as JPEG; empty if the image could not be read."""


class ReviewConcepts:
    """Clusters of a published folder and their members. Thread-safe."""

    def __init__(self, uri: str) -> None:
        """Read the list of clusters.

        Raises:
            ArtifactError: If the folder is not published, or does not contain clusters.
        """
        artifacts.read_manifest(uri, "concepts")
        self.uri = uri
        self.fingerprint = artifacts.fingerprint(uri)
        self._folder = Folder(uri)
        with translate_storage_errors(self._folder.described):
            self.clusters = self._read_clusters()
            self._metadata, self._groups = self._read_places()
        self.sheet = functools.lru_cache(_KEPT_SHEETS)(self._sheet)

    def _read_clusters(self) -> Mapping[int, Cluster]:
        name = "clusters.parquet"
        columns = ["cluster_id", "key", "size", "cohesion"]
        rows = self._opened(name, columns).read(columns).to_pylist()
        clusters = {row["cluster_id"]: Cluster(**row) for row in rows}
        if not clusters:
            raise ArtifactError(f"{self._folder.at(name)} has no cluster: there is nothing to name")
        return clusters

    def _read_places(self) -> tuple[Any, Mapping[int, list[int]]]:
        """Return the metadata of the members file, and the row groups of each cluster."""
        name = "members.parquet"
        file = self._opened(name, ["cluster_id", *_MEMBERS])
        column = file.schema_arrow.get_field_index("cluster_id")
        groups: dict[int, list[int]] = {}
        for number in range(file.metadata.num_row_groups):
            statistics = file.metadata.row_group(number).column(column).statistics
            if statistics is None or not statistics.has_min_max:
                row_groups = file.read_row_group(number, ["cluster_id"])["cluster_id"].unique()
                within = row_groups.to_pylist()
            else:
                within = range(statistics.min, statistics.max + 1)
            for cluster_id in within:
                groups.setdefault(cluster_id, []).append(number)
        return file.metadata, groups

    def _sheet(self, cluster_id: int) -> tuple[Member, ...]:
        """Return the members of a cluster that are shown to reviewers, at most 30, by rank.

        Reads only their row groups.
        """
        groups = self._groups.get(cluster_id, [])
        if not groups:
            return ()
        path = self._folder.at("members.parquet")
        with (
            translate_storage_errors(self._folder.described),
            # Opened for each call: a Parquet reader is not thread-safe.
            self._folder.filesystem.open_input_file(path) as stream,
        ):
            file = pq.ParquetFile(stream, metadata=self._metadata)
            table = file.read_row_groups(groups, ["cluster_id", *_MEMBERS])
        rows = table.filter(pc.equal(table["cluster_id"], cluster_id)).to_pylist()
        rows.sort(key=lambda row: row["rank"])
        return tuple(_member(row) for row in rows[:MEMBERS_SHOWN])

    def _opened(self, name: str, columns: list[str]) -> Any:
        path = self._folder.at(name)
        try:
            file = pq.ParquetFile(self._folder.filesystem.open_input_file(path))
        except FileNotFoundError:
            raise ArtifactError(f"{self.uri} has no {name}: cluster again") from None
        except pa.ArrowInvalid as error:
            raise ArtifactError(f"{path} is not Parquet: {error}") from error
        missing = sorted(set(columns).difference(file.schema_arrow.names))
        if missing:
            raise ArtifactError(f"{path} has no column {', '.join(missing)}")
        return file


def order(what: str, seed: int, key: str) -> int:
    """Return a sort key for clusters in a seeded order, the same on every machine."""
    digest = hashlib.blake2b(f"{what} {seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def practice_of(clusters: Mapping[int, Cluster], count: int, seed: int) -> tuple[int, ...]:
    """Return the ids of the practice clusters, the same for every reviewer.

    At most half of all clusters, rounded down.
    """
    count = min(count, len(clusters) // 2)
    ids = sorted(clusters, key=lambda one: order("practice", seed, clusters[one].key))
    return tuple(ids[:count])


def _member(row: Mapping[str, Any]) -> Member:
    values = {name: row[name] for name in _MEMBERS}
    caption = (values["caption"] or "")[:_CAPTION_CHARS]
    # Only JPEG is shown: browsers guess the type of other content.
    thumbnail = values["thumbnail"] or b""
    if not thumbnail.startswith(b"\xff\xd8\xff"):
        thumbnail = b""
    return Member(**{**values, "caption": caption, "thumbnail": thumbnail})
