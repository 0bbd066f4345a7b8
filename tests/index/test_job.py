"""The index job as a whole: every pair found by itself, killed and rerun, from a version to the next."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from biovl.core import config as configs
from biovl.core import tombstones
from biovl.core.artifacts import Draft, Manifest, fingerprint
from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.core.folders import Folder
from biovl.core.shards import ShardWriter, read_pair
from biovl.index import units
from biovl.index.config import IndexConfig
from biovl.index.filters import FilterTable
from biovl.index.job import index
from biovl.index.metadata import MetadataTable
from biovl.index.previous import PREPARED
from biovl.index.query import Filter, Query, QueryPart
from biovl.index.search import Index
from biovl.index.vectors import VectorIndex
from biovl.index.words import Words
from biovl.models import encoder
from biovl.models.builders import open_clip
from tests.runtime.folders import content, nothing_done_to
from tests.runtime.interrupting import counted, interrupted
from tests.runtime.typed import run_command

ROOT = Path(__file__).parents[2]
VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 24}

pytestmark = pytest.mark.ray


def save_model(folder: Path, seed: int = 1) -> Path:
    torch.manual_seed(seed)
    settings = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
    built = open_clip.build(configs.build(open_clip.Config, settings))
    draft = Draft.begin(str(folder), "model", {"seed": seed})
    encoder.save(folder, built, built.model.state_dict())
    draft.publish(Manifest(kind="model", config={"seed": seed}, counts={}))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "model")


def settings(model: Path | str, corpus: Path | str, out: Path | str, **changes: object) -> dict:
    whole = {"model": str(model), "corpus": str(corpus), "out": str(out), "pairs_per_unit": 20}
    return {**whole, "rows_per_part": 32, "recall.queries": 40, "batch": 8, **changes}


def run(model: Path, corpus: Path, out: Path, **changes: object) -> Manifest:
    values = settings(model, corpus, out, **changes)
    return index(configs.build(IndexConfig, values), progress=io.StringIO())


@pytest.fixture(scope="module")
def built(
    model: Path, sample_corpus: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("index") / "index"
    run(model, sample_corpus, out)
    return out


def pairs_of(corpus: Path) -> list[dict]:
    return pq.read_table(corpus / "index.parquet").to_pylist()


def manifest_of(folder: Path) -> dict:
    found: dict = json.loads((folder / "manifest.json").read_text())
    return found


def stored(corpus: Path, pair: dict) -> tuple[bytes, str]:
    files = read_pair(str(corpus / pair["shard"]), pair["offset"], pair["size"])
    return files.get("jpg") or files["png"], files["txt"].decode()


def test_rows_are_the_pairs_of_the_corpus_in_order_with_the_vectors_of_their_files(
    built: Path, model: Path, sample_corpus: Path
) -> None:
    table = MetadataTable.open(built)
    pairs = pairs_of(sample_corpus)
    rows = table.rows(range(len(table)))
    assert [row["figure_id"] for row in rows] == [pair["pair_id"] for pair in pairs]
    assert [row["image_sha256"] for row in rows] == [pair["image_sha256"] for pair in pairs]
    whole = encoder.load(str(model))
    files = [stored(sample_corpus, pair) for pair in pairs]
    for name, expected in (
        ("images", whole.embed_images([image for image, _ in files])),
        ("captions", whole.embed_texts([text for _, text in files])),
    ):
        found = np.load(built / f"{name}.f16.npy", mmap_mode="r")
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, expected, atol=1e-3)
        nearest = VectorIndex.open(built / f"{name}.faiss")
        scores, _ = nearest.search(expected, 3)
        largest = -np.sort(-(expected @ found.astype(np.float32).T), axis=1)[:, :3]
        np.testing.assert_allclose(scores, largest, atol=1e-5)


def test_a_model_that_is_replaced_before_a_worker_loads_it_is_an_error(
    sample_corpus: Path, ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out, plan = save_model(tmp_path / "model"), tmp_path / "index", units.plan

    def replace_model(config: IndexConfig) -> dict[str, int]:
        shutil.rmtree(model)
        save_model(model, seed=2)
        return plan(config)

    monkeypatch.setattr(units, "plan", replace_model)
    expected = fingerprint(str(model))
    with pytest.raises(ArtifactError, match=f"model was replaced .*expected {expected[:12]}"):
        run(model, sample_corpus, out)
    # Nothing was embedded: the same command takes the new model.
    assert run(model, sample_corpus, out).inputs[0].fingerprint == fingerprint(str(model))


def test_thumbnails_show_their_figure(built: Path, sample_corpus: Path) -> None:
    data = (built / "thumbnails.bin").read_bytes()
    table = MetadataTable.open(built)
    ends = []
    for pair in pairs_of(sample_corpus)[::7]:
        (row,) = table.rows([table.row_of(pair["pair_id"]) or 0])
        start, size = row["thumbnail_offset"], row["thumbnail_size"]
        small = Image.open(io.BytesIO(data[start : start + size]))
        large = Image.open(io.BytesIO(stored(sample_corpus, pair)[0])).convert("RGB")
        assert (small.format, max(small.size)) == ("JPEG", min(256, max(large.size)))
        again = np.asarray(large.resize(small.size), float)
        assert np.abs(np.asarray(small, float) - again).mean() < 8
        ends.append(start + size)
    assert max(ends) <= len(data)


def test_the_manifest_counts_every_pair_and_says_what_was_measured(
    built: Path, model: Path, sample_corpus: Path
) -> None:
    said = manifest_of(built)
    pairs = pairs_of(sample_corpus)
    counts, notes = said["counts"], said["notes"]
    assert counts["pairs"] == counts["rows"] == counts["embedded"] == len(pairs)
    assert counts["left_out"] == {}
    assert sum(counts["license_groups"].values()) == len(pairs)
    assert notes["rows"] == len(pairs)
    assert notes["dim"] == 16
    assert notes["factories"] == {"images": "SQfp16", "captions": "SQfp16"}
    exact = {"image": 1.0, "text": 1.0}
    assert notes["recall"] == {"images": exact, "captions": exact}
    half = 20  # of recall.queries
    assert (notes["queries"], notes["queries_chosen_with"]) == (half, half)
    # All found of so many: Wilson's interval ends at one and begins at n / (n + z²).
    low, high = notes["recall_intervals"]["images"]["text"]
    assert (low, high) == (pytest.approx(half / (half + 1.96**2), abs=1e-3), 1.0)
    of = {name: about["size_bytes"] for name, about in said["files"].items()}
    weighs = notes["bytes"]
    assert weighs["vectors"] == of["images.f16.npy"] + of["captions.f16.npy"]
    assert weighs["words"] == sum(n for name, n in of.items() if name.startswith("words/"))
    assert sum(weighs.values()) == sum(of.values()) - of["contents.npy"]
    nothing: dict = {"image": {}, "text": {}}
    assert notes["settings"] == {"images": nothing, "captions": nothing}
    used = {item["name"]: item["fingerprint"] for item in said["inputs"]}
    assert used == {"model": fingerprint(str(model)), "corpus": fingerprint(str(sample_corpus))}
    on_disk = {name: (built / name).stat().st_size for name in content(built)}
    del on_disk["manifest.json"]
    assert {name: about["size_bytes"] for name, about in said["files"].items()} == on_disk
    for name, about in said["files"].items():
        assert about["sha256"] == hashlib.sha256((built / name).read_bytes()).hexdigest()
    # And of the manifest without its own.
    own = said["notes"].pop("manifest_sha256")
    text = json.dumps(said, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert own == hashlib.sha256(text.encode()).hexdigest()


def test_filters_and_words_are_those_of_the_rows(built: Path, sample_corpus: Path) -> None:
    pairs = pairs_of(sample_corpus)
    filters = FilterTable.open(built / "filters")
    rows = filters.select(Filter(split=("val",))).rows()
    assert rows is not None
    assert rows.tolist() == [i for i, pair in enumerate(pairs) if pair["split"] == "val"]
    word = max(pairs[5]["caption"].replace(".", " ").split(), key=len)
    _, found = Words.open(built / "words").search(word, 3, filters.select(Filter()))
    assert word.lower() in pairs[int(found[0])]["caption"].lower()


def test_a_finished_index_is_left_alone_and_another_refused(
    built: Path, model: Path, sample_corpus: Path
) -> None:
    with nothing_done_to(built):
        run(model, sample_corpus, built, **{"workers.count": 3})
    with pytest.raises(ArtifactError, match="thumbnail_px: 256 -> 64"):
        run(model, sample_corpus, built, thumbnail_px=64)


def test_cells_are_searched_with_settings_that_reach_the_recall_wanted(
    model: Path, sample_corpus: Path, ray_session: None, tmp_path: Path
) -> None:
    changes = {"factory": "IVF8,SQfp16", "recall.text": 0.97, "thumbnail_px": 0}
    # Twenty queries that had no part in the choice may do worse than those that had.
    changes["recall.floor"] = 0.5
    said = run(model, sample_corpus, tmp_path / "i", over=["images"], **changes)
    notes = said.notes
    assert not (tmp_path / "i" / "captions.faiss").exists()
    assert (tmp_path / "i" / "thumbnails.bin").stat().st_size == 0
    for kind, wanted in (("text", 0.97), ("image", 0.98)):
        table = notes["recall_tables"]["images"][kind]
        assert [row["nprobe"] for row in table] == sorted(row["nprobe"] for row in table)
        assert notes["settings"]["images"][kind] == {"nprobe": table[-1]["nprobe"]}
        assert [row["recall_at_10"] >= wanted for row in table] == [False] * (len(table) - 1) + [
            True
        ]
        low, high = notes["recall_intervals"]["images"][kind]
        assert low < notes["recall"]["images"][kind] <= high
    vectors = np.load(tmp_path / "i" / "images.f16.npy").astype(np.float32)
    found = Index.open(str(tmp_path / "i"))
    metadata = MetadataTable.open(tmp_path / "i")
    rows = np.sort(np.random.default_rng([0, 1]).choice(len(vectors), 40, replace=False))
    hits = 0
    # Every other one: those between have chosen the settings.
    for row in rows[1::2]:
        exact = vectors @ vectors[row]
        exact[row] = -2
        (about,) = metadata.rows([row], ["figure_id"])
        hits_K = found.search(Query(parts=(QueryPart(figure_id=about["figure_id"]),), k=10)).hits
        near = [metadata.row_of(hit.figure_id) for hit in hits_K]
        hits += int((exact[near] >= np.sort(exact)[-10] - 1e-5).sum())
    assert notes["recall"]["images"]["image"] == pytest.approx(hits / 200, abs=1e-4)


def test_an_index_that_finds_too_little_is_not_published(
    model: Path, sample_corpus: Path, ray_session: None, tmp_path: Path
) -> None:
    changes = {"factory": "IVF4,PQ1x4", "thumbnail_px": 0, "over": ["images"]}
    with pytest.raises(BiovlError, match=r'recall.floor.*\n.*\n.*"nprobe": 1'):
        run(model, sample_corpus, tmp_path / "i", **changes)
    assert not (tmp_path / "i" / "manifest.json").exists()
    embedded = sorted((tmp_path / "i/.draft/embedded").iterdir())
    times = [path.stat().st_mtime_ns for path in embedded]
    # What is embedded already does not depend on the factory, nor on what recall is wanted.
    changes = {"thumbnail_px": 0, "over": ["images"], "profile": "low_memory", "recall.floor": 0.8}
    with pytest.raises(ArtifactError, match="batch: 8 -> 9"):
        run(model, sample_corpus, tmp_path / "i", **changes, batch=9)
    went_on = io.StringIO()
    values = settings(model, sample_corpus, tmp_path / "i", **changes, **{"recall.text": 0.9})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, "clear", lambda draft: None)
        said = index(configs.build(IndexConfig, values), progress=went_on)
    assert [path.stat().st_mtime_ns for path in embedded] == times
    assert said.notes["factories"] == {"images": "SQfp16"}
    assert said.config["profile"] == "low_memory"
    run(model, sample_corpus, tmp_path / "anew", **changes, **{"recall.text": 0.9})
    found, anew = content(tmp_path / "i"), content(tmp_path / "anew")
    assert {name: found[name] for name in anew} == anew


def test_splits_can_be_chosen(
    model: Path, sample_corpus: Path, ray_session: None, tmp_path: Path
) -> None:
    run(model, sample_corpus, tmp_path / "i", splits=["val", "test"], over=["captions"])
    wanted = [p["pair_id"] for p in pairs_of(sample_corpus) if p["split"] != "train"]
    table = MetadataTable.open(tmp_path / "i")
    assert [row["figure_id"] for row in table.rows(range(len(table)))] == wanted


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"model": "nowhere"}, ArtifactError, "nowhere .*manifest.json"),
        ({"corpus": "MODEL"}, ArtifactError, "model, expected corpus"),
        ({"previous": "MODEL"}, ArtifactError, "model, expected index"),
        ({"factory": "HNSW32"}, ConfigError, "HNSW32"),
        ({"factory": "IVF4096,SQ8"}, ConfigError, "4,096"),
        ({"splits": ["dev"]}, ArtifactError, r"\bdev\b"),
        ({"over": []}, ConfigError, "over "),
        ({"label_columns": ["journals"]}, ConfigError, r"did you mean journal\?.* source\.keep"),
        ({"recall.floor": 0.99}, ConfigError, "floor"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(
    model: Path, sample_corpus: Path, tmp_path: Path, changes: dict, error: type, reason: str
) -> None:
    changes = {k: str(model) if v == "MODEL" else v for k, v in changes.items()}
    with pytest.raises(error, match=reason):
        values = {**settings(model, sample_corpus, tmp_path / "i"), **changes}
        index(configs.build(IndexConfig, values), progress=io.StringIO())


def write_corpus(folder: Path, pairs: list[tuple[dict, bytes, str]]) -> Path:
    """Publish pairs as a corpus of two shards: metadata, image, text."""
    draft = Draft.begin(str(folder), "corpus", {})
    rows = []
    for number in range(2):
        name = f"train/{number:05d}.tar"
        with draft.folder.writer(name) as stream:
            writer = ShardWriter(stream)
            # Against the order of the index.
            for about, image, text in reversed(pairs[number::2]):
                files = {"png": image, "txt": text.encode(), "json": b"{}"}
                place = writer.add(about["pair_id"], files)
                at = {"split": "train", "shard": name, "offset": place.offset, "size": place.size}
                rows.append({**about, **at})
            writer.finish()
    order = {about["pair_id"]: at for at, (about, _, _) in enumerate(pairs)}
    rows.sort(key=lambda row: order[row["pair_id"]])
    with draft.folder.writer("index.parquet") as stream:
        pq.write_table(pa.Table.from_pylist(rows), stream)
    draft.publish(Manifest(kind="corpus", config={"pairs": sorted(order)}, counts={}))
    return folder


def made_up(number: int, text: str = "", seed: int | None = None) -> tuple[dict, bytes, str]:
    rng = np.random.default_rng(number if seed is None else seed)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8)).save(stream, "PNG")
    text = text or f"figure {number} of the atlas"
    about = {"pair_id": f"PMC{number}_f1", "article_id": f"PMC{number}", "caption": text}
    about |= {"kind": "figure", "license_group": "commercial", "published": "2020-05"}
    about |= {"organ": f"organ {number % 3}", "stain": ["H&E"] if number % 2 else []}
    return about, stream.getvalue(), text


def test_a_pair_without_a_usable_image_is_left_out_and_shifts_no_other(
    model: Path, ray_session: None, tmp_path: Path
) -> None:
    pairs = [made_up(number) for number in range(30)]
    for number in (0, 7, 29):
        pairs[number] = (pairs[number][0], b"nothing of use", pairs[number][2])
    corpus = write_corpus(tmp_path / "c", pairs)
    columns = {"concept_columns": ["organ", "stain"], "image_type_column": "organ"}
    said = run(model, corpus, tmp_path / "i", pairs_per_unit=4, rows_per_part=5, **columns)
    assert said.counts["pairs"] == 30
    assert said.counts["rows"] == 27
    assert sum(said.counts["left_out"].values()) == 3
    kept = [pair for number, pair in enumerate(pairs) if number not in (0, 7, 29)]
    table = MetadataTable.open(tmp_path / "i")
    rows = table.rows(range(len(table)))
    assert [row["figure_id"] for row in rows] == [about["pair_id"] for about, _, _ in kept]
    assert rows[0]["concepts"] == ["organ 1", "H&E"]
    assert rows[0]["image_type"] == "organ 1"
    expected = encoder.load(str(model)).embed_images([image for _, image, _ in kept])
    np.testing.assert_allclose(np.load(tmp_path / "i/images.f16.npy"), expected, atol=1e-3)


@pytest.fixture(scope="module")
def first(
    model: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A corpus of 24 figures, and its index."""
    folder = tmp_path_factory.mktemp("first")
    corpus = write_corpus(folder / "corpus", [made_up(number) for number in range(24)])
    run(model, corpus, folder / "index")
    return corpus, folder / "index"


