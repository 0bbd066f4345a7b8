"""Publish as a whole: what may not be given on stays, what goes can be read, killed and rerun."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.core import config as configs
from biovl.core.artifacts import Manifest, find_manifest
from biovl.core.errors import ArtifactError, ConfigError, StorageError
from biovl.core.shards import read_pair, read_shard
from biovl.publish.config import PublishConfig
from biovl.publish.job import dry_run_text, publish
from tests.publish.hub_server import TOKEN, Hub, Repo, running
from tests.runtime.folders import content
from tests.runtime.typed import with_this_ray

ROOT = Path(__file__).parents[2]
REPO = "datasets/ann/figures"

pytestmark = pytest.mark.ray


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        # Read when the client is imported, which other tests may have done.
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield hub


@pytest.fixture(scope="module")
def corpus(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus where of the first rows one is retracted, one reserved and one somebody else's."""
    folder = tmp_path_factory.mktemp("publish") / "corpus"
    shutil.copytree(sample_corpus, folder)
    index = pq.read_table(folder / "index.parquet")
    count = len(index)
    changes = {
        "redistributable": [row != 1 for row in range(count)],
        "retracted": [row == 0 for row in range(count)],
        "third_party": [row == 2 for row in range(count)],
        "credit": ["Reprinted from Nature" if row == 2 else None for row in range(count)],
        "license": ["CC-BY-NC-4.0" if row == 3 else "CC-BY-4.0" for row in range(count)],
        "license_group": ["noncommercial" if row == 3 else "commercial" for row in range(count)],
    }
    for name, values in changes.items():
        place = index.schema.get_field_index(name)
        field = index.schema.field(name)
        index = index.set_column(place, field, pa.array(values, field.type))
    pq.write_table(index, folder / "index.parquet", row_group_size=30)
    return folder


def run(folder: Path | str, **changes: object) -> Manifest:
    values = {"folder": str(folder), "repo": "ann/figures", **changes}
    return publish(configs.build(PublishConfig, values))


def index(folder: Path) -> list[dict]:
    return pq.read_table(folder / "index.parquet").to_pylist()


def test_a_corpus_goes_to_a_private_repository_whole(corpus: Path, hub: Hub) -> None:
    (corpus / ".draft").mkdir(exist_ok=True)
    (corpus / ".draft/lease.json").write_text("{}")
    (corpus / "credentials").write_text("secret")
    (corpus / ".cache").mkdir(exist_ok=True)
    (corpus / ".cache/token").write_text("secret")
    before = content(corpus)
    manifest = run(corpus)
    sent = hub.repo(REPO)
    assert sent.private
    assert content(corpus) == before
    left_out = {".draft/lease.json", ".cache/token", "credentials"}
    assert set(sent.files) == before.keys() - left_out
    assert manifest.counts["url"] == f"{hub.url}/{REPO}"
    assert manifest.counts["files"] == len(sent.files)


def test_a_public_upload_is_refused_by_number_and_licence(corpus: Path, hub: Hub) -> None:
    with pytest.raises(ArtifactError) as raised:
        run(corpus, public=True)
    said = str(raised.value)
    assert f"3 of {len(index(corpus))} rows" in said
    assert "1: retracted (CC-BY-4.0, commercial)" in said
    assert "1: licence does not allow redistribution (CC-BY-4.0, commercial)" in said
    assert "1: credits a third party (CC-BY-4.0, commercial)" in said
    assert hub.repos == {}
    assert hub.count("POST|PUT") == 0


def test_a_public_repository_that_is_there_counts_as_public(corpus: Path, hub: Hub) -> None:
    hub.repos[REPO] = Repo(private=False)
    with pytest.raises(ArtifactError, match=r"\b3 of \d+ rows"):
        run(corpus)
    assert hub.repo(REPO).files == {}


def test_nothing_is_sent_to_a_repository_that_was_made_public_unasked(
    corpus: Path, hub: Hub
) -> None:
    hub.makes_public = True
    with pytest.raises(ArtifactError, match=f"{REPO}.* public"):
        run(corpus)
    assert hub.repo(REPO).files == {}


