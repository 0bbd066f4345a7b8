"""What every worker process does first. Imports next to nothing, as it is run that often."""

import logging

# Without a dashboard this actor of Ray Train cannot ask whether its controller lives, and says so
# every second; with one it can and says nothing.
_TALKATIVE = ["ray.train.v2._internal.execution.controller.placement_group_cleaner"]


def worker() -> None:
    """Leave out what Ray says of itself that no user can act on."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
