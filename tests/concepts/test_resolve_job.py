"""The resolve job as a whole: votes in, columns out; new images; killed and run again."""

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.concepts.resolve_config import ResolveConfig
from biovl.concepts.resolve_job import resolve
from biovl.concepts.votes import write_votes
from biovl.core import config as configs
from biovl.core.artifacts import Manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.tables import open_table
from tests.concepts.ballots import PLOTS, vote
from tests.concepts.small_concepts import Points, write_concepts, write_embedding, write_table
from tests.runtime.folders import content
from tests.runtime.interrupting import counted, interrupted

ROOT = Path(__file__).parents[2]
VOTES = [
    vote("ann", "Maps/map"),
    vote("bob", "Maps/map"),
    vote("cem", "Tables"),
    vote("ann", "PCR", PLOTS, cluster_id=1, key="k1"),
    # A tie; one for practice, one for a cluster as it was, one for none.
    vote("ann", "PCR", cluster_id=2, key="k2"),
    vote("=bob", "Maps", cluster_id=2, key="k2"),
    vote("ann", "PCR", cluster_id=3, key="k3", practice=True),
    vote("ann", "PCR", cluster_id=3, key="other"),
    vote("ann", "PCR", cluster_id=4, key="k4"),
]

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with its clusters, a new one with its embedding, and votes."""
    folder = tmp_path_factory.mktemp("world")
    table = write_table(folder / "table", [3, 0, 2])
    write_embedding(table, [[(0, 0), (10, 0), "image does not decode"], [], [(0, 10), (10, 10)]])
    write_concepts(folder / "concepts", table, [[0, 1, None], [], [2, 3]])
    new: list[Points] = [[(0, 1), (10, 2.5)], [(0, 5), "image too large"]]
    write_embedding(write_table(folder / "new", [2, 2]), new)
    (folder / "votes.csv").write_bytes(write_votes(VOTES) + b"what is this?\r\n")
    return folder


def settings(world: Path, out: Path, **changes: object) -> dict:
    folders = {"concepts": str(world / "concepts"), "votes": str(world / "votes.csv")}
    return {**folders, "out": str(out), **changes}


def run(world: Path, out: Path, **changes: object) -> Manifest:
    made = configs.build(ResolveConfig, settings(world, out, **changes))
    return resolve(made, progress=io.StringIO())


@pytest.fixture(scope="module")
def labels(world: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("labels") / "labels"
    run(world, out)
    return out


def column(folder: Path, name: str) -> list[list]:
    return [pq.read_table(path)[name].to_pylist() for path in sorted(folder.glob("part-*.parquet"))]


def table_of(path: Path) -> list[dict]:
    return list(csv.DictReader(io.StringIO(path.read_text(), newline="")))


def test_every_row_of_the_table_is_labelled_as_its_cluster(labels: Path, world: Path) -> None:
    parts = open_table(str(world / "table")).parts
    assert [path.name for path in sorted(labels.glob("*.parquet"))] == [part.name for part in parts]
    assert column(labels, "cluster_id") == [[0, 1, None], [], [2, 3]]
    assert column(labels, "global_concepts") == [[["Maps"], ["PCR"], None], [], [None, None]]
    assert column(labels, "local_concepts") == [[["map"], [], None], [], [None, None]]
    assert column(labels, "panel_subtype") == [[None, PLOTS, None], [], [None, None]]
    assert column(labels, "label_source") == [["votes", "votes", None], [], [None, None]]


def test_the_manifest_accounts_for_every_image_cluster_and_vote(labels: Path, world: Path) -> None:
    manifest = json.loads((labels / "manifest.json").read_text())
    assert manifest["kind"] == "columns"
    assert manifest["counts"] == {
        "rows": 5,
        "labelled": {"votes": 2},
        "unlabelled": {
            "no embedding": 1,
            "no votes for its cluster": 1,
            "votes for its cluster are tied": 1,
        },
        "global_concepts": {"Maps": 1, "PCR": 1},
        "clusters": {"labelled": 2, "tied": 1, "without votes": 1},
        "votes": {
            "counted": 6,
            "refused": {
                "cluster changed": 1,
                "practice": 1,
                "row is no vote": 1,
                "unknown cluster": 1,
            },
        },
    }
    assert {item["fingerprint"] for item in manifest["inputs"]} > {
        open_table(str(world / "table")).fingerprint
    }
    assert sum(file["rows"] for file in manifest["files"].values()) == 5


def test_people_find_clusters_ties_refused_votes_and_agreement(labels: Path) -> None:
    clusters = table_of(labels / "clusters.csv")
    assert [row["status"] for row in clusters] == ["labelled", "labelled", "tied", "no votes"]
    assert clusters[0]["local_concepts"] == "map"
    assert clusters[0]["global_concepts_disagreement"] == "33.33"
    assert table_of(labels / "ties.csv") == [
        {
            "cluster_id": "2",
            "key": "k2",
            "votes": "2",
            "reviewers": "'=bob;ann",
            "field": "global_concepts",
            "divided": "Maps: 1 of 2, PCR: 1 of 2",
        }
    ]
    refused = {row["kind"]: row for row in table_of(labels / "refused_votes.csv")}
    assert refused["cluster changed"]["reason"].endswith("its key is k3 now")
    assert refused["unknown cluster"]["cluster_id"] == "4"
    assert refused["row is no vote"]["line"] == "11"
    agreement = json.loads((labels / "agreement.json").read_text())
    # Clusters 0 and 2 have several votes: disagreement 33.33 and 50.
    assert agreement["global_concepts"]["clusters"] == 2
    assert agreement["global_concepts"]["mean"] == 41.67
    assert (labels / "disagreement.png").read_bytes().startswith(b"\x89PNG")
    with Image.open(labels / "sheets.png") as sheet:
        colours = {
            colour for _, colour in sheet.convert("RGB").quantize(64).convert("RGB").getcolors()
        }
    # JPEG's red and green, of the two clusters that are labelled; the tied one is blue.
    assert any(red > 200 > 99 > green for red, green, _ in colours)
    assert not any(blue > 200 > 99 > red for red, _, blue in colours)


def test_new_images_take_the_labels_of_the_nearest_labelled_cluster(
    world: Path, labels: Path, tmp_path: Path
) -> None:
    manifest = run(world, tmp_path / "near", table=str(world / "new"))
    assert column(tmp_path / "near", "cluster_id") == [[0, 1], [0, None]]
    assert column(tmp_path / "near", "label_source") == [["nearest", "nearest"], [None, None]]
    assert manifest.counts["unlabelled"] == {
        "image too large": 1,
        "too far from every labelled cluster": 1,
    }
    assert manifest.inputs[0] == open_table(str(world / "new")).as_input()
    manifest = run(world, tmp_path / "far", table=str(world / "new"), max_distance=5)
    assert manifest.counts["labelled"] == {"nearest": 3}
    # The table that was clustered has no need of the nearest.
    run(world, tmp_path / "same", table=str(world / "table"))
    assert column(tmp_path / "same", "label_source") == column(labels, "label_source")


def test_run_again_it_does_nothing_and_with_other_votes_it_is_another_job(
    world: Path, labels: Path, tmp_path: Path
) -> None:
    before = content(labels)
    assert run(world, labels).counts["rows"] == 5
    assert content(labels) == before
    (tmp_path / "votes.csv").write_bytes(write_votes(VOTES[:1]))
    with pytest.raises(ArtifactError, match=r"votes"):
        run(world, labels, votes=str(tmp_path / "votes.csv"))


@pytest.mark.parametrize(
    ("votes", "reason"),
    [
        (write_votes([]), r"votes\.csv"),
        (
            write_votes([vote("ann", "PCR", key="x")] * 2),
            r"2 x cluster changed.* k0\b",
        ),
        (b"SQLite format 3\0", "database.*CSV"),
    ],
)
def test_votes_of_which_none_counts_are_refused(
    world: Path, tmp_path: Path, votes: bytes, reason: str
) -> None:
    (tmp_path / "votes.csv").write_bytes(votes)
    with pytest.raises(ConfigError, match=reason):
        run(world, tmp_path / "out", votes=str(tmp_path / "votes.csv"))
    with pytest.raises(ConfigError, match=r"nowhere\.csv"):
        run(world, tmp_path / "out", votes=str(tmp_path / "nowhere.csv"))
    assert not (tmp_path / "out").exists()


def test_names_are_those_of_the_taxonomy_that_is_given(
    world: Path, labels: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("concepts: {Charts of land: [atlas]}\naliases: {Maps: Charts of land}")
    (tmp_path / "votes.csv").write_bytes(write_votes([vote("ann", "Maps/Atlas"), VOTES[3]]))
    changes = {"votes": str(tmp_path / "votes.csv"), "taxonomy": str(own)}
    manifest = run(world, tmp_path / "out", **changes)
    assert manifest.counts["global_concepts"] == {"Charts of land": 1}
    assert manifest.counts["votes"]["refused"] == {"outside the taxonomy or contradictory": 1}
    (warning,) = manifest.warnings
    assert warning.startswith("1 votes for 1 clusters have names that are not in the taxonomy")


def test_interrupted_and_run_again_gives_the_same_bytes(
    world: Path, labels: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels"
    with interrupted("labelling part"):
        run(world, out)
    assert not (out / "manifest.json").exists()
    with counted() as stages:
        run(world, out)
    assert stages["labelling part"][0] >= 1
    assert content(out) == content(labels)
