"""Published clusters, as read by the jobs that label images."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from biovl.concepts import pca
from biovl.core.artifacts import Input, Manifest, find_manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.tables import COLUMNS, read_table

# Shapes: K clusters, C components.

KIND = "concepts"
EMBEDDED_BY = "embedded_by"
"""Note of the manifest: what computed the embedding, whose folder may be replaced later."""

_MANY = 20
"""Minimum members for a 95th percentile: a twentieth of them is one."""
_LEAST_SPREAD = 0.1
"""Minimum 95th percentile, relative to the median of all: copies of one image lie closer."""
_ROUNDING = 1e-5
"""Distance that is rounding, relative to the largest coordinate."""


@dataclass(frozen=True, kw_only=True)
class Concepts:
    """Clusters of a table of images. Ids count from 0."""

    uri: str
    manifest: Manifest
    keys: tuple[str, ...]
    """Key of each cluster, a hash that changes with its members."""
    sizes_K: np.ndarray
    """Number of images in each cluster. int64."""
    p95_K: np.ndarray
    """95th percentile of the members' distances from the centroid, float32."""
    centroids_KC: np.ndarray
    """Centroids, as principal components. float32."""
    space: pca.PCA
    """PCA in whose space the centroids are."""

    def input_named(self, name: str) -> Input:
        """Return an input of the clustering from its manifest: ``table`` or ``embedding``.

        Raises:
            ArtifactError: If the manifest does not have it.
        """
        for item in self.manifest.inputs:
            if item.name == name:
                return item
        raise ArtifactError(f"{self.uri} does not say which {name} it was made from")

    def as_input(self) -> Input:
        """Return the clusters as an input for manifests."""
        return Input(name=KIND, uri=self.uri, fingerprint=fingerprint(self.uri))

    def parts(self) -> list[str]:
        """Return the names of the parts of the clustered table, sorted."""
        return self.columns.names("", ".parquet")

    @property
    def columns(self) -> Folder:
        """Folder with the columns that assign each image to a cluster."""
        return Folder(below(self.uri, COLUMNS))

    def limits_K(self, reach: float, max_distance: float | None) -> np.ndarray:
        """Return the maximum distance from each centroid at which new images get labels, float32.

        ``max_distance``, or ``reach`` times the 95th percentile of the members' distances. Clusters
        with fewer than 20 members use the median of the larger clusters' percentiles, and clusters
        of copies of one image, whose distances are nearly 0, at least a tenth of it.
        """
        if max_distance is not None:
            return np.full(len(self.keys), max_distance, np.float32)
        p95_K = self.p95_K.astype(np.float64)
        is_many = self.sizes_K >= _MANY
        if not is_many.all():
            usual = p95_K[is_many] if is_many.any() else p95_K[self.sizes_K > 0]
            p95_K[~is_many] = np.median(usual) if len(usual) else 0.0
        if is_many.any():
            p95_K = np.maximum(p95_K, _LEAST_SPREAD * np.median(p95_K[is_many]))
        # Coordinates of another run differ by their rounding.
        rounding = _ROUNDING * np.abs(self.centroids_KC).max(initial=0.0)
        limits_K: np.ndarray = np.maximum(reach * p95_K, rounding).astype(np.float32)
        return limits_K


def open_concepts(uri: str) -> Concepts:
    """Return published clusters, without their members.

    Raises:
        ArtifactError: If there are no clusters, or their files are inconsistent.
    """
    manifest, folder = read_manifest(uri, KIND), Folder(uri)
    table = read_table(folder, "clusters.parquet").sort_by("cluster_id")
    centroids_KC = np.load(io.BytesIO(folder.read("centroids.npy")), allow_pickle=False)
    space = pca.from_bytes(folder.read("pca.npz"))
    expected = len(table), len(space.components_CD)
    if centroids_KC.shape != expected or table["cluster_id"].to_pylist() != [*range(len(table))]:
        raise ArtifactError(
            f"{uri} is inconsistent: {len(table)} clusters and {expected[1]} components, "
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
    """Check that an embedding has the annotator, weights and dimension of the clustered one.

    Raises:
        ArtifactError: If not; the message states the difference.
    """
    expected = len(concepts.space.mean_D)
    if dim != expected:
        raise ArtifactError(
            f"{uri} has vectors of {dim} dimensions, and {concepts.uri} was made from vectors of "
            f"{expected}: embed the table with the same annotator"
        )
    of_clusters = concepts.manifest.notes.get(EMBEDDED_BY)
    if of_clusters is None:
        # Clusters of version 0.1.0. The embedding may have been deleted: then only the dimension
        # is compared.
        before = find_manifest(concepts.input_named("embedding").uri)
        if before is None:
            return
        of_clusters = embedded_by(before)
    for what, of_table in embedded_by(read_manifest(uri, COLUMNS)).items():
        if of_clusters[what] != of_table:
            raise ArtifactError(
                f"{uri} was made with another {what} than the clusters of {concepts.uri}: "
                f"{of_table}, expected {of_clusters[what]}: embed the table with the same annotator"
            )


def embedded_by(embedding: Manifest) -> dict[str, Any]:
    """Return the annotator and the weights that computed an embedding, from its manifest."""
    return {"annotator": embedding.config.get("annotator"), "weights": _weights(embedding)}


def _weights(manifest: Manifest) -> object:
    """Return the identity of weights: their fingerprint, or their name on the Hugging Face Hub."""
    found = [item.fingerprint for item in manifest.inputs if item.name == "weights"]
    return found[0] if found else manifest.config.get("weights")
