"""Validation of settings: frozen dataclasses from plain JSON values, with overrides."""

import argparse
import ast
import copy
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import os
import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.config import ConfigDict
from pydantic_core import PydanticSerializationError, to_jsonable_python

from biovl.core.errors import BiovlError, ConfigError
from biovl.core.filesystems import open_location

Config = TypeVar("Config")

Recipe = Callable[[], Config]
"""Function that returns a named configuration. Settings that the user must set are ``REQUIRED``."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole, or a probability. Common other ranges are pydantic's ``PositiveInt`` …"""

_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
"""Signs of pydantic's limits."""


_NO_PATH = re.compile(r"[*?\[\]{}^$|\\<>]|\s/|/\s")
"""What occurs in patterns, prompts and queries with a ``/``, and rarely in names of folders."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __str__(self) -> str:
        raise ConfigError("this recipe has settings without a value: override them")


REQUIRED: Final[Any] = _Required()
"""Placeholder in a recipe for a setting that the user must give; ``build`` and ``override`` report
it as missing."""


def is_unfinished(config: Any) -> bool:
    """Return whether any setting of a configuration is still ``REQUIRED``.

    Checks across several settings skip such a configuration: ``override`` builds the complete one
    later.
    """
    return any(getattr(config, item.name) is REQUIRED for item in dataclasses.fields(config))


def build(cls: type[Config], values: Mapping[str, Any], *, name: str | None = None) -> Config:
    """Build a configuration from plain values. ``name`` is used in error messages.

    Raises:
        ConfigError: If settings are unknown, missing or invalid; the message lists all of them.
    """
    return _validated(cls, _changed(cls, {}, values), name or cls.__name__)


def validated(config: Config) -> Config:
    """Return a configuration that Python code created, with its ranges and types checked.

    Unlike ``override``, it leaves dots in the names of mappings as they are.

    Raises:
        ConfigError: If settings are missing or invalid; the message lists all of them.
    """
    try:
        plain = to_plain(config)
    except PydanticSerializationError as error:
        raise ConfigError(f"{type(config).__name__} is not valid: {error}") from error
    return _validated(type(config), plain, type(config).__name__)


def _validated(cls: type[Config], plain: Mapping[str, Any], name: str) -> Config:
    try:
        config = _adapter(cls).validate_python(plain)
    except ValidationError as error:
        problems = [_problem(cls, problem) for problem in error.errors(include_url=False)]
        raise ConfigError(_invalid(name, problems)) from error
    if booleans := list(_numbers_from_booleans(plain, config)):
        problems = [f"{where}: expected a number, got {value}" for where, value in booleans]
        raise ConfigError(_invalid(name, problems))
    return config


def _invalid(name: str, problems: Iterable[str]) -> str:
    return "\n".join([f"{name} is not valid:", *(f"  {each}" for each in problems)])


def _numbers_from_booleans(given: Any, built: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and text of each boolean that pydantic read as a number: ``true`` is 1."""
    if isinstance(given, bool) and type(built) in (int, float):
        yield where, str(given).lower()
    inner: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(given, Mapping) and isinstance(built, Mapping):
        inner = zip(given, given.values(), built.values(), strict=False)
    elif isinstance(given, Mapping):
        # ``from`` is the field ``from_``.
        fields = {
            name: getattr(built, f"{name}_", getattr(built, str(name), None)) for name in given
        }
        inner = ((name, given[name], value) for name, value in fields.items())
    elif isinstance(given, list | tuple) and isinstance(built, list | tuple):
        inner = zip(range(len(given)), given, built, strict=False)
    for name, value, result in inner:
        yield from _numbers_from_booleans(value, result, f"{where}.{name}".removeprefix("."))


def _problem(cls: type, problem: Mapping[str, Any]) -> str:
    """Return a line about an invalid setting: its name, the reason, and its value."""
    where, kind = ".".join(str(part) for part in problem["loc"]), problem["type"]
    if kind == "value_error":
        # Our own sentence, about the settings of a section.
        section = f"{where}: " if where else ""
        return f"{section}{str(problem['msg']).removeprefix('Value error, ')}"
    got = "" if kind == "missing" else f" (got {problem['input']!r:.100})"
    if kind in ("tuple_type", "list_type") and isinstance(problem["input"], str):
        example = json.dumps([problem["input"]])
        return f"{where}: expected a list; for one item: --set '{where}={example}'{got}"
    is_unknown = kind in ("unexpected_keyword_argument", "extra_forbidden")
    meant = nearest(where, _setting_names(cls)) if is_unknown else ""
    return f"{where}: {problem['msg']}{got}{meant}"


