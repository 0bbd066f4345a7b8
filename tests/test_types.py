"""The types of all code, which mypy checks in a minute of one core."""

import subprocess
import sys
from pathlib import Path


def test_types() -> None:
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
