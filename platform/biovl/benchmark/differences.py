"""Differences between our protocols and the papers', read from ``differences.yaml``.

They are a page of the documentation, ``docs/differences.md``, and notes in reports.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import yaml

from biovl.benchmark.benchmark_table import BENCHMARKS, SECTIONS
from biovl.core import config as configs


@dataclass(frozen=True, kw_only=True)
class LiveSetting:
    """A setting or constant, and the value that ``docs/differences.md`` states."""

    name: str
    """Name that users know."""
    at: str
    """Where it is defined: ``module:NAME.key…``."""
    value: Any
    """Its value, JSON-serialisable."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Entry of ``differences.yaml``."""

    title: str
    """Heading on the page."""
    paper: str
    """What the papers say, with the place; or that they say nothing."""
    here: str
    """What is done here, and why."""
    settings: tuple[LiveSetting, ...] = ()
    """Settings that are different, with their defaults."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks, sections or suites whose reports have the note."""
    task: str = ""
    """Task that benchmarks must be evaluated as for the note to apply; empty: any."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Values that the notes of the result must have for the note to apply."""
    note: str = ""
    """Short form for reports."""

    def applies(self, benchmark: str, task: str, result: Mapping[str, Any]) -> bool:
        """Return whether a report has the note next to the scores of a benchmark.

        Args:
            benchmark: Name of the benchmark.
            task: Task that it was evaluated as.
            result: Notes of the task's outcome.
        """
        names = {name for one in self.benchmarks for name in SECTIONS.get(one, (one,))}
        is_so = all(result.get(name) == value for name, value in self.result.items())
        return benchmark in names and self.task in ("", task) and is_so


def _entries(part: Mapping[str, Any]) -> Iterator[Difference]:
    for entry in part["entries"]:
        plain = {"task" if key == "as" else key: value for key, value in entry.items()}
        yield configs.build(Difference, plain, name=plain["title"])


_FILE = yaml.safe_load(files(__package__).joinpath("differences.yaml").read_bytes())

PARTS: Mapping[str, Sequence[Difference]] = {
    part["title"]: tuple(_entries(part)) for part in _FILE["parts"]
}
"""Differences by the part of the page."""


def notes(benchmark: str, task: str, result: Mapping[str, Any]) -> list[str]:
    """Return the notes on the protocol of a benchmark; arguments as of ``Difference.applies``."""
    entries = (one for part in PARTS.values() for one in part)
    return [one.note for one in entries if one.applies(benchmark, task, result)]


def class_notes(benchmark: str, result: Mapping[str, Any]) -> list[str]:
    """Return a note if the data have another number of classes than the paper; else none."""
    paper, chance = BENCHMARKS[benchmark].classes, result.get("chance")
    if paper is None or not isinstance(chance, float):
        return []
    ours = round(1 / chance)
    what = f"the data have {ours} classes, or options, where the paper has {paper}"
    return [] if ours == paper else [what]


def page() -> str:
    """Return ``docs/differences.md``."""
    lines = [
        "# Where we differ from the papers",
        "",
        "Choices here that a paper made otherwise, or left open, and contradictions in the papers. "
        "Reports of [benchmark](benchmark.md) repeat what concerns their scores. A test compares "
        "each setting with the code. This page is generated from "
        "`platform/biovl/benchmark/differences.yaml` by "
        "`python -m biovl.benchmark.differences`. [All pages](../README.md#where-to-go-next)",
        "",
        "Papers: BiomedCLIP (arXiv:2303.00915, with the supplement of NEJM AI), BIOMEDICA "
        "(arXiv:2501.07171), BMC-LongCLIP (*No Tokens Wasted*). The independent run of BiomedCLIP "
        "is github.com/AndyUB/biomedclip-repro, at commit 4e54f20.",
    ]
    for title, entries in PARTS.items():
        lines += ["", f"## {title}"]
        for one in entries:
            lines += ["", f"### {one.title}", "", f"* **Papers:** {one.paper}"]
            lines += [f"* **Here:** {one.here}"]
            if one.settings:
                lines += [f"* {'; '.join(_shown(setting) for setting in one.settings)}"]
    return "\n".join(lines) + "\n"


def _shown(setting: LiveSetting) -> str:
    value = setting.value
    return f"`{setting.name}`: {'none' if value == '' else f'`{value}`'}"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
