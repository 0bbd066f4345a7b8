"""Which tester runs which file of tests."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler.loadfile import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]

RAYS = 2
"""Testers that may start a Ray, of 4 GB each."""


def may_start_ray(tester: str) -> bool:
    """Return whether a tester, ``gw0`` or higher, may start a Ray."""
    return int(tester.removeprefix("gw")) < RAYS


class FewRays(LoadFileScheduling):
    """Files in their order, but those that need Ray for the first testers alone.

    While these wait for processes to start and stop, the others compute.
    """

    def _assign_work_unit(self, node: "WorkerController") -> None:
        if not may_start_ray(node.gateway.id):
            file = next((file for file in self.workqueue if not needs_ray(file)), None)
            if file is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


@functools.cache
def needs_ray(file: str) -> bool:
    """Return whether a file, relative to the checkout, has tests that need Ray."""
    return "mark.ray" in (ROOT / file).read_text(encoding="utf-8")
