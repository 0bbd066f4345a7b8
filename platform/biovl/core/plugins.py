"""A plug-in is a file: the file name is the name used in a configuration.

Each file defines ``Config``, a frozen dataclass of settings, and ``build(config)``.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from biovl.core import config
from biovl.core.errors import ConfigError
from biovl.core.overrides import parse_call


@dataclass(frozen=True)
class Plugin:
    """Name and settings of a plug-in.

    Workers receive this description and build the object there. In a configuration it is a flat
    mapping, ``{"name": "packages", "path": "…"}``, or a call, ``packages(path=…)``.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={json.dumps(v)}" for name, v in self.settings.items())
        return f"{self.name}({settings})" if settings else self.name

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def unflatten(value: Any) -> Any:
            if isinstance(value, str):
                value = parse_call(value)
            if isinstance(value, Mapping) and "settings" not in value:
                settings = {key: item for key, item in value.items() if key != "name"}
                return {**{k: value[k] for k in ("name",) if k in value}, "settings": settings}
            return value

        def flatten(plugin: "Plugin") -> dict[str, Any]:
            return {"name": plugin.name, **plugin.settings}

        # Spelled out: if a configuration has two plug-ins, pydantic uses the handler's result
        # without this wrapper.
        fields = [
            core_schema.dataclass_field("name", core_schema.str_schema(coerce_numbers_to_str=True)),
            core_schema.dataclass_field(
                "settings",
                core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()),
            ),
        ]
        inner = core_schema.dataclass_schema(
            cls,
            core_schema.dataclass_args_schema(cls.__name__, fields),
            [f["name"] for f in fields],
        )
        return core_schema.no_info_before_validator_function(
            unflatten,
            inner,
            serialization=core_schema.plain_serializer_function_ser_schema(flatten),
        )


def names(kind: str) -> list[str]:
    """Return the sorted plug-in names of a kind, without importing them.

    Args:
        kind: The package that contains their files, relative to ``biovl``: ``harvest.sources``.
    """
    package = importlib.import_module(f"biovl.{kind}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def make(kind: str, plugin: Plugin) -> Any:
    """Build the object that a plug-in's name and settings describe.

    Raises:
        ConfigError: If there is no such plug-in or its settings are invalid.
    """
    module, settings = resolve(kind, plugin)
    return module.build(settings)


def resolve(kind: str, plugin: Plugin, *, setting: str = "") -> tuple[ModuleType, Any]:
    """Return the module of a plug-in, and its validated settings, an instance of its ``Config``.

    Args:
        kind: The directory of plug-ins: ``harvest.sources``.
        plugin: Name and settings.
        setting: Setting that describes the plug-in, for error messages.

    Raises:
        ConfigError: If there is no such plug-in or its settings are invalid.
    """
    if plugin.name not in names(kind):
        known = ", ".join(names(kind))
        raise ConfigError(
            f"{_last(kind)} has no plug-in called {plugin.name!r}; choose from {known}"
            f"{config.nearest(plugin.name, names(kind))}"
        )
    module = importlib.import_module(f"biovl.{kind}.{plugin.name}")
    name = f"{_last(kind)}/{plugin.name}"
    if setting:
        name += f" (its settings are {setting}.NAME)"
    return module, config.build(module.Config, plugin.settings, name=name)


def _last(kind: str) -> str:
    return kind.rpartition(".")[2]
