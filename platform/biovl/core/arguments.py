"""Command lines of settings: ``RECIPE --set NAME=VALUE …``, and their ``--help``."""

import argparse
import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import yaml

from biovl.core import config as configs
from biovl.core.config import Config, Recipe
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.filesystems import open_location
from biovl.core.overrides import change_of

_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
"""Signs of pydantic's limits."""


def from_command_line(
    cls: type[Config],
    recipes: Mapping[str, Recipe[Config]],
    *,
    about: str | None,
    flags: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> tuple[Config, set[str]]:
    """Parse a configuration from a command line: ``RECIPE --set name=value …``.

    If it is invalid, the process exits with status 2 and the reason on standard error.

    Args:
        cls: The configuration class.
        recipes: Recipes by name. A file with settings may be given instead of a name; a single
            recipe needs no name.
        about: Description of the script.
        flags: Options without a value, such as ``dry-run``, and their descriptions.
        arguments: Command-line arguments; None: those of the process, ``sys.argv[1:]``.

    Returns:
        The configuration, and the flags that were set.
    """
    parser = settings_parser(
        about,
        "\n".join([*recipes_manual(recipes), "settings:", *settings_manual(cls)]),
        "replace one setting; repeat for more (image.short_side_px=288). A mapping is given "
        'whole (batch.later={"8":65536}) or by entry (batch.later.8=65536). NAME+=VALUE adds to a '
        "list and NAME-=VALUE removes from it (rules+=min_side(300), rules-=min_side)",
    )
    only = next(iter(recipes)) if len(recipes) == 1 else None
    parser.add_argument(
        "recipe",
        nargs="?" if only else None,
        default=only,
        help="a named configuration, see below, or a file with one (.yaml or .json)"
        + (f"; {only} if it is left out" if only else ""),
    )
    parser.set_defaults(flags=[])
    for flag, hint in (flags or {}).items():
        parser.add_argument(
            f"--{flag}", dest="flags", action="append_const", const=flag, default=[], help=hint
        )
    options = parser.parse_args(arguments)
    try:
        plain = configs.with_changes(cls, {}, _recipe(options.recipe, recipes))
        for text in options.changes:
            plain = configs.with_changes(cls, plain, dict([change_of(text)]))
        return configs.build(cls, plain), set(options.flags)
    except ConfigError as error:
        parser.exit(2, f"{error}\n")


def settings_parser(about: str | None, manual: str, of_set: str) -> argparse.ArgumentParser:
    """Return a parser with ``--set NAME=VALUE``, which can be repeated: ``changes``.

    Args:
        about: Description of the script.
        manual: Text below the options, printed as it is.
        of_set: Help text of ``--set``.
    """
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(about or "").strip(),
        epilog=manual,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--set", dest="changes", metavar="NAME=VALUE", action="append", default=[], help=of_set
    )
    return parser


def _recipe(name: str, recipes: Mapping[str, Recipe[Any]]) -> dict[str, Any]:
    if name in recipes:
        return configs.recipe_settings(recipes[name]())
    if not name.endswith((".yaml", ".yml", ".json")):
        known = ", ".join(sorted(recipes))
        raise ConfigError(
            f"there is no recipe called {name!r}; choose from {known}, or give a file"
            f"{configs.nearest(name, recipes)}"
        )
    try:
        filesystem, path = open_location(name)
        with filesystem.open_input_stream(path) as stream:
            values = yaml.load(stream.read(), configs.UniqueKeys)
    except (OSError, yaml.YAMLError, BiovlError) as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{name} is not a mapping of settings by name")
    return values


def recipes_manual(recipes: Mapping[str, Callable[[], Any]]) -> list[str]:
    """Return help texts of recipes: a line with name and first line of the docstring of each."""
    lines = [
        f"  {name:<12} {(inspect.getdoc(recipe) or '').splitlines()[0]}"
        for name, recipe in sorted(recipes.items())
    ]
    return ["recipes:", *lines, ""]


def settings_manual(cls: type, prefix: str = "") -> list[str]:
    """Return help texts of settings: a line with name, default and docstring of each."""
    about = _field_docstrings(cls)
    lines = []
    for item in dataclasses.fields(cls):
        name = configs.setting_name(item.name)
        section = configs.section_class(cls, name)
        if section is not None:
            lines += settings_manual(section, f"{prefix}{name}.")
            continue
        value = configs.default_of(item)
        default = "required" if value is dataclasses.MISSING else f"default {_shown(value)}"
        text = " ".join(about.get(item.name, "").split())
        entry = f"{prefix}{name} ({', '.join([default, *_limits(item.type)])}) {text}".strip()
        lines += textwrap.wrap(entry, 100, initial_indent="  ", subsequent_indent="      ")
    return lines


def _limits(annotation: Any) -> list[str]:
    """Return the range of a number as ``> 0`` or ``>= 0``, ``<= 1``; empty if it has none."""
    # Keys and values of a mapping have different ones.
    parts = () if get_origin(annotation) is Mapping else get_args(annotation)
    limits = [item for part in parts for item in _limits(part)]
    for item in getattr(annotation, "__metadata__", ()):
        for limit in getattr(item, "metadata", [item]):
            values = [(sign, getattr(limit, name, None)) for name, sign in _SIGNS.items()]
            limits += [f"{sign} {value}" for sign, value in values if value is not None]
    return list(dict.fromkeys(limits))


def _shown(value: Any) -> str:
    """Return a default in the form a person would type: plug-ins as calls."""
    if isinstance(value, tuple) and any(dataclasses.is_dataclass(item) for item in value):
        return ", ".join(map(str, value))
    return str(value) if dataclasses.is_dataclass(value) else repr(value)


def _field_docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass, which Python itself does not keep."""
    base = cls.__mro__[1]
    docstrings = {} if base is object else _field_docstrings(base)
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = node.body if isinstance(node, ast.ClassDef) else []
    for statement, after in itertools.pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docstrings[statement.target.id] = str(after.value.value)
    return docstrings
