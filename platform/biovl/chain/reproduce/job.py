"""Run the steps of tables, each once; a failed step stops only the steps that depend on it."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from biovl.chain.job import run_step
from biovl.chain.links import Link, StepFailed, link, refusal
from biovl.chain.reproduce.graph import Graph
from biovl.core.errors import BiovlError


@dataclass(frozen=True)
class Outcome:
    """Results of the steps: published, failed, or missing something from the user."""

    published: dict[str, Link]
    """Published steps, by name."""
    missing: dict[str, str]
    """Reason by step, of those that wait for something that the user has to provide."""
    failed: dict[str, str]
    """Reason by step, of those that failed."""

    def reason(self, graph: Graph, name: str) -> str:
        """Return why a step is not published: because of itself or a step that it depends on."""
        for step in _upstream(graph, name):
            if step in self.failed:
                return f"{step} failed: {self.failed[step]}"
            if step in self.missing:
                return self.missing[step]
        return "not run yet"


def survey(graph: Graph) -> Outcome:
    """Return the state of all steps without running any.

    Raises:
        ConfigError: If a setting is not valid.
        StepFailed: If the output folder of a step is already published with other settings, or
            has lost files.
    """
    published = {}
    for found in graph.links():
        if found.is_refused:
            raise StepFailed(f"{found.step.name}: {refusal(found, graph.steps, graph.chain)}")
        if found.state in ("published", "unchecked"):
            published[found.step.name] = found
    return Outcome(published, dict(graph.missing), {})


def foresee(graph: Graph) -> dict[str, str]:
    """Return the pending steps that are certain to fail, with the reason; nothing is run.

    Properties of inputs that do not exist yet are inferred from the configuration of the steps that
    will publish them.
    """
    failing: dict[str, str] = {}
    made: dict[str, Any] = {}
    waiting: set[str] = set()
    published = set(graph.given)
    for found in graph.links():
        name, sources = found.step.name, set(found.step.sources)
        if found.state == "published":
            published.add(name)
            continue
        if (failing.keys() | waiting) & sources:
            waiting.add(name)
            continue
        if sources <= published or graph.entries[name].job in _FORESEEN:
            try:
                found.step.check(found.config, made)
            except BiovlError as error:
                failing[name] = _short(error)
                continue
        made[found.out] = found.config
    return failing


_FORESEEN = ("assemble", "pretrain")
"""Jobs whose checks know all inputs that do not exist yet."""


def run_graph(graph: Graph, *, progress: TextIO = sys.stderr) -> Outcome:
    """Run every unpublished step whose inputs are published; failed steps do not stop others.

    Raises:
        ConfigError: If a setting of any step is not valid; raised before any step runs.
        StepFailed: If the output folder of a step is already published with other settings, or has
            lost files; raised before any step runs. If this is only detected later, the step counts
            as failed.
    """
    survey(graph)
    done: list[Link] = graph.given_links()
    outcome = Outcome({}, dict(graph.missing), foresee(graph))
    for name, reason in outcome.failed.items():
        print(
            f"{name} would fail; steps that do not depend on it are run: {reason}",
            file=progress,
            flush=True,
        )
    with contextlib.ExitStack() as stack:
        for step in graph.steps:
            held_up = [source for source in step.sources if not _is_done(source, done)]
            if step.name in outcome.missing or step.name in outcome.failed or held_up:
                continue
            found = link(step, graph.chain, done)
            try:
                if found.is_refused:
                    raise StepFailed(refusal(found, graph.steps, graph.chain))
                if found.state != "published":
                    step.check(found.config, {})
                found = run_step(found, stack, progress)
            except BiovlError as error:
                outcome.failed[step.name] = _short(error)
                print(
                    f"{step.name} failed; steps that do not depend on it are run: {error}",
                    file=progress,
                    flush=True,
                )
                continue
            done.append(found)
            outcome.published[step.name] = found
    return outcome


def _is_done(name: str, done: Sequence[Link]) -> bool:
    return any(found.step.name == name for found in done)


def _upstream(graph: Graph, name: str) -> list[str]:
    """Return a step and all that it depends on, the first to run first."""
    wanted = {name}
    for step in reversed(graph.steps):
        if step.name in wanted:
            wanted |= set(step.sources)
    return [step.name for step in graph.steps if step.name in wanted]


def _short(error: BiovlError) -> str:
    lines = str(error.__cause__ or error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines)[:300]
