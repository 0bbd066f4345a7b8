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


def default() -> dict[str, Any]:
    """Every usable, captioned figure of reviewed articles, original bytes (needs figures, out)."""
    return {
        "rules": [
            {"name": "usable_image"},
            {"name": "figure_kinds"},
            {"name": "newest_version"},
            {"name": "not_retracted"},
            {"name": "has_caption"},
            # Thumbnails, spacers and rulers: nothing a model of 224 px could see.
            {"name": "min_side", "px": 64},
            {"name": "max_aspect", "ratio": 10},
        ]
    }


def training() -> dict[str, Any]:
    """The default, its images made small enough to decode at training speed (288 px)."""
    return {**default(), "image.short_side_px": 288}


def long_captions() -> dict[str, Any]:
    """The default with the paragraphs that cite a figure after its caption, as in BMC-LongCLIP."""
    return {**default(), "text": "caption+mentions"}


def commercial() -> dict[str, Any]:
    """The default, only with licences that allow commercial use."""
    rules = [*default()["rules"], {"name": "license_groups", "allowed": ["commercial"]}]
    return {**default(), "rules": rules}


def small() -> dict[str, Any]:
    """The default for a few articles: a tenth of them to val, a tenth to test."""
    return {**default(), "split.val_permyriad": 1_000, "split.test_permyriad": 1_000}


ASSEMBLE: dict[str, Recipe] = {
    "default": default,
    "training": training,
    "long_captions": long_captions,
    "commercial": commercial,
    "small": small,
}
