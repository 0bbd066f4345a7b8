"""Shared main function of the commands: parse, run the job, print the summary."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from biovl.core.arguments import from_command_line
from biovl.core.artifacts import Manifest
from biovl.core.config import Recipe
from biovl.core.errors import BiovlError
from biovl.runtime.terminal import filter_false_alarms


def main(
    config_class: type[Any],
    recipes: Mapping[str, Recipe[Any]],
    job: Callable[[Any], Manifest],
    *,
    about: str | None,
    estimate: Callable[[Any], str] | None = None,
) -> None:
    """Run a job from the command line. The last line on standard output is its summary as JSON.

    The summary has the counts of the manifest, and its warnings, also if the folder was published
    before.

    If a request cannot be met, ends the process with status 2 and prints the reason last; if it is
    interrupted (Ctrl-C), with status 130.

    Args:
        config_class: Configuration class of the job.
        recipes: Recipes by name.
        job: Publishes a folder.
        about: Description of the script.
        estimate: Returns a resource estimate as text, for ``--dry-run``; the job does not run.
    """
    flags = {"dry-run": "say what the job will compute, hold and take, and stop"}
    config, given = from_command_line(
        config_class, recipes, about=about, flags=flags if estimate else None
    )
    try:
        if estimate is not None and "dry-run" in given:
            sys.stdout.write(estimate(config))
            return
        with filter_false_alarms():
            manifest = job(config)
    except BiovlError as error:
        sys.exit(_failed(error))
    except KeyboardInterrupt:
        end_interrupted()
    summary = {"out": config.out, "kind": manifest.kind, **manifest.counts}
    summary["warnings"] = manifest.warnings
    sys.stdout.write(json.dumps(summary) + "\n")


def end_interrupted() -> NoReturn:
    """End the process after Ctrl-C, with the status that shells expect."""
    sys.stderr.write("Interrupted. The same command resumes.\n")
    sys.exit(130)


def _failed(error: BiovlError) -> int:
    sys.stderr.write(f"{error}\n")
    return 2
