"""Published files other than columns: centroids, clusters, members and plots."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from biovl.concepts import cluster_steps, members, pca, scree_plot
from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.contact_sheet import ACROSS, SheetRow, contact_sheet
from biovl.concepts.summary import Summary
from biovl.core.artifacts import MANIFEST, Draft, to_json
from biovl.core.folders import Folder
from biovl.core.tables import COLUMNS, read_table, write_table
from biovl.runtime.job import Job

# Shapes: K clusters, C components.

RENUMBERED = ".draft/renumbered.npy"
WANTED = ".draft/wanted.npy"

_SHEET_ROWS = 40


def write_clusters(config: ClusterConfig, found: Summary, centroids_KC: np.ndarray) -> int:
    """Write centroids and clusters, largest first, and the list of members to read.

    Returns:
        Number of non-empty clusters; only these are published.
    """
    folder = Draft(config.out).folder
    order = found.order()
    renumbered_K = np.full(len(centroids_KC), -1, np.int32)
    renumbered_K[order] = np.arange(len(order))
    cluster_steps.write_array(folder, "centroids.npy", centroids_KC[order])
    cluster_steps.write_array(folder, RENUMBERED, renumbered_K)
    cluster_steps.write_array(folder, WANTED, members.members_by_row(found.members(renumbered_K)))
    write_table(folder, "clusters.parquet", found.table(centroids_KC, order))
    return len(order)


def draw(config: ClusterConfig, clusters: int) -> None:
    """Write ``scree.png``, and ``sheets.png`` with clusters of all sizes."""
    folder = Draft(config.out).folder
    folder.write("scree.png", scree_plot.scree(pca.from_bytes(folder.read("pca.npz"))))
    sizes = read_table(folder, "clusters.parquet", ["size"])["size"].to_pylist()
    shown = np.unique(np.linspace(0, clusters - 1, min(clusters, _SHEET_ROWS)).astype(int))
    rows = []
    for cluster in shown.tolist():
        found = members.read_cluster(config.out, cluster)["thumbnail"].to_pylist()
        rows.append(
            SheetRow(
                title=f"cluster {cluster}",
                lines=[f"{sizes[cluster]:,} image{'s' * (sizes[cluster] != 1)}"],
                images=found[:ACROSS],
            )
        )
    heading = f"{len(rows):,} of {clusters:,} clusters, by size"
    folder.write("sheets.png", contact_sheet(rows, heading=heading))


def publish_columns(
    job: Job, counts: Mapping[str, Any], files: Mapping[str, Mapping[str, int]]
) -> None:
    """Publish the written columns as a nested folder."""
    notes = {
        "columns": cluster_steps.COLUMN_SCHEMA.names,
        "cluster_distance": "L2 among components",
    }
    manifest = replace(job.manifest(counts=counts, files=files, notes=notes), kind=COLUMNS)
    Folder(job.out).write(f"{COLUMNS}/{MANIFEST}", to_json(asdict(manifest)))


def sizes(config: ClusterConfig) -> dict[str, dict[str, int]]:
    """Return the number of rows and size in bytes of the published tables."""
    folder, found = Folder(config.out), {}
    for name in ("clusters.parquet", members.MEMBERS):
        with folder.filesystem.open_input_file(folder.at(name)) as stream:
            rows = pq.read_metadata(stream).num_rows
            found[name] = {"rows": rows, "size_bytes": stream.size()}
    return found
