"""From images whose kinds are known to labels and a corpus filtered by them, job after job."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl import config as configs
from biovl import recipes
from biovl.annotating.config import AnnotateConfig
from biovl.clustering.config import ClusterConfig
from biovl.curation.config import AssembleConfig
from biovl.jobs.annotate import annotate
from biovl.jobs.assemble import assemble
from biovl.jobs.cluster import cluster
from biovl.jobs.harvest import HarvestConfig, harvest
from biovl.jobs.resolve import resolve
from biovl.labelling.config import ResolveConfig
from biovl.labelling.votes import Vote, write_votes
from biovl.sample.kinds import CONCEPTS, kind_of, make_kinds
from tests.annotators.small_models import save_dinov2

pytestmark = pytest.mark.ray

KINDS = ("histology", "fluorescence", "electrocardiogram", "ultrasound", "survival")
EACH = 12


def settings(recipe: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**recipe, **{name.replace("__", "."): value for name, value in values.items()}}


@pytest.fixture(scope="module")
def story(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Harvest, annotate with an untrained DINOv2, and cluster."""
    folder = tmp_path_factory.mktemp("concepts")
    weights = save_dinov2(folder / "dinov2")
    table = make_kinds(folder / "kinds", each=EACH, kinds=KINDS)
    harvest(
        configs.build(
            HarvestConfig,
            settings(
                recipes.table(),
                source={"name": "table", "path": str(table)},
                out=str(folder / "figures"),
                packages_per_unit=1,
            ),
        )
    )
    annotate(
        configs.build(
            AnnotateConfig,
            configs.nested(
                settings(recipes.dinov2(), table=str(folder / "figures"), weights=str(weights))
            ),
        )
    )
    cluster(
        configs.build(
            ClusterConfig,
            settings(
                recipes.CLUSTER["default"](),
                table=str(folder / "figures"),
                out=str(folder / "concepts"),
                components=8,
                clusters=3 * len(KINDS),
            ),
        )
    )
    return folder


def column(folder: Path, name: str) -> list[Any]:
    tables = [pq.read_table(part, columns=[name]) for part in sorted(folder.glob("part-*.parquet"))]
    found: list[Any] = pa.concat_tables(tables)[name].to_pylist()
    return found


def kinds(story: Path) -> list[str]:
    return [kind_of(name) for name in column(story / "figures" / "figures", "figure_id")]


def votes(story: Path) -> Path:
    """Return a file with a vote for every cluster, for the concepts of most of its images."""
    by_cluster: dict[int, Counter[str]] = {}
    members = column(story / "concepts" / "columns", "cluster_id")
    for number, kind in zip(members, kinds(story), strict=True):
        by_cluster.setdefault(number, Counter())[kind] += 1
    keys = pq.read_table(story / "concepts" / "clusters.parquet").to_pylist()
    made = [
        Vote(
            cluster_id=row["cluster_id"],
            key=row["key"],
            reviewer="ann",
            panel_type="single",
            panel_subtype=None,
            global_concepts=(CONCEPTS[by_cluster[row["cluster_id"]].most_common(1)[0][0]][0],),
            local_concepts=(CONCEPTS[by_cluster[row["cluster_id"]].most_common(1)[0][0]][1],),
            created="2025-01-01T00:00:00Z",
        )
        for row in keys
    ]
    (story / "votes.csv").write_bytes(write_votes(made))
    return story / "votes.csv"


@pytest.fixture(scope="module")
def labels(story: Path) -> Path:
    out = story / "labels"
    given = {"concepts": str(story / "concepts"), "votes": str(votes(story)), "out": str(out)}
    resolve(configs.build(ResolveConfig, {**recipes.RESOLVE["default"](), **given}))
    return out


def test_kinds_that_were_planted_end_in_pure_clusters(story: Path) -> None:
    found: dict[int, Counter[str]] = {}
    members = column(story / "concepts" / "columns", "cluster_id")
    for number, kind in zip(members, kinds(story), strict=True):
        found.setdefault(number, Counter())[kind] += 1
    purity = sum(max(counts.values()) for counts in found.values()) / (EACH * len(KINDS))
    assert purity >= 0.9


def test_images_inherit_the_labels_of_their_clusters(story: Path, labels: Path) -> None:
    given = column(labels, "local_concepts")
    right = sum(
        CONCEPTS[kind][1] in concepts for kind, concepts in zip(kinds(story), given, strict=True)
    )
    assert right >= 0.9 * EACH * len(KINDS)
    assert set(column(labels, "label_source")) == {"votes"}


def test_a_corpus_is_filtered_and_balanced_by_the_labels(story: Path, labels: Path) -> None:
    def corpus(name: str, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        given = {
            **recipes.ASSEMBLE[name](),
            "figures": str(story / "figures"),
            "columns": [str(labels)],
            "out": str(story / name),
            "duplicates.near": False,
            **changes,
        }
        counts = assemble(configs.build(AssembleConfig, configs.nested(given))).counts
        return dict(counts), pq.read_table(story / name / "index.parquet").to_pylist()

    counts, pairs = corpus("concept_filtered")
    topics = Counter(kind for pair in pairs for kind in pair["global_concepts"])
    assert "Plots and Charts" not in topics
    assert topics["Microscopy"] == counts["labels"]["global_concepts"]["Microscopy"]["pairs"] > 0
    cap = 7
    _, pairs = corpus("concept_balanced", **{"balance.target": None, "balance.cap": cap})
    topics = Counter(kind for pair in pairs for kind in pair["global_concepts"])
    assert set(topics.values()) == {cap}
    stats = json.loads((story / "concept_balanced" / "stats.json").read_text())
    assert stats["labels"]["global_concepts"]["Microscopy"]["pairs"] == cap
