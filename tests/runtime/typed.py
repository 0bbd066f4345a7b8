"""Commands as a user types them, without starting Ray again, and most without starting Python."""

import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import ray

ROOT = Path(__file__).parents[2]


def run_command(script: str, recipe: str, **settings: Any) -> dict[str, Any]:
    """Run ``script recipe --set …`` and return its last line, a JSON object.

    Args:
        script: Path of the script below the repository.
        recipe: Name of the recipe.
        settings: By name; what is no text becomes JSON.

    Raises:
        SystemExit: If the command fails.
    """
    given = [
        f"--set={name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in settings.items()
    ]
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [script, recipe, *given]),
        mock.patch.object(sys, "path", [str((ROOT / script).parent), *sys.path]),
        contextlib.redirect_stdout(said),
    ):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    last: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
    return last


def with_this_ray() -> dict[str, str]:
    """Return the environment of a process that uses the Ray of these tests."""
    return {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
