"""Benchmarks by name: locate their data, configure their tasks, average the scores of suites.

The data of a benchmark is expected in ``data_root/<path>``, in any supported format: class folders,
MedMNIST's npz, Parquet as on Hugging Face, WebDataset tars. Missing benchmarks are skipped and
listed in the report.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow.fs as pafs

from biovl.benchmark import choice_columns
from biovl.benchmark import data as opening
from biovl.benchmark.benchmark_table import AVERAGED_OVER, BENCHMARKS, SUITES, Benchmark
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import prepared
from biovl.benchmark.prepare.sets import known_sets
from biovl.core import plugins
from biovl.core.config import REQUIRED, Recipe
from biovl.core.errors import ConfigError
from biovl.core.filesystems import below
from biovl.core.plugins import Plugin

TASKS = "benchmark.tasks"


def expand_suites(names: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks with the given names, without duplicates; suites are expanded.

    Raises:
        ConfigError: If a name is unknown; the message lists the known ones.
    """
    by_name: dict[str, Benchmark] = {}
    for name in names:
        if name not in SUITES and name not in BENCHMARKS:
            raise ConfigError(
                f"there is no benchmark called {name!r}; choose from the suites "
                f"{', '.join(SUITES)}, or {', '.join(sorted(BENCHMARKS))}"
            )
        by_name |= {own: BENCHMARKS[own] for own in SUITES.get(name, (name,))}
    return list(by_name.values())


def data_exists(benchmark: Benchmark, data_root: str) -> bool:
    """Return whether the data of a benchmark exists."""
    if not data_root:
        return False
    kind = opening.location_type(data_uri(benchmark, data_root))
    return bool(kind != pafs.FileType.NotFound)


def data_uri(benchmark: Benchmark, data_root: str) -> str:
    """Return the location of a benchmark's data below ``data_root``.

    It is the folder of the benchmark's name if prepare published it, otherwise ``location``.
    """
    prepared_uri = below(data_root, benchmark.name)
    is_prepared = prepared.content_kind(prepared_uri) is not None
    return prepared_uri if is_prepared else below(data_root, benchmark.location)


def check_data_root(config: BenchmarkConfig) -> None:
    """Reject benchmarks without a folder with their data.

    Raises:
        ConfigError: If ``data_root`` is not set, or does not exist.
    """
    if not config.benchmarks:
        return
    hint = "the folder with the data of benchmarks; benchmark --list says where it has each"
    if not config.data_root:
        raise ConfigError(f"data_root is required for {', '.join(config.benchmarks)}: {hint}")
    if opening.location_type(config.data_root) != pafs.FileType.Directory:
        raise ConfigError(f"data_root: {config.data_root} is not a folder; expected {hint}")


def resolve_tasks(config: BenchmarkConfig) -> tuple[dict[str, Plugin], list[tuple[str, str]]]:
    """Return the tasks of a run by name with all settings, and skipped benchmarks with the reason.

    Raises:
        ConfigError: If a task or a benchmark is unknown, or a task has the name of a benchmark.
    """
    tasks = {name: _completed(plugin, config) for name, plugin in config.tasks.items()}
    skipped = []
    items = expand_suites(config.benchmarks)
    twice = ", ".join(sorted(tasks.keys() & {item.name for item in items}))
    if twice:
        raise ConfigError(
            f"tasks and benchmarks both contain {twice}: give your own task another name"
        )
    for item in items:
        if not data_exists(item, config.data_root):
            skipped.append((item.name, _missing(item, config.data_root)))
            continue
        task = Plugin(item.task or config.benchmarks_as, _settings(item, config))
        tasks[item.name] = _completed(task, config)
    return tasks, skipped


def _missing(item: Benchmark, data_root: str) -> str:
    where = data_uri(item, data_root) if data_root else f"data_root/{item.location}"
    name = prepared_name(item)
    hint = f"; then: biovl prepare {name}" if name else ""
    return f"not at {where}; {item.access} it: {item.origin} (licence: {item.licence}){hint}"


