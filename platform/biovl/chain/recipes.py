"""Recipes of chains: which steps are run, the recipe of each, and changes to its settings."""

from collections.abc import Callable
from typing import Any

ChainRecipe = Callable[[], dict[str, Any]]
"""Returns settings by dotted name, complete except for those that the user must set.
``STEP.recipe`` is the recipe of a step; steps are prefixed because the same setting may belong to
several."""


def demo() -> dict[str, Any]:
    """Synthetic sample articles: minutes on two cores (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "harvest.packages_per_unit": 8,
        "assemble.recipe": "small",
        "pretrain.recipe": "tiny",
        # With a few more epochs the model would memorize the hundred pairs.
        "pretrain.epochs": 16,
        "pretrain.validation.every_epochs": 8,
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def demo_pmc() -> dict[str, Any]:
    """A hundred articles of PMC and a given model, not trained (needs folder, index.model …)."""
    return {
        "harvest.recipe": "pmc_sample",
        # Panels are shown on the page only.
        "split.recipe": "default",
        "assemble.recipe": "small",
        "assemble.image.short_side_px": 288,
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def laptop() -> dict[str, Any]:
    """Some hundred articles of your own and a small CLIP, on CPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "assemble.recipe": "small",
        # Images are decoded in every epoch and resized to 64 px.
        "assemble.image.short_side_px": 288,
        "pretrain.recipe": "tiny",
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def pmc() -> dict[str, Any]:
    """PMC on a cluster: BiomedCLIP as published, on 16 GPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        # One receipt per unit: 18,000 for nine million articles.
        "harvest.packages_per_unit": 512,
        "assemble.recipe": "pmc_15m_filtered",
        "pretrain.recipe": "biomedclip",
        "pretrain.workers": {"count": 16, "gpus": 1, "cpus": 4},
        "pretrain.validation.gpus": 1,
        "index.recipe": "on_gpus",
        "index.workers.count": 8,
        "benchmark.recipe": "retrieval",
        "benchmark.workers": {"count": 8, "gpus": 1, "cpus": 4},
    }


def fine_grained() -> dict[str, Any]:
    """Like pmc, with compound figures split into panels with captions of their own, on 16 GPUs."""
    return {**pmc(), "split.recipe": "default"}


def concepts() -> dict[str, Any]:
    """Cluster figures for manual labelling; after the votes, assemble pairs filtered by concept."""
    return {
        "harvest.recipe": "packages",
        "annotate.recipe": "dinov2",
        "cluster.recipe": "default",
        # After manual labelling, add resolve.recipe=default resolve.votes=votes.csv and
        # assemble.recipe=concept_filtered.
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
"""Recipes of chains, by name."""
