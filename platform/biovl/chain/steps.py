"""Table of the available steps of a chain. Jobs are imported only when they run."""

from collections.abc import Mapping
from typing import Any

from biovl.annotate import config as annotate_config
from biovl.assemble import config as assemble_config
from biovl.benchmark import config as benchmark_config
from biovl.chain.links import FirstOf, Step
from biovl.concepts import cluster_config, resolve_config
from biovl.core import lazy
from biovl.core.config import Recipe
from biovl.harvest import config as harvest_config
from biovl.index import config as index_config
from biovl.pretrain import config as pretrain_config
from biovl.split import config as split_config

_IMAGES = FirstOf(("split", "harvest"))
"""Panels if the chain includes split, otherwise figures."""


def _step(
    name: str, folder: str, recipes: Mapping[str, Recipe[Any]], job: str, **reads: Any
) -> Step:
    return Step(
        name=name,
        folder=folder,
        recipes=recipes,
        job=lazy.function(f"biovl.{job}"),
        check=lazy.function(f"biovl.chain.checks:check_{name}"),
        reads=reads,
    )


STEPS: tuple[Step, ...] = (
    _step("harvest", "figures", harvest_config.RECIPES, "harvest.job:harvest"),
    _step("split", "panels", split_config.RECIPES, "split.job:split_figures", figures="harvest"),
    _step("annotate", "embedding", annotate_config.RECIPES, "annotate.job:annotate", table=_IMAGES),
    _step(
        *("cluster", "concepts", cluster_config.RECIPES, "concepts.cluster_job:cluster"),
        table=_IMAGES,
        embedding="annotate",
    ),
    _step(
        *("resolve", "labels", resolve_config.RECIPES, "concepts.resolve_job:resolve"),
        concepts="cluster",
    ),
    _step(
        *("assemble", "corpus", assemble_config.RECIPES, "assemble.job:assemble"),
        figures=_IMAGES,
        columns=("annotate", "resolve"),
    ),
    _step("pretrain", "model", pretrain_config.RECIPES, "pretrain.job:pretrain", corpus="assemble"),
    _step(
        *("index", "index", index_config.RECIPES, "index.job:index"),
        model="pretrain",
        corpus="assemble",
    ),
    _step(
        *("benchmark", "report", benchmark_config.RECIPES, "benchmark.job:benchmark"),
        model="pretrain",
        corpus="assemble",
    ),
)
"""The steps in the order in which they run: name, folder, recipes, job, and what it reads. To add a
step, add an entry, and its check to ``checks``."""
