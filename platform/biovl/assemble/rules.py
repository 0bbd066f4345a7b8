"""Rules that select the pairs of a corpus: a rule reads columns and returns the rows to reject.

Every function here that returns a ``Rule`` can be named in a configuration, with its arguments as
settings: ``{"name": "min_side", "px": 112}``. Unless a rule says otherwise, a row whose column is
null is rejected: an unknown value does not satisfy a rule.
"""

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from biovl.core import config
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.core.records import Batch, LicenseGroup

PUBLISHED_FIGURES = ("figure", "scheme", "graphical-abstract", "supplement", "extended-data")
"""Kinds of peer-reviewed figures: no responses to reviewers, images of tables or videos."""

_YEAR = re.compile(r"\d{4}(?=-|$)", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """A condition on columns that rejects rows."""

    name: str
    """Reason for the rejection, as counted in the manifest."""

    reads: tuple[str, ...]
    """The columns that ``rejects`` receives."""

    rejects: Callable[[Batch], np.ndarray]
    """Maps columns of N rows to bool, shape [N]: True rejects the row, independent of other
    rows."""


def rejected_by(batch: Batch, rules: Sequence[Rule]) -> np.ndarray:
    """Return for each row the name of the first rule that rejects it, or None.

    Args:
        batch: The columns that the rules read.
        rules: Rules in order of evaluation.

    Returns:
        Object array of ``str | None``, shape [N].

    Raises:
        ConfigError: If a column has a type that its rule cannot read.
    """
    rows = len(next(iter(batch.values())))
    first = np.full(rows, None, dtype=object)
    remaining = np.ones(rows, bool)
    for rule in rules:
        try:
            rejected = rule.rejects({name: batch[name] for name in rule.reads})
        except TypeError as error:
            types = ", ".join(f"{name} ({batch[name].dtype})" for name in rule.reads)
            raise ConfigError(
                f"rule {rule.name!r} cannot read its column {types}: value_one_of and not_listed "
                "are for texts, any_of and none_of for lists of texts, value_between for numbers"
            ) from error
        first[rejected & remaining] = rule.name
        remaining &= ~rejected
    return first


def rejections(table: pa.Table, rules: Sequence[Rule]) -> pa.Array:
    """Return ``rejected_by`` for the rows of a table, as a string column.

    Raises:
        ConfigError: If the table lacks a column.
    """
    check_columns(rules, table.column_names)
    names = dict.fromkeys(name for rule in rules for name in rule.reads)
    # Without rules there would be no column with the number of rows.
    if not names:
        return pa.nulls(len(table), pa.string())
    # Nulls become None in columns of strings or booleans, and NaN in numeric columns.
    batch = {name: table[name].to_numpy() for name in names}
    return pa.array(rejected_by(batch, rules), pa.string())


def check_columns(rules: Iterable[Rule], available: Sequence[str]) -> None:
    """Check that the columns that rules read exist.

    Raises:
        ConfigError: If not; the message names rule, column and the available ones.
    """
    for rule in rules:
        for name in rule.reads:
            if name not in available:
                raise ConfigError(
                    f"rule {rule.name!r} reads column {name!r}, which does not exist: give the "
                    f"folder that has it in columns, or choose from {', '.join(sorted(available))}"
                )


def usable_image() -> Rule:
    """Keep figures whose image has no defect."""

    def rejects(batch: Batch) -> np.ndarray:
        return np.array([defect is not None for defect in batch["defect"]], bool)

    return Rule("figure has a defect", ("defect",), rejects)


def has_caption() -> Rule:
    """Keep figures with a caption."""
    return Rule("no caption", ("caption_chars",), lambda b: ~(b["caption_chars"] > 0))


def caption_chars(minimum: PositiveInt = 1, maximum: PositiveInt | None = None) -> Rule:
    """Keep captions whose length in code points is in a range, ends included."""
    return _between(
        f"caption not of {_range(minimum, maximum)} characters", "caption_chars", minimum, maximum
    )


def min_side(px: PositiveInt) -> Rule:
    """Keep images whose shorter side has at least ``px`` pixels."""

    def rejects(batch: Batch) -> np.ndarray:
        return ~(np.minimum(batch["width_px"], batch["height_px"]) >= px)

    return Rule(f"shorter side under {px} px", ("width_px", "height_px"), rejects)


def max_aspect(ratio: Annotated[float, Field(ge=1)]) -> Rule:
    """Keep images whose longer side is at most ``ratio`` times the shorter one."""

    def rejects(batch: Batch) -> np.ndarray:
        longer = np.maximum(batch["width_px"], batch["height_px"])
        return ~(longer <= ratio * np.minimum(batch["width_px"], batch["height_px"]))

    return Rule(f"longer side over {ratio:g} times the shorter", ("width_px", "height_px"), rejects)


def license_groups(allowed: tuple[LicenseGroup, ...]) -> Rule:
    """Keep figures whose licence is in one of PMC's groups."""
    return _one_of(f"licence group not {_either(allowed)}", "license_group", allowed)


def languages(allowed: tuple[str, ...]) -> Rule:
    """Keep articles in the allowed languages (ISO 639-1, without country): ``en`` covers ``en-GB``.

    Articles without a language count as English: the default of JATS's ``xml:lang``.
    """

    def rejects(batch: Batch) -> np.ndarray:
        codes = [_without_country(language or "en") for language in batch["language"]]
        wanted = [_without_country(code) for code in allowed]
        return ~np.isin(np.array(codes, object), wanted)

    return Rule(f"language not {_either(allowed)}", ("language",), rejects)


def _without_country(language: str) -> str:
    """Return the language of ``en-GB``, ``en_US``, or ``eng``, MEDLINE's code."""
    code = re.split("[-_]", language.strip().lower())[0]
    return "en" if code == "eng" else code


def years(minimum: int = 0, maximum: int = 9999) -> Rule:
    """Keep articles published in a range of years, both ends included."""

    def rejects(batch: Batch) -> np.ndarray:
        found = (_YEAR.match(date or "") for date in batch["published"])
        year = np.array([float(match[0]) if match else np.nan for match in found], float)
        return ~((year >= minimum) & (year <= maximum))

    return Rule(f"not published in {minimum} to {maximum}", ("published",), rejects)


def article_types(allowed: tuple[str, ...]) -> Rule:
    """Keep articles of some types: ``research-article``, ``review-article`` … of JATS."""
    return _one_of(f"article type not {_either(allowed)}", "article_type", allowed)


def not_article_types(forbidden: tuple[str, ...]) -> Rule:
    """Drop articles of some types; keep those without a type."""
    return _none_of(f"article type {_either(forbidden)}", "article_type", forbidden)


def figure_kinds(allowed: tuple[str, ...] = PUBLISHED_FIGURES) -> Rule:
    """Keep figures of some kinds, such as ``scheme``."""
    return _one_of(f"figure kind not {_either(allowed)}", "kind", allowed)


def not_retracted() -> Rule:
    """Drop retracted articles; keep those of unknown status."""
    return _flagged("article retracted", "retracted")


def redistributable() -> Rule:
    """Keep figures whose licence allows redistribution; drop those of unknown status."""
    return _known("licence does not allow redistribution", "redistributable")


def derivatives_allowed() -> Rule:
    """Keep figures whose licence allows changes, such as splitting into panels."""
    return _known("licence does not allow derivatives", "derivatives_allowed")


def not_third_party() -> Rule:
    """Drop figures with credit to a third party: the article's licence may not cover them."""
    return _flagged("credits a third party", "third_party")


def newest_version() -> Rule:
    """Drop articles superseded by a newer usable version: ``duplicates.superseded``."""
    return _flagged("newer version exists", "superseded")


def captioned_articles() -> Rule:
    """Drop articles with a figure that has no caption, as the builder of PMC-15M does."""
    return _flagged("article has a figure without a caption", "uncaptioned")


def _flagged(reason: str, column: str) -> Rule:
    return Rule(reason, (column,), lambda b: np.equal(b[column], True).astype(bool))


def _known(reason: str, column: str) -> Rule:
    return Rule(reason, (column,), lambda b: ~np.equal(b[column], True).astype(bool))


def not_listed(column: str, listed: tuple[str, ...], called: str) -> Rule:
    """Drop rows whose text in a column is listed; ``called`` is the name of the rule."""
    return _none_of(called, column, listed)


def value_between(column: str, minimum: float | None = None, maximum: float | None = None) -> Rule:
    """Keep rows whose value in a numeric column, also one of an annotator, is in a range.

    Raises:
        ConfigError: If neither bound is given.
    """
    if minimum is None and maximum is None:
        raise ConfigError(f"value_between needs a minimum or a maximum for column {column!r}")
    return _between(f"{column} not {_range(minimum, maximum)}", column, minimum, maximum)


def value_one_of(column: str, allowed: tuple[str, ...]) -> Rule:
    """Keep rows whose value in a text column, also one of an annotator, is in ``allowed``."""
    return _one_of(f"{column} not {_either(allowed)}", column, allowed)


def any_of(column: str, allowed: tuple[str, ...]) -> Rule:
    """Keep rows with at least one of these values in a list column, such as concepts."""
    values = frozenset(allowed)
    return Rule(
        f"{column} without {_either(allowed)}", (column,), lambda b: ~_any(b[column], values)
    )


def none_of(column: str, forbidden: tuple[str, ...]) -> Rule:
    """Drop rows with any of these values in a list column; keep rows without values.

    After ``any_of``, this drops figures that also have a forbidden concept.
    """
    refused = frozenset(forbidden)
    return Rule(
        f"{column} with {_either(forbidden)}", (column,), lambda b: _any(b[column], refused)
    )


def _between(name: str, column: str, minimum: float | None, maximum: float | None) -> Rule:
    low = -np.inf if minimum is None else minimum
    high = np.inf if maximum is None else maximum
    return Rule(name, (column,), lambda b: ~((b[column] >= low) & (b[column] <= high)))


def _one_of(name: str, column: str, allowed: Sequence[str]) -> Rule:
    return Rule(name, (column,), lambda b: ~_is_in(b[column], allowed))


def _none_of(name: str, column: str, forbidden: Sequence[str]) -> Rule:
    return Rule(name, (column,), lambda b: _is_in(b[column], forbidden))


def _is_in(texts: np.ndarray, wanted: Sequence[str]) -> np.ndarray:
    """Return which texts are among others; bool, shape [N]."""
    # A number is equal to no text, and a list cannot be compared with one.
    if texts.dtype != object or not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError
    return np.isin(texts, np.array(wanted, object))


def _any(rows: np.ndarray, wanted: frozenset[str]) -> np.ndarray:
    """Return which rows have at least one of these values; bool, shape [N]."""
    # A string would be searched by letters: value_one_of is for string columns.
    if any(isinstance(values, str) for values in rows):
        raise TypeError
    return np.array([values is not None and not wanted.isdisjoint(values) for values in rows], bool)


def _either(values: Sequence[str]) -> str:
    return " or ".join(values)


def _range(minimum: float | None, maximum: float | None) -> str:
    if maximum is None:
        return f"at least {minimum:g}"
    return f"at most {maximum:g}" if minimum is None else f"{minimum:g} to {maximum:g}"


def make_rules(described: Sequence[Plugin]) -> list[Rule]:
    """Return the rules of a configuration.

    Raises:
        ConfigError: If a rule is unknown or its settings are invalid.
    """
    return [_make(rule) for rule in described]


def with_names(described: Plugin) -> Plugin:
    """Return a rule with its positional settings named: ``px`` of ``min_side(300)``.

    A setting that is a list also accepts a single value; without a name, it takes all remaining
    values: ``license_groups(commercial, noncommercial)``.

    Raises:
        ConfigError: If there are more values than settings.
    """
    factory = known_rules().get(described.name)
    if factory is None:
        return described
    hints = typing.get_type_hints(factory)
    names = list(inspect.signature(factory).parameters)
    by_place = [value for name, value in described.settings.items() if name.isdigit()]
    settings = {name: v for name, v in described.settings.items() if not name.isdigit()}
    for place, name in enumerate(names):
        is_several = typing.get_origin(hints[name]) is tuple
        if place < len(by_place) and name not in settings:
            rest = by_place[place:]
            if is_several and not isinstance(rest[0], list):
                settings[name], by_place = rest, by_place[:place]
            else:
                settings[name] = rest[0]
        elif is_several and isinstance(settings.get(name), str):
            settings[name] = [settings[name]]
    if len(by_place) > len(names):
        raise ConfigError(
            f"rule {described.name} takes {len(names)} settings "
            f"({', '.join(names) or 'none'}), got {len(by_place)}"
        )
    return Plugin(described.name, settings)


def known_rules() -> dict[str, Callable[..., Rule]]:
    """Return the rule factories of this module, by name."""
    functions = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    return {
        name: function
        for name, function in functions
        if function.__module__ == __name__
        and not name.startswith("_")
        and typing.get_type_hints(function).get("return") is Rule
    }


def _make(described: Plugin) -> Rule:
    known = known_rules()
    if described.name not in known:
        raise ConfigError(
            f"unknown rule {described.name!r}; choose from {', '.join(sorted(known))}"
            f"{config.nearest(described.name, known)}"
        )
    factory = known[described.name]
    settings = config.build(
        _settings_type(described.name, factory), described.settings, name=f"rule {described.name}"
    )
    return factory(
        **{item.name: getattr(settings, item.name) for item in dataclasses.fields(settings)}
    )


def _settings_type(name: str, factory: Callable[..., Rule]) -> Any:
    """Return a dataclass of a function's arguments, so that they are validated as settings."""
    hints = typing.get_type_hints(factory, include_extras=True)
    fields: list[Any] = [
        (argument.name, hints[argument.name])
        if argument.default is inspect.Parameter.empty
        else (argument.name, hints[argument.name], dataclasses.field(default=argument.default))
        for argument in inspect.signature(factory).parameters.values()
    ]
    return dataclasses.make_dataclass(f"rule_{name}", fields, frozen=True)
