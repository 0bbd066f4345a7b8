"""The chain from packages to an index: runs the steps that are not published yet, in order."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from biovl.chain.links import Chain, Link, Step, StepFailed, check, link, links, refusal
from biovl.chain.steps import STEPS
from biovl.core.errors import BiovlError
from biovl.runtime.connection import connect_ray


def run_chain(
    chain: Chain,
    steps: Sequence[Step] = STEPS,
    *,
    progress: TextIO = sys.stderr,
    after: Callable[[Sequence[Link], dict[str, float]], object] = lambda done, seconds: None,
) -> list[Link]:
    """Run every step of a chain that is not published yet, and return all steps with their folders.

    Args:
        chain: Configuration of the chain.
        steps: The available steps.
        progress: Stream for progress messages.
        after: Called after each step that ran or failed, with all steps published so far, and the
            duration of this step in seconds, by its name.

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
            if found.is_refused:
                raise StepFailed(f"{step.name}: {refusal(found, steps, chain)}")
            started = time.monotonic()
            try:
                done.append(run_step(found, stack, progress))
            finally:
                if found.state != "published":
                    after(done, {step.name: time.monotonic() - started})
    return done


def run_step(state: Link, stack: contextlib.ExitStack, progress: TextIO) -> Link:
    """Run a step unless it is published, and return it in the state ``published``.

    Args:
        state: The step and its state.
        stack: Holds the connection to Ray until all steps have run.
        progress: Stream for progress messages.

    Raises:
        StepFailed: If the step failed, with its name and reason.
    """
    name = state.step.name
    if state.state == "published":
        lines = [f"{state.out} is published", *state.reason.splitlines()]
        print(*(f"{name}: {line}" for line in lines), sep="\n", file=progress, flush=True)
        return state
    resumes = " resumes" if state.state == "begun" else ""
    print(f"{name}: {state.out}{resumes} …", file=progress, flush=True)
    with _named(name):
        # One Ray for all steps that are done now, none where nothing is.
        stack.enter_context(connect_ray())
        manifest = state.step.job(state.config)
    return Link(state.step, state.config, "published", manifest=manifest)


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
