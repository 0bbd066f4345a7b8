"""Watchdog that ends a process which hangs, so that Ray restarts it as after a crash."""

import faulthandler
import os
import sys
import threading

EXIT_STATUS = 75
"""EX_TEMPFAIL of sysexits.h: try again."""


class Watchdog:
    """Ends this process after a time without ``reset``, and prints the stacks of its threads.

    Args:
        minutes: The time limit; None for no limit.
        doing: The current activity, for the message.
    """

    def __init__(self, minutes: float | None, doing: str) -> None:
        self._minutes, self._doing = minutes, doing
        self._reset = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if minutes is not None:
            self._thread.start()

    def reset(self, doing: str) -> None:
        """Restart the time limit for the next activity, named ``doing``."""
        self._doing = doing
        self._reset.set()

    def close(self) -> None:
        """Disable the watchdog."""
        self._closed = True
        self._reset.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        assert self._minutes is not None
        while not self._closed:
            self._reset.clear()
            if self._closed:  # the event set by close() was just cleared
                return
            if not self._reset.wait(self._minutes * 60) and not self._closed:
                sys.stderr.write(
                    f"stuck: no progress for {self._minutes:g} minutes while {self._doing}; "
                    "this process exits, and the run resumes from its last checkpoint "
                )
                faulthandler.dump_traceback(all_threads=True)
                sys.stderr.flush()
                os._exit(EXIT_STATUS)
