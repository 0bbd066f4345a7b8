"""The benchmark that kills: one kill of each kind, drawn from a seed, on the shortest pipeline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ray
def test_harvest_survives_one_kill_of_each_kind():
    command = [sys.executable, "benchmarks/chaos.py", "--only", "harvest", "--runs", "1"]
    done = subprocess.run(
        [*command, "--articles", "4", "--seed", "1"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    became = {outcome["kind"]: outcome["became"] for outcome in found["outcomes"]}
    assert became == dict.fromkeys(("worker", "node", "driver"), "survived"), done.stdout
