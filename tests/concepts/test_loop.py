"""From images whose kinds are known to labels and a corpus filtered by them, job after job."""

import asyncio
import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.annotate import config as annotate_config
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.job import annotate
from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.concepts import cluster_config, resolve_config
from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.cluster_job import cluster
from biovl.concepts.resolve_config import ResolveConfig
from biovl.concepts.resolve_job import resolve
from biovl.concepts.votes import ReviewVote, write_votes
from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.shards import read_pair
from biovl.enrich.config import EnrichConfig
from biovl.enrich.job import enrich
from biovl.harvest import config as harvest_config
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from biovl.index.config import IndexConfig
from biovl.index.job import index
from biovl.sample.kinds import CONCEPTS, kind_of, make_kinds
from serve.search.api import http_api
from serve.search.local import LocalEngine
from serve.search.settings import Settings
from tests.annotate.small_models import save_dinov2
from tests.enrich.eutils import Eutils, article
from tests.serve.search.published import a_picture, publish_model

pytestmark = pytest.mark.ray

KINDS = ("histology", "fluorescence", "electrocardiogram", "ultrasound", "survival")
EACH = 12
MESH = {"ultrasound": "Ultrasonography", "survival": "Survival Analysis"}


def settings(recipe: Any, **values: Any) -> dict[str, Any]:
    return {
        **configs.recipe_settings(recipe),
        **{name.replace("__", "."): value for name, value in values.items()},
    }


