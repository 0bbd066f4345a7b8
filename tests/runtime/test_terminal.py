"""What a command shows of the processes and libraries below it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from biovl.runtime.terminal import FALSE_ALARMS

PROGRAM = """
import os, sys
from biovl.runtime.terminal import filter_false_alarms

with filter_false_alarms():
    os.write(2, b"native: {alarm} and so on\\n")
    os.write(2, b"native: a real error\\n")
    print("python: progress", file=sys.stderr)
    {end}
os.write(2, b"native: after the block\\n")
print("python: after the block", file=sys.stderr)
"""


@pytest.mark.parametrize("end", ["pass", "os.abort()"])
def test_only_false_alarms_are_left_out_also_when_the_process_crashes(end: str) -> None:
    program = PROGRAM.format(alarm=FALSE_ALARMS[0], end=end)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "platform")},
    )  # fmt: skip
    lines = ["native: a real error", "python: progress"]
    if end == "pass":
        lines += ["native: after the block", "python: after the block"]
    assert sorted(done.stderr.splitlines()) == sorted(lines)
    assert (done.returncode == 0) == (end == "pass")


def test_a_terminal_stays_a_terminal() -> None:
    asks = (
        "import sys; from biovl.runtime.terminal import filter_false_alarms\n"
        "with filter_false_alarms(): print(sys.stderr.isatty(), end='')"
    )
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", asks], stderr=theirs, stdout=subprocess.PIPE, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "platform")},
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.stdout == b"True"


def test_what_was_imported_in_the_block_can_be_used_after_it() -> None:
    program = (
        "import sys; from biovl.runtime.terminal import filter_false_alarms\n"
        "with filter_false_alarms():\n"
        "    def job(progress=sys.stderr): print('progress', file=progress, flush=True)\n"
        "    job()\n"
        "with filter_false_alarms(): job()\n"
        "job()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "platform")},
    )  # fmt: skip
    assert done.stderr.splitlines() == ["progress"] * 3
