"""The benchmarks of the papers, read from ``benchmarks.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from biovl.core import config as configs

SEE_SOURCE = "see source"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    domain: str
    group: str
    """The column of BIOMEDICA's table 3 or 5 that it counts in."""
    about: str
    modality: str
    classes: int | None
    source: str = ""
    """Who made it, and where it is to be had."""
    collection: str = ""
    """The published collection that holds it, where it is not published alone."""
    licence: str = SEE_SOURCE
    access: Literal["download", "sign", "harvest"] = "download"
    """What a user must do."""
    path: str = ""
    """Below data_root; the name, unless it says otherwise."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the reader, which is chosen by what is there unless ``name`` is among them."""
    task: str = ""
    """By which it is asked; empty is what the run says."""
    prompts: str = ""
    """Of ``prompts.PROMPTS``."""
    captions: int | None = 2
    """Variations of a class's caption in the paper; it does not print them."""
    metric: str = ""
    """The score that counts in averages; empty is the first."""

    @property
    def location(self) -> str:
        """Where it is below data_root."""
        return self.path or self.name

    @property
    def origin(self) -> str:
        """Who made it, and what holds it."""
        return "; in ".join(filter(None, (self.source, self.collection)))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Benchmarks that are reported together."""

    of: tuple[str, ...]
    """Names of benchmarks, or of parts of the file."""
    average: Literal["group", "domain", "task"] | None = None
    """What the paper's own average is a mean of."""


_TABLE = yaml.safe_load(files(__package__).joinpath("benchmarks.yaml").read_bytes())
_SUITES = {name: configs.build(Suite, item, name=name) for name, item in _TABLE["suites"].items()}

BENCHMARKS: Mapping[str, Benchmark] = {
    name: configs.build(Benchmark, {"name": name, **item}, name=name)
    for part in _TABLE["parts"].values()
    for name, item in part.items()
}

SUITES: Mapping[str, tuple[str, ...]] = {
    suite: tuple(name for part in item.of for name in _TABLE["parts"].get(part, (part,)))
    for suite, item in _SUITES.items()
}
"""Benchmarks by the name of what they are reported together as."""

AVERAGED_OVER = {suite: item.average for suite, item in _SUITES.items() if item.average}
"""What the papers' own averages of a suite are means of."""
