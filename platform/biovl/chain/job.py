"""The chain from packages to an index: runs the steps that are not published yet, in order."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from biovl.annotate import config as annotate_config
from biovl.annotate.job import annotate
from biovl.assemble import config as assemble_config
from biovl.assemble.job import assemble
from biovl.benchmark import config as benchmark_config
from biovl.benchmark.job import benchmark
from biovl.chain import Chain, FirstOf, Link, Step, StepFailed, check, link, links, refusal
from biovl.chain import checks as chain_checks
from biovl.concepts import cluster_config, resolve_config
from biovl.concepts.cluster_job import cluster
from biovl.concepts.resolve_job import resolve
from biovl.core.errors import BiovlError
from biovl.harvest import config as harvest_config
from biovl.harvest.job import harvest
from biovl.index import config as index_config
from biovl.index.job import index
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.job import pretrain
from biovl.runtime.connection import connect_ray
from biovl.split import config as split_config
from biovl.split.job import split_figures

_IMAGES = FirstOf(("split", "harvest"))
"""Panels if the chain includes split, otherwise figures."""

STEPS: tuple[Step, ...] = (
    Step(
        name="harvest",
        folder="figures",
        recipes=harvest_config.RECIPES,
        job=harvest,
        check=chain_checks.check_harvest,
    ),
    Step(
        name="split",
        folder="panels",
        recipes=split_config.RECIPES,
        job=split_figures,
        check=chain_checks.check_split,
        reads={"figures": "harvest"},
    ),
    Step(
        name="annotate",
        folder="embedding",
        recipes=annotate_config.RECIPES,
        job=annotate,
        check=chain_checks.check_annotate,
        reads={"table": _IMAGES},
    ),
    Step(
        name="cluster",
        folder="concepts",
        recipes=cluster_config.RECIPES,
        job=cluster,
        check=chain_checks.check_cluster,
        reads={"table": _IMAGES, "embedding": "annotate"},
    ),
    Step(
        name="resolve",
        folder="labels",
        recipes=resolve_config.RECIPES,
        job=resolve,
        check=chain_checks.check_resolve,
        reads={"concepts": "cluster"},
    ),
    Step(
        name="assemble",
        folder="corpus",
        recipes=assemble_config.RECIPES,
        job=assemble,
        check=chain_checks.check_assemble,
        reads={"figures": _IMAGES, "columns": ("annotate", "resolve")},
    ),
    Step(
        name="pretrain",
        folder="model",
        recipes=pretrain_config.RECIPES,
        job=pretrain,
        check=chain_checks.check_pretrain,
        reads={"corpus": "assemble"},
    ),
    Step(
        name="index",
        folder="index",
        recipes=index_config.RECIPES,
        job=index,
        check=chain_checks.check_index,
        reads={"model": "pretrain", "corpus": "assemble"},
    ),
    Step(
        name="benchmark",
        folder="report",
        recipes=benchmark_config.RECIPES,
        job=benchmark,
        check=chain_checks.check_benchmark,
        reads={"model": "pretrain", "corpus": "assemble"},
    ),
)
"""The steps in the order in which they run. To add a step, add an entry."""


def run_chain(
    chain: Chain,
    steps: Sequence[Step] = STEPS,
    *,
    progress: TextIO = sys.stderr,
    after: Callable[[Sequence[Link], dict[str, float]], None] = lambda done, seconds: None,
) -> list[Link]:
    """Run every step of a chain that is not published yet, and return all steps with their folders.

    Args:
        chain: Configuration of the chain.
        steps: The available steps.
        progress: Stream for progress messages.
        after: Called after each step that ran, with all steps published so far, and the seconds
            that this one took.

    Raises:
        ConfigError: If a setting of any step is not valid; raised before any step runs.
        StepFailed: If a step failed, with its name and reason; raised before any step runs if the
            failure can be predicted. Published folders remain, and the same command resumes.
    """
    check(links(steps, chain))
    done: list[Link] = []
    with contextlib.ExitStack() as stack:
        for step in steps:
            if step.name not in chain.settings:
                continue
            found = link(step, chain, done)
            if found.state == "differs":
                raise StepFailed(f"{step.name}: {refusal(found, steps, chain)}")
            if found.state == "published":
                print(f"{step.name}: {found.out} is published", file=progress, flush=True)
                done.append(found)
                continue
            goes_on = " goes on" if found.state == "begun" else ""
            print(f"{step.name}: {found.out}{goes_on} …", file=progress, flush=True)
            started = time.monotonic()
            with _named(step.name):
                # One Ray for all steps that are done now, none where nothing is.
                stack.enter_context(connect_ray())
                manifest = step.job(found.config)
            done.append(Link(step, found.config, "published", manifest=manifest))
            after(done, {step.name: time.monotonic() - started})
    return done


@contextlib.contextmanager
def _named(step: str) -> Iterator[None]:
    """Raise errors of a step with the name of the step."""
    try:
        yield
    except BiovlError as error:
        raise StepFailed(
            f"What is published stays; the same command resumes.\n{step} failed: {error}"
        ) from error
    except BaseException as error:
        error.add_note(f"{step} failed: {type(error).__name__}: {error}")
        raise