def to_plain(config: Any) -> dict[str, Any]:
    """Return a configuration as JSON-serialisable values, accepted by ``build``."""
    plain: dict[str, Any] = _adapter(type(config)).dump_python(config, mode="json", by_alias=True)
    return plain


def override(config: Config, changes: Mapping[str, Any], *, name: str | None = None) -> Config:
    """Return a configuration with settings replaced: ``{"optim.peak_lr": 3e-4}``.

    The required settings of a recipe are set in the same way. ``name`` is used in error messages.

    A mapping replaces a setting that is a mapping: ``{"batch.later": {"4": 128}}`` drops the
    previous entries, ``{"batch.later.4": 128}`` sets only that entry. For a section such as
    ``optim``, a mapping sets the settings it contains. ``{"rules+": "min_side(300)"}`` adds to a
    list, and ``{"rules-": "min_side"}`` removes from it.

    Raises:
        ConfigError: If a setting is unknown or missing, or its new value is invalid.
    """
    plain = recipe_settings(config) if is_unfinished(config) else to_plain(config)
    return build(type(config), _changed(type(config), plain, changes), name=name)


def recipe_settings(config: Any) -> dict[str, Any]:
    """Return the settings that a recipe sets, JSON-serialisable; no defaults, no required ones.

    With these as a base, changing one entry of a mapping keeps the recipe's other entries.
    """
    values: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if value is REQUIRED or value == _default_of(item):
            continue
        if _section(type(config), _setting_name(item.name)) is not None:
            values[_setting_name(item.name)] = recipe_settings(value)
        else:
            values[_setting_name(item.name)] = _plain(item, value)
    # Expand dotted names in the settings of a plug-in or a grid.
    return _changed(type(config), {}, values)


Defaults = Mapping[tuple[str, ...], Any]
"""Default values, JSON-serialisable, by the path of the setting: its sections and its name."""


def defaults(cls: type, *within: str) -> dict[tuple[str, ...], Any]:
    """Return the defaults of a configuration class and of its sections.

    Args:
        cls: A configuration class.
        within: Path of the section that contains it.
    """
    values: dict[tuple[str, ...], Any] = {}
    for item in dataclasses.fields(cls):
        name = _setting_name(item.name)
        path, section = (*within, name), _section(cls, name)
        if section is not None:
            values |= defaults(section, *path)
        elif item.default is not dataclasses.MISSING:
            values[path] = to_jsonable_python(item.default)
        elif item.default_factory is not dataclasses.MISSING:
            values[path] = to_jsonable_python(item.default_factory())
    return values


def with_defaults(
    old: Mapping[str, Any], new: Mapping[str, Any], defaults: Defaults
) -> dict[str, Any]:
    """Return an earlier version's plain configuration, with defaults for settings it lacks.

    Args:
        old: Plain values.
        new: Plain values of this version; settings that it lacks are not added.
        defaults: Defaults of this version.
    """
    filled: dict[str, Any] = copy.deepcopy(dict(old))
    for (*sections, name), value in defaults.items():
        here: Any = filled
        there: Any = new
        for section in sections:
            there = there.get(section, {})
            here = here.setdefault(section, {}) if there else {}
        if name in there:
            here.setdefault(name, value)
    return filled


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean NAME?" for the most similar known name; empty if none is similar."""
    names = sorted(known)
    last = name.rpartition(".")[2]
    # Prefer the full name of a setting that is known in another section, else the most similar
    # name.
    similar = [
        *(each for each in names if each.rpartition(".")[2] == last),
        *difflib.get_close_matches(name, names, n=1),
        *(each for each in names if len(last) > 1 and last in each.rpartition(".")[2]),
    ]
    return f"; did you mean {similar[0]}?" if similar else ""


