"""Our numbers, read from the published folders of the steps."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biovl.benchmark import benchmarks
from biovl.benchmark.benchmark_table import BENCHMARKS, SUITES
from biovl.chain.reproduce.graph import Graph, evaluation_of
from biovl.chain.reproduce.job import Outcome
from biovl.chain.reproduce.papers import Column, Row, Table
from biovl.core.folders import Folder
from biovl.pretrain.trackers import seconds_of_steps

_ABSENT = "not in what was published"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table: the paper's number, and ours."""

    row: str
    column: str
    unit: str
    paper: float | None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of our 95 % interval; None: this number has none."""
    of: str = ""
    """Of an average over fewer benchmarks than the paper's: ``3 of 10``."""
    equal: str
    """Whether data and protocol are the paper's: ``yes``, ``partly`` or ``no``, as with settings
    that the command changed."""
    note: str = ""
    protocol: tuple[str, ...] = ()
    """What the report says of differences to the paper's protocol."""
    missing: str = ""
    """Why there is no number of ours."""


def cells(table: Table, graph: Graph, outcome: Outcome) -> list[Cell]:
    """Return a table's cells, row by row."""
    reader = _Reader(table, graph, outcome)
    return [
        reader.cell(row, column, row.paper[number] if row.paper else None)
        for row in table.rows
        for number, column in enumerate(table.columns)
    ]


class _Reader:
    def __init__(self, table: Table, graph: Graph, outcome: Outcome) -> None:
        self._table, self._graph, self._outcome = table, graph, outcome
        self._files: dict[str, Any] = {}

    def cell(self, row: Row, column: Column, paper: float | None) -> Cell:
        factor = 100.0 if column.unit == "%" else 1.0
        found = self._found(row, column)
        equal = row.equal or column.equal or self._table.equal
        if found.get("of") or self._graph.is_changed(self._steps(row, column)):
            equal = "no"
        return Cell(
            row=row.name,
            column=column.name,
            unit=column.unit,
            paper=paper,
            equal="no" if self._graph.is_small else equal,
            note="; ".join(filter(None, (column.note, row.note))),
            protocol=tuple(found.get("protocol", ())),
            of=found.get("of", ""),
            missing=found.get("missing", ""),
            **{
                name: None if found.get(key) is None else factor * found[key]
                for name, key in (("ours", "value"), ("low", "low"), ("high", "high"))
            },
        )

    def _steps(self, row: Row, column: Column) -> list[str]:
        """Return the steps of which a number is."""
        reports = self._graph.reports.get((row.model, evaluation_of(self._table, column)), ())
        return [*filter(None, (row.step, row.model)), *(report.step for report in reports)]

    def _found(self, row: Row, column: Column) -> dict[str, Any]:
        """Return ``value``, ``low`` and ``high``; or ``missing``."""
        if column.path or row.step:
            return self._statistic(row, column)
        if not row.model:
            return {"missing": row.note or "not reproduced"}
        if column.loss:
            return self._validation(row.model, column.loss)
        if column.time:
            return self._time(row)
        evaluation = evaluation_of(self._table, column)
        if column.average:
            return self._average(row.model, evaluation, column.average)
        return self._score(row.model, evaluation, column.score)

    def _score(self, model: str, evaluation: str, score: str) -> dict[str, Any]:
        task, _, name = score.partition("/")
        for report in self._graph.reports[model, evaluation]:
            if report.benchmarks and task not in report.benchmarks:
                continue
            values = self._read(report.step, "scores.json")
            if values is None:
                return {"missing": self._outcome.reason(self._graph, report.step)}
            for found in values["scores"]:
                if (found["task"], found["name"]) == (task, name):
                    return {**found, "protocol": _protocol(values, task)}
            skipped = [item["reason"] for item in values["skipped"] if item["task"] == task]
            return {"missing": skipped[0] if skipped else f"{score}: {_ABSENT}"}
        return {"missing": f"{task} is not part of {evaluation}"}

    def _average(self, model: str, evaluation: str, average: str) -> dict[str, Any]:
        """Return an average as benchmark computes it, over the reports that are there."""
        values: dict[str, float] = {}
        reasons, protocol = [], list[str]()
        part = _part_of(average)
        for report in self._graph.reports[model, evaluation]:
            scores = self._read(report.step, "scores.json")
            if scores is None:
                reasons.append(self._outcome.reason(self._graph, report.step))
                continue
            values |= _by_benchmark(scores["scores"])
            # The average over all has the notes of its parts.
            if not average.partition(": ")[2].startswith("of "):
                protocol += [line for name in part for line in _protocol(scores, name)]
        for found in benchmarks.averages(values):
            if found["name"] == average:
                count = int(str(found["of"]).partition(" ")[0])
                partial = f"{count} of {len(part)}" if count < len(part) else ""
                return {**found, "of": partial, "protocol": list(dict.fromkeys(protocol))}
        return {"missing": reasons[0] if reasons else f"{average}: {_ABSENT}"}

    def _validation(self, model: str, name: str) -> dict[str, Any]:
        found = self._outcome.published.get(model)
        if found is None or found.manifest is None:
            return {"missing": self._no_training(model)}
        scores = self._read(model, "validation.json") or {}
        value = scores.get(str(found.manifest.notes.get("published_epoch")), {}).get(name)
        return {"value": value} if value is not None else {"missing": f"{name}: {_ABSENT}"}

    def _time(self, row: Row) -> dict[str, Any]:
        first = self._table.rows[0].model
        seconds = [self._seconds(model) for model in (row.model, first)]
        if seconds[0] is None or not seconds[1]:
            return {"missing": self._no_training(row.model if seconds[0] is None else first)}
        return {"value": seconds[0] / seconds[1]}

    def _seconds(self, model: str) -> float | None:
        found = self._outcome.published.get(model)
        return None if found is None else seconds_of_steps(Folder(found.out))

    def _no_training(self, model: str) -> str:
        if model in self._graph.given or model not in self._graph.entries:
            return "the model is given, not trained"
        return self._outcome.reason(self._graph, model)

    def _statistic(self, row: Row, column: Column) -> dict[str, Any]:
        if not row.step or not (row.at or column.path):
            return {"missing": row.note or "not reproduced"}
        file = self._read(row.step, self._table.file)
        if file is None:
            given = row.step in self._graph.given
            why = f"{row.step} has no {self._table.file}"
            return {"missing": why if given else self._outcome.reason(self._graph, row.step)}
        place = ".".join(filter(None, (row.at, column.path)))
        value = _at(file, place)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return {"missing": f"{place}: {_ABSENT}"}
        return {"value": float(value)}

    def _read(self, step: str, name: str) -> Any:
        """Return the content of a JSON file of a published step; None if it does not exist."""
        uri = self._graph.given.get(step)
        found = self._outcome.published.get(step)
        if found is not None and found.state == "published":
            uri = found.out
        if uri is None:
            return None
        place = f"{uri}/{name}"
        if place not in self._files:
            folder = Folder(uri)
            self._files[place] = json.loads(folder.read(name)) if folder.exists(name) else None
        return self._files[place]


