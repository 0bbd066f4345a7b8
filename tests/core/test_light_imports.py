"""Settings and command lines are imported without PyTorch and Ray: ``--help`` answers at once."""

import subprocess
import sys

from tests.test_layout import PACKAGE, ROOT

HEAVY = ("torch", "ray", "open_clip", "transformers", "matplotlib", "scipy", "pandas")

SETTINGS = sorted(
    f"biovl.{path.relative_to(PACKAGE).with_suffix('').as_posix().replace('/', '.')}"
    for path in PACKAGE.rglob("*config.py")
)
"""Modules with the settings of a job."""

ALSO = (
    "biovl.benchmark.benchmarks",
    "biovl.chain.links",
    "biovl.chain.command",
    "biovl.chain.recipes",
    "biovl.runtime.command_line",
    "biovl.sample",
)
"""Further modules that a command line needs before its job runs."""

_IMPORT = f"""
import importlib, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
    heavy = sorted(set({HEAVY!r}) & (set(sys.modules) - before))
    if heavy:
        sys.exit(f"{{name}} imports {{', '.join(heavy)}}")
"""


def test_settings_and_command_lines_import_nothing_heavy() -> None:
    # In one process: the first module that imports something heavy is named.
    run = [sys.executable, "-c", _IMPORT, *SETTINGS, *ALSO]
    path = {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
    done = subprocess.run(run, capture_output=True, text=True, env=path, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


def test_there_are_settings_of_every_job() -> None:
    assert {"biovl.benchmark.config", "biovl.concepts.cluster_config"} <= set(SETTINGS)