@pytest.fixture(scope="module")
def story(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Harvest, annotate with an untrained DINOv2, and cluster."""
    folder = tmp_path_factory.mktemp("concepts")
    weights = save_dinov2(folder / "dinov2")
    table = make_kinds(folder / "kinds", each=EACH, kinds=KINDS)
    with_pmids(table)
    harvest(
        configs.build(
            HarvestConfig,
            settings(
                harvest_config.table(),
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
                settings(
                    annotate_config.dinov2(), table=str(folder / "figures"), weights=str(weights)
                )
            ),
        )
    )
    cluster(
        configs.build(
            ClusterConfig,
            settings(
                cluster_config.RECIPES["default"](),
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


def with_pmids(table: Path) -> None:
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0], "pmid", "journal"])
        writer.writeheader()
        for number, row in enumerate(rows, start=1):
            writer.writerow({**row, "pmid": number, "journal": "Journal of Kinds"})


def votes(story: Path) -> Path:
    """Return a file with a vote for every cluster, for the concepts of most of its images."""
    by_cluster: dict[int, Counter[str]] = {}
    members = column(story / "concepts" / "columns", "cluster_id")
    for number, kind in zip(members, kinds(story), strict=True):
        by_cluster.setdefault(number, Counter())[kind] += 1
    keys = pq.read_table(story / "concepts" / "clusters.parquet").to_pylist()
    made = [
        ReviewVote(
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
    resolve(
        configs.build(
            ResolveConfig, {**configs.recipe_settings(resolve_config.RECIPES["default"]()), **given}
        )
    )
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
            **configs.recipe_settings(assemble_config.RECIPES[name]()),
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


@pytest.fixture(scope="module")
def columns(story: Path, labels: Path) -> list[Path]:
    """Return what every job that writes columns publishes of the figures."""
    figures = str(story / "figures")
    weights = str(publish_model(story / "clip"))
    for recipe in (
        {**configs.recipe_settings(annotate_config.image_type()), "weights": weights},
        configs.recipe_settings(annotate_config.context()),
    ):
        annotate(configs.build(AnnotateConfig, configs.nested({**recipe, "table": figures})))
    with Eutils() as service:
        for pmid, name in enumerate(column(story / "figures" / "articles", "article_id"), start=1):
            service.add(article(pmid, mesh=[(MESH.get(kind_of(name), "Humans"), "D1", "N")]))
        given = {"entrez.url": service.url, "entrez.requests_per_s": 1000, "citations": False}
        enrich(configs.build(EnrichConfig, {"articles": figures, **given}))
    beside = story / "figures" / "columns"
    return [
        labels,
        *(beside / name for name in ("dinov2", "image_type", "context_caption", "entrez")),
    ]


def asked_of_the_service(model: Path, at: Path) -> tuple[Any, Any]:
    """Return the filters that the service offers, and what it votes of an image."""

    async def ask() -> tuple[Any, Any]:
        set_to = Settings(model=str(model), index=str(at), proxy=True)
        engine = LocalEngine(set_to)
        await engine.start()
        local = httpx.ASGITransport(http_api(set_to, engine), client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
            facets = await client.get("/v1/facets")
            voted = await client.post("/v1/proxy", content=a_picture(), headers=IMAGE)
        await engine.close()
        return facets.json(), voted

    return asyncio.run(ask())


IMAGE = {"Content-Type": "image/png"}


def test_what_jobs_write_of_figures_arrives_in_the_filters_and_votes_of_the_service(
    story: Path, columns: list[Path]
) -> None:
    given = {"figures": str(story / "figures"), "out": str(story / "whole")}
    given |= {"columns": [str(uri) for uri in columns], "duplicates.near": False}
    assemble(
        configs.build(
            AssembleConfig,
            configs.nested(
                {**configs.recipe_settings(assemble_config.RECIPES["default"]()), **given}
            ),
        )
    )
    rows = pq.read_table(story / "whole" / "index.parquet")
    # Embeddings do not weigh down what a corpus tells of its pairs.
    assert not {"dinov2", "context_caption"} & set(rows.column_names)
    pair = rows.slice(0, 1).to_pylist()[0]
    kept = read_pair(str(story / "whole" / pair["shard"]), pair["offset"], pair["size"])
    assert json.loads(kept["json"])["context_caption"]
    model, said = story / "clip", io.StringIO()
    plain = {"model": str(model), "corpus": str(story / "whole"), "out": str(story / "index")}
    manifest = index(configs.build(IndexConfig, plain), progress=said)
    assert manifest.notes["filters_without_values"] == ["panel_subtype", "year"]
    assert "panel_subtype" in said.getvalue()

    facets, voted = asked_of_the_service(model, story / "index")
    expected = {
        "concept": Counter(
            name
            for row in rows.to_pylist()
            for name in [*row["global_concepts"], *row["local_concepts"]]
        ),
        "mesh_term": Counter(
            MESH.get(kind_of(name), "Humans") for name in rows["figure_id"].to_pylist()
        ),
        "image_type": Counter(rows["image_type"].to_pylist()),
        "panel_type": {"single": len(rows)},
        "journal": {"Journal of Kinds": len(rows)},
        "license": {"CC0-1.0": len(rows)},
    }
    for field, counts in expected.items():
        assert facets[field] == dict(counts), field
    assert {vote["name"] for vote in voted.json()["votes"]} <= set(expected["concept"])
    assert voted.json()["votes"][0]["share"] > 0


def test_a_corpus_without_labels_has_an_index_that_says_so(story: Path) -> None:
    given = {"figures": str(story / "figures"), "out": str(story / "bare")}
    assemble(
        configs.build(
            AssembleConfig,
            configs.nested(
                {**configs.recipe_settings(assemble_config.RECIPES["default"]()), **given}
            ),
        )
    )
    plain = {"model": str(story / "clip"), "corpus": str(story / "bare")}
    said = io.StringIO()
    index(configs.build(IndexConfig, {**plain, "out": str(story / "bare-index")}), progress=said)
    (line,) = [line for line in said.getvalue().splitlines() if "no filter" in line]
    for field, job in (("concept", "resolve"), ("image_type", "annotate"), ("mesh_term", "enrich")):
        assert f"{field} (columns of {job}" in line
    _, voted = asked_of_the_service(story / "clip", story / "bare-index")
    assert voted.status_code == 422
    assert "concepts" in voted.json()["detail"]
    for setting, value in (("concept_columns", ["organ"]), ("image_type_column", "organ")):
        with pytest.raises(ConfigError, match=rf"{setting}.*\borgan\b"):
            index(
                configs.build(IndexConfig, {**plain, "out": str(story / "refused"), setting: value})
            )
    assert not (story / "refused").exists()
