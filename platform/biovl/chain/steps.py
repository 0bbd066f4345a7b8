"""Table of the available steps of a chain. Jobs are imported only when they run."""

from biovl.annotate import config as annotate_config
from biovl.assemble import config as assemble_config
from biovl.benchmark import config as benchmark_config
from biovl.chain.links import FirstOf, Step
from biovl.concepts import cluster_config, resolve_config
from biovl.core import lazy
from biovl.harvest import config as harvest_config
from biovl.index import config as index_config
from biovl.pretrain import config as pretrain_config
from biovl.split import config as split_config

_IMAGES = FirstOf(("split", "harvest"))
"""Panels if the chain includes split, otherwise figures."""

STEPS: tuple[Step, ...] = (
    Step(
        name="harvest",
        folder="figures",
        recipes=harvest_config.RECIPES,
        job=lazy.function("biovl.harvest.job:harvest"),
        check=lazy.function("biovl.chain.checks:check_harvest"),
    ),
    Step(
        name="split",
        folder="panels",
        recipes=split_config.RECIPES,
        job=lazy.function("biovl.split.job:split_figures"),
        check=lazy.function("biovl.chain.checks:check_split"),
        reads={"figures": "harvest"},
    ),
    Step(
        name="annotate",
        folder="embedding",
        recipes=annotate_config.RECIPES,
        job=lazy.function("biovl.annotate.job:annotate"),
        check=lazy.function("biovl.chain.checks:check_annotate"),
        reads={"table": _IMAGES},
    ),
    Step(
        name="cluster",
        folder="concepts",
        recipes=cluster_config.RECIPES,
        job=lazy.function("biovl.concepts.cluster_job:cluster"),
        check=lazy.function("biovl.chain.checks:check_cluster"),
        reads={"table": _IMAGES, "embedding": "annotate"},
    ),
    Step(
        name="resolve",
        folder="labels",
        recipes=resolve_config.RECIPES,
        job=lazy.function("biovl.concepts.resolve_job:resolve"),
        check=lazy.function("biovl.chain.checks:check_resolve"),
        reads={"concepts": "cluster"},
    ),
    Step(
        name="assemble",
        folder="corpus",
        recipes=assemble_config.RECIPES,
        job=lazy.function("biovl.assemble.job:assemble"),
        check=lazy.function("biovl.chain.checks:check_assemble"),
        reads={"figures": _IMAGES, "columns": ("annotate", "resolve")},
    ),
    Step(
        name="pretrain",
        folder="model",
        recipes=pretrain_config.RECIPES,
        job=lazy.function("biovl.pretrain.job:pretrain"),
        check=lazy.function("biovl.chain.checks:check_pretrain"),
        reads={"corpus": "assemble"},
    ),
    Step(
        name="index",
        folder="index",
        recipes=index_config.RECIPES,
        job=lazy.function("biovl.index.job:index"),
        check=lazy.function("biovl.chain.checks:check_index"),
        reads={"model": "pretrain", "corpus": "assemble"},
    ),
    Step(
        name="benchmark",
        folder="report",
        recipes=benchmark_config.RECIPES,
        job=lazy.function("biovl.benchmark.job:benchmark"),
        check=lazy.function("biovl.chain.checks:check_benchmark"),
        reads={"model": "pretrain", "corpus": "assemble"},
    ),
)
"""The steps in the order in which they run. To add a step, add an entry."""
