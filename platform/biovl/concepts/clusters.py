"""Published clusters, as far as labels need them."""

import io
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.concepts import pca
from biovl.core.artifacts import Folder, Input, Manifest, find_manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.tables import COLUMNS

# Shapes: K clusters, C components.

KIND = "concepts"

_MANY = 20
"""Members of which a twentieth is at least one: below, there is no 95th percentile to speak of."""


@dataclass(frozen=True, kw_only=True)
class Concepts:
    """Clusters of a table of images. Ids count from 0."""

    uri: str
    manifest: Manifest
    keys: tuple[str, ...]
    """Of each cluster: another one once its members change."""
    sizes_K: np.ndarray
    """int64."""
    p95_K: np.ndarray
    """The distance from the centroid within which 95 % of the members are, float32."""
    centroids_KC: np.ndarray
    """float32."""
    space: pca.PCA
    """What the centroids' coordinates are."""

    def input_named(self, name: str) -> Input:
        """Return what the clusters were made from: the ``table``, or the ``embedding``."""
        for item in self.manifest.inputs:
            if item.name == name:
                return item
        raise ArtifactError(f"{self.uri} does not say which {name} it was made from")

    def as_input(self) -> Input:
        """Return what a job that reads the clusters says in its manifest."""
        return Input(name=KIND, uri=self.uri, fingerprint=fingerprint(self.uri))

    def parts(self) -> list[str]:
        """Return the names of the parts of the table that was clustered, sorted."""
        return self.columns.names("", ".parquet")

    @property
    def columns(self) -> Folder:
        """Where the cluster of each image stands."""
        return Folder(f"{self.uri.rstrip('/')}/{COLUMNS}")

    def limits_K(self, reach: float, max_distance: float | None) -> np.ndarray:
        """Return how far from each centroid an image that was not clustered may be, float32.

        ``max_distance``; or else ``reach`` times the distance within which 95 % of the members
        are, of the median cluster for those of fewer than 20 members.
        """
        if max_distance is not None:
            return np.full(len(self.keys), max_distance, np.float32)
        p95_K = self.p95_K.astype(np.float64)
        is_many = self.sizes_K >= _MANY
        if not is_many.all():
            usual = p95_K[is_many] if is_many.any() else p95_K[self.sizes_K > 0]
            p95_K[~is_many] = np.median(usual) if len(usual) else 0.0
        return (reach * p95_K).astype(np.float32)


def open_concepts(uri: str) -> Concepts:
    """Return published clusters.

    Raises:
        ArtifactError: If there are none, or what is there does not fit together.
    """
    manifest, folder = read_manifest(uri, KIND), Folder(uri)
    table = pq.read_table(pa.BufferReader(folder.read("clusters.parquet"))).sort_by("cluster_id")
    centroids_KC = np.load(io.BytesIO(folder.read("centroids.npy")), allow_pickle=False)
    space = pca.from_bytes(folder.read("pca.npz"))
    expected = len(table), len(space.components_CD)
    if centroids_KC.shape != expected or table["cluster_id"].to_pylist() != [*range(len(table))]:
        raise ArtifactError(
            f"{uri} does not fit together: {len(table)} clusters and {expected[1]} components, "
            f"but centroids of shape {list(centroids_KC.shape)}"
        )
    return Concepts(
        uri=uri,
        manifest=manifest,
        keys=tuple(table["key"].to_pylist()),
        sizes_K=table["size"].to_numpy(),
        p95_K=table["distance_p95"].to_numpy(),
        centroids_KC=centroids_KC.astype(np.float32),
        space=space,
    )


def check_embedding(concepts: Concepts, uri: str, dim: int) -> None:
    """Refuse an embedding that another annotator made than that of the clusters.

    Raises:
        ArtifactError: Says what differs.
    """
    expected = len(concepts.space.mean_D)
    if dim != expected:
        raise ArtifactError(
            f"{uri} has vectors of {dim} numbers, and {concepts.uri} was made from such of "
            f"{expected}: embed the table by the same annotator"
        )
    before = find_manifest(concepts.input_named("embedding").uri)
    # It may be gone: then the length has to do.
    if before is None:
        return
    now = read_manifest(uri, COLUMNS)
    for what, of_clusters, of_table in (
        ("annotator", before.config.get("annotator"), now.config.get("annotator")),
        ("weights", _weights(before), _weights(now)),
    ):
        if of_clusters != of_table:
            raise ArtifactError(
                f"{uri} was made with another {what} than the clusters of {concepts.uri}: "
                f"{of_table}, expected {of_clusters}: embed the table by the same annotator"
            )


def _weights(manifest: Manifest) -> object:
    """Return what tells weights apart: what is in them, or the name they have on the hub."""
    found = [item.fingerprint for item in manifest.inputs if item.name == "weights"]
    return found[0] if found else manifest.config.get("weights")
