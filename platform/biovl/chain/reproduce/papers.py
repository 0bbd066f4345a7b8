"""The tables and figures of the papers, and the steps that make them, read from ``papers.yaml``.

A table is data: its columns name a score, its rows a model or a corpus. Models, corpora and
evaluations are steps by name, and a step is an ordinary job with a recipe, settings, and the steps
that it reads. Tables that name the same step share it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from biovl.core import config as configs
from biovl.core.errors import ConfigError

SIZES = ("paper", "small")
"""``paper``: as published. ``small``: the same steps on synthetic articles and drawn images, with
models that train in seconds."""

Verdict = Literal["yes", "partly", "no"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Recipe, settings and inputs of a step, for the size ``paper`` or ``small``."""

    recipe: str = ""
    """Recipe of the job."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the recipe."""
    reads: Mapping[str, Any] = field(default_factory=dict)
    """Step that publishes the input, for each input setting; ``STEP/PATH`` is a file of it, and
    commas separate several. Empty: the setting has no input."""

    def then(self, other: "Variant") -> "Variant":
        """Return this variant, overridden by another one; settings are by dotted name."""
        return Variant(
            recipe=other.recipe or self.recipe,
            set={
                **configs.flat(self.set, keep_empty=True),
                **configs.flat(other.set, keep_empty=True),
            },
            reads={**configs.flat(self.reads), **configs.flat(other.reads)},
        )


@dataclass(frozen=True, kw_only=True)
class Entry(Variant):
    """A step, or a model that is given by name."""

    job: str = ""
    """Job of the step; empty for a given model."""
    given: str = ""
    """A model that is not trained: a name of open_clip with its weights, or ``hf-hub:OWNER/NAME``;
    ``?`` if no name loads it, so that the user must provide a folder."""
    benchmarks: str = ""
    """Of an evaluation: suite or benchmark below ``data_root``; each data set has its own report,
    so that a set that arrives later is added."""
    data: str = ""
    """Of an evaluation by a recipe with one task: the setting that names the benchmark's data. The
    recipe then is that of the task, and not of the benchmark."""
    small: Variant = field(default_factory=Variant)
    """Differences of this step from others of its job in the size ``small``; ``set`` of the size
    ``paper`` does not apply there."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Estimate of hours: ``preset``, a recipe of plan, and ``pairs`` of an epoch."""
    provide: str = ""
    """What the user must provide for this step, in words."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: the source of our number."""

    name: str
    score: str = ""
    """``TASK/METRIC`` in scores.json of the row's evaluation."""
    average: str = ""
    """Average of a suite, ``SUITE: of groups``, over the reports of the row's model."""
    loss: str = ""
    """A value of the validation of the published epoch: ``loss``."""
    time: str = ""
    """``relative``: time of training, as a multiple of that of the table's first row."""
    path: str = ""
    """Place in the row's file, after the row's own: ``lengths.caption_tokens`` and ``median``."""
    evaluation: str = ""
    """Evaluation, if it is not that of the table."""
    unit: Literal["%", ""] = "%"
    """``%``: ours is a share, and multiplied by 100."""
    equal: Verdict | None = None
    """Whether the protocol is equal, if it differs from the table's."""
    note: str = ""
    """What differs in this column."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: what is measured, and the paper's numbers."""

    name: str
    model: str = ""
    """A step that publishes a model, or a given model."""
    step: str = ""
    """Of statistics: the step whose ``file`` has the numbers."""
    at: str = ""
    """Of statistics: where in the file the row's numbers are."""
    paper: tuple[float | None, ...] = ()
    """The paper's numbers, one per column; null: not printed."""
    equal: Verdict | None = None
    """Whether the protocol is equal, if it differs from the table's."""
    note: str = ""
    """What differs in this row, or does not add up in the paper."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or figure of a paper."""

    paper: str
    """Key of ``papers``."""
    where: str
    """Where it is in the paper."""
    title: str
    evaluation: str = ""
    """Evaluation of the rows' models."""
    file: str = "stats.json"
    """Of statistics: the file in the published folder of a row's step."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    equal: Verdict
    """Whether protocol and data are those of the paper."""
    note: str = ""
    """What differs, and what does not add up in the paper."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if row.paper and len(row.paper) != len(self.columns):
                raise ValueError(
                    f"{self.title}, {row.name}: {len(row.paper)} numbers for "
                    f"{len(self.columns)} columns"
                )


@dataclass(frozen=True, kw_only=True)
class Papers:
    """Contents of ``papers.yaml``."""

    papers: Mapping[str, str]
    """Title and source of each paper, by key."""
    small: Mapping[str, Variant]
    """What all steps of a job are in the size ``small``, by job."""
    steps: Mapping[str, Entry]
    """Steps, evaluations and given models, by name."""
    tables: Mapping[str, Table]
    """Tables, by name."""


def read_papers() -> Papers:
    """Return the contents of ``papers.yaml``."""
    data = yaml.safe_load(files(__package__).joinpath("papers.yaml").read_bytes())
    return configs.build(Papers, data)


def choose(papers: Papers, names: str) -> dict[str, Table]:
    """Return tables by comma-separated names, ``all``, or the key of a paper for all of it.

    Raises:
        ConfigError: If there is no such table.
    """
    chosen: dict[str, Table] = {}
    for name in names.split(","):
        own = {
            key: table for key, table in papers.tables.items() if name in (key, table.paper, "all")
        }
        if not own:
            known = [*papers.tables, *papers.papers, "all"]
            raise ConfigError(
                f"there is no table called {name!r}{configs.nearest(name, known)}; "
                "biovl reproduce list shows them"
            )
        chosen |= own
    return chosen
