"""Validation of settings: frozen dataclasses from plain JSON values, with overrides."""

import copy
import dataclasses
import difflib
import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.config import ConfigDict
from pydantic_core import PydanticSerializationError, to_jsonable_python

from biovl.core.errors import ConfigError
from biovl.core.overrides import item_settings, join_items, matches_item

Config = TypeVar("Config")

Recipe = Callable[[], Config]
"""Function that returns a named configuration. Settings that the user must set are ``REQUIRED``."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole, or a probability. Common other ranges are pydantic's ``PositiveInt`` …"""

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Validators by class: making one takes 10 ms, and plans need the same ones hundreds of times."""

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
    return _validated(cls, with_changes(cls, {}, values), name or cls.__name__)


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
    built = _validated(type(config), plain, type(config).__name__)
    # As plain values, booleans of numbers are numbers.
    _check_booleans(config, built, type(config).__name__)
    return built


def _validated(cls: type[Config], plain: Mapping[str, Any], name: str) -> Config:
    try:
        config = _adapter(cls).validate_python(plain)
    except ValidationError as error:
        problems = [_problem(cls, problem) for problem in error.errors(include_url=False)]
        raise ConfigError(_invalid(name, problems)) from error
    _check_booleans(plain, config, name)
    return config


def _check_booleans(given: Any, built: Any, name: str) -> None:
    if booleans := list(_numbers_from_booleans(given, built)):
        problems = [f"{where}: expected a number, got {value}" for where, value in booleans]
        raise ConfigError(_invalid(name, problems))


def _invalid(name: str, problems: Iterable[str]) -> str:
    return "\n".join([f"{name} is not valid:", *(f"  {each}" for each in problems)])


def _numbers_from_booleans(given: Any, built: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and text of each boolean that pydantic read as a number: ``true`` is 1."""
    if isinstance(given, bool) and type(built) in (int, float):
        yield where, str(given).lower()
    inner: Iterable[tuple[Any, Any, Any]] = ()
    if dataclasses.is_dataclass(given):
        given = {
            setting_name(item.name): getattr(given, item.name) for item in dataclasses.fields(given)
        }
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
    return build(type(config), with_changes(type(config), plain, changes), name=name)


