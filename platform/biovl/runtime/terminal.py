"""Terminal output of a command, without misleading log lines of Ray's core."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

FALSE_ALARMS = (
    # Ray Data itself puts the arguments of every actor pool into the object store and holds them as
    # long as the pool exists: github.com/ray-project/ray/issues/57733.
    "has constructor arguments in the object store and max_restarts > 0",
)
"""Substrings of lines that Ray's C++ core writes to standard error although nothing is wrong."""


@contextlib.contextmanager
def filter_false_alarms() -> Iterator[None]:
    """Remove lines with ``FALSE_ALARMS`` from the standard error of native code in the block.

    Ray's core writes to file descriptor 2 and has no filter, only a log level for all processes.
    Python's ``sys.stderr`` is written to the terminal directly, as before. The filter is a separate
    process, so that the last lines of a crashing process are not lost.
    """
    grep = shutil.which("grep")
    if grep is None:
        yield
        return
    patterns = [part for alarm in FALSE_ALARMS for part in ("-e", alarm)]
    before = sys.stderr
    before.flush()
    # Not closed: jobs that are imported in the block have it as their default for progress.
    terminal = open(os.dup(2), "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    process = subprocess.Popen(
        [grep, "--line-buffered", "--text", "-v", "-F", *patterns],
        stdin=subprocess.PIPE,
        stdout=terminal,
        # Ctrl-C is for this process; the filter ends when the last writer closes the pipe.
        start_new_session=True,
    )
    assert process.stdin is not None
    os.dup2(process.stdin.fileno(), 2)
    process.stdin.close()
    sys.stderr = terminal
    try:
        yield
    finally:
        terminal.flush()
        sys.stderr = before
        os.dup2(terminal.fileno(), 2)
        # With a timeout: a process that outlives this one may still hold the pipe.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
