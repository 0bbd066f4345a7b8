"""Labels of images from labels of their clusters, or of the nearest that has some."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from biovl.concepts.blocks import Vectors, open_source, read_vectors
from biovl.concepts.clusters import Concepts, check_embedding, open_concepts
from biovl.concepts.propagation import SCHEMA, LabelledRows, Labels, labels_of, of_members, of_new
from biovl.concepts.resolution import resolve
from biovl.concepts.taxonomy import load_taxonomy
from biovl.core.errors import ArtifactError
from tests.concepts.ballots import PLOTS, vote
from tests.concepts.small_concepts import Points, write_concepts, write_embedding, write_table

# Cluster 0 shows maps, 1 PCR in several panels; 2 is tied, and nobody voted for 3.
VOTES = [
    vote("ann", "Maps/map"),
    vote("ann", "PCR", PLOTS, cluster_id=1, key="k1"),
    vote("ann", "PCR", cluster_id=2, key="k2"),
    vote("bob", "Maps", cluster_id=2, key="k2"),
]
MAPS = {
    "panel_type": "single",
    "panel_subtype": None,
    "global_concepts": ["Maps"],
    "local_concepts": ["map"],
}
SEVERAL = {
    "panel_type": "multiple",
    "panel_subtype": PLOTS,
    "global_concepts": ["PCR"],
    "local_concepts": [],
}
NONE = dict.fromkeys([*MAPS, "label_source"])


@pytest.fixture
def concepts(tmp_path: Path) -> Concepts:
    table = write_table(tmp_path / "table", [1])
    write_embedding(table, [[(0, 0)]])
    return open_concepts(str(write_concepts(tmp_path / "concepts", table, [[0]])))


def labels() -> Labels:
    return labels_of(resolve(VOTES, load_taxonomy()), 4)


def rows(labelled: LabelledRows) -> list[dict]:
    assert labelled.table.schema == SCHEMA
    found: list[dict] = labelled.table.to_pylist()
    return found


def new(tmp_path: Path, points: Points, *, name: str = "new") -> Vectors:
    table = write_table(tmp_path / name, [len(points)])
    write_embedding(table, [points])
    (vectors,) = read_vectors(open_source(str(table), None), 0, len(points))
    return vectors


def test_images_have_the_labels_of_their_cluster() -> None:
    assigned = pa.table(
        {
            "cluster_id": pa.array([1, 0, None, 2, 3], pa.int32()),
            "cluster_distance": pa.array([0.5, 9, None, 1, 2], pa.float32()),
        }
    )
    found = of_members(assigned, labels())
    assert rows(found) == [
        {"cluster_id": 1, "cluster_distance": 0.5, **SEVERAL, "label_source": "votes"},
        {"cluster_id": 0, "cluster_distance": 9, **MAPS, "label_source": "votes"},
        {"cluster_id": None, "cluster_distance": None, **NONE},
        {"cluster_id": 2, "cluster_distance": 1, **NONE},
        {"cluster_id": 3, "cluster_distance": 2, **NONE},
    ]
    assert found.unlabelled == {
        "no embedding": 1,
        "votes for its cluster are tied": 1,
        "no votes for its cluster": 1,
    }
    assert of_members(assigned.slice(0, 0), labels()).table.num_rows == 0


def test_new_images_have_the_labels_of_the_nearest_labelled_cluster(
    concepts: Concepts, tmp_path: Path
) -> None:
    # In the centre; at 3 and 4 of it; nearer to the tied cluster 2, and to 3 without votes.
    points = [(10, 0), (3, 4), "image does not decode", None, (0, 8), (10, 7)]
    vectors = new(tmp_path, points)
    found = of_new(vectors, concepts, labels(), np.full(4, 7.5, np.float32))
    assert rows(found) == [
        {"cluster_id": 1, "cluster_distance": 0, **SEVERAL, "label_source": "nearest"},
        {"cluster_id": 0, "cluster_distance": 5, **MAPS, "label_source": "nearest"},
        {"cluster_id": None, "cluster_distance": None, **NONE},
        {"cluster_id": None, "cluster_distance": None, **NONE},
        # Beyond 7.5: which cluster it is far from is told.
        {"cluster_id": 0, "cluster_distance": 8, **NONE},
        {"cluster_id": 1, "cluster_distance": 7, **SEVERAL, "label_source": "nearest"},
    ]
    assert found.unlabelled == {
        "image does not decode": 1,
        "embedding is not finite": 1,
        "too far from every labelled cluster": 1,
    }


def test_each_cluster_reaches_as_far_as_its_members_are_spread(
    concepts: Concepts, tmp_path: Path
) -> None:
    limits = concepts.limits_K(1.5, None)
    np.testing.assert_allclose(limits, [1.5, 3, 4.5, 6])
    # At 2 from each centroid.
    found = of_new(new(tmp_path, [(0, 2), (10, 2)]), concepts, labels(), limits)
    assert found.table["label_source"].to_pylist() == [None, "nearest"]
    np.testing.assert_allclose(concepts.limits_K(1.5, 0.25), [0.25] * 4)


def test_copies_of_a_clusters_only_image_are_near_it(concepts: Concepts, tmp_path: Path) -> None:
    # The others' usual 95th percentile is 2.5.
    object.__setattr__(concepts, "p95_K", np.array([0, 2, 3, 4], np.float32))
    limits = concepts.limits_K(2.0, None)
    np.testing.assert_allclose(limits, [0.5, 4, 6, 8])
    near, apart = np.float32(1e-6), 0.6
    found = of_new(new(tmp_path, [(0, near), (0, apart)]), concepts, labels(), limits)
    assert found.table["label_source"].to_pylist() == ["nearest", None]
    object.__setattr__(concepts, "p95_K", np.zeros(4, np.float32))
    found = of_new(
        new(tmp_path / "all", [(0, near)]), concepts, labels(), concepts.limits_K(2.0, None)
    )
    assert found.table["label_source"].to_pylist() == ["nearest"]


def test_clusters_of_a_few_members_reach_as_far_as_usual(concepts: Concepts) -> None:
    object.__setattr__(concepts, "sizes_K", np.array([19, 20, 20, 0]))
    np.testing.assert_allclose(concepts.limits_K(2.0, None), [5, 4, 6, 5])
    object.__setattr__(concepts, "sizes_K", np.array([1, 1, 3, 0]))
    np.testing.assert_allclose(concepts.limits_K(2.0, None), [4, 4, 4, 4])


def test_without_a_labelled_cluster_new_images_have_none(
    concepts: Concepts, tmp_path: Path
) -> None:
    tied = labels_of(resolve(VOTES[2:], load_taxonomy()), 4)
    found = of_new(new(tmp_path, [(0, 0), "too small"]), concepts, tied, np.ones(4))
    assert found.table["cluster_id"].null_count == 2
    assert found.unlabelled == {"no cluster is labelled": 1, "too small": 1}


def test_an_embedding_by_another_annotator_is_refused(concepts: Concepts, tmp_path: Path) -> None:
    same = write_embedding(write_table(tmp_path / "a", [1]), [[(0, 0)]])
    check_embedding(concepts, str(same), 3)
    other = write_embedding(write_table(tmp_path / "b", [1]), [[(0, 0)]], seed=1)
    with pytest.raises(ArtifactError, match=r"fingerprint|seed"):
        check_embedding(concepts, str(other), 3)
    with pytest.raises(ArtifactError, match=r"\b4 .*\b3\b"):
        check_embedding(concepts, str(other), 4)


def test_clusters_that_do_not_fit_together_are_refused(concepts: Concepts) -> None:
    np.save(f"{concepts.uri}/centroids.npy", np.zeros((3, 2), np.float32))
    with pytest.raises(ArtifactError, match=r"4 .* 2 .*\[3, 2\]"):
        open_concepts(concepts.uri)