def prepared_name(item: Benchmark) -> str | None:
    """Return the name under which prepare knows the data of a benchmark, None if it does not."""
    names = (item.name, item.location.partition("/")[0])
    return next((name for name in names if name in known_sets()), None)


def _settings(item: Benchmark, config: BenchmarkConfig) -> dict[str, Any]:
    data = _data(item, data_uri(item, config.data_root))
    if (item.task or config.benchmarks_as) == "closed_vqa":
        data = _with_captions(data)
    else:
        data = opening.with_classes(data)
    settings: dict[str, Any] = {"data": {"name": data.name, **data.settings}}
    if item.prompts and (item.task or config.benchmarks_as) == "zero_shot":
        settings["prompts"] = item.prompts
    if item.learning:
        settings["learning"] = dict(item.learning)
    return settings


def _data(item: Benchmark, uri: str) -> Plugin:
    # Tables of questions or choices have the columns of the raw data, which settings name.
    is_known = prepared.content_kind(uri) in ("classes", "findings", "pairs")
    if "name" not in item.settings or is_known:
        return opening.dataset_plugin(uri)
    more = {name: value for name, value in item.settings.items() if name != "name"}
    return Plugin(item.settings["name"], {"path": uri, **more})


def _with_captions(data: Plugin) -> Plugin:
    """Return a table as multiple-choice questions if it has captions of the labels."""
    if data.name != "table":
        return data
    label = data.settings["label"]
    about = "classification" if label == "label_name" else label
    settings = {name: value for name, value in data.settings.items() if name in ("path", "where")}
    detected = choice_columns.detect_settings(data.settings["path"], about)
    is_captions = str(detected.get("options", ("",))[0]).startswith("captions.")
    return Plugin("choices", {**settings, "about": about}) if is_captions else data


def _completed(plugin: Plugin, config: BenchmarkConfig) -> Plugin:
    """Return a task with the settings it inherits from the run: corpus, data, resamples, seed."""
    if plugin.name not in plugins.names(TASKS):
        known = ", ".join(plugins.names(TASKS))
        raise ConfigError(f"there is no task called {plugin.name!r}; choose from {known}")
    module = importlib.import_module(f"biovl.{TASKS}.{plugin.name}")
    takes = {item.name for item in fields(module.Config)}
    settings = dict(plugin.settings)
    for name, value in config.shared().items():
        # Pairs come from a corpus or from elsewhere, not from both.
        if name in takes and not (name == "data" and settings.get("corpus")):
            settings.setdefault(name, value)
    if "data" in settings and isinstance(settings["data"], Plugin):
        data = settings["data"]
        settings["data"] = {"name": data.name, **data.settings}
    return Plugin(plugin.name, settings)


