"""Plug-ins: where packages come from. The file name is the name used in a configuration."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from biovl.articles.content import ArticleContent


def _no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a source says of an article beside its XML, and knows better."""

    article_id: str
    version: str
    license_code: str | None = None
    cleared: bool = True
    """Whether it is offered for reuse at all; where it is not, no licence in its XML counts."""
    retracted: bool | None = None
    snapshot: str | None = None
    """ISO date at which its record last changed."""
    pmid: str | None = None
    doi: str | None = None


class FileError(OSError):
    """A file of a package that cannot be had, with the reason that a figure's row tells."""

    def __init__(self, defect: str, detail: str) -> None:
        super().__init__(detail)
        self.defect = defect


@dataclass(frozen=True, kw_only=True)
class Package:
    """What was published for one article. Valid until the next one is asked for."""

    name: str
    """Unique in its source and the same at every reading; becomes part of ``figure_id``."""
    uri: str
    """Where the article's XML (or row) is; unique in its source."""
    xml: bytes | None = None
    content: ArticleContent | None = None
    """Set by sources that are not JATS, and by those that have read ``xml`` already."""
    stated: Stated | None = None
    files: Mapping[str, int | None] = field(default_factory=dict)
    """The package's other files: name relative to the XML's folder -> size in bytes, None where it
    is not known before the file is read."""
    place: str = ""
    """The folder that a source looks for files in, where that is not the XML's."""
    read: Callable[[str], bytes] = _no_file
    """Return one of ``files``. Raises OSError when its bytes cannot be had; FileError with why."""
    defect: str | None = None
    """Why this package must not be read further."""
    defect_detail: str | None = None


@dataclass(frozen=True)
class Address:
    """Something a source can read in one go: a folder, an archive, a range of rows."""

    uri: str
    name: str
    """Unique in the source, letters, digits, ``.``, ``_`` and ``-``."""
    size_bytes: int | None = None
    """Where the listing tells it."""


@runtime_checkable
class Warns(Protocol):
    """A source that knows what is likely to be wrong with what is made of it."""

    def warnings(self) -> list[str]:
        """Return warnings for a person, one a line. Runs on the driver."""


class Source(Protocol):
    """Where packages come from."""

    def addresses(self) -> Iterator[Address]:
        """Return what there is to read, in a fixed order. Cheap; runs on the driver.

        Raises:
            SourceError: If the source as a whole cannot be read.
        """

    def read(self, address: Address) -> Iterator[Package]:
        """Return the packages at an address, at least one; bad ones with a ``defect``.

        Runs on workers and never raises for what it finds there. Memory is bounded by the
        largest single file, not by the archive.
        """
