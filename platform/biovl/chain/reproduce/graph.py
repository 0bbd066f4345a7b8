"""The steps that tables need, as a chain in order. A step that several tables name occurs once."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from biovl.benchmark import benchmarks
from biovl.benchmark.benchmark_table import Benchmark
from biovl.benchmark.config import RECIPES as BENCHMARK_RECIPES
from biovl.benchmark.prepare.sets import known_sets
from biovl.chain.links import Chain, Link, Step, link
from biovl.chain.reproduce import stand_ins
from biovl.chain.reproduce.papers import SIZES, Column, Entry, Papers, Row, Table, Variant
from biovl.chain.steps import STEPS
from biovl.core import config as configs
from biovl.core import lazy
from biovl.core.artifacts import Manifest
from biovl.core.errors import ConfigError
from biovl.core.overrides import merge_changes
from biovl.finetune import merge_config
from biovl.pretrain.config import MAY_CHANGE

STAND_IN = "stand_in_model"
"""Step whose model stands in for all given models in the size ``small``."""

DATA = "stand_ins"
"""Step that draws the data in the size ``small``."""

UNNAMED = "?"
"""Of a given model: no name loads it."""

_OWN = ("folder", "name", "size", "data_root")
_OF_MACHINES = ("workers", "cache")
"""Settings of any job, and sections, that fit it to machines; so do those of units of work."""
_OF_PRETRAIN = tuple(
    f"{section}.{name}".removeprefix(".") for section, own in MAY_CHANGE.items() for name in own
)
"""Those of pretrain, which do not define a run."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a reproduction."""

    folder: str
    """Parent of all folders, local or ``s3://``."""
    name: str = ""
    """Suffix of folders for which one with other settings is published."""
    size: str = "paper"
    """One of ``SIZES``."""
    data_root: str = ""
    """The folder that contains the data of benchmarks."""
    use: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Published folders, or models by name, in place of steps."""
    steps: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Changed settings by step or job."""

    def of(self, *names: str) -> dict[str, Any]:
        """Return the changed settings of a step; those of later names apply after earlier ones."""
        return merge_changes(*(self.steps.get(name, {}) for name in names))

    def changed(self, papers: Papers) -> dict[str, Any]:
        """Return all changed settings but those of machines, by name on the command line."""
        of_steps = {
            f"{step}.{setting}": value
            for step, own in self.steps.items()
            for setting, value in _without_machines(
                papers.steps[step].job if step in papers.steps else step, own
            ).items()
        }
        return {**of_steps, **{f"use.{step}": place for step, place in self.use.items()}}