def test_a_new_version_embeds_only_what_changed_and_finds_as_a_fresh_one(
    first: tuple[Path, Path], model: Path, tmp_path: Path
) -> None:
    old = [made_up(number) for number in range(24)]
    # Three are taken down, four are new, one has another caption and one another image.
    new = [made_up(100), *old[3:10], made_up(10, "another caption"), made_up(11, seed=99)]
    new += [*old[12:], *(made_up(number) for number in (101, 102, 103))]
    second = write_corpus(tmp_path / "c2", new)
    said = run(model, second, tmp_path / "i2", previous=str(first[1]))
    counts = {k: said.counts[k] for k in ("rows", "embedded", "reused", "removed")}
    assert counts == {"rows": 25, "embedded": 6, "reused": 19, "removed": 3}
    run(model, second, tmp_path / "fresh")
    for name in ("images", "captions"):
        reused, fresh = (
            np.load(tmp_path / folder / f"{name}.f16.npy") for folder in ("i2", "fresh")
        )
        np.testing.assert_allclose(reused, fresh, atol=1e-3)
        _, one = VectorIndex.open(tmp_path / f"i2/{name}.faiss").search(fresh, 1)
        _, other = VectorIndex.open(tmp_path / f"fresh/{name}.faiss").search(fresh, 1)
        assert (one == other).all()
    for name in ("table.arrow", "thumbnails.bin", "contents.npy"):
        assert (tmp_path / "i2" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


def test_figures_that_a_later_harvest_ends_are_left_out(
    built: Path, model: Path, sample_corpus: Path, ray_session: None, tmp_path: Path
) -> None:
    gone, *_, retracted = sorted({pair["source_uri"] for pair in pairs_of(sample_corpus)})
    stones = [
        {"source_uri": uri, "reason": reason, "article_id": "a", "version": "1", "snapshot": "s"}
        for uri, reason in ((gone, "gone"), (retracted, "retracted"))
    ]
    update = Draft.begin(str(tmp_path / "update"), "figures", {})
    with update.folder.writer(tombstones.FILE) as stream:
        pq.write_table(pa.Table.from_pylist(stones, tombstones.SCHEMA), stream)
    update.publish(Manifest(kind="figures", config={}, counts={}))
    later = {"updates": [str(tmp_path / "update")], "previous": str(built)}
    said = run(model, sample_corpus, tmp_path / "i", **later)
    left = [p for p in pairs_of(sample_corpus) if p["source_uri"] not in (gone, retracted)]
    assert said.counts["rows"] == said.counts["reused"] == len(left)
    assert said.counts["removed"] == sum(said.counts["ended"].values()) > 0
    table = MetadataTable.open(tmp_path / "i")
    found = [row["figure_id"] for row in table.rows(range(len(table)))]
    assert found == [pair["pair_id"] for pair in left]


def test_cells_are_taken_over_until_the_corpus_has_doubled(
    model: Path, ray_session: None, tmp_path: Path
) -> None:
    def cells(folder: Path) -> np.ndarray:
        import faiss

        ivf = faiss.read_index(str(folder / "images.faiss"))
        found: np.ndarray = ivf.quantizer.reconstruct_n(0, ivf.nlist)
        return found

    changes = {"factory": "IVF4,SQfp16", "over": ["images"], "thumbnail_px": 0}
    first = write_corpus(tmp_path / "c1", [made_up(number) for number in range(40)])
    run(model, first, tmp_path / "i1", **changes)
    for count, is_same in ((60, True), (90, False)):
        corpus = write_corpus(tmp_path / f"c{count}", [made_up(n) for n in range(count)])
        out = tmp_path / f"i{count}"
        said = run(model, corpus, out, previous=str(tmp_path / "i1"), **changes)
        assert said.counts["reused"] == 40
        assert (cells(out) == cells(tmp_path / "i1")).all() == is_same


def test_nothing_is_reused_of_another_model(first: tuple[Path, Path], tmp_path: Path) -> None:
    corpus, previous = first
    other = save_model(tmp_path / "other", seed=2)
    said = run(other, corpus, tmp_path / "i2", previous=str(previous))
    assert said.counts["reused"] == 0
    assert said.notes["not_reused"] == "it was made with another model"


def test_nothing_is_reused_of_what_another_version_prepared(
    first: tuple[Path, Path], model: Path, tmp_path: Path
) -> None:
    corpus, previous = first
    shutil.copytree(previous, tmp_path / "i1")
    manifest = tmp_path / "i1" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"prepared": {PREPARED}', '"prepared": 0'))
    said = run(model, corpus, tmp_path / "i2", previous=str(tmp_path / "i1"))
    assert said.counts["reused"] == 0
    assert "removed" not in said.counts
    assert said.notes["not_reused"] == "its images were prepared by another version"


def test_vectors_of_another_precision_are_not_reused(
    first: tuple[Path, Path], model: Path, tmp_path: Path
) -> None:
    corpus, previous = first
    assert manifest_of(previous)["notes"]["precision"] == "float32"
    half = run(model, corpus, tmp_path / "half", previous=str(previous), precision="bfloat16")
    assert half.counts["reused"] == 0
    assert half.notes["not_reused"] == "its vectors were computed in float32"
    # The setting differs, what was computed does not.
    said = run(model, corpus, tmp_path / "same", previous=str(previous), precision="float32")
    assert said.counts["reused"] == said.counts["rows"]
    # Earlier versions recorded the setting only.
    manifest = tmp_path / "half" / "manifest.json"
    notes = manifest_of(tmp_path / "half")
    del notes["notes"]["precision"]
    notes["config"]["precision"] = "auto"
    manifest.write_text(json.dumps(notes))
    unknown = run(model, corpus, tmp_path / "next", previous=str(tmp_path / "half"))
    assert unknown.counts["reused"] == 0


def test_a_resumed_draft_goes_on_in_its_precision(
    first: tuple[Path, Path], model: Path, tmp_path: Path
) -> None:
    config = configs.build(IndexConfig, settings(model, first[0], tmp_path / "i"))
    with interrupted("embedding unit"):
        index(config)
    draft = Draft(str(tmp_path / "i"))
    assert draft.read_note("precision") == "float32"
    # As if begun on a GPU.
    draft.note("precision", "bfloat16")
    said = index(config)
    assert said.notes["precision"] == "bfloat16"


def test_interrupted_and_run_again_gives_the_same_bytes(
    built: Path, model: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "index"
    config = configs.build(IndexConfig, settings(model, sample_corpus, out))
    for stage in ("embedding unit", "finishing"):
        with interrupted(stage):
            index(config)
        assert not (out / "manifest.json").exists()
    with counted() as stages:
        manifest = index(config)
    assert stages["embedding unit"][0] == stages["embedding unit"][1]
    assert manifest.counts["rows"] == len(pairs_of(sample_corpus))
    assert content(out) == content(built)


def test_from_a_bucket_to_a_bucket_and_to_the_next_version(
    ray_session: None,
    bucket: Callable[[str, bytes], None],
    bucket_uri: str,
    model: Path,
    tmp_path: Path,
) -> None:
    corpus = write_corpus(tmp_path / "c", [made_up(number) for number in range(12)])
    for name, folder in (("index-model", model), ("index-corpus", corpus)):
        for path in folder.rglob("*"):
            if path.is_file():
                bucket(f"{name}/{path.relative_to(folder)}", path.read_bytes())
    first, second = f"{bucket_uri}/index-1", f"{bucket_uri}/index-2"
    values = settings(f"{bucket_uri}/index-model", f"{bucket_uri}/index-corpus", first)
    for changes in ({}, {"out": second, "previous": first}):
        summary = run_command("pipelines/index.py", "default", **{**values, **changes})
    assert (summary["reused"], summary["embedded"]) == (12, 0)
    said = json.loads(Folder(second).read("manifest.json"))
    for name, about in said["files"].items():
        assert len(Folder(second).read(name)) == about["size_bytes"]
        assert Folder(second).read(name) == Folder(first).read(name)
