"""A process that hangs ends itself and says what it was doing."""

import subprocess
import sys
import threading

from biovl.pretrain.watchdog import EXIT_STATUS, Watchdog

HANGING = """
import threading
from biovl.pretrain.watchdog import Watchdog
dog = Watchdog(None, "the first step begins")
dog.reset("step 7 is taken")

def hang():
    # Watched from here on, so that a machine that stalls before changes nothing.
    dog._minutes = 0.2 / 60
    dog._thread.start()
    threading.Event().wait()

hang()
"""

LIVELY = """
import threading
from biovl.pretrain.watchdog import Watchdog

class Patient(threading.Event):
    # Waits for as long as it takes, and keeps what it was asked for.

    waits = []

    def wait(self, timeout):
        self.waits.append(timeout)
        waiting.set()
        return super().wait()

waiting = threading.Event()
dog = Watchdog(None, "the first step begins")
dog._minutes, dog._reset = 2, Patient()
dog._thread.start()
for step in range(30):
    assert waiting.wait(600)
    waiting.clear()
    dog.reset(f"step {step} is taken")
assert waiting.wait(600)
dog.close()
# Each word begins the time anew.
assert Patient.waits == [120.0] * 31, Patient.waits
Watchdog(None, "nobody watches").close()
print("done")
"""


def test_a_hung_process_ends_with_its_stacks() -> None:
    hung = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True)
    assert hung.returncode == EXIT_STATUS
    assert "while step 7 is taken" in hung.stderr
    assert "in hang\n" in hung.stderr


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

    dog._reset = ClosedMeanwhile()
    thread = threading.Thread(target=dog._watch, daemon=True)
    thread.start()
    thread.join(600)
    assert not thread.is_alive()
