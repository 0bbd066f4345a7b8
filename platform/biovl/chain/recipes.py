"""Named chains: which steps they do, by which recipe of each, and what is changed in it."""

from collections.abc import Callable
from typing import Any

ChainRecipe = Callable[[], dict[str, Any]]
"""Returns settings by dotted name, complete but for what only the user knows. A step's ``recipe``
is one of its own; they stay apart because the same setting may belong to several steps."""


def demo() -> dict[str, Any]:
    """The embedded sample: minutes on two cores (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "harvest.packages_per_unit": 8,
        "assemble.recipe": "small",
        "pretrain.recipe": "tiny",
        # A hundred pairs are learnt by heart after a few epochs more.
        "pretrain.epochs": 16,
        "pretrain.validation.every_epochs": 8,
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def laptop() -> dict[str, Any]:
    """Some hundred articles of your own and a small CLIP, on CPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "assemble.recipe": "small",
        # Decoded in every epoch, and looked at in 64 px.
        "assemble.image.short_side_px": 288,
        "pretrain.recipe": "tiny",
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def pmc() -> dict[str, Any]:
    """PMC on a cluster: BiomedCLIP as published, on 16 GPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        # A receipt per unit: of nine million articles 18,000.
        "harvest.packages_per_unit": 512,
        "assemble.recipe": "pmc_15m",
        "pretrain.recipe": "biomedclip",
        "pretrain.workers": {"count": 16, "gpus": 1, "cpus": 4},
        "pretrain.validation.gpus": 1,
        "index.recipe": "on_gpus",
        "index.workers.count": 8,
        "benchmark.recipe": "retrieval",
        "benchmark.workers": {"count": 8, "gpus": 1, "cpus": 4},
    }


def fine_grained() -> dict[str, Any]:
    """Panels with captions of their own, for figures, and a model of them, on 16 GPUs."""
    return {**pmc(), "split.recipe": "default"}


def concepts() -> dict[str, Any]:
    """Figures to clusters for people to name; with their votes on to pairs filtered by concept."""
    return {
        "harvest.recipe": "packages",
        "annotate.recipe": "dinov2",
        "cluster.recipe": "default",
        # The votes are there when people have given them: resolve.recipe=default
        # resolve.votes=votes.csv, and assemble.recipe=concept_filtered.
        "resolve.recipe": None,
        "assemble.recipe": None,
    }


RECIPES: dict[str, ChainRecipe] = {
    "demo": demo,
    "laptop": laptop,
    "pmc": pmc,
    "fine_grained": fine_grained,
    "concepts": concepts,
}
"""Of the whole chain, by step: its ``recipe``, and settings that replace those of it."""
