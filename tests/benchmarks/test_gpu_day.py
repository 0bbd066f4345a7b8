"""The day on a GPU, on small models on the CPU: its steps run, resume and fill the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
