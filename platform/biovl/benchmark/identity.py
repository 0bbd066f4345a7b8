"""Identity of a benchmark run: its resolved settings and the fingerprints of its inputs."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark import data as opening
from biovl.benchmark import labellers
from biovl.benchmark.benchmarks import TASKS
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.encoders import ModelDescription
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Input, fingerprint
from biovl.core.plugins import Plugin


def settings(config: BenchmarkConfig, described: Mapping[str, Plugin]) -> dict[str, Any]:
    """Return the settings that a report depends on, JSON-serialisable.

    Settings of tasks are those they are built with, including defaults: values from a command line,
    where all are strings, and from a file are the same.

    Args:
        config: Settings of the run.
        described: Tasks of the run with all settings, from ``benchmarks.resolve_tasks``.

    Raises:
        ConfigError: If a setting of a task or of its data is not valid.
    """
    plain = configs.to_plain(config)
    # These do not affect the published bytes.
    for name in ("out", "workers", "cache"):
        del plain[name]
    plain["tasks"] = {name: plugin_settings(TASKS, described[name]) for name in config.tasks}
    if isinstance(config.data, Plugin):
        plain["data"] = plugin_settings(opening.KIND, config.data)
    return plain


def plugin_settings(kind: str, plugin: Plugin) -> dict[str, Any]:
    """Return the name and the validated settings of a plug-in, including nested plug-ins."""
    _, own = plugins.resolve(kind, plugin)
    plain = configs.to_plain(own)
    for item in fields(own):
        value = getattr(own, item.name)
        if isinstance(value, Plugin):
            plain[item.name] = plugin_settings(_kind(item.name), value)
    return {"name": plugin.name, **plain}


def defaults(config: BenchmarkConfig, described: Mapping[str, Plugin]) -> configs.Defaults:
    """Return the default values of the entries of ``settings``, by path."""
    values = configs.defaults(BenchmarkConfig)
    for name in config.tasks:
        values |= _defaults(TASKS, described[name], "tasks", name)
    if isinstance(config.data, Plugin):
        values |= _defaults(opening.KIND, config.data, "data")
    return values


def _defaults(kind: str, plugin: Plugin, *within: str) -> dict[tuple[str, ...], Any]:
    _, own = plugins.resolve(kind, plugin)
    found = configs.defaults(type(own), *within)
    for item in fields(own):
        value = getattr(own, item.name)
        if isinstance(value, Plugin):
            found |= _defaults(_kind(item.name), value, *within, item.name)
    return found


def _kind(setting: str) -> str:
    """Return the kind of the plug-in that a setting of a task holds."""
    return labellers.KIND if setting == "labeller" else opening.KIND


def inputs(
    config: BenchmarkConfig, known: Mapping[str, ModelDescription], data: Mapping[str, Any]
) -> list[Input]:
    """Return the models, index, figures and datasets of a run as inputs of its manifest.

    Args:
        config: Settings of the run.
        known: Models by name.
        data: Datasets by task.
    """
    models = [
        Input(name=f"model {name}", uri=model.uri, fingerprint=model.fingerprint)
        for name, model in known.items()
    ]
    corpora = [
        Input(name=name, uri=uri, fingerprint=fingerprint(uri))
        for name, uri in (("index", config.index), ("figures", config.figures))
        if uri
    ]
    return [*models, *corpora] + [
        Input(name=f"data {name}", uri=own.name, fingerprint=_fingerprint(own))
        for name, own in data.items()
    ]


def _fingerprint(data: Any) -> str:
    """Return a hash of images, labels, texts, answers and further columns of a dataset."""
    known = hashlib.blake2b(data.images.fingerprint.encode(), digest_size=16)
    for item in fields(data):
        value = getattr(data, item.name)
        if isinstance(value, np.ndarray):
            known.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, list | tuple):
            known.update(repr(value).encode("utf-8", "surrogatepass"))
        elif isinstance(value, pa.Table):
            # What scores are broken down by, and patients.
            for name in value.column_names:
                column = repr((name, value[name].to_pylist()))
                known.update(column.encode("utf-8", "surrogatepass"))
        elif isinstance(value, Pairs):
            known.update(_fingerprint(value).encode())
    return known.hexdigest()