def _without_machines(job: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, by dotted name, that do more than fit a job to machines."""
    names = _OF_PRETRAIN if job == "pretrain" else _OF_MACHINES
    return {
        setting: value
        for setting, value in configs.flat(settings, keep_empty=True).items()
        if not f"{setting}.".startswith(tuple(f"{name}." for name in names))
        and not setting.endswith("per_unit")
    }


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report of a model on an evaluation, or on one of its data sets."""

    step: str
    benchmarks: tuple[str, ...] = ()
    """Names of the benchmarks; empty for an evaluation without data below ``data_root``."""


@dataclass(frozen=True)
class Graph:
    """Steps that the selected tables need, in order, and what the user still has to provide."""

    chain: Chain
    steps: tuple[Step, ...]
    missing: Mapping[str, str]
    """Reason by step, of steps that cannot run because the user has to provide something."""
    reports: Mapping[tuple[str, str], tuple[Report, ...]]
    """Reports by model and evaluation."""
    given: Mapping[str, str]
    """Models by name, and folders that are used in place of steps, by step."""
    entries: Mapping[str, Entry]
    """Entry of each step; of a report, that of its evaluation."""
    is_small: bool
    changed: Mapping[str, Any]
    """Settings of steps, and folders in place of steps, that the command was given, by name, but
    for those of machines."""
    changed_steps: frozenset[str]
    """Steps with such settings, apart from those that the paper's protocol leaves to the user."""

    def is_changed(self, names: Iterable[str]) -> bool:
        """Return whether the command changed a setting of named steps or of their dependencies."""
        sources = {step.name: step.sources for step in self.steps}
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += sources.get(name, ())
        return bool(seen & self.changed_steps)

    def links(self) -> list[Link]:
        """Return all steps that can be configured, with their current state; nothing is run.

        Raises:
            ConfigError: If a setting is not valid.
        """
        found = self.given_links()
        waiting = set(self.missing)
        for step in self.steps:
            if step.name in waiting or waiting & set(step.sources):
                waiting.add(step.name)
            else:
                found.append(link(step, self.chain, found))
        return found

    def given_links(self) -> list[Link]:
        """Return the given models and folders as published steps, which other steps can read."""
        return [
            Link(
                Step(name=name, folder="", recipes={}, job=_nothing),
                SimpleNamespace(out=uri),
                "published",
            )
            for name, uri in self.given.items()
        ]


def _nothing(config: Any, **named: Any) -> Manifest:
    raise AssertionError("a given model is not made")


def read_settings(values: Mapping[str, Any], papers: Papers) -> Settings:
    """Return the settings of a command line by dotted name.

    Raises:
        ConfigError: If a name is unknown, or the folder is missing.
    """
    own: dict[str, str] = {}
    use: dict[str, str] = {}
    changed: dict[str, dict[str, Any]] = {}
    steps = {name for name, entry in papers.steps.items() if entry.job}
    for setting, value in values.items():
        head, _, rest = setting.partition(".")
        if setting in _OWN:
            own[setting] = str(value).rstrip("/")
        elif head == "use" and rest in papers.steps:
            if papers.steps[rest].job == "benchmark":
                raise ConfigError(
                    f"{setting}: {rest} is an evaluation, which has a report for each model; "
                    "use.STEP is for a step whose folder others read"
                )
            use[rest] = str(value)
        elif head in {*steps, *_PROTOTYPES} and rest:
            changed.setdefault(head, {})[rest] = value
        else:
            known = [*_OWN, *(f"use.{name}" for name in papers.steps), *_PROTOTYPES, *steps]
            raise ConfigError(
                f"there is nothing called {setting!r} to set; choose from {', '.join(_OWN)}, "
                f"use.STEP, JOB.SETTING, STEP.SETTING{configs.nearest(setting, known)}"
            )
    if not own.get("folder"):
        raise ConfigError("folder is required: --set folder=DIR, or s3://…")
    if own.get("size", "paper") not in SIZES:
        raise ConfigError(f"size: choose from {', '.join(SIZES)}, got {own['size']!r}")
    return Settings(**own, use=use, steps=changed)


def build(papers: Papers, tables: Iterable[Table], settings: Settings) -> Graph:
    """Return the steps of tables. Nothing is run, and no folder is read but those of the data."""
    builder = _Builder(papers, settings)
    for table in tables:
        for row in table.rows:
            builder.add_row(table, row)
    return builder.graph()


def reject_unused(graphs: Iterable[Graph], settings: Settings) -> None:
    """Reject settings that no step of the graphs has, and folders that none of them reads.

    Raises:
        ConfigError: If there is one; the message has the first such setting.
    """
    known, given = set[str](), set[str]()
    for graph in graphs:
        evaluations = {evaluation for _, evaluation in graph.reports}
        jobs = {entry.job for entry in graph.entries.values()}
        known |= {*graph.entries, *jobs, *evaluations}
        given |= graph.given.keys()
    for name, own in settings.steps.items():
        if name not in known:
            raise ConfigError(
                f"{name}.{next(iter(own))} is set, but no step of these tables is called {name}, "
                "nor is its job, or a folder is used in its place; --dry-run lists the steps"
            )
    for name in settings.use:
        if name not in given:
            raise ConfigError(
                f"use.{name} is set, but no step of these tables reads {name}; --dry-run lists "
                "the steps"
            )


def evaluation_of(table: Table, column: Column) -> str:
    """Return the evaluation of a cell; empty for those that need none."""
    if not (column.score or column.average):
        return ""
    return column.evaluation or table.evaluation


class _Builder:
    def __init__(self, papers: Papers, settings: Settings) -> None:
        self._papers, self._settings = papers, settings
        self._is_small = settings.size == "small"
        self._given: dict[str, str] = {}
        self._steps: dict[str, Step] = {}
        self._set: dict[str, dict[str, Any]] = {}
        self._missing: dict[str, str] = {}
        self._reports: dict[tuple[str, str], tuple[Report, ...]] = {}
        self._changed: set[str] = set()
        self._entries: dict[str, Entry] = {}

    def graph(self) -> Graph:
        settings = self._settings
        chain = Chain(settings.folder, self._set, settings.name)
        return Graph(
            chain,
            tuple(self._steps.values()),
            self._missing,
            self._reports,
            self._given,
            self._entries,
            self._is_small,
            settings.changed(self._papers),
            frozenset(self._changed),
        )

    def add_row(self, table: Table, row: Row) -> None:
        if row.step:
            self._add(row.step)
        if not row.model:
            return
        own = {evaluation_of(table, column) for column in table.columns}
        for evaluation in sorted(own - {""}):
            self._add_reports(row.model, evaluation)
        if not own - {""}:
            self._add(row.model)

    def _add(self, name: str) -> None:
        """Add a step after those that it reads."""
        entry = self._entry(name)
        if name in self._settings.use:
            self._given[name] = self._settings.use[name]
        elif entry.given and self._is_small:
            self._add(STAND_IN)
        elif entry.given:
            self._given[name] = entry.given
        elif name not in self._steps:
            self._put(name, name, entry, self._variant(entry), (entry.job, name))

    def _add_reports(self, model: str, evaluation: str) -> None:
        if (model, evaluation) in self._reports:
            return
        self._add(model)
        if self._is_small and self._entry(model).given and model not in self._settings.use:
            # One report for all rows with the same stand-in.
            self._add_reports(STAND_IN, evaluation)
            self._reports[model, evaluation] = self._reports[STAND_IN, evaluation]
            return
        entry = self._entry(evaluation)
        variant = self._variant(entry)
        names, folder = (entry.job, evaluation), f"reports/{model}"
        found = []
        for location, own in self._data_sets(entry).items():
            step = f"{evaluation}-{location}-{model}" if location else f"{evaluation}-{model}"
            reads = {"model": model, **variant.reads}
            more: dict[str, Any] = {}
            if own and not self._is_small:
                self._need_data(step, own)
            if own and self._is_small:
                place = own[0].location if entry.data else ""
                reads[entry.data or "data_root"] = f"{DATA}/{place}".rstrip("/")
            elif own and entry.data:
                more[entry.data] = benchmarks.data_uri(own[0], self._settings.data_root)
            elif own:
                more["data_root"] = self._settings.data_root
            if own and not entry.data:
                more["benchmarks"] = [item.name for item in own]
            whole = dataclasses.replace(variant, set={**more, **variant.set}, reads=reads)
            self._put(step, f"{folder}/{step.removesuffix(f'-{model}')}", entry, whole, names)
            names_of = () if entry.data else tuple(item.name for item in own)
            found.append(Report(step=step, benchmarks=names_of))
        self._reports[model, evaluation] = tuple(found)

    def _data_sets(self, entry: Entry) -> dict[str, list[Benchmark]]:
        """Return the benchmarks of an evaluation by the data that they share."""
        if not entry.benchmarks:
            return {"": []}
        found: dict[str, list[Benchmark]] = {}
        for item in benchmarks.expand_suites([entry.benchmarks]):
            found.setdefault(_slug(self._place(item)), []).append(item)
        return found

    def _place(self, item: Benchmark) -> str:
        """Return where a benchmark's data is, below ``data_root``."""
        root = self._settings.data_root
        if self._is_small or not root:
            return item.location
        return benchmarks.data_uri(item, root).removeprefix(f"{root}/")

    def _need_data(self, step: str, own: Sequence[Benchmark]) -> None:
        root = self._settings.data_root
        if not benchmarks.data_exists(own[0], root):
            self._missing[step] = to_provide(own[0], root)

    def _put(
        self, name: str, folder: str, entry: Entry, variant: Variant, names: Sequence[str]
    ) -> None:
        changes = self._settings.of(*names, *(() if name in names else (name,)))
        settings = {"recipe": variant.recipe, **merge_changes(variant.set, changes)}
        reads: dict[str, Any] = {}
        for setting, source in variant.reads.items():
            if not source or setting in changes:
                continue
            sources = tuple(self._source(name, one.strip()) for one in source.split(","))
            is_list = setting in _LISTS or len(sources) > 1
            reads[setting] = sources if is_list else sources[0]
        own = dataclasses.replace(_PROTOTYPES[entry.job], name=name, folder=folder, reads=reads)
        self._steps[name], self._set[name] = own, settings
        self._entries[name] = entry
        if any(each not in entry.provide for each in _without_machines(entry.job, changes)):
            self._changed.add(name)
        needed = entry.provide.partition("=")[0]
        if entry.provide and not self._is_small and needed not in {**changes, **reads}:
            self._missing.setdefault(name, f"set {names[-1]}.{entry.provide}")

    def _source(self, name: str, source: str) -> str:
        """Add the step of an input, and return the source."""
        step, slash, inner = source.partition("/")
        self._add(step)
        entry = self._entry(step)
        if step in self._settings.use:
            return source
        if entry.given and self._is_small:
            return STAND_IN + slash + inner
        if entry.given == UNNAMED:
            self._missing[name] = f"set use.{step}=DIR: {entry.provide}"
        return source

    def _variant(self, entry: Entry) -> Variant:
        if not self._is_small:
            return Variant().then(entry)
        shared = self._papers.small.get(entry.job, Variant())
        own = Variant(recipe=entry.recipe, reads=entry.reads)
        return own.then(shared).then(entry.small)

    def _entry(self, name: str) -> Entry:
        if name not in self._papers.steps:
            raise ConfigError(f"papers.yaml: there is no step called {name!r}")
        return self._papers.steps[name]


def _slug(place: str) -> str:
    return re.sub(r"\W+", "_", place.partition(".")[0])


def to_provide(item: Benchmark, data_root: str) -> str:
    """Return what the user has to do for the data of a benchmark, in words."""
    about = known_sets()
    name = benchmarks.prepared_name(item)
    root = data_root or "DATA_ROOT"
    if not name:
        return (
            f"data of {item.name} in {root}/{item.location}: {item.origin}; licence: {item.licence}"
        )
    known = about[name][1]
    sign = "accept its terms, then " if item.access == "sign" else ""
    return (
        f"{sign}biovl prepare {name} --set raw=DIR --set out={root}/{name}: {known.get} "
        f"({known.size}; licence: {known.licence})"
    )


_LISTS = ("columns", "select.columns")
"""Input settings that are lists of folders."""


_OF_CHAINS = {step.name: dataclasses.replace(step, reads={}) for step in STEPS}
_PROTOTYPES: dict[str, Step] = {
    **_OF_CHAINS,
    "benchmark": dataclasses.replace(
        _OF_CHAINS["benchmark"], recipes=benchmarks.with_benchmarks(BENCHMARK_RECIPES)
    ),
    "merge": Step(
        name="merge",
        folder="merged",
        recipes=merge_config.RECIPES,
        job=lazy.function("biovl.finetune.merge_job:merge"),
    ),
    "stand_ins": Step(
        name="stand_ins",
        folder="stand_ins",
        recipes=stand_ins.RECIPES,
        job=lazy.function("biovl.chain.reproduce.stand_ins:draw"),
    ),
    "votes": Step(
        name="votes",
        folder="votes",
        recipes=stand_ins.VOTES,
        job=lazy.function("biovl.chain.reproduce.stand_ins:vote"),
    ),
}
"""Jobs by name. To add one, add an entry."""
