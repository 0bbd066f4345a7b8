"""The day on a GPU, on small models on the CPU: its steps run, resume and fill the page."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from biovl.models.towers import ImageTower

ROOT = Path(__file__).parents[2]


def run_day(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/gpu_day.py", str(out), "--tiny", "--device", "cpu", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights_and_a_day_goes_on_where_it_ended(tmp_path):
    done = run_day(tmp_path, "--only", "machine", "train")
    assert done.returncode == 0, (done.stdout, (tmp_path / "train.txt").read_text())
    trained = json.loads((tmp_path / "train.json").read_text())
    assert trained["equal_weights"]
    assert trained["resumed_from"] > 0
    before = (tmp_path / "train.json").stat().st_mtime_ns
    (tmp_path / "machine.json").unlink()
    assert run_day(tmp_path, "--only", "machine", "train").returncode == 0
    assert (tmp_path / "train.json").stat().st_mtime_ns == before
    page = (tmp_path / "gpu.md").read_text()
    assert "## Killed and resumed" in page
    assert "Not measured yet, or not to the end: agree" in page


@pytest.mark.slow
def test_a_step_is_measured_with_as_many_pairs_as_fit_and_is_not_made_to_fit(monkeypatch):
    # At the end: benchmarks/serve.py must not hide the package.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])
    import pretrain_gpu

    monkeypatch.setattr(pretrain_gpu, "TIMED_S", 0.01)
    forward = ImageTower.forward

    def limited(tower, pixels):
        if len(pixels) > 2:
            raise torch.OutOfMemoryError
        return forward(tower, pixels)

    monkeypatch.setattr(ImageTower, "forward", limited)
    (packed,) = (way for way in pretrain_gpu.WAYS if way.name == "ours, packed")
    ways = [packed, replace(packed, name="whole", whole_batch=True)]
    steps = []
    for found in pretrain_gpu._recipe(
        "biomedclip", ways, 8, torch.device("cpu"), 1e12, is_tiny=True
    ):
        steps.append(list(found))
    assert steps == [["ours, packed"], ["ours, packed", "whole"]]
    assert found["ours, packed"]["pairs"] == 2
    assert found["whole"]["pairs"] == 8
    # Work that is done twice is not counted twice.
    per_pair = [way["flops"] / way["pairs"] for way in found.values()]
    assert per_pair[0] == pytest.approx(per_pair[1], rel=0.2)
