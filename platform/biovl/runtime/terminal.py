"""The terminal of a command: without lines of Ray's core that alarm and mean nothing."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

FALSE_ALARMS = (
    # Ray Data puts the arguments of every actor pool into the object store itself and holds them as
    # long as the pool exists: github.com/ray-project/ray/issues/57733.
    "has constructor arguments in the object store and max_restarts > 0",
)
"""Parts of lines that Ray's C++ core writes to standard error though nothing is wrong."""


@contextlib.contextmanager
def filter_false_alarms() -> Iterator[None]:
    """Drop ``FALSE_ALARMS`` from what native code writes to standard error in the block.

    Ray's core writes to file descriptor 2 and knows no filter, only a log level for all processes.
    What Python writes to ``sys.stderr`` goes to the terminal directly, as before. A separate
    process filters, so that the last words of a process that crashes are not lost with it.
    """
    grep = shutil.which("grep")
    if grep is None:
        yield
        return
    patterns = [part for alarm in FALSE_ALARMS for part in ("-e", alarm)]
    before = sys.stderr
    before.flush()
    with open(os.dup(2), "w", buffering=1, errors="backslashreplace") as terminal:
        process = subprocess.Popen(
            [grep, "--line-buffered", "--text", "-v", "-F", *patterns],
            stdin=subprocess.PIPE,
            stdout=terminal,
            # Ctrl-C is for this process; the filter ends when nobody writes to it any more.
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
            # Not awaited for ever: a process that outlives this one may still hold the pipe.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
