"""The cluster job as a whole: pure clusters, bad input counted, killed and rerun to equal bytes."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.cluster_job import cluster
from biovl.concepts.clusters import check_embedding, open_concepts
from biovl.concepts.members import read_cluster
from biovl.core import config as configs
from biovl.core.artifacts import Manifest, read_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.tables import open_table
from tests.concepts.folders import blobs, write_embedding, write_table
from tests.runtime.folders import content
from tests.runtime.interrupting import counted, interrupted

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
ROWS, KINDS = 500, 6


def settings(table: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return {
        "table": str(table),
        "out": str(out),
        "clusters": KINDS,
        "components": 4,
        "block_rows": 100,
        **changes,
    }


def run(table: Path, out: Path, **changes: Any) -> Manifest:
    config = configs.build(ClusterConfig, settings(table, out, **changes))
    return cluster(config, progress=io.StringIO())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six kinds of images in parts of uneven length; rows 3 and 7 have no usable embedding."""
    vectors, _ = blobs(ROWS, KINDS, 16)
    vectors[3], vectors[7, 1] = np.nan, np.inf
    found = write_table(tmp_path_factory.mktemp("cluster") / "table", [130, 200, 0, 170])
    write_embedding(found, vectors)
    return found


@pytest.fixture(scope="module")
def concepts(table: Path, ray_session: None) -> Path:
    out = table.parent / "concepts"
    run(table, out, **{"workers.count": 1})
    return out


def columns(concepts: Path) -> dict[str, list[Any]]:
    names = sorted((concepts / "columns").glob("*.parquet"))
    found = [pq.read_table(name).to_pydict() for name in names]
    return {name: [value for part in found for value in part[name]] for name in found[0]}


def test_clusters_are_the_kinds_and_what_has_no_embedding_has_no_cluster(concepts: Path) -> None:
    ids = columns(concepts)["cluster_id"]
    pairs = {(row % KINDS, cluster) for row, cluster in enumerate(ids) if row not in (3, 7)}
    assert len(pairs) == len({kind for kind, _ in pairs}) == KINDS
    assert ids[3] is None
    assert ids[7] is None
    counts = read_manifest(str(concepts), "concepts").counts
    assert counts["rows"] == ROWS
    assert counts["clustered"] == ROWS - 2
    assert counts["without_embedding"] == {"embedding is not finite": 1, "image does not decode": 1}


def test_columns_stand_beside_the_table_part_for_part(concepts: Path, table: Path) -> None:
    manifest = read_manifest(str(concepts / "columns"), "columns")
    opened = open_table(str(table))
    assert opened.as_input() in manifest.inputs
    assert {name: file["rows"] for name, file in manifest.files.items()} == {
        part.name: part.rows for part in opened.parts
    }
    for part in opened.parts:
        assert pq.read_metadata(concepts / "columns" / part.name).num_rows == part.rows


def test_what_is_said_of_clusters_agrees_with_the_columns(concepts: Path) -> None:
    told = pq.read_table(concepts / "clusters.parquet").to_pydict()
    found = columns(concepts)
    ids = np.array([-1 if value is None else value for value in found["cluster_id"]])
    distances = np.array([np.nan if v is None else v for v in found["cluster_distance"]])
    assert told["size"] == sorted(np.bincount(ids[ids >= 0]).tolist(), reverse=True)
    for cluster_id in told["cluster_id"]:
        own = distances[ids == cluster_id]
        assert told["cohesion"][cluster_id] == pytest.approx(own.mean(), rel=1e-5)
        assert len(told["nearest"][cluster_id]) == 5
    stored = np.load(concepts / "pca.npz", allow_pickle=False)
    centroids = np.load(concepts / "centroids.npy", allow_pickle=False)
    vectors = blobs(ROWS, KINDS, 16)[0].astype(np.float16).astype(np.float64)
    placed = (vectors[0] - stored["mean"]) @ stored["components"].T
    apart = np.linalg.norm(placed - centroids, axis=1)
    assert (apart.argmin(), apart.min()) == (ids[0], pytest.approx(distances[0], rel=1e-4))