def _protocol(values: Mapping[str, Any], task: str) -> list[str]:
    """Return what a report says of a benchmark's protocol next to the paper's."""
    return [
        line
        for notes in values["notes"]
        if notes["task"] == task
        for line in notes.get("protocol", ())
    ]


def _by_benchmark(scores: list[Mapping[str, Any]]) -> dict[str, float]:
    """Return the score of each benchmark in the metric of its paper."""
    values: dict[str, float] = {}
    for found in scores:
        item = BENCHMARKS.get(found["task"])
        if item is None or found["task"] in values:
            continue
        if not item.metric or item.metric == found["name"]:
            values[found["task"]] = float(found["value"])
    return values


def _part_of(average: str) -> list[str]:
    """Return the benchmarks of an average."""
    suite, _, part = average.partition(": ")
    names = list(SUITES[suite])
    if part.startswith("of "):
        return names
    return [name for name in names if part in (BENCHMARKS[name].group, BENCHMARKS[name].domain)]


def _at(values: Any, place: str) -> Any:
    """Return the value at a dotted place.

    ``key=value`` selects from a list of mappings; ``key~value`` selects those with any version of a
    licence, whose numbers are added; ``*`` is the sum of all.
    """
    for part in filter(None, place.split(".")):
        if isinstance(values, list) and "~" in part:
            key, _, wanted = part.partition("~")
            chosen = [item for item in values if _unversioned(item.get(key)) == wanted]
            if not chosen:
                return 0
            values = _added(chosen)
        elif isinstance(values, list):
            key, _, wanted = part.partition("=")
            values = next((item for item in values if str(item.get(key)) == wanted), None)
        elif isinstance(values, dict):
            values = sum(values.values()) if part == "*" else values.get(part)
        else:
            return None
    return values


def _unversioned(licence: Any) -> str:
    return re.sub(r"-\d+(\.\d+)?.*$", "", str(licence))


def _added(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sums of the numbers in several rows."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums.update({name: value for name, value in row.items() if isinstance(value, int)})
    return dict(sums)
