"""What every worker process does first. Imports next to nothing, as it is run that often."""

import logging
import os

import ray

_CLEANER = "ray.train.v2._internal.execution.controller.placement_group_cleaner"


def begin() -> None:
    """Keep Ray Train's cleaner to this Ray, and silent where it cannot do its work.

    It asks every second whether its controller lives, of whichever Ray of this machine has a
    dashboard unless it is told which: another one does not know the controller, and the cleaner
    then ends the workers of a run that is well. Where no dashboard runs it says each time that it
    cannot ask.
    """
    os.environ.setdefault("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    logging.getLogger(_CLEANER).setLevel(logging.ERROR)
