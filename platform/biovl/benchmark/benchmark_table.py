"""The table of published benchmarks, read from ``benchmarks.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from biovl.core import config as configs

SEE_SOURCE = "see source"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Entry of ``benchmarks.yaml``: a published benchmark."""

    name: str
    """Name in the configuration and the report."""
    domain: str
    """Medical field, such as pathology."""
    group: str
    """Column of BIOMEDICA's table 3 or 5 that includes the benchmark."""
    about: str
    """Question in words: the classes to distinguish, or the pairs to retrieve."""
    modality: str
    """Type of images."""
    classes: int | None
    """Number of classes; None for retrieval."""
    source: str = ""
    """Authors, and where the data is available."""
    collection: str = ""
    """Published collection that contains the data, if it is not published separately."""
    licence: str = SEE_SOURCE
    """Licence of the data."""
    access: Literal["download", "sign", "harvest"] = "download"
    """How the data is obtained: ``download``; ``sign`` an agreement first; or ``harvest``
    articles."""
    path: str = ""
    """Folder below ``data_root``; empty: the name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the dataset plug-in; without ``name``, the plug-in is detected from the files."""
    task: str = ""
    """Task to evaluate with; empty: ``benchmarks_as`` of the configuration."""
    prompts: str = ""
    """Key of ``prompts.PROMPTS``; empty: no published prompts."""
    captions: int | None = 2
    """Wordings of a class's caption in the paper, which does not print them; None: not
    applicable."""
    metric: str = ""
    """Metric used in averages; empty: the first one of the task."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the training, for tasks with training."""

    @property
    def location(self) -> str:
        """Path below ``data_root``."""
        return self.path or self.name

    @property
    def origin(self) -> str:
        """Authors, and the collection that contains the data."""
        return "; in ".join(filter(None, (self.source, self.collection)))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Benchmarks that are reported together."""

    of: tuple[str, ...]
    """Names of benchmarks, or of sections of ``benchmarks.yaml``."""
    average: Literal["group", "domain", "task"] | None = None
    """Unit that the suite's paper averages over: ``group``, ``domain`` or ``task``; None without
    averages."""


_TABLE = yaml.safe_load(files(__package__).joinpath("benchmarks.yaml").read_bytes())
_SUITES = {name: configs.build(Suite, item, name=name) for name, item in _TABLE["suites"].items()}

BENCHMARKS: Mapping[str, Benchmark] = {
    name: configs.build(Benchmark, {"name": name, **item}, name=name)
    for part in _TABLE["parts"].values()
    for name, item in part.items()
}

SECTIONS: Mapping[str, tuple[str, ...]] = {
    section: tuple(part) for section, part in _TABLE["parts"].items()
}
"""Names of the benchmarks of each section of ``benchmarks.yaml``, which suites consist of."""

SUITES: Mapping[str, tuple[str, ...]] = {
    suite: tuple(name for part in item.of for name in SECTIONS.get(part, (part,)))
    for suite, item in _SUITES.items()
}
"""Names of the benchmarks of each suite, a group that is reported together."""

AVERAGED_OVER = {suite: item.average for suite, item in _SUITES.items() if item.average}
"""What the papers average over for each suite: the ten columns of BIOMEDICA's table 3, the tasks of
its table 5 and of BiomedCLIP's supplementary table 5, the six domains of BMC-LongCLIP's table 2
(surgery is none of them). The score of a column or domain is the mean of its tasks."""
