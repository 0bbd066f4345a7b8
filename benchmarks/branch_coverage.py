"""Coverage of lines and branches by the tests, in Ray's workers and other processes, too.

    pip install coverage
    python benchmarks/branch_coverage.py FOLDER [ARGUMENTS OF PYTEST]

It takes about twice as long as the tests alone. FOLDER gets the measurement (``coverage report
--data-file FOLDER/all`` prints it by file); the last line is the totals as JSON.

Ray kills its workers, and tests kill drivers: every process stores what it ran each few seconds.
The last seconds of a killed process are lost, so that the numbers are a lower bound. Code that
PyTorch compiles, and callbacks of C++ threads, are not seen.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("platform", "serve", "pipelines", "tune")

# Python imports sitecustomize at its start. coverage starts itself in processes that inherit
# COVERAGE_PROCESS_START, by a .pth file of its own.
STARTUP = """
import os, threading, time
try:
    import coverage
except ImportError:
    pass
else:
    def keep():
        while True:
            time.sleep(2)
            measured = coverage.Coverage.current()
            if measured is not None:
                measured.save()

    def begin():
        threading.Thread(target=keep, daemon=True).start()

    if os.environ.get("COVERAGE_PROCESS_START"):
        coverage.process_startup()
        begin()
        os.register_at_fork(after_in_child=begin)
"""


def main() -> int:
    """Run the tests, print the totals, and return the exit status of the tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("pytest", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    (folder / "startup").mkdir(parents=True, exist_ok=True)
    (folder / "startup" / "sitecustomize.py").write_text(STARTUP)
    sources = "".join(f"\n    {ROOT / name}" for name in SOURCES)
    settings = folder / "coveragerc"
    settings.write_text(
        f"[run]\nbranch = true\nparallel = true\ndata_file = {folder / 'part'}\nsource ={sources}\n"
    )
    paths = [str(folder / "startup"), os.environ.get("PYTHONPATH", "")]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", *(given.pytest or ("-n", "3", "--dist", "loadfile"))],
        cwd=ROOT,
        env={
            **os.environ,
            "COVERAGE_PROCESS_START": str(settings),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        check=False,
    )
    parts = sorted(str(path) for path in folder.glob("part.*"))
    command = [sys.executable, "-m", "coverage"]
    options = [f"--rcfile={settings}", f"--data-file={folder / 'all'}"]
    subprocess.run([*command, "combine", "--quiet", *options, *parts], check=True)
    report = folder / "totals.json"
    subprocess.run([*command, "json", "-q", *options, "-o", str(report)], check=True)
    totals = json.loads(report.read_text())["totals"]
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    print(json.dumps({name: totals[name] for name in names}))
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
