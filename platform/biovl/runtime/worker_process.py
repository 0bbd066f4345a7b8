"""Setup hook of worker processes. Imports as little as possible, since all of them run it."""

import logging
import os

import ray

_CLEANER = "ray.train.v2._internal.execution.controller.placement_group_cleaner"


def begin() -> None:
    """Bind Ray Train's placement group cleaner to this Ray, and silence its connection errors.

    The cleaner checks every second whether its controller is alive. Without an address it queries
    any Ray on this machine that has a dashboard; another Ray does not know the controller, and the
    cleaner then ends the workers of a healthy run. Without a dashboard it logs an error each time.
    """
    os.environ.setdefault("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    logging.getLogger(_CLEANER).setLevel(logging.ERROR)
