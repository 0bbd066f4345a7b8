"""A model learns to answer questions: who dies costs nothing but time, and scores can be redone."""

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from biovl.benchmark import config as benchmark_config
from biovl.benchmark import job, leak_report, vqa_job
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.job import benchmark
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import BiovlError, TrainingError, TrainingStopped
from biovl.core.plugins import Plugin
from biovl.images.hashing import sha256_hex
from biovl.runtime.progress import Progress
from tests.benchmark.memory import random_unit
from tests.benchmark.toy_questions import write_model, write_vqa_rad
from tests.index.small_index import figure, publish
from tests.runtime.folders import content

pytestmark = pytest.mark.ray

LEARNING = {
    "epochs": 10,
    "batch": 8,
    "fusion": {"layers": 1, "width": 32, "heads": 2},
    "adam": {"lr": 1e-3},
    "save_every_s": 0,
}
LEAKED = ("7.png", "11.png")
"""Images for test that are in the corpus, too."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("vqa")
    data = write_vqa_rad(folder / "rad")
    images = data / "VQA_RAD Image Folder"
    (images / "3.png").write_bytes(b"no image")
    rows = [
        figure(row, image_sha256=sha256_hex((images / name).read_bytes()), split="train")
        for row, name in enumerate(LEAKED)
    ]
    index = publish(folder / "index", random_unit(2), rows=rows)
    return {
        "model": str(write_model(folder / "model")),
        "data": str(data),
        "index": str(index),
    }


def settings(inputs: dict[str, str], out: Path | str, **changes: Any) -> dict[str, Any]:
    values = {
        **configs.recipe_settings(benchmark_config.vqa_frozen()),
        **inputs,
        "out": str(out),
        "workers.cpus": 0.5,
        **changes,
    }
    # As text, which is what a command line gives.
    for name, value in LEARNING.items():
        for inner, own in value.items() if isinstance(value, dict) else [("", value)]:
            values[f"tasks.vqa.learning.{name}" + (f".{inner}" if inner else "")] = str(own)
    return values


def run(inputs: dict[str, str], out: Path, said: io.StringIO | None = None, **changes) -> Manifest:
    given = configs.build(BenchmarkConfig, configs.nested(settings(inputs, out, **changes)))
    return benchmark(given, progress=said or sys.stderr)


def scores(out: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((out / "scores.json").read_text())["scores"]
    return {row["name"]: row for row in found}


@pytest.fixture(scope="module")
def published(
    inputs: dict[str, str], ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("published") / "report"
    run(inputs, out)
    return out


def predictions(out: Path) -> dict[str, list[Any]]:
    table = pq.read_table(out / "predictions" / "model" / "vqa.parquet")
    return table.to_pydict()


def test_scores_are_published_and_can_be_computed_again(published: Path) -> None:
    # 12 of 48 images are for test, and one of these is no image.
    said = predictions(published)
    assert len(said["id"]) == 24
    unread = [
        name for name, said in zip(said["id"], said["predicted"], strict=True) if said is None
    ]
    assert unread == ["test/6", "test/7"]
    (notes,) = json.loads((published / "scores.json").read_text())["notes"]
    assert notes["questions_of_unreadable"] == 2
    assert sum(notes["unreadable"].values()) == 1
    assert list(notes["unreadable_images"]) == ["3.png"]
    assert len(notes["losses"]) == 10
    asked = np.array(said["id"]) != "test/6"
    asked &= np.array(said["id"]) != "test/7"
    right = (np.array(said["answer"]) == np.array(said["predicted"]))[asked]
    closed = (np.array(said["kind"]) == "closed")[asked]
    found = scores(published)
    assert found["accuracy"]["value"] == pytest.approx(right.mean())
    assert found["accuracy/closed"]["value"] == pytest.approx(right[closed].mean())
    assert found["accuracy"]["value"] > 0.9 > found["accuracy/majority"]["value"]
    assert not (published / ".draft").exists()


def test_a_stopped_run_goes_on_to_the_same_bytes(
    published: Path, inputs: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "report"
    fit = vqa_job._fit

    def stopped(*arguments: Any) -> None:
        """Leave what a run leaves that was ended in its last epoch."""
        fit(*arguments)
        (Path(arguments[4]) / ".draft/answered.json").unlink()
        raise KeyboardInterrupt

    with mock.patch.object(vqa_job, "_fit", stopped), pytest.raises(KeyboardInterrupt):
        run(inputs, out)
    assert not (out / "manifest.json").exists()
    said = io.StringIO()
    run(inputs, out, said)
    assert re.search(r"resumes after epoch [1-9] of 10", said.getvalue())
    assert content(out) == content(published)


def test_what_a_model_was_trained_on_is_told_of_questions(published: Path) -> None:
    leaked = pq.read_table(published / "leaks/model/vqa.parquet").to_pylist()
    ids = {row["id"]: row["corpus_id"] for row in leaked}
    assert ids == {name: figure(row)["figure_id"] for row, name in enumerate(LEAKED)}
    # Each image has two questions.
    found = scores(published)
    whole, without = (found[name] for name in ("accuracy", f"accuracy{leak_report.PART}"))
    assert (whole["count"], without["count"]) == (22, 18)


def test_two_workers_learn_as_one(published: Path, inputs: dict[str, str], tmp_path: Path) -> None:
    run(inputs, tmp_path / "two", **{"workers.count": 2})
    assert scores(tmp_path / "two")["accuracy"]["value"] > 0.9
    assert predictions(tmp_path / "two")["id"] == predictions(published)["id"]


def test_what_every_worker_refuses_is_told_once(
    inputs: dict[str, str], ray_session: None, tmp_path: Path
) -> None:
    with pytest.raises(BiovlError, match="lower least_answers"):
        run(inputs, tmp_path / "report", **{"tasks.vqa.learning.least_answers": 1000})


def test_a_training_that_diverged_leaves_out_one_model_and_one_that_stopped_goes_on(
    tmp_path: Path,
) -> None:
    class Learns:
        needs_vectors = False

        def learn(self, run: Any, say: Any) -> None:
            if run.model == "diverges":
                raise TrainingError("the loss is NaN")
            raise TrainingStopped("a machine was lost")

        def evaluate_learnt(self, data: Any, vectors: Any, place: str) -> None:
            raise NotImplementedError

    draft = Draft(str(tmp_path / "report"))
    config: Any = SimpleNamespace(workers=None, precision="auto", index="")
    known: Any = {"one": "diverges", "two": "stops"}
    task = job.PreparedTask("vqa", Plugin("vqa"), None, cast(Any, Learns()))
    wanted = {(name, "vqa"): job._Vectors([], None) for name in known}
    with pytest.raises(TrainingStopped):
        job._learn(config, draft, known, [task], wanted, Progress("benchmark", io.StringIO()))
    assert draft.read_note("judged/one/vqa") == {"skipped": "the loss is NaN"}
    assert draft.read_note("judged/two/vqa") is None
