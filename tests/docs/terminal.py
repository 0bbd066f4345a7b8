"""A newcomer's terminal: a process with a folder of its own, in which commands run as typed.

Jobs run in it one after the other on one Ray: starting both anew for each would take minutes.
"""

import contextlib
import itertools
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

from biovl import __main__
from biovl.runtime.connection import connect_ray
from tests.docs.checking import job_of
from tests.docs.pages import words
from tests.leases import do_not_wait

SMALLER = {
    # Drawing takes a second for each article: others, drawn once for all tests, are put beside it.
    ("sample",): ["--articles", "1"],
    # There is no hub: a small model of random weights, in the newcomer's folder.
    ("annotate", "dinov2"): ["--set", "weights=dinov2"],
    ("finetune", "tiny"): ["--set=epochs=1", "--set=alphas=[0, 1]", "--set=resamples=100"],
    ("merge", "sweep"): ["--set", "alphas=[0, 1]"],
    ("pretrain", "tiny"): ["--set", "epochs=1", "--set", "batch.pairs=8"],
    ("sweep", "grid"): ["--set", "base.batch.pairs=8"],
}
"""Added to commands that begin so, for tests alone: what they do takes seconds, not minutes."""

_ELSEWHERE = ("make", "serve", "curl", "kill")
"""CI runs the targets of make; the others have tests of their own."""
_open = contextlib.ExitStack()
_done: set[str] = set()


def begin(folder: Path) -> None:
    """Go to a folder and start Ray there."""
    os.chdir(folder)
    os.environ["HF_HOME"] = str(folder / "hub")
    do_not_wait()
    _open.enter_context(connect_ray())


def end() -> None:
    """End Ray."""
    _open.close()


def run(command: str) -> None:
    """Run a command; what ran before is not run again.

    Raises:
        RuntimeError: If it fails.
    """
    typed = words(command)
    if command in _done or typed[0] in _ELSEWHERE:
        return
    _done.add(command)
    if (job := job_of(typed)) is not None:
        _job(*job)
    elif typed[:2] in (["python", "-c"], ["python", "-m"]):
        _interpreter(*typed[1:])
    else:
        shell(command.replace("python ", f"{sys.executable} ", 1))


def _job(name: str, arguments: list[str]) -> None:
    typed = (name, *arguments)
    smaller = [more for start, more in SMALLER.items() if typed[: len(start)] == start]
    with mock.patch.object(sys, "argv", []):
        try:
            __main__.run(name, [*arguments, *itertools.chain(*smaller)])
        except SystemExit as exit_:
            if exit_.code:
                raise RuntimeError(f"{' '.join(typed)} ended with {exit_.code}") from exit_


def _interpreter(option: str, what: str, *arguments: str) -> None:
    """Do what ``python -c`` or ``-m`` would, with what this process has already imported."""
    given = list(itertools.takewhile(lambda word: word != ">", arguments))
    with (
        mock.patch.object(sys, "argv", [what, *given]),
        open(arguments[-1] if len(given) < len(arguments) else os.devnull, "w") as said,
        contextlib.redirect_stdout(said),
    ):
        if option == "-c":
            python(what, option)
            return
        try:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        except SystemExit as exit_:
            if exit_.code:
                raise RuntimeError(f"python -m {what} ended with {exit_.code}") from exit_


def shell(command: str) -> str:
    """Run a command in bash and return what it prints.

    Raises:
        RuntimeError: If it fails.
    """
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def python(text: str, name: str) -> None:
    """Run Python."""
    exec(compile(text, name, "exec"), {})


def serve_and_ask(start: str, question: str) -> str:
    """Run ``serve run …``, return the answer to ``curl …``, and press Ctrl-C."""
    from ray import serve
    from ray.serve.scripts import cli

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # As typed, but for the port, which may be taken.
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        cli.main(args=[*words(start)[1:], "--non-blocking"], standalone_mode=False)
        return shell(question.replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    finally:
        serve.shutdown()
