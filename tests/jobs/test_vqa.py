"""A model answers questions: who dies costs nothing but time, and everything can be recomputed."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from biovl import config as configs
from biovl import recipes
from biovl.errors import ArtifactError, ConfigError
from biovl.jobs.vqa import VqaConfig, vqa
from biovl.storage import Manifest
from tests.evaluation.toy_questions import write_model, write_vqa_rad
from tests.jobs.folders import content

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("vqa")
    data = write_vqa_rad(folder / "rad")
    (data / "VQA_RAD Image Folder" / "3.png").write_bytes(b"no image")
    return {"model": str(write_model(folder / "model")), "data": str(data)}


def settings(inputs: dict[str, str], out: Path, **changes: Any) -> dict[str, Any]:
    return {
        **recipes.vqa_frozen(),
        "learning.epochs": 10,
        "learning.batch": 8,
        "learning.fusion.layers": 1,
        "learning.fusion.width": 32,
        "learning.fusion.heads": 2,
        "learning.adam.lr": 1e-3,
        "workers.save_every_s": 0,
        "workers.cpus": 0.5,
        **inputs,
        "out": str(out),
        **changes,
    }


def run(inputs: dict[str, str], out: Path, said: io.StringIO | None = None, **changes) -> Manifest:
    given = configs.build(VqaConfig, settings(inputs, out, **changes))
    return vqa(given, progress=said or sys.stderr)


@pytest.fixture(scope="module")
def published(
    inputs: dict[str, str], ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("published") / "answers"
    run(inputs, out)
    return out


def test_scores_predictions_and_what_was_found_are_published(published: Path) -> None:
    manifest = json.loads((published / "manifest.json").read_text())
    # 12 of 48 images are for test, and one of these is no image.
    assert manifest["counts"]["asked"] == 22
    assert manifest["counts"]["unreadable"] == 1
    assert manifest["notes"]["questions_of_unreadable"] == 2
    assert len(manifest["notes"]["losses"]) == 10
    scores = json.loads((published / "scores.json").read_text())["scores"]
    table = pq.read_table(published / "predictions.parquet").to_pydict()
    right = np.array(table["answer"]) == np.array(table["predicted"])
    closed = np.array(table["kind"]) == "closed"
    assert scores["accuracy"]["value"] == pytest.approx(right.mean())
    assert scores["accuracy/closed"]["value"] == pytest.approx(right[closed].mean())
    assert scores["accuracy"]["value"] > 0.9 > scores["majority_accuracy"]["value"]
    assert "accuracy/open" in (published / "table.md").read_text()
    assert not (published / ".draft").exists()


def test_a_killed_driver_goes_on_with_the_same_command_to_the_same_bytes(
    published: Path, inputs: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "answers"
    changes = {**settings(inputs, out), "out": "answers"}
    command = [sys.executable, str(ROOT / "pipelines" / "vqa.py"), "frozen"]
    for name, value in changes.items():
        command += ["--set", f"{name}={value}"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with (tmp_path / "first.log").open("wb") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=tmp_path)
        while first.poll() is None and not list(out.glob(".draft/checkpoints/*.pt")):
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL, (tmp_path / "first.log").read_text()
    assert not (out / "manifest.json").exists()
    said = io.StringIO()
    run(inputs, out, said)
    assert "goes on after epoch" in said.getvalue()
    assert content(out) == content(published)


def test_two_workers_learn_the_same(
    published: Path, inputs: dict[str, str], tmp_path: Path
) -> None:
    run(inputs, tmp_path / "two", **{"workers.count": 2, "learning.fusion.dropout": 0})
    table = pq.read_table(tmp_path / "two" / "predictions.parquet")
    assert np.mean(table["accuracy"].to_numpy()) > 0.9
    losses = json.loads((tmp_path / "two" / "manifest.json").read_text())["notes"]["losses"]
    one = json.loads((published / "manifest.json").read_text())["notes"]["losses"]
    # Dropout alone tells them apart.
    assert losses == pytest.approx(one, rel=0.5, abs=0.05)


def test_a_finished_run_is_not_repeated(published: Path, inputs: dict[str, str]) -> None:
    before = content(published)
    assert run(inputs, published, **{"workers.count": 2}).counts["asked"] == 22
    assert content(published) == before
    with pytest.raises(ArtifactError, match=r"learning\.epochs: 10 -> 11"):
        run(inputs, published, **{"learning.epochs": 11})


def test_what_every_worker_refuses_ends_the_run_once(
    inputs: dict[str, str], ray_session: None, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="lower least_answers"):
        run(inputs, tmp_path / "answers", **{"learning.least_answers": 1000})
