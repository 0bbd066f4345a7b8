"""Assemble as a whole: shards that others read, an index that finds every pair, killed and rerun."""

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.assemble import config as assemble_config
from biovl.assemble import plots
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.assemble.tables_command import tables_of
from biovl.core import config as configs
from biovl.core import tombstones
from biovl.core.artifacts import Manifest, fingerprint
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.shards import read_pair
from biovl.enrich.config import EnrichConfig
from biovl.enrich.job import enrich
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from biovl.models.clip_tokens import clip_token_counts
from tests.enrich.eutils import Eutils, article
from tests.runtime.folders import content, nothing_done_to
from tests.runtime.interrupting import counted, interrupted

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def _hardly_any_plots() -> Iterator[None]:
    """Draw a corpus's labels alone: all plots would be a third of what it takes here."""

    def draw(stats: Mapping[str, Any]) -> dict[str, bytes]:
        return {f"{column}.png": plots.labels(stats, column) for column in stats["labels"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "plots", draw)
        yield


@pytest.fixture(scope="module")
def figures(
    sample_packages: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("assemble") / "figures"
    source = {"name": "packages", "path": str(sample_packages)}
    settings = {"source": source, "out": str(out), "packages_per_unit": 4}
    harvest(configs.build(HarvestConfig, settings))
    return out


def settings(figures: Path, out: Path, **changes: object) -> dict[str, object]:
    return {
        **configs.recipe_settings(assemble_config.small()),
        "split.val_permyriad": 2_000,
        "split.test_permyriad": 2_000,
        "shard.pairs": 10,
        "figures": str(figures),
        "out": str(out),
        **changes,
    }


RULES = list(map(configs.to_plain, assemble_config.DEFAULT_RULES))


def run(figures: Path, out: Path, **changes: object) -> Manifest:
    return assemble(configs.build(AssembleConfig, settings(figures, out, **changes)))


@pytest.fixture(scope="module")
def corpus(figures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "corpus"
    run(figures, out)
    return out


def index(corpus: Path) -> list[dict]:
    return pq.read_table(corpus / "index.parquet").to_pylist()


def harvested(figures: Path) -> dict[str, dict]:
    parts = sorted((figures / "figures").glob("*.parquet"))
    return {row["figure_id"]: row for part in parts for row in pq.read_table(part).to_pylist()}


def test_every_figure_is_a_pair_or_dropped_for_a_reason(corpus: Path, figures: Path) -> None:
    counts = json.loads((corpus / "manifest.json").read_text())["counts"]
    pairs = index(corpus)
    assert counts["figures"]["seen"] == len(harvested(figures))
    assert counts["figures"]["kept"] == len(pairs) == sum(counts["pairs"].values())
    assert counts["figures"]["seen"] == len(pairs) + sum(counts["dropped"].values())
    assert {"same file as another pair", "looks like another pair"} <= counts["dropped"].keys()
    for split, count in counts["pairs"].items():
        assert sum(pair["split"] == split for pair in pairs) == count


def test_every_figure_left_out_says_why_and_a_duplicate_what_it_repeats(
    corpus: Path, figures: Path
) -> None:
    dropped = pq.read_table(corpus / "dropped.parquet").to_pylist()
    kept = {pair["pair_id"] for pair in index(corpus)}
    published = harvested(figures)
    assert {row["figure_id"] for row in dropped} == published.keys() - kept
    repeats = [row for row in dropped if row["duplicate_of"]]
    assert {row["dropped_by"] for row in repeats} == {
        "same file as another pair",
        "looks like another pair",
    }
    for row in repeats:
        assert row["duplicate_of"] in kept
        same = published[row["figure_id"]]["image"] == published[row["duplicate_of"]]["image"]
        assert same == (row["dropped_by"] == "same file as another pair")


def test_every_pair_is_read_by_its_place_with_its_published_bytes(
    corpus: Path, figures: Path
) -> None:
    published = harvested(figures)
    for pair in index(corpus):
        files = read_pair(str(corpus / pair["shard"]), pair["offset"], pair["size"])
        figure = published[pair["figure_id"]]
        image = files.get("jpg") or files["png"]
        # 16 bits turn white in stock readers, and are the one PNG that is not left as published.
        if figure["image_format"] in ("jpeg", "png") and not figure["image_mode"].startswith("I"):
            assert hashlib.sha256(image).hexdigest() == pair["image_sha256"]
        with Image.open(io.BytesIO(image)) as opened:
            opened.load()
            assert sorted(opened.size) == sorted((pair["width_px"], pair["height_px"]))
        about = json.loads(files["json"])
        assert about["figure_id"] == pair["pair_id"]
        assert about["license"] == pair["license"]
        assert files["txt"].decode().replace("^", "") == figure["caption"].replace("^", "")


def test_shards_hold_what_the_index_says_and_nothing_else(corpus: Path) -> None:
    stored: dict[str, str] = {}
    for tar in sorted(corpus.glob("*/*.tar")):
        with tarfile.open(tar) as archive:
            for name in archive.getnames():
                stored[name.partition(".")[0]] = f"{tar.parent.name}/{tar.name}"
    assert stored == {pair["pair_id"]: pair["shard"] for pair in index(corpus)}
    for tar in corpus.glob("*/*.tar"):
        with tarfile.open(tar) as archive:
            assert len({name.partition(".")[0] for name in archive.getnames()}) <= 10


def test_no_article_is_in_two_splits_and_no_picture_is_there_twice(corpus: Path) -> None:
    pairs = index(corpus)
    splits: dict[str, set[str]] = {}
    for pair in pairs:
        splits.setdefault(pair["article_id"], set()).add(pair["split"])
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "val", "test"} == set.union(*splits.values())
    hashes = [pair["image_sha256"] for pair in pairs]
    assert len(set(hashes)) == len(hashes)


def test_a_finished_corpus_is_left_alone_and_a_changed_one_refused(
    corpus: Path, figures: Path
) -> None:
    with nothing_done_to(corpus):
        run(figures, corpus)
    with pytest.raises(ArtifactError, match="seed: 0 -> 1"):
        run(figures, corpus, seed=1)


def test_another_seed_is_another_order_of_the_same_pairs(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    run(figures, tmp_path / "c", seed=1)
    first = {
        pair["pair_id"]: (pair["split"], pair["shard"], pair["offset"]) for pair in index(corpus)
    }
    second = {
        pair["pair_id"]: (pair["split"], pair["shard"], pair["offset"])
        for pair in index(tmp_path / "c")
    }
    assert first.keys() == second.keys()
    assert {k: v[0] for k, v in first.items()} == {k: v[0] for k, v in second.items()}
    assert first != second


def test_training_copies_are_small_rgb_jpegs(figures: Path, tmp_path: Path) -> None:
    run(figures, tmp_path / "c", **{"image.short_side_px": 64})
    for tar in (tmp_path / "c").glob("*/*.tar"):
        with tarfile.open(tar) as archive:
            for member in archive:
                if member.name.endswith((".jpg", ".png")):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    with Image.open(stream) as image:
                        assert (image.format, image.mode) == ("JPEG", "RGB")
                        assert min(image.size) <= 64


def test_texts_with_mentions_are_longer_and_begin_with_the_caption(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    run(figures, tmp_path / "c", text="caption+mentions")
    longer = 0
    for pair in index(tmp_path / "c"):
        files = read_pair(str(tmp_path / "c" / pair["shard"]), pair["offset"], pair["size"])
        about = json.loads(files["json"])
        text = files["txt"].decode()
        assert len(text) == pair["text_chars"]
        assert all(mention in text for mention in about["mentions"])
        longer += pair["text_chars"] > pair["caption_chars"]
    assert longer > 5


def test_columns_beside_the_figures_can_decide(figures: Path, tmp_path: Path) -> None:
    columns = tmp_path / "columns"
    columns.mkdir()
    for part in sorted((figures / "figures").glob("*.parquet")):
        rows = pq.read_metadata(part).num_rows
        score = pa.array(np.arange(rows) % 2, pa.float32())
        pq.write_table(pa.table({"sharpness": score}), columns / part.name)
    made_from = {"name": "figures", "uri": "x", "fingerprint": fingerprint(str(figures))}
    manifest = {"kind": "columns", "config": {}, "counts": {}, "inputs": [made_from], "code": "t"}
    (columns / "manifest.json").write_text(json.dumps(manifest))
    rules = [
        {"name": "usable_image"},
        {"name": "not_retracted"},
        {"name": "value_between", "column": "sharpness", "minimum": 1},
    ]
    run(figures, tmp_path / "c", columns=[str(columns)], rules=rules)
    pairs = index(tmp_path / "c")
    assert pairs
    assert all(pair["sharpness"] == 1 for pair in pairs)
    made_from["fingerprint"] = "0" * 64
    (columns / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"0{12}"):
        run(figures, tmp_path / "c2", columns=[str(columns)], rules=rules)
    (columns / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="manifest"):
        run(figures, tmp_path / "c2", columns=[str(columns)], rules=rules)


def test_long_texts_of_columns_are_the_text_or_stand_beside_it(
    figures: Path, tmp_path: Path
) -> None:
    columns = tmp_path / "columns"
    columns.mkdir()
    for part in sorted((figures / "figures").glob("*.parquet")):
        ids = pq.read_table(part, columns=["figure_id"])["figure_id"].to_pylist()
        told = [f"context of {name}" if number % 2 else None for number, name in enumerate(ids)]
        texts = {"context_caption": pa.array(told, pa.string())}
        pq.write_table(pa.table(texts), columns / part.name)
    made_from = {"name": "figures", "uri": "x", "fingerprint": fingerprint(str(figures))}
    manifest = {"kind": "columns", "config": {}, "counts": {}, "inputs": [made_from], "code": "t"}
    (columns / "manifest.json").write_text(json.dumps(manifest))
    for text in ("caption", "context_caption"):
        out = tmp_path / text
        run(figures, out, columns=[str(columns)], text=text)
        longer = 0
        for pair in index(out):
            files = read_pair(str(out / pair["shard"]), pair["offset"], pair["size"])
            about, written = json.loads(files["json"]), files["txt"].decode()
            told = about["context_caption"]
            assert told in (None, f"context of {pair['figure_id']}")
            wanted = told if told and text == "context_caption" else about["caption"]
            assert written.replace("^", "") == wanted
            assert len(written) == pair["text_chars"]
            assert "context_caption" not in pair
            longer += told is not None
        assert longer > 2
    with pytest.raises(ConfigError, match="long_caption"):
        run(figures, tmp_path / "c", columns=[str(columns)], text="long_caption")


def test_what_pubmed_says_of_articles_decides_and_is_in_the_index(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    known = {pair["pmid"] for pair in index(corpus)} - {None}
    review, *others = sorted(known)
    with Eutils() as service:
        service.add(article(int(review), types=["Review"]))
        for pmid in others:
            service.add(article(int(pmid), mesh=[("Kidney", "D007668", "N")]))
        asked = {"articles": str(figures), "out": str(tmp_path / "entrez")}
        asked |= {"entrez.url": service.url, "entrez.requests_per_s": 1000, "citations": False}
        enrich(configs.build(EnrichConfig, asked), progress=io.StringIO())
    rule = {"name": "none_of", "column": "publication_types", "forbidden": ["Review"]}
    said = run(figures, tmp_path / "c", columns=[str(tmp_path / "entrez")], rules=[*RULES, rule])
    assert said.counts["dropped"]["publication_types with Review"] > 0
    pairs = [pair for pair in index(tmp_path / "c") if pair["pmid"] in known]
    assert {pair["pmid"] for pair in pairs} <= set(others)
    assert {tuple(pair["mesh_terms"]) for pair in pairs} == {("Kidney",)}
    assert {pair["entrez_status"] for pair in pairs} == {"ok"}


CONCEPTS = (["Plots and Charts"], ["Plots and Charts", "Microscopy"], ["Maps"], None)


@pytest.fixture(scope="module")
def labelled(figures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns of labels: by row 3 of 6 plots, 1 plots and microscopy, 1 maps, 1 unlabelled."""
    columns = tmp_path_factory.mktemp("labelled") / "columns"
    columns.mkdir()
    start = 0
    for part in sorted((figures / "figures").glob("*.parquet")):
        rows = pq.read_metadata(part).num_rows
        concepts = [CONCEPTS[max(0, (start + row) % 6 - 2)] for row in range(rows)]
        start += rows
        column = pa.array(concepts, pa.list_(pa.string()))
        pq.write_table(pa.table({"global_concepts": column}), columns / part.name)
    made_from = {"name": "table", "uri": "x", "fingerprint": fingerprint(str(figures))}
    manifest = {"kind": "columns", "config": {}, "counts": {}, "inputs": [made_from], "code": "t"}
    (columns / "manifest.json").write_text(json.dumps(manifest))
    return columns


def test_pairs_of_wanted_concepts_are_kept_and_counted(
    figures: Path, labelled: Path, tmp_path: Path
) -> None:
    rules = configs.recipe_settings(assemble_config.concept_filtered())["rules"]
    manifest = run(figures, tmp_path / "c", columns=[str(labelled)], rules=rules, seed=1)
    pairs = index(tmp_path / "c")
    found = [pair["global_concepts"] for pair in pairs]
    assert {tuple(concepts) for concepts in found} == {
        ("Plots and Charts", "Microscopy"),
        ("Maps",),
    }
    counted = manifest.counts["labels"]["global_concepts"]
    assert counted["Plots and Charts"]["pairs"] == sum(len(concepts) == 2 for concepts in found)
    assert counted["unlabelled"]["pairs"] == 0 < counted["unlabelled"]["figures"]
    every = sum(counted[name]["figures"] for name in ("Plots and Charts", "Maps", "unlabelled"))
    assert every == manifest.counts["figures"]["seen"]
    assert sum("global_concepts without" in reason for reason in manifest.counts["dropped"]) == 1
    assert (tmp_path / "c" / "plots" / "global_concepts.png").stat().st_size > 5_000


def as_published(recipe: str, figures: Path, out: Path, **changes: object) -> Manifest:
    settings = configs.recipe_settings(assemble_config.AS_PUBLISHED[recipe]())
    changed = {**settings, "figures": str(figures), "out": str(out), **changes}
    return assemble(configs.build(AssembleConfig, changed))


def test_a_corpus_as_published_keeps_every_jpeg_with_a_caption_and_says_what_that_costs(
    figures: Path, tmp_path: Path
) -> None:
    manifest = as_published("biomedica_24m", figures, tmp_path / "c")
    published = harvested(figures)
    kept = {
        name: row
        for name, row in published.items()
        if row["defect"] is None and row["image_format"] == "jpeg" and row["caption"]
    }
    assert {pair["pair_id"] for pair in index(tmp_path / "c")} == kept.keys()
    assert manifest.counts["pairs"] == {"train": len(kept), "val": 0, "test": 0}
    report = manifest.counts["not_applied"]
    files = [row["image"] for row in kept.values()]
    steps = report["default_steps"]
    assert steps["same file as another pair"] == len(files) - len(set(files)) > 0
    assert steps["looks like another pair"] > 0
    assert json.loads((tmp_path / "c" / "stats.json").read_text())["not_applied"] == report
    assert "Steps that were not applied" in (tmp_path / "c" / "README.md").read_text()
    assert any("retracted=keep" in warning for warning in manifest.warnings)


def test_lengths_are_those_of_the_harvest_counted_text_by_text(
    figures: Path, tmp_path: Path
) -> None:
    run(figures, tmp_path / "c", full_text_tokens=True)
    lengths = json.loads((tmp_path / "c" / "stats.json").read_text())["lengths"]
    pairs = index(tmp_path / "c")
    paragraphs = [
        paragraph
        for pair in pairs
        for paragraph in json.loads(
            read_pair(str(tmp_path / "c" / pair["shard"]), pair["offset"], pair["size"])["json"]
        )["mentions"]
    ]
    parts = (figures / "articles").glob("*.parquet")
    articles = [row for part in parts for row in pq.read_table(part).to_pylist()]
    with_pair = {pair["source_uri"] for pair in pairs}
    texts = [row["full_text"] for row in articles if row["source_uri"] in with_pair]
    texts = [text for text in texts if text]
    for name, found in (("reference", paragraphs), ("full_text", texts)):
        tokens = clip_token_counts(found)
        of_tokens, of_chars = lengths[f"{name}_tokens"], lengths[f"{name}_chars"]
        assert of_tokens["count"] == of_chars["count"] == len(found) > 5
        assert of_tokens["total"] == tokens.sum()
        assert of_tokens["median"] == np.median(tokens)
        assert of_tokens["max"] == tokens.max()
    assert lengths["full_text_chars"]["total"] == sum(map(len, texts))
    assert "## Table 7: lengths" in tables_of(str(tmp_path / "c"))


def test_pmc_15m_as_published_skips_articles_with_a_figure_without_a_caption(
    figures: Path, tmp_path: Path
) -> None:
    manifest = as_published("pmc_15m", figures, tmp_path / "c")
    published = harvested(figures)
    bare = {row["source_uri"] for row in published.values() if not row["caption"]}
    assert bare
    found = {published[pair["pair_id"]]["source_uri"] for pair in index(tmp_path / "c")}
    assert not found & bare
    assert manifest.counts["dropped"]["article has a figure without a caption"] > 0


def test_the_filtered_corpus_of_the_paper_has_the_listed_topics_alone(
    figures: Path, labelled: Path, tmp_path: Path
) -> None:
    as_published("biomedica_6m", figures, tmp_path / "c", columns=[str(labelled)])
    found = {tuple(pair["global_concepts"]) for pair in index(tmp_path / "c")}
    assert found == {("Maps",)}


def test_concepts_with_too_many_pairs_are_capped_after_all_rules(
    figures: Path, labelled: Path, tmp_path: Path
) -> None:
    settings = {"columns": [str(labelled)], "balance.cap": 6}
    manifest = run(figures, tmp_path / "c", **settings)
    counted = manifest.counts["labels"]["global_concepts"]
    assert max(counts["pairs"] for counts in counted.values()) == 6
    for name, counts in counted.items():
        assert counts["pairs"] == min(6, counts["eligible"]), name
    left_out = manifest.counts["dropped"]["over-represented: Plots and Charts"]
    assert left_out == counted["Plots and Charts"]["eligible"] - 6
    assert manifest.notes["cap"] == 6


def report_of_leaks(report: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Write a report that lists leaks; return its manifest."""
    (report / "leaks" / "m").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), report / "leaks" / "m" / "t.parquet")
    manifest = {"kind": "report", "config": {}, "counts": {}, "inputs": [], "code": "t"}
    manifest["files"] = {"leaks/m/t.parquet": {"rows": len(rows)}}
    (report / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def test_near_duplicates_of_a_benchmark_are_left_out(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    near = [pair["pair_id"] for pair in index(corpus)[:3]]
    rows = [
        {"id": "a", "corpus_id": near[0], "by": "same file", "closeness": 1.0},
        {"id": "b", "corpus_id": near[1], "by": "embedding", "closeness": 0.99},
        {"id": "b", "corpus_id": near[2], "by": "embedding", "closeness": 0.985},
    ]
    report = tmp_path / "report"
    manifest = report_of_leaks(report, rows)

    def left(out: str, **changes: object) -> set[str]:
        run(figures, tmp_path / out, leaks=[str(report)], **changes)
        return {pair["pair_id"] for pair in index(tmp_path / out)} & set(near)

    assert left("by_look") == set(near[1:])
    assert left("by_vector", leak_similarity=0.99) == {near[2]}
    manifest["files"] = {}
    (report / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="index=DIR"):
        left("none")


def test_duplicates_do_not_take_the_place_of_what_is_in_a_benchmark(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    # The report lists the figures of its corpus: one of each picture.
    dropped = pq.read_table(corpus / "dropped.parquet").to_pylist()
    repeats = {row["figure_id"]: row["duplicate_of"] for row in dropped if row["duplicate_of"]}
    listed = [
        {"id": name, "corpus_id": name, "by": "same file", "closeness": 1.0}
        for name in sorted(set(repeats.values()))
    ]
    report_of_leaks(tmp_path / "report", listed)
    manifest = run(figures, tmp_path / "c", leaks=[str(tmp_path / "report")])
    found = {pair["pair_id"] for pair in index(tmp_path / "c")}
    before = {pair["pair_id"] for pair in index(corpus)}
    assert found == before - set(repeats.values())
    leaked = manifest.counts["dropped"]["near duplicate of a benchmark's image"]
    assert leaked == len(listed) + len(repeats)


def test_balance_by_what_is_no_column_of_labels_is_refused(
    figures: Path, labelled: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"balance\.column .*columns"):
        run(figures, tmp_path / "c", **{"balance.cap": 6})
    with pytest.raises(ConfigError, match=r"balance\.column 'width_px'"):
        run(figures, tmp_path / "c", **{"balance.cap": 6, "balance.column": "width_px"})
    with pytest.raises(ConfigError, match=r"cap.*target"):
        run(figures, tmp_path / "c", **{"balance.cap": 6, "balance.target": 60})
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rules": [{"name": "min_sides", "px": 3}]}, "'min_sides'.*min_side"),
        ({"rules": [{"name": "min_side"}]}, "px: "),
        ({"rules+": "value_between(beauty, 1)"}, "'beauty'"),
        ({"rules": [{"name": "min_side", "px": 3}]}, "not_retracted.*retracted=keep"),
        ({"image.short_side_px": 0}, r"short_side_px: .*got 0\b"),
        ({"seed": -1}, r"seed: .*got -1\b"),
        ({"split.val_permyriad": 9_000}, "split.*val and test"),
    ],
)
def test_a_wrong_configuration_stops_before_anything_is_done(
    figures: Path, tmp_path: Path, changes: dict, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        run(figures, tmp_path / "c", **changes)
    assert not (tmp_path / "c").exists()


def test_unpublished_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        run(tmp_path, tmp_path / "c")


def harvest_of(packages: Path, out: Path) -> Path:
    source = {"name": "packages", "path": str(packages)}
    harvest(configs.build(HarvestConfig, {"source": source, "out": str(out)}))
    return out


@pytest.mark.parametrize("number", [0, -1])
def test_a_truncated_part_of_the_figures_is_named(
    number: int, figures: Path, tmp_path: Path
) -> None:
    shutil.copytree(figures, tmp_path / "figures")
    path = sorted((tmp_path / "figures" / "figures").iterdir())[number]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArtifactError, match=f"{re.escape(str(path))} is truncated or corrupt"):
        run(tmp_path / "figures", tmp_path / "corpus")


def test_a_corpus_of_a_harvest_and_its_update_is_that_of_what_is_there_now(
    ray_session: None, put_packages: Callable[[Path, int], None], tmp_path: Path
) -> None:
    put_packages(tmp_path / "all", 9)
    *same, changed, gone, new = sorted((tmp_path / "all").iterdir())
    for state, names in {"before": [*same, changed, gone], "now": [*same, changed, new]}.items():
        (tmp_path / state).mkdir()
        for package in names:
            shutil.copytree(package, tmp_path / state / package.name) if package.is_dir() else (
                shutil.copy(package, tmp_path / state / package.name)
            )
    (tmp_path / "change").mkdir()
    for package in (changed, new):
        shutil.move(tmp_path / "now" / package.name, tmp_path / "change" / package.name)
    before = harvest_of(tmp_path / "before", tmp_path / "h0")
    update = harvest_of(tmp_path / "change", tmp_path / "h1")
    stones = [
        {"source_uri": row["source_uri"], "reason": reason, "article_id": row["article_id"],
         "version": "1", "snapshot": "2026-11-02"}
        for row in pq.read_table(sorted((before / "articles").glob("*.parquet"))).to_pylist()
        for name, reason in ((changed.name, "replaced"), (gone.name, "gone"))
        if name.partition(".")[0] in row["source_uri"]
    ]  # fmt: skip
    assert len(stones) == 2
    pq.write_table(pa.Table.from_pylist(stones, tombstones.SCHEMA), update / tombstones.FILE)
    shutil.copytree(tmp_path / "change", tmp_path / "now", dirs_exist_ok=True)
    whole = harvest_of(tmp_path / "now", tmp_path / "h2")

    merged = run(before, tmp_path / "c1", updates=[str(update)])
    run(whole, tmp_path / "c2")
    read = {
        name: {
            pair["pair_id"]: read_pair(str(tmp_path / name / pair["shard"]), pair["offset"], pair["size"])["txt"]
            for pair in index(tmp_path / name)
        }
        for name in ("c1", "c2")
    }  # fmt: skip
    assert read["c1"] == read["c2"]
    assert {name for name in merged.counts["dropped"] if name.startswith("tombstone")} == {
        "tombstone: gone",
        "tombstone: replaced",
    }
    assert merged.counts["figures"]["seen"] == sum(merged.counts["dropped"].values()) + sum(
        merged.counts["pairs"].values()
    )


def test_interrupted_and_run_again_gives_the_same_bytes(
    corpus: Path, figures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    config = configs.build(AssembleConfig, settings(figures, out))
    for stage in ("encoding part", "writing shard"):
        with interrupted(stage):
            assemble(config)
        assert not (out / "manifest.json").exists()
    with counted() as stages:
        assemble(config)
    assert stages["encoding part"][0] == stages["encoding part"][1]
    assert stages["writing shard"][0] >= 1
    assert content(out) == content(corpus)
    assert fingerprint(str(out)) == fingerprint(str(corpus))