def recipe_settings(config: Any) -> dict[str, Any]:
    """Return the settings that a recipe sets, JSON-serialisable; no defaults, no required ones.

    With these as a base, changing one entry of a mapping keeps the recipe's other entries.
    """
    values: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if value is REQUIRED or value == default_of(item):
            continue
        if section_class(type(config), setting_name(item.name)) is not None:
            values[setting_name(item.name)] = recipe_settings(value)
        else:
            values[setting_name(item.name)] = _plain(item, value)
    # Expand dotted names in the settings of a plug-in or a grid.
    return with_changes(type(config), {}, values)


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
        name = setting_name(item.name)
        path, section = (*within, name), section_class(cls, name)
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


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line per setting that differs between two plain configurations."""
    before, after = flat(old), flat(new)
    return [
        f"{name}: {before.get(name, '(absent)')!r} -> {after.get(name, '(absent)')!r}"
        for name in sorted(before.keys() | after.keys())
        if not is_same(before.get(name), after.get(name))
    ]


def is_same(value: Any, other: Any) -> bool:
    """Return whether two plain values mean the same.

    They are equal, one path spelled twice, or a number and its text.
    """
    are_texts = isinstance(value, str) and isinstance(other, str)
    # A number that --set gives a plug-in stays text until the plug-in validates its settings.
    if isinstance(value, str) and _is_number(other):
        return bool(_number(value) == other)
    if isinstance(other, str) and _is_number(value):
        return bool(_number(other) == value)
    if not are_texts or _NO_PATH.search(value) or _NO_PATH.search(other):
        return bool(value == other)
    return normalized_location(value) == normalized_location(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def normalized_location(location: str) -> str:
    """Return a location normalised for comparison: ``./packages/`` becomes ``packages``."""
    is_path = "/" in location and "://" not in location
    return os.path.normpath(location) if is_path else location


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


def _adapter(cls: type[Config]) -> TypeAdapter[Config]:
    if cls in _ADAPTERS:
        return _ADAPTERS[cls]
    # Unknown settings are typing errors; strictness is set on the outermost class, and pydantic
    # passes it on to the nested dataclasses.
    if dataclasses.is_dataclass(cls) and "__pydantic_config__" not in cls.__dict__:
        cls.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
            extra="forbid",
            coerce_numbers_to_str=True,
            alias_generator=setting_name,
            # No setting is infinite, and comparisons with NaN let it pass.
            allow_inf_nan=False,
        )
    return _ADAPTERS.setdefault(cls, TypeAdapter(cls))


def with_changes(
    cls: type | None, plain: Mapping[str, Any], changes: Mapping[Any, Any]
) -> dict[str, Any]:
    """Return plain values with changes applied, for a class, or for any mapping if it is None.

    Names and forms of changes are those of ``override``; types and ranges are not checked.
    """
    result = dict(plain)
    for name, value in changes.items():
        head, _, rest = str(name).partition(".")
        if dataclasses.is_dataclass(cls) and not rest and head[-1:] in ("+", "-"):
            result = _with_items(cls, result, head, value)
            continue
        if cls is None and not rest and head[-1:] in ("+", "-") and head in result:
            # Collected for the class that will read this mapping, so that several changes apply in
            # order.
            result[head] = join_items(result[head], value)
            continue
        section = section_class(cls, head)
        if rest or (section is not None and isinstance(value, Mapping)):
            old = result.get(head)
            inner = old if isinstance(old, Mapping) else {}
            result[head] = with_changes(section, inner, {rest: value} if rest else value)
        else:
            result[head] = with_changes(None, {}, value) if isinstance(value, Mapping) else value
    return result


def _with_items(cls: type, plain: Mapping[str, Any], change: str, value: Any) -> dict[str, Any]:
    """Return plain values of a class with items added to, or removed from, one of its lists."""
    name, sign = change[:-1], change[-1]
    items = {setting_name(item.name): item for item in dataclasses.fields(cls)}
    if name not in items:
        raise ConfigError(f"{change}=: there is no setting {name!r}{nearest(name, items)}")
    old = plain[name] if name in plain else _plain(items[name], default_of(items[name]))
    if not isinstance(old, list | tuple):
        raise ConfigError(f"{change}=: {name} is not a list")
    items_left = list(old)
    for item in join_items(value):
        if sign == "+":
            items_left.append(item)
            continue
        without = [each for each in items_left if each != item and not matches_item(item, each)]
        if len(without) == len(items_left):
            names = [str(item_settings(each)["name"]) for each in items_left]
            raise ConfigError(
                f"{change}=: {name} does not have {item!r}; it has {', '.join(names) or 'nothing'}"
                f"{nearest(str(item_settings(item)['name']), names)}"
            )
        items_left = without
    return {**plain, name: items_left}


def default_of(item: dataclasses.Field[Any]) -> Any:
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


def _setting_names(cls: type, prefix: str = "") -> list[str]:
    """Return the dotted names of all settings of a class."""
    names: list[str] = []
    for name in _setting_types(cls):
        section = section_class(cls, name)
        own = f"{prefix}{name}"
        names += [own] if section is None else _setting_names(section, f"{own}.")
    return names


def section_class(cls: type | None, name: str) -> type | None:
    """Return the class of a section by name, None if the name is a single setting."""
    section = _setting_types(cls).get(name)
    if not isinstance(section, type) or not _setting_types(section):
        return None
    # A plug-in is one setting: its further settings depend on its name.
    return None if section.__name__ == "Plugin" else section


def setting_name(field: str) -> str:
    """Return the name of the setting of a field: ``from_`` is the setting ``from``.

    Python's keywords are no names of fields; PEP 8 appends an underscore to them.
    """
    return field.removesuffix("_")


def _setting_types(cls: type | None) -> dict[str, Any]:
    """Return the types of settings by name, of a dataclass or a pydantic model, else none."""
    if cls is not None and dataclasses.is_dataclass(cls):
        return {setting_name(item.name): item.type for item in dataclasses.fields(cls)}
    return {name: item.annotation for name, item in getattr(cls, "model_fields", {}).items()}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return result
