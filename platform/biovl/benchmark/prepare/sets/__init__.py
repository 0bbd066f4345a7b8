"""Data sets that ``biovl prepare`` reads, each from the files that its authors distribute.

A file here reads one distribution. It has ``SETS``, descriptions of the data sets that it can
prepare, by the name of their benchmark; ``Config``, the settings of the reader; and the reader,
``read(config, raw)``, which returns a ``RawSet``: it reads tables and listings, but no images, and
raises a ``SourceError`` if a file is missing, truncated, or has no labels.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

from biovl.core import plugins

KIND = "benchmark.prepare.sets"

Holds = Literal["classes", "findings", "pairs", "questions", "choices"]


@dataclass(frozen=True, kw_only=True)
class SetAbout:
    """Description of a data set: what to download, under which licence, and the papers' counts."""

    title: str
    """Name of the data set and its content, in a few words."""
    files: tuple[str, ...]
    """Files that the folder ``raw`` must contain, as distributed."""
    get: str
    """Where to download them."""
    size: str
    """Size of the download."""
    licence: str
    """Licence or terms of the data."""
    citation: str
    """Publication to cite."""
    papers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Images (or questions) per split that a paper reports, by the paper and its table."""
    differs: str = ""
    """Differences between what is prepared and what the papers used; empty: none are known."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the reader for this data set."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row of a prepared data set."""

    id: str
    """Unique within the data set."""
    path: str
    """File name of the image."""
    read: Callable[[], bytes]
    """Returns the image file; DICOM and other formats are converted later. Runs in a thread.
    Raises OSError if it cannot be read."""
    values: Mapping[str, Any]
    """Values of the other columns."""


class Examples(Protocol):
    """The rows of a split in their order, read again by each iteration."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Example]: ...


@dataclass(frozen=True, kw_only=True)
class RawSet:
    """A data set as found: its splits, and how its columns are to be read."""

    holds: Holds
    """What the rows are: ``classes`` (``label``), ``findings`` (a column of 1, 0, -1 or null for
    each of ``classes``), ``pairs`` (``text``), ``questions`` or ``choices``."""
    columns: Mapping[str, pa.DataType]
    """Types of the columns besides ``id`` and ``image``. A column ``group`` names the patient."""
    splits: Mapping[str, Examples]
    """Rows by split: train, val, test."""
    classes: tuple[str, ...] = ()
    """Names of the classes or findings, in the order of the data's numbers."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows that are left out before images are read, by reason."""


def known_sets() -> dict[str, tuple[str, SetAbout]]:
    """Return the data sets by name: the plug-in that reads each, and its description."""
    return {
        name: (reader, about)
        for reader in plugins.names(KIND)
        for name, about in importlib.import_module(f"biovl.{KIND}.{reader}").SETS.items()
    }
