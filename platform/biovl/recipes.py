"""Named, complete configurations we stand behind: one function each, by job.

A recipe is complete but for what only the user knows: where the input is and where the result goes.
"""

from typing import Any

from biovl.config import Recipe


def packages() -> dict[str, Any]:
    """PMC packages: folders, archives or tars of many, local or s3:// (needs source.path, out)."""
    return {"source.name": "packages"}


def table() -> dict[str, Any]:
    """A folder of images and a table of captions (needs source.path, out)."""
    return {"source.name": "table"}


HARVEST: dict[str, Recipe] = {"packages": packages, "table": table}
