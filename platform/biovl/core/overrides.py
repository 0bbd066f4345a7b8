"""Changes of settings as people type them: ``NAME=VALUE``, ``NAME+=ITEM`` and ``NAME-=ITEM``."""

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any

from biovl.core.errors import ConfigError


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


def changes_of(texts: Iterable[str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return several ``NAME=VALUE`` by name; the items of repeated ``NAME+=`` are together.

    Args:
        texts: The arguments of ``--set``, in their order.
        values: Settings that are changed, such as those of a recipe.

    Raises:
        ConfigError: If a text has another form, or an item of a list is added, removed, and the
            list is changed again: by name only one ``+=`` and one ``-=`` can be kept.
    """
    result = dict(values or {})
    for text in texts:
        name, value = change_of(text)
        setting, sign = name[:-1], name[-1]
        added, removed = f"{setting}+", f"{setting}-"
        order = [each for each in result if each in (added, removed)]
        if name in order[:1] and len(order) == 2:
            # Items are removed first, then added, unless one of them is removed in between.
            items = join_items(value if sign == "-" else result[removed])
            if any(str(item) in str(result[added]) for item in items):
                raise ConfigError(
                    f"--set {name}={value}: an item of {setting} was added and removed before: "
                    "leave out both"
                )
            if sign == "+":
                result[added] = result.pop(added)
        _put(result, name, value)
    return result


def merge_changes(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return several changes as one: later ones replace earlier ones of the same name.

    Additions to a list, and removals from it, are joined. Removing an item that an earlier change
    adds cancels the addition.
    """
    result: dict[str, Any] = {}
    for change in changes:
        earlier = frozenset(result)
        for name, value in change.items():
            added = f"{name[:-1]}+"
            if name[-1] == "-" and added in earlier & result.keys():
                items = join_items(result[added])
                kept = [
                    item
                    for item in items
                    if not any(matches_item(removed, item) for removed in join_items(value))
                ]
                if len(kept) < len(items):
                    result[added] = kept
                    continue
            _put(result, name, value)
    return result


def _put(changes: dict[str, Any], name: str, value: Any) -> None:
    """Apply a change after others, in place: items of lists join, other values replace."""
    if name[-1] in "+-" and name in changes:
        changes[name] = join_items(changes[name], value)
        return
    # Settings are replaced in the order in which they are given.
    for before in (name, f"{name}+", f"{name}-"):
        changes.pop(before, None)
    changes[name] = value


def join_items(*values: Any) -> list[Any]:
    """Concatenate items of a list setting; each value is one item or a list of items."""
    return [
        item for value in values for item in (value if isinstance(value, list | tuple) else [value])
    ]


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


def item_settings(item: Any) -> dict[str, Any]:
    """Return a list item as its name and settings."""
    if isinstance(item, Mapping):
        return {"name": "", **item}
    return parse_call(item) if isinstance(item, str) and "(" in item else {"name": item}


def matches_item(given: Any, item: Any) -> bool:
    """Return whether a list item has the name and all the settings of the given one."""
    own = item_settings(item)
    return all(name in own and own[name] == value for name, value in item_settings(given).items())
