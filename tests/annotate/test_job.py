"""The annotate job as a whole: aligned columns, bad images accounted for, killed and rerun."""

import functools
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from biovl.annotate import batches
from biovl.annotate import job as annotate_job
from biovl.annotate.annotators import NO_IMAGE, dinov2
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.job import _Compute, annotate
from biovl.core import config as configs
from biovl.core.artifacts import Manifest, read_manifest
from biovl.core.errors import ArtifactError, BiovlError, ConfigError, RayError
from biovl.core.tables import open_table
from biovl.images.decode import TOO_LARGE, TOO_SMALL, TRUNCATED, UNDECODABLE
from biovl.models import encoder
from biovl.runtime.failures import MAX_DEATHS, Attempts
from tests.annotate.small_models import DIM, png, save_clip, save_dinov2, scene, write_table
from tests.publish.hub_server import TOKEN, Repo, running
from tests.runtime.folders import content
from tests.runtime.interrupting import killing, process_of
from tests.runtime.typed import with_this_ray
from tests.worker_forks import ADDRESS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dinov2(tmp_path_factory.mktemp("dinov2") / "small")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@functools.cache
def bad_images() -> dict[bytes | None, str]:
    good = png(scene(0))
    return {
        None: NO_IMAGE,
        b"GIF89a nothing": UNDECODABLE,
        good[: len(good) // 2]: TRUNCATED,
        png(Image.new("RGB", (1, 1))): TOO_SMALL,
        png(Image.new("1", (20_000, 20_000))): TOO_LARGE,
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts of several row groups, one of no rows, and bad images among good ones."""
    good = [png(scene(seed)) for seed in range(40)]
    parts = [[*good[:9], *bad_images(), *good[9:30]], [], good[30:]]
    return write_table(tmp_path_factory.mktemp("table") / "images", parts)


def settings(
    annotator: str, table: Path | str, weights: Path | str, out: Path | str, **changes: object
) -> dict:
    whole = {"annotator.name": annotator, "table": str(table), "weights": str(weights)}
    small = {"batch": 4, "rows_per_task": 5, "workers.count": 1}
    return {**whole, "out": str(out), **small, **changes}


def run(
    annotator: str, table: Path, weights: Path, out: Path | str = "", **changes: object
) -> Manifest:
    values = settings(annotator, table, weights, out, **changes)
    return annotate(configs.build(AnnotateConfig, values), progress=io.StringIO())


@pytest.fixture(scope="module")
def made(
    ray_session: None, weights: Path, table: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("made") / "dinov2"
    run("dinov2", table, weights, out, **{"annotator.size_px": 56, "annotator.resize_px": 64})
    return out


SMALL = {"annotator.size_px": 56, "annotator.resize_px": 64}


def rows(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))


def test_columns_are_aligned_with_the_table_part_for_part(made: Path, table: Path) -> None:
    for path in sorted(table.glob("*.parquet")):
        assert pq.read_metadata(made / path.name).num_rows == pq.read_metadata(path).num_rows
    manifest = read_manifest(str(made), "columns")
    assert [item.fingerprint for item in manifest.inputs][:1] == [
        open_table(str(table)).fingerprint
    ]
    assert manifest.notes == {
        "columns": ["dinov2", "dinov2_defect"],
        "embedding": "dinov2",
        "dim": DIM,
        "model": "dinov2",
    }
    assert pq.read_schema(made / "part-000000-000.parquet").field("dinov2").type == pa.list_(
        pa.float16(), DIM
    )


def test_each_row_has_the_embedding_of_its_own_image(
    made: Path, table: Path, weights: Path
) -> None:
    config = dinov2.Config(weights=str(weights), size_px=56, resize_px=64)
    annotator = dinov2.build(config)
    model = annotator.load("cpu", "float32")
    found, images = rows(made)["dinov2"].to_pylist(), rows(table)["image"].to_pylist()
    for row in (0, 8, 14, 34, 44):
        (alone,) = model(annotator.prepare({"image": images[row]})[None])["dinov2"]
        np.testing.assert_allclose(found[row], alone, rtol=2e-3, atol=2e-3)


def test_a_bad_image_is_null_with_its_reason_and_every_row_is_accounted_for(made: Path) -> None:
    found = rows(made)
    assert found["dinov2_defect"].to_pylist()[9:14] == list(bad_images().values())
    for value, defect in zip(found["dinov2"], found["dinov2_defect"], strict=True):
        assert value.is_valid != defect.is_valid
    assert read_manifest(str(made), "columns").counts == {
        "rows": 45,
        "annotated": 40,
        "defective": 5,
        "defects": dict.fromkeys(sorted(bad_images().values()), 1),
    }


def test_columns_stand_in_the_table_which_stays_as_it_was(
    ray_session: None, table: Path, clip: Path
) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in table.glob("*")}
    known = open_table(str(table)).fingerprint
    run("clip", table, clip, **{"annotator.of": "text"})
    found = rows(table / "columns" / "clip_text")
    assert found.column_names == ["clip_text", "clip_text_defect"]
    expected = encoder.load(str(clip)).embed_texts(rows(table)["caption"].to_pylist())
    np.testing.assert_allclose(found["clip_text"].to_pylist(), expected, atol=1e-3)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert open_table(str(table)).fingerprint == known


def test_types_of_images_are_counted_and_drawn(
    ray_session: None, table: Path, clip: Path, tmp_path: Path
) -> None:
    manifest = run("image_type", table, clip, tmp_path / "out")
    found = rows(tmp_path / "out")
    types = [value for value in found["image_type"].to_pylist() if value is not None]
    assert len(types) == 40
    assert manifest.counts["image_type"] == {name: types.count(name) for name in set(types)}
    assert found["image_type_score"].null_count == 5
    with Image.open(tmp_path / "out" / "image_types.png") as chart:
        assert chart.width > 500


@pytest.mark.parametrize(
    ("name", "changes", "error", "told"),
    [
        ("dinov2", {"table": "nowhere"}, ArtifactError, "nowhere"),
        ("dinov3", {}, ConfigError, "dinov3.*clip, context, dinov2, image_type"),
        ("dinov2", {"weights": "nowhere"}, ArtifactError, "nowhere"),
        ("clip", {"weights": ""}, ConfigError, "weights"),
        ("clip", {"weights": "nowhere"}, ArtifactError, "nowhere"),
        ("dinov2", {"annotator.size": 3}, ConfigError, "size"),
        ("dinov2", {"workers.least": 3, "workers.count": 2}, ConfigError, "least"),
    ],
)
def test_a_request_that_cannot_be_met_is_told_before_ray_starts(
    name: str,
    changes: dict[str, object],
    error: type[Exception],
    told: str,
    table: Path,
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("biovl.annotate.job.connect_ray", None)
    with pytest.raises(error, match=told):
        values = settings(name, table, weights, tmp_path / "out")
        annotate(configs.build(AnnotateConfig, {**values, **changes}))


def test_a_column_that_the_table_lacks_is_told(table: Path, clip: Path, tmp_path: Path) -> None:
    of = {"annotator.of": "text", "annotator.text_column": "title"}
    with pytest.raises(ConfigError, match=r"title.*clip.*caption"):
        run("clip", table, clip, tmp_path / "out", **of)


def test_gpus_that_ray_does_not_have_are_told_instead_of_waited_for(
    ray_session: None, table: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"GPUs for .*: 1 needed.* 0.*workers\.gpus=0"):
        run("dinov2", table, weights, tmp_path / "out", **{"workers.gpus": 1})
    with pytest.raises(ConfigError, match=r"CPUs for .*: 4096 needed"):
        run("dinov2", table, weights, tmp_path / "out", **{"workers.cpus": 4_096})


def test_a_worker_on_a_gpu_that_pytorch_cannot_use_says_so(
    table: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings("dinov2", table, weights, tmp_path / "out", **{"workers.gpus": 1}, **SMALL)
    config = configs.build(AnnotateConfig, values)
    # Ray takes nodes at their word, whose driver or PyTorch may be the wrong one.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BiovlError, match=r"workers\.gpus=1, and PyTorch"):
        _ = _Compute(config, config.make())._model


def test_weights_that_are_replaced_before_a_worker_loads_them_are_an_error(
    ray_session: None, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, plan = save_dinov2(tmp_path / "dinov2"), batches.plan

    def replace_weights(*arguments: Any) -> list[batches.Unit]:
        save_dinov2(own, seed=2)
        return plan(*arguments)

    monkeypatch.setattr(batches, "plan", replace_weights)
    with pytest.raises(ArtifactError, match="dinov2 was replaced while this job was running"):
        run("dinov2", table, own, tmp_path / "out", **SMALL)
    assert not list((tmp_path / "out").glob("**/*.parquet"))


def test_columns_that_are_published_are_known_before_the_model_is_built(
    made: Path, table: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnnotateConfig, "make", None)
    monkeypatch.setattr("biovl.annotate.job.connect_ray", None)
    assert run("dinov2", table, weights, made, **SMALL) == read_manifest(str(made), "columns")


def test_types_by_keywords_that_were_changed_are_other_columns(
    ray_session: None, clip: Path, tmp_path: Path
) -> None:
    table = write_table(tmp_path / "table", [[png(scene(0))]])
    keywords = tmp_path / "keywords.yaml"
    keywords.write_text("one: [red cells]\n")
    given = {"annotator.keywords": str(keywords)}
    manifest = run("image_type", table, clip, tmp_path / "out", **given)
    known = {item.name: item.fingerprint for item in manifest.inputs}
    assert known["keywords"] == hashlib.sha256(keywords.read_bytes()).hexdigest()
    assert run("image_type", table, clip, tmp_path / "out", **given) == manifest
    keywords.write_text("two: [red cells]\n")
    with pytest.raises(ArtifactError, match=r"keywords\.yaml"):
        run("image_type", table, clip, tmp_path / "out", **given)


def test_weights_that_are_not_whole_end_the_job_with_their_names(
    ray_session: None, table: Path, weights: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(weights / "model.safetensors")
    name = next(name for name in state if name.endswith("fc1.weight"))
    del state[name]
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "config.json").write_bytes((weights / "config.json").read_bytes())
    save_file(state, tmp_path / "w" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ArtifactError, match=r"1 missing: .*fc1.weight"):
        run("dinov2", table, tmp_path / "w", tmp_path / "out")


def command(values: dict) -> list[str]:
    recipe = values["annotator.name"]
    given = [f"{name}={value}" for name, value in values.items() if name != "annotator.name"]
    sets = [word for change in given for word in ("--set", change)]
    return [sys.executable, "pipelines/annotate.py", recipe, *sets]


MODEL_HOLDER = "MapWorker(MapBatches(_Compute"
"""Title of the processes that hold a model."""


def test_killed_and_run_again_by_more_workers_gives_the_same_bytes(
    made: Path, table: Path, weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    values = settings("dinov2", table, weights, out, **SMALL)
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(command(values), cwd=ROOT, stderr=log, env=with_this_ray())
    deadline = time.monotonic() + 600

    def wait_for(seen: Callable[[], object]) -> None:
        while not seen():
            assert time.monotonic() < deadline
            assert job.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.005)

    with killing(lambda: process_of(MODEL_HOLDER)) as killed:
        wait_for(lambda: killed)
    wait_for(lambda: list(out.glob(".draft/pieces/*/*.parquet")))
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert not (out / "manifest.json").exists()
    said = io.StringIO()
    # More workers than before: they change no byte.
    config = configs.build(AnnotateConfig, {**values, "workers": {"count": 2, "least": 2}})
    annotate(config, progress=said)
    assert "were done before" in said.getvalue()
    assert content(out) == content(made)
    again = annotate(config, progress=io.StringIO())
    assert json.loads((out / "manifest.json").read_text())["counts"] == again.counts


def test_a_batch_at_which_workers_died_too_often_ends_the_job_which_resumes(
    made: Path, table: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, name = tmp_path / "out", "part-000002-000.parquet, 4 rows from row 0"
    attempts = Attempts()
    for _ in range(MAX_DEATHS):
        attempts.begin(name)
    with monkeypatch.context() as context:
        context.setattr(annotate_job, "Attempts", lambda: attempts)
        with pytest.raises(RayError, match=name):
            run("dinov2", table, weights, out, **SMALL)
    assert not (out / "manifest.json").exists()
    run("dinov2", table, weights, out, **SMALL)
    assert content(out) == content(made)


def test_all_workers_load_the_commit_that_the_driver_identified(
    ray_session: None, table: Path, weights: Path, tmp_path: Path
) -> None:
    others = save_dinov2(tmp_path / "others", seed=2)
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (weights, others)
    )
    with running() as hub:
        hub.repos["models/ann/small"] = Repo(private=False, files=first)
        # By then the driver knows the model, and no worker has it.
        hub.replaced_after = ("GET /ann/small/resolve/.*/config.json", "models/ann/small", second)
        values = settings("dinov2", table, "ann/small", tmp_path / "out", **SMALL)
        own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "cache")}
        environment = {**os.environ, **own, "RAY_ADDRESS": "local"}
        # The client of the hub reads its variables where it is imported, which is before the fork.
        environment.pop(ADDRESS, None)
        subprocess.run(command(values), cwd=ROOT, env=environment, check=True)
        assert hub.replaced_after is None
    run("dinov2", table, weights, tmp_path / "expected", **SMALL)
    assert rows(tmp_path / "out").equals(rows(tmp_path / "expected"))
