"""The benchmark that kills: a node, at a moment drawn from a seed, on the shortest pipeline.

Workers and drivers are killed by the tests of the jobs themselves.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ray
def test_harvest_survives_the_loss_of_a_node():
    command = [sys.executable, "benchmarks/chaos.py", "--only", "harvest", "--runs", "1"]
    command += ["--kinds", "node"]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    # Ray writes down there which cluster is the newest, and whoever starts joins it: tests beside
    # this one as well. Paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as own:
        done = subprocess.run(
            [*command, "--articles", "4", "--seed", "1"],
            cwd=ROOT,
            env={**environment, "RAY_TMPDIR": own},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    became = [(outcome["kind"], outcome["became"]) for outcome in found["outcomes"]]
    assert became == [("node", "survived")], done.stdout
