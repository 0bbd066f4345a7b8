"""Ends a process that hangs: whoever started it can start it again, a hung one is never missed."""

import faulthandler
import os
import sys
import threading

EXIT_STATUS = 75
"""EX_TEMPFAIL of sysexits.h: try again."""


class Watchdog:
    """Ends this process when nothing was heard for too long, with the stacks of its threads.

    Args:
        minutes: How long; None waits for ever.
        doing: What the process does, for the message.
    """

    def __init__(self, minutes: float | None, doing: str) -> None:
        self._minutes, self._doing = minutes, doing
        self._heard = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if minutes is not None:
            self._thread.start()

    def heard(self, doing: str) -> None:
        """Say that the process lives, and what it does next."""
        self._doing = doing
        self._heard.set()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._heard.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        assert self._minutes is not None
        while not self._closed:
            self._heard.clear()
            if self._closed:  # and what close() said was just cleared
                return
            if not self._heard.wait(self._minutes * 60) and not self._closed:
                sys.stderr.write(
                    f"stuck: nothing for {self._minutes:g} minutes while {self._doing}; this "
                    "worker ends, and the run goes on from its last checkpoint "
                    "(trouble.stuck_minutes)\n"
                )
                faulthandler.dump_traceback(all_threads=True)
                sys.stderr.flush()
                os._exit(EXIT_STATUS)
