"""A process that hangs ends itself and says what it was doing."""

import subprocess
import sys
import threading

from biovl.training.watchdog import EXIT_STATUS, Watchdog

HANGING = """
import threading
from biovl.training.watchdog import Watchdog
dog = Watchdog(0.2 / 60, "the first step begins")
dog.heard("step 7 is taken")
threading.Event().wait()
"""

LIVELY = """
import time
from biovl.training.watchdog import Watchdog
dog = Watchdog(1 / 60, "the first step begins")
for step in range(30):
    dog.heard(f"step {step} is taken")
    time.sleep(0.05)
dog.close()
Watchdog(None, "nobody watches").close()
print("done")
"""


def test_a_hung_process_ends_with_its_stacks() -> None:
    hung = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True)
    assert hung.returncode == EXIT_STATUS
    assert "while step 7 is taken" in hung.stderr
    assert "Event().wait" in hung.stderr or "threading.py" in hung.stderr


def test_a_lively_process_is_left_alone() -> None:
    lively = subprocess.run([sys.executable, "-c", LIVELY], capture_output=True, text=True)
    assert (lively.returncode, lively.stdout) == (0, "done\n")


def test_a_word_at_the_wrong_moment_does_not_keep_it_from_closing() -> None:
    dog = Watchdog(None, "nothing")
    dog._minutes = 10

    class ClosedMeanwhile(threading.Event):
        def clear(self) -> None:
            dog._closed = True
            self.set()
            super().clear()

    dog._heard = ClosedMeanwhile()
    thread = threading.Thread(target=dog._watch, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