def parse_call(text: str) -> dict[str, Any]:
    """Return the name and settings of a call such as ``min_side(300)`` or ``years(minimum=2015)``.

    Values are Python or JSON literals; an unquoted word is text. Positional values are named ``0``,
    ``1`` ….

    Raises:
        ConfigError: If the text is not such a call.
    """
    name, bracket, rest = text.partition("(")
    if not bracket:
        return {"name": text.strip()}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("there is text after the closing bracket")
        settings = {str(place): _literal(node) for place, node in enumerate(call.args)}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise ValueError("** is not supported")
            settings[keyword.arg] = _literal(keyword.value)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{text!r} cannot be read as NAME(VALUE) or NAME(SETTING=VALUE, …): {error}"
        ) from error
    return {"name": name.strip(), **settings}


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return {"null": None, "true": True, "false": False}.get(node.id, node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    return ast.literal_eval(node)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with dotted names expanded: ``{"a.b": 1}`` gives ``{"a": {"b": 1}}``."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        inner = nested({rest: value}) if rest else value
        if isinstance(inner, Mapping):
            inner = nested(inner)
        result = _merged(result, {head: inner})
    return result


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line per setting that differs between two plain configurations."""
    before, after = flat(old), flat(new)
    return [
        f"{name}: {before.get(name, '(absent)')!r} -> {after.get(name, '(absent)')!r}"
        for name in sorted(before.keys() | after.keys())
        if not is_same(before.get(name), after.get(name))
    ]


def is_same(value: Any, other: Any) -> bool:
    """Return whether two plain values are equal, or one local path spelled in two ways."""
    are_texts = isinstance(value, str) and isinstance(other, str)
    if not are_texts or _NO_PATH.search(value) or _NO_PATH.search(other):
        return bool(value == other)
    return spelled(value) == spelled(other)


def spelled(location: str) -> str:
    """Return a location normalised for comparison: ``./packages/`` becomes ``packages``."""
    is_path = "/" in location and "://" not in location
    return os.path.normpath(location) if is_path else location


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
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(about or "").strip(),
        epilog=_manual(cls, recipes),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    only = next(iter(recipes)) if len(recipes) == 1 else None
    parser.add_argument(
        "recipe",
        nargs="?" if only else None,
        default=only,
        help="a named configuration, see below, or a file with one (.yaml or .json)"
        + (f"; {only} if it is left out" if only else ""),
    )
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="replace one setting; repeat for more (image.short_side_px=288). A mapping is given "
        'whole (batch.later={"8":65536}) or by entry (batch.later.8=65536). NAME+=VALUE adds to a '
        "list and NAME-=VALUE removes from it (rules+=min_side(300), rules-=min_side)",
    )
    parser.set_defaults(flags=[])
    for flag, hint in (flags or {}).items():
        parser.add_argument(
            f"--{flag}", dest="flags", action="append_const", const=flag, default=[], help=hint
        )
    options = parser.parse_args(arguments)
    try:
        plain = _changed(cls, {}, _recipe(options.recipe, recipes))
        for text in options.changes:
            plain = _changed(cls, plain, dict([change_of(text)]))
        return build(cls, plain), set(options.flags)
    except ConfigError as error:
        parser.exit(2, f"{error}\n")


def _recipe(name: str, recipes: Mapping[str, Recipe[Any]]) -> dict[str, Any]:
    if name in recipes:
        return recipe_settings(recipes[name]())
    if not name.endswith((".yaml", ".yml", ".json")):
        known = ", ".join(sorted(recipes))
        raise ConfigError(
            f"there is no recipe called {name!r}; choose from {known}, or give a file"
            f"{nearest(name, recipes)}"
        )
    try:
        filesystem, path = open_location(name)
        with filesystem.open_input_stream(path) as stream:
            values = yaml.load(stream.read(), UniqueKeys)
    except (OSError, yaml.YAMLError, BiovlError) as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{name} is not a mapping of settings by name")
    return values


class UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]
    """A YAML loader that rejects a key that occurs twice: YAML would keep the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value!r:.100} occurs twice or is not a name: keep one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return dict(super().construct_mapping(node, deep))