def test_the_rows_of_a_group_are_a_corpus_of_their_own_that_datasets_reads(
    corpus: Path, hub: Hub, tmp_path: Path
) -> None:
    out = tmp_path / "public"
    run(corpus, public=True, license_groups=["commercial"], out=str(out))
    before, after = index(corpus), index(out)
    assert [row["pair_id"] for row in after] == [row["pair_id"] for row in before[4:]]
    assert not hub.repo(REPO).private
    for old, new in zip(before[4:], after, strict=True):
        assert read_pair(f"{out}/{new['shard']}", new["offset"], new["size"]) == read_pair(
            f"{corpus}/{old['shard']}", old["offset"], old["size"]
        )
    stored = {pair.key for path in sorted(out.glob("*/*.tar")) for pair in read_shard(str(path))}
    assert stored == {row["pair_id"] for row in after}
    dropped = Counter(pq.read_table(out / "dropped.parquet")["dropped_by"].to_pylist())
    assert dropped["retracted"] == 1
    assert dropped["licence does not allow redistribution"] == 1
    assert dropped["credits a third party"] == 1
    assert dropped["licence group not commercial"] == 1
    counts = find_manifest(str(out)).counts
    assert counts["dropped"] == dropped
    assert counts["figures"]["kept"] == len(after) == sum(counts["pairs"].values())
    assert counts["figures"]["seen"] == len(after) + dropped.total()
    stats = json.loads((out / "stats.json").read_text())
    assert stats["corpus"]["images"] == len(after)
    assert hub.repo(REPO).files == {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    clone = hub.write(REPO, tmp_path / "clone")
    loaded = datasets.load_dataset(str(clone), cache_dir=str(tmp_path / "cache"))
    assert sum(map(len, loaded.values())) == len(after)
    first = loaded["train"][0]
    assert first["txt"]
    assert first["json"]["caption"]


def test_texts_and_warnings_of_all_rows_are_not_told_of_the_selected(
    corpus: Path, hub: Hub, tmp_path: Path
) -> None:
    folder, out = tmp_path / "corpus", tmp_path / "public"
    shutil.copytree(corpus, folder)
    rows = pq.read_table(folder / "index.parquet")
    defects = [None if row % 2 else "too long" for row in range(len(rows))]
    rows = rows.append_column("context_caption_defect", pa.array(defects, pa.string()))
    pq.write_table(rows, folder / "index.parquet", row_group_size=30)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"]["text"] = "context_caption"
    manifest["counts"]["texts"] = {"context_caption": 1_000}
    manifest["notes"]["warnings"] = ["test has 12 pairs"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run(folder, license_groups=["commercial"], out=str(out))
    kept = {row["pair_id"] for row in index(out)}
    texts = Counter(
        "caption: too long" if defect else "context_caption"
        for row, defect in zip(index(folder), defects, strict=True)
        if row["pair_id"] in kept
    )
    published = find_manifest(str(out))
    assert published.counts["texts"] == texts
    assert published.warnings == ["before the selection: test has 12 pairs"]


def test_pairs_keep_their_order_in_the_shards(corpus: Path, hub: Hub, tmp_path: Path) -> None:
    out = tmp_path / "public"
    run(corpus, license_groups=["commercial"], third_party=True, out=str(out))

    def order(folder: Path) -> list[str]:
        paths = sorted(folder.glob("train/*.tar"))
        return [pair.key for path in paths for pair in read_shard(str(path))]

    kept = {row["pair_id"] for row in index(out)}
    assert order(out) == [key for key in order(corpus) if key in kept]
    assert index(corpus)[2]["pair_id"] in kept
    assert index(corpus)[1]["pair_id"] not in kept


def test_killed_while_it_copies_and_cut_off_while_it_sends_it_goes_on(
    corpus: Path, hub: Hub, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "public"
    asked = {"public": True, "license_groups": ["commercial"]}
    run(corpus, **asked, out=str(whole), repo="ann/whole")
    until(lambda: list(out.glob(".draft/copying-shard/*.json")), corpus, out)
    assert not (out / "manifest.json").exists()
    hub.requests.clear()
    hub.large.clear()
    hub.faults += [("POST .*/commit/", 403)]
    with pytest.raises(StorageError, match=f"{REPO}.* 403 "):
        run(corpus, **asked, out=str(out))
    assert hub.count("PUT") == len(hub.large) > 0
    assert hub.repo(REPO).files == {}
    run(corpus, **asked, out=str(out))
    assert hub.count("PUT") == len(hub.large)
    assert content(out) == content(whole)
    assert hub.repo(REPO).files == hub.repo("datasets/ann/whole").files


def until(is_time: Callable[[], object], corpus: Path, out: Path) -> None:
    """Run the script, and kill it when it is time."""
    settings = [f"folder={corpus}", "repo=ann/figures", "public=true", f"out={out}"]
    settings += ['license_groups=["commercial"]']
    command = [sys.executable, "pipelines/publish.py", "hub"]
    process = subprocess.Popen(
        [*command, *(word for setting in settings for word in ("--set", setting))],
        cwd=ROOT,
        env={**with_this_ray(), "HF_HUB_DISABLE_XET": "1"},
        start_new_session=True,
    )
    try:
        while not is_time():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_figures_go_with_their_articles_part_by_part(
    sample_corpus: Path, hub: Hub, tmp_path: Path
) -> None:
    harvested = tmp_path / "figures"
    shutil.copytree(sample_corpus.parent / "figures", harvested)
    path = min(harvested.glob("articles/*.parquet"))
    articles = pq.read_table(path)
    held = articles["source_uri"][0].as_py()
    free = pa.array([uri != held for uri in articles["source_uri"].to_pylist()])
    place = articles.schema.get_field_index("redistributable")
    pq.write_table(articles.set_column(place, articles.schema.field(place), free), path)
    out = tmp_path / "public"
    run(harvested, public=True, license_groups=["commercial", "noncommercial"], out=str(out))
    before = [pq.read_table(path) for path in sorted(harvested.glob("figures/*.parquet"))]
    after = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("figures/*.parquet")))
    goes = [
        row["figure_id"]
        for row in pa.concat_tables(before).to_pylist()
        if row["redistributable"] and not row["retracted"] and not row["third_party"]
        if row["license_group"] != "other" and row["source_uri"] != held
    ]
    assert after["figure_id"].to_pylist() == goes
    assert after["image"].null_count < len(after)
    manifest = find_manifest(str(out))
    assert manifest.counts["figures"]["seen"] == len(goes)
    assert manifest.counts["left_out"]["articles"]["licence does not allow redistribution"] >= 1
    assert {name for name in manifest.files if name.startswith("figures/")} == {
        f"figures/{path.name}" for path in harvested.glob("figures/*.parquet")
    }
    articles = pa.concat_tables(pq.read_table(path) for path in out.glob("articles/*.parquet"))
    uris = articles["source_uri"].to_pylist()
    assert set(after["source_uri"].to_pylist()) <= set(uris)
    assert held not in uris
    datasets = pytest.importorskip("datasets")
    clone = hub.write(REPO, tmp_path / "clone")
    loaded = datasets.load_dataset(str(clone), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"]["figure_id"][:] == goes


def test_a_bucket_is_published_as_a_disk_is(
    corpus: Path, hub: Hub, bucket_uri: str, bucket: Callable[[str, bytes], None]
) -> None:
    asked = {"public": True, "license_groups": ["commercial"]}
    run(corpus, **asked)
    local = hub.repo(REPO).files
    for path in corpus.rglob("*"):
        if path.is_file() and path.suffix in (".tar", ".parquet", ".json", ".png", ".md"):
            bucket(f"published/{path.relative_to(corpus)}", path.read_bytes())
    address = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    # Workers began before the bucket did.
    about = f"?region=us-east-1&scheme=http&endpoint_override={address}"
    uri = f"{bucket_uri.replace('://', '://key:secret@')}/published"
    run(f"{uri}{about}", **asked, repo="ann/bucket")
    assert find_manifest(f"{uri}-public{about}").kind == "corpus"
    sent = hub.repo("datasets/ann/bucket").files
    # Where it came from stands in the manifest, without the credential.
    assert sent.keys() == local.keys()
    assert {name for name in sent if sent[name] != local[name]} == {"manifest.json"}
    assert b"secret" not in sent["manifest.json"]
    hub.requests.clear()
    run(f"{uri}{about}", **asked, repo="ann/bucket")
    assert hub.count("PUT|/commit/") == 0


def test_a_dry_run_tells_and_asks_nobody(corpus: Path, hub: Hub) -> None:
    values = {"folder": str(corpus), "repo": "ann/figures", "public": True}
    said = dry_run_text(configs.build(PublishConfig, values))
    count = len(index(corpus))
    assert f"{count}: {count - 1} commercial, 1 noncommercial" in said
    assert re.search(r"held back +3\b", said)
    assert hub.url in said
    assert "refused" in said
    assert hub.requests == []


def test_an_index_and_unfinished_folders_do_not_go(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        run(tmp_path)
    (tmp_path / "manifest.json").write_text(
        json.dumps({"kind": "index", "config": {}, "counts": {}, "inputs": []})
    )
    with pytest.raises(ArtifactError, match="index"):
        run(tmp_path)


def test_a_manifest_with_a_credential_does_not_go(tmp_path: Path, hub: Hub) -> None:
    about = {"kind": "model", "config": {"corpus": "s3://key:secret@bucket/corpus"}}
    (tmp_path / "manifest.json").write_text(json.dumps({**about, "counts": {}, "inputs": []}))
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        run(tmp_path)
    assert hub.repos == {}


def test_a_repository_has_a_user_and_a_name() -> None:
    with pytest.raises(ConfigError, match="USER/NAME"):
        configs.build(PublishConfig, {"folder": "corpus", "repo": "figures"})