def averages(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the averages of each suite with several benchmarks, as in the papers.

    ``SUITE: of groups`` (or ``of domains``) is the mean of the means ``SUITE: GROUP``, ``SUITE: of
    tasks`` the mean over all tasks; ``AVERAGED_OVER`` has the one that the paper reports.

    Args:
        values: The score in the benchmark's ``metric``, by benchmark.
    """
    rows = []
    for suite, level in AVERAGED_OVER.items():
        names = SUITES[suite]
        tasks = {name: values[name] for name in names if name in values}
        if len(tasks) < 2:
            continue
        of = f"{len(tasks)} of {len(names)}"
        if level != "task":
            parts: dict[str, list[float]] = {}
            for name, value in tasks.items():
                parts.setdefault(getattr(BENCHMARKS[name], level), []).append(value)
            means = {part: _mean(own) for part, own in parts.items()}
            rows += [
                {"name": f"{suite}: {part}", "value": mean, "of": str(len(parts[part]))}
                for part, mean in means.items()
            ]
            whole = _mean(list(means.values()))
            rows.append({"name": f"{suite}: of {level}s", "value": whole, "of": of})
        rows.append({"name": f"{suite}: of tasks", "value": _mean(list(tasks.values())), "of": of})
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def listing(data_root: str = "") -> str:
    """Return a text with all benchmarks: data, licence, location, and whether the data exists."""
    lines = [f"{len(BENCHMARKS)} benchmarks; data_root is {data_root or 'not set'}", ""]
    for item in BENCHMARKS.values():
        state = "found" if data_exists(item, data_root) else "not found"
        classes = f"{item.classes} classes" if item.classes else item.task
        captions = f", {item.captions} captions each" if item.captions and item.classes else ""
        lines += [
            f"{item.name}: {item.about}",
            f"    {item.domain}, {item.group}; {item.modality}; {classes}{captions}",
            f"    {item.origin}",
            f"    licence: {item.licence}; {item.access}; {state}: "
            f"{data_uri(item, data_root) if data_root else f'data_root/{item.location}'}",
        ]
    lines += ["", "suites:"]
    lines += [f"    {name}: {', '.join(names)}" for name, names in SUITES.items()]
    lines += ["", f"tasks: {', '.join(plugins.names(TASKS))}"]
    return "\n".join(lines) + "\n"


def listing_for(arguments: Sequence[str]) -> str:
    """Return ``listing`` for command-line arguments; only ``data_root=DIR`` is used."""
    settings = dict(text.partition("=")[::2] for text in arguments if "=" in text)
    return listing(settings.get("data_root", ""))


class Joinable(dict[str, Recipe[BenchmarkConfig]]):
    """Recipes by name. A comma-separated list of names is a recipe with the tasks of all."""

    def __contains__(self, names: object) -> bool:
        """Return whether all of the comma-separated names are known."""
        return all(dict.__contains__(self, name.strip()) for name in str(names).split(","))

    def __missing__(self, names: str) -> Recipe[BenchmarkConfig]:
        return _together([self[name.strip()] for name in names.split(",")])


def with_benchmarks(recipes: Mapping[str, Recipe[BenchmarkConfig]]) -> Joinable:
    """Return recipes with one added for every benchmark and suite."""
    names = {**BENCHMARKS, **SUITES}.keys() - recipes.keys()
    return Joinable({**{name: _asks(name) for name in sorted(names)}, **recipes})


def _asks(name: str) -> Recipe[BenchmarkConfig]:
    def recipe() -> BenchmarkConfig:
        return BenchmarkConfig(out=REQUIRED, benchmarks=(name,))

    recipe.__doc__ = f"The suite {name}." if name in SUITES else BENCHMARKS[name].about + "."
    return recipe


def _together(recipes: Sequence[Recipe[BenchmarkConfig]]) -> Recipe[BenchmarkConfig]:
    def recipe() -> BenchmarkConfig:
        nothing, configs_of = BenchmarkConfig(out=REQUIRED), [one() for one in recipes]
        tasks = {one.benchmarks_as: one.benchmarks for one in configs_of if one.benchmarks}
        if len(tasks) > 1:
            apart = ", ".join(f"{'+'.join(names)} by {task}" for task, names in tasks.items())
            raise ConfigError(
                f"these benchmarks are evaluated by different tasks: {apart}. Run one after the "
                "other, each with a separate out"
            )
        changes: dict[str, Any] = {}
        for one in configs_of:
            changes |= {k: value for k, value in vars(one).items() if value != getattr(nothing, k)}
        named = [task for one in configs_of for task in one.tasks.items()]
        for name, task in named:
            if any(other != task for same, other in named if same == name):
                raise ConfigError(
                    f"these recipes evaluate {name} with different settings. Run one after the "
                    "other, each with a separate out"
                )
        changes["tasks"] = dict(named)
        changes["benchmarks"] = tuple(name for one in configs_of for name in one.benchmarks)
        return replace(nothing, **changes)

    recipe.__doc__ = "All benchmarks and tasks of the named recipes."
    return recipe