def test_reviewers_find_thirty_members_of_a_cluster_with_images(concepts: Path) -> None:
    assert pq.ParquetFile(concepts / "members.parquet").num_row_groups == KINDS
    ids = columns(concepts)["cluster_id"]
    members = read_cluster(str(concepts), 2).to_pylist()
    assert [member["rank"] for member in members] == list(range(30))
    for member in members:
        row = int(member["row_id"].removeprefix("image-"))
        assert ids[row] == member["cluster_id"] == 2
        assert member["caption"] == f"Caption {row}"
        assert (member["width_px"], member["height_px"]) == (40, 24)
        assert member["thumbnail"].startswith(b"\xff\xd8")


def test_what_cannot_be_is_refused_with_both_numbers(
    table: Path, tmp_path: Path, ray_session: None
) -> None:
    with pytest.raises(ConfigError, match=r"clusters .*501\b.* 500\b"):
        run(table, tmp_path / "out", clusters=501)
    with pytest.raises(ConfigError, match=r"components .*17\b.*dinov2.* 16\b"):
        run(table, tmp_path / "out", components=17)
    with pytest.raises(ArtifactError, match="nothing"):
        run(table, tmp_path / "out", embedding=str(tmp_path / "nothing"))


def test_fewer_usable_vectors_than_clusters_are_told_and_mended_by_the_same_folder(
    tmp_path: Path, ray_session: None
) -> None:
    vectors = np.repeat(np.eye(4, dtype=np.float32)[:3], 4, axis=0)
    vectors[0] = np.nan
    table = write_table(tmp_path / "table", [12])
    write_embedding(table, vectors)
    with pytest.raises(ConfigError, match=r"clusters .*12\b.* 11\b.* 12\b"):
        run(table, tmp_path / "out", clusters=12)
    # Three different vectors are three clusters, whatever was asked for.
    assert run(table, tmp_path / "out", clusters=5).counts["clusters"] == 3
    found = columns(tmp_path / "out")["cluster_id"]
    assert found[:4] == [None, 2, 2, 2]
    assert [found[4:8], found[8:]] in ([[0] * 4, [1] * 4], [[1] * 4, [0] * 4])


def test_new_images_are_of_the_embedding_that_was_clustered_though_it_was_replaced(
    ray_session: None, tmp_path: Path
) -> None:
    vectors, _ = blobs(8, 2, 4)
    tables = {name: write_table(tmp_path / name, [8]) for name in ("table", "same", "other")}
    weights = {"table": "DINO", "same": "DINO", "other": "another"}
    for name, one in tables.items():
        write_embedding(one, vectors, config={"weights": weights[name]})
    run(tables["table"], tmp_path / "concepts", clusters=2, components=2)
    shutil.rmtree(tables["table"] / "columns")
    write_embedding(tables["table"], vectors, config={"weights": "another"})
    concepts = open_concepts(str(tmp_path / "concepts"))
    check_embedding(concepts, str(tables["same"] / "columns/dinov2"), 4)
    with pytest.raises(ArtifactError, match=r"another weights .*: another, expected DINO"):
        check_embedding(concepts, str(tables["other"] / "columns/dinov2"), 4)


def test_interrupted_and_run_again_by_more_workers_with_less_memory_gives_the_same_bytes(
    concepts: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "concepts"
    config = configs.build(
        ClusterConfig, {**settings(table, out), "workers.count": 2, "workers.cache_mb": 0}
    )
    with interrupted("iteration", 2):
        cluster(config)
    assert not (out / "manifest.json").exists()
    with counted() as stages:
        cluster(config)
    assert stages["iteration"][0] == 2
    assert content(out) == content(concepts)
    assert json.loads((out / "manifest.json").read_bytes())["kind"] == "concepts"
