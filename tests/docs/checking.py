"""Whether a command could be run: its script, recipe and settings are there."""

import importlib
import itertools
from collections.abc import Mapping
from typing import Any
from unittest import mock

import yaml
from ray.scripts.scripts import cli as ray_cli
from ray.serve.scripts import cli as serve_cli

from biovl.__main__ import COMMANDS
from biovl.chain.reproduce.graph import read_settings
from biovl.chain.reproduce.papers import choose, read_papers
from biovl.core.arguments import from_command_line
from biovl.core.overrides import change_of
from biovl.runtime import command_line
from serve.app import settings_of
from tests.docs.pages import ROOT


def check(command: list[str]) -> None:
    """Fail if a command names a script, recipe, setting, subcommand or file that is not there.

    Args:
        command: Its words. What follows the ``--`` of ``ray job submit`` is looked at as well.
    """
    if command[0] == "ray" and "--" in command:
        inner = command.index("--")
        check(command[:inner])
        check(command[inner + 1 :])
    elif command[0] == "ray":
        _check_subcommand(ray_cli, command)
    elif command[0] == "serve":
        _check_subcommand(serve_cli, command)
        _check_service(command[1:])
    elif command[0] == "make":
        targets = (ROOT / "Makefile").read_text()
        assert f"\n{command[1]}:" in targets, f"make has no target {command[1]}"
    elif (job := job_of(command)) is not None:
        _check_job(*job)
    for word in command[1:] if command[0] in ("ray", "serve", "kubectl") else ():
        if word.endswith(".yaml") and "://" not in word:
            assert (ROOT / word).is_file(), f"there is no {word}"


def job_of(command: list[str]) -> tuple[str, list[str]] | None:
    """Return the command of biovl that is run, and its arguments; None if it is another program.

    ``python pipelines/harvest.py …`` is ``biovl harvest …``.
    """
    if command[0] == "biovl":
        return command[1], command[2:]
    if command[0] not in ("python", "python3") or not command[1].endswith(".py"):
        return None
    path = ROOT / command[1]
    assert path.is_file(), f"there is no {command[1]}"
    return (path.stem, command[2:]) if path.parent.name in ("pipelines", "tune") else None


def _check_subcommand(cli: Any, command: list[str]) -> None:
    for word in command[1:]:
        known: Mapping[str, Any] | None = getattr(cli, "commands", None)
        if known is None or word.startswith("-"):
            return
        assert word in known, f"{command[0]} has no command {word}"
        cli = known[word]


def _check_service(command: list[str]) -> None:
    if command[:2] == ["run", "serve.app:build"]:
        settings_of(dict(word.split("=", 1) for word in command[2:]))
    elif command[0] == "deploy":
        for application in yaml.safe_load((ROOT / command[1]).read_text())["applications"]:
            settings_of(application["args"])


def _check_job(name: str, arguments: list[str]) -> None:
    if name == "--help":
        return
    assert name in COMMANDS, f"biovl has no command {name}"
    module = importlib.import_module(COMMANDS[name][0])
    if name == "reproduce":
        _check_tables(arguments)
        return
    if not hasattr(module, "command_line") or {"--help", "--list"} & set(arguments):
        return
    taken: dict[str, Any] = {}

    def take(config_class: Any, recipes: Any, job: Any, **options: Any) -> None:
        taken.update(cls=config_class, recipes=recipes, **options)

    with mock.patch.object(command_line, "main", take):
        module.main()
    flags = {"dry-run": ""} if taken.get("estimate") else None
    # A recipe may be a file that another job makes: its settings are those of any other.
    if arguments and arguments[0].endswith(".yaml"):
        arguments = [next(iter(taken["recipes"])), *arguments[1:]]
    # Ends the test with what is not valid.
    from_command_line(taken["cls"], taken["recipes"], about=None, flags=flags, arguments=arguments)


def _check_tables(arguments: list[str]) -> None:
    papers = read_papers()
    values = [words for flag, words in itertools.pairwise(arguments) if flag == "--set"]
    if arguments[0] != "list":
        choose(papers, arguments[0])
        read_settings(dict(change_of(text) for text in values), papers)