def changes_of(texts: Iterable[str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return several ``NAME=VALUE`` by name; the items of repeated ``NAME+=`` are together.

    Args:
        texts: The arguments of ``--set``, in their order.
        values: Settings that are changed, such as those of a recipe.

    Raises:
        ConfigError: If a text has another form, or an item of a list is added, removed, and the
            list is changed again: by name only one ``+=`` and one ``-=`` can be kept.
    """
    found = dict(values or {})
    for text in texts:
        name, value = change_of(text)
        if name[-1] in "+-" and name in found:
            other = name[:-1] + ("-" if name[-1] == "+" else "+")
            keys = list(found)
            if other in found and keys.index(name) < keys.index(other):
                # Items are removed first, then added, unless one of them is removed in between.
                added, removed = (found[name], found[other])
                if name[-1] == "-":
                    added, removed = (found[other], value)
                if any(str(item) in str(added) for item in together(removed)):
                    raise ConfigError(
                        f"--set {name}={value}: an item of {name[:-1]} was added and removed "
                        "before: leave out both"
                    )
                if name[-1] == "+":
                    found[name] = found.pop(name)
            found[name] = together(found[name], value)
            continue
        # Settings are replaced in the order in which they are given.
        for before in (name, f"{name}+", f"{name}-"):
            found.pop(before, None)
        found[name] = value
    return found


def in_order(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return several changes as one: later ones replace earlier ones of the same name.

    What they add to a list, or remove from it, is together. Removing an item that an earlier change
    adds leaves out the addition.
    """
    result: dict[str, Any] = {}
    for change in changes:
        earlier = frozenset(result)
        for name, value in change.items():
            added = f"{name[:-1]}+"
            if name[-1] == "-" and added in earlier:
                items, removed = together(result[added]), together(value)
                kept = [
                    item
                    for item in items
                    if not any(_is_meant(_named(one), _named(item)) for one in removed)
                ]
                if len(kept) < len(items):
                    result[added] = kept
                    continue
            if name[-1] in "+-" and name in result:
                result[name] = together(result[name], value)
                continue
            for before in (name, f"{name}+", f"{name}-"):
                result.pop(before, None)
            result[name] = value
    return result


def change_of(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``, the argument of ``--set``, into name and value.

    For ``NAME+=VALUE`` and ``NAME-=VALUE``, the sign is the last character of the name.

    Raises:
        ConfigError: If the text has another form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set takes NAME=VALUE, got {text!r}")
    return name, value_of(f"--set {name}", value)


def value_of(name: str, text: str) -> Any:
    """Return the value of a setting from its text: parsed as JSON if it looks like JSON, else text.

    Raises:
        ConfigError: If it looks like JSON but is invalid; the message has ``name``.
    """
    # Numbers stay text: validation parses them where a number is expected, and a folder called
    # 2024_01 or 1e3 keeps its name.
    if text in ("null", "true", "false") or text[:1] in ("[", "{", '"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"{name}: {text!r} is not JSON: {error}. Put texts in double quotes, and "
                'the whole value in single ones for the shell: \'["a", "b"]\''
            ) from error
    return text


@functools.cache
def _adapter(cls: type[Config]) -> TypeAdapter[Config]:
    # Unknown settings are typing errors; strictness is set on the outermost class, and pydantic
    # passes it on to the nested dataclasses.
    if dataclasses.is_dataclass(cls) and "__pydantic_config__" not in cls.__dict__:
        cls.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
            extra="forbid",
            coerce_numbers_to_str=True,
            alias_generator=_setting_name,
            # No setting is infinite, and comparisons with NaN let it pass.
            allow_inf_nan=False,
        )
    return TypeAdapter(cls)


def _changed(
    cls: type | None, plain: Mapping[str, Any], changes: Mapping[Any, Any]
) -> dict[str, Any]:
    """Return plain values with changes applied, for a class, or for any mapping if it is None."""
    result = dict(plain)
    for name, value in changes.items():
        head, _, rest = str(name).partition(".")
        if dataclasses.is_dataclass(cls) and not rest and head[-1:] in ("+", "-"):
            result = _with_items(cls, result, head, value)
            continue
        if cls is None and not rest and head[-1:] in ("+", "-") and head in result:
            # Collected for the class that will read this mapping, so that several changes apply in
            # order.
            result[head] = together(result[head], value)
            continue
        section = _section(cls, head)
        if rest or (section is not None and isinstance(value, Mapping)):
            old = result.get(head)
            inner = old if isinstance(old, Mapping) else {}
            result[head] = _changed(section, inner, {rest: value} if rest else value)
        else:
            result[head] = _changed(None, {}, value) if isinstance(value, Mapping) else value
    return result


def _with_items(cls: type, plain: Mapping[str, Any], change: str, value: Any) -> dict[str, Any]:
    """Return plain values of a class with items added to, or removed from, one of its lists."""
    name, sign = change[:-1], change[-1]
    items = {_setting_name(item.name): item for item in dataclasses.fields(cls)}
    if name not in items:
        raise ConfigError(f"{change}=: there is no setting {name!r}{nearest(name, items)}")
    old = plain.get(name)
    if name not in plain:
        old = _plain(items[name], _default_of(items[name]))
    if not isinstance(old, list | tuple):
        raise ConfigError(f"{change}=: {name} is not a list")
    changed = together([], value)
    items_left = list(old)
    for item in changed:
        if sign == "+":
            items_left.append(item)
            continue
        named = _named(item)
        without = [
            each for each in items_left if each != item and not _is_meant(named, _named(each))
        ]
        if len(without) == len(items_left):
            names = [str(_named(each)["name"]) for each in items_left]
            raise ConfigError(
                f"{change}=: {name} does not have {item!r}; it has {', '.join(names) or 'nothing'}"
                f"{nearest(str(named['name']), names)}"
            )
        items_left = without
    return {**plain, name: items_left}


def together(*values: Any) -> list[Any]:
    """Concatenate items of a list setting; each value is one item or a list of items."""
    return [
        item for value in values for item in (value if isinstance(value, list | tuple) else [value])
    ]


def _default_of(item: dataclasses.Field[Any]) -> Any:
    """Return the default of a setting, ``dataclasses.MISSING`` if it has none."""
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def _plain(item: dataclasses.Field[Any], value: Any) -> Any:
    """Return the value of a setting as a plain value, None if there is none."""
    if value is dataclasses.MISSING:
        return None
    own_type: Any = item.type
    return TypeAdapter(own_type).dump_python(value, mode="json")


def _named(item: Any) -> dict[str, Any]:
    """Return a list item as its name and settings."""
    if isinstance(item, Mapping):
        return {"name": "", **item}
    return parse_call(item) if isinstance(item, str) and "(" in item else {"name": item}


def _is_meant(named: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    return all(name in item and item[name] == value for name, value in named.items())


def _setting_names(cls: type, prefix: str = "") -> list[str]:
    """Return the dotted names of all settings of a class."""
    names: list[str] = []
    for name in _setting_types(cls):
        section = _section(cls, name)
        own = f"{prefix}{name}"
        names += [own] if section is None else _setting_names(section, f"{own}.")
    return names


def _section(cls: type | None, name: str) -> type | None:
    """Return the class of a section by name, None if the name is a single setting."""
    section = _setting_types(cls).get(name)
    if not isinstance(section, type) or not _setting_types(section):
        return None
    # A plug-in is one setting: its further settings depend on its name.
    return None if section.__name__ == "Plugin" else section


def _setting_name(field: str) -> str:
    """Return the name of the setting of a field: ``from_`` is the setting ``from``.

    Python's keywords are no names of fields; PEP 8 appends an underscore to them.
    """
    return field.removesuffix("_")


def _setting_types(cls: type | None) -> dict[str, Any]:
    """Return the types of settings by name, of a dataclass or a pydantic model, else none."""
    if cls is not None and dataclasses.is_dataclass(cls):
        return {_setting_name(item.name): item.type for item in dataclasses.fields(cls)}
    return {name: item.annotation for name, item in getattr(cls, "model_fields", {}).items()}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def flat(
    values: Mapping[str, Any], prefix: str = "", *, keep_empty: bool = False
) -> dict[str, Any]:
    """Return values by dotted names, the inverse of ``nested``.

    Args:
        values: Values, which may be nested mappings.
        prefix: Prefix of all names.
        keep_empty: Whether to keep empty mappings: as a setting, an empty mapping replaces a
            non-empty one. By default they are dropped: in results, empty is the same as missing.
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            result |= flat(value, f"{prefix}{name}.", keep_empty=keep_empty)
        else:
            result[f"{prefix}{name}"] = value
    return result


def _manual(cls: type, recipes: Mapping[str, Recipe[Any]]) -> str:
    return "\n".join([*recipes_manual(recipes), "settings:", *settings_manual(cls)])


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
        name = _setting_name(item.name)
        section = _section(cls, name)
        if section is not None:
            lines += settings_manual(section, f"{prefix}{name}.")
            continue
        value = _default_of(item)
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
