"""Plug-ins for sources of packages. The file name is the name used in a configuration."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from biovl.articles.content import ArticleContent

if TYPE_CHECKING:
    from biovl.core.artifacts import Input, Manifest
    from biovl.harvest.config import HarvestConfig
    from biovl.runtime.progress import Progress


def _no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@dataclass(frozen=True, kw_only=True)
class SourceMetadata:
    """Article metadata stated by its source, which takes precedence over the XML."""

    article_id: str
    version: str
    license_code: str | None = None
    cleared: bool = True
    """Whether the source permits reuse; if not, a licence stated in the XML is ignored."""
    retracted: bool | None = None
    snapshot: str | None = None
    """ISO date of the last change of the article's record."""
    pmid: str | None = None
    doi: str | None = None


class FileError(OSError):
    """A file of a package is unavailable; the reason becomes the defect of the figure's row."""

    def __init__(self, defect: str, detail: str) -> None:
        super().__init__(detail)
        self.defect = defect


@dataclass(frozen=True, kw_only=True)
class Package:
    """Files of one article as published; valid until the next package is requested."""

    name: str
    """Name that is unique in its source and stable across reads; becomes part of ``figure_id``."""
    uri: str
    """Location of the article's XML (or row); unique in its source."""
    xml: bytes | None = None
    content: ArticleContent | None = None
    """Parsed content; set by sources without JATS, or if ``xml`` has been parsed already."""
    article_id: str = ""
    """Id of the article, if the source knows it; otherwise its PMCID, its DOI or ``name``."""
    stated: SourceMetadata | None = None
    files: Mapping[str, int | None] = field(default_factory=dict)
    """The package's other files: name relative to the XML's folder -> size in bytes, None if
    unknown before the file is read."""
    place: str = ""
    """Folder in which files are looked up, if it is not that of the XML."""
    read: Callable[[str], bytes] = _no_file
    """Returns the content of one of ``files``. Raises OSError if it cannot be read; of these, a
    FileError has the reason as message."""
    defect: str | None = None
    """Reason why the package is unusable; nothing else of it is read."""
    defect_detail: str | None = None


@dataclass(frozen=True)
class Address:
    """Location of a unit of reading: a folder, an archive or a range of rows."""

    uri: str
    name: str
    """Name that is unique in the source, of letters, digits, ``.``, ``_`` and ``-``."""
    articles: int | None = None
    """Number of articles; None if that is not known before they are read."""


@runtime_checkable
class Warns(Protocol):
    """A source that can warn about problems of the resulting corpus."""

    def warnings(self) -> list[str]:
        """Return warnings for the user, one per line. Runs on the driver."""


@runtime_checkable
class Keeps(Protocol):
    """A source whose figures have ``extra_columns``."""

    def extra_columns(self) -> list[str]:
        """Return the names of the extra columns, the same for all figures."""


@runtime_checkable
class HasInputs(Protocol):
    """A source that returns fingerprints of its inputs."""

    def inputs(self) -> "list[Input]":
        """Return inputs of the manifest, each with a name of its own. Runs on the driver.

        The fingerprint of an input that no longer exists is empty.
        """


@runtime_checkable
class Lists(Protocol):
    """A source that can list its files cheaply, so that a finished harvest notices changes."""

    def listing(self) -> dict[str, int]:
        """Return the size in bytes of each file by its path; empty if the source is gone.

        Runs on the driver.
        """


class Source(Protocol):
    """A source of packages, returned by the ``build(config)`` of a plug-in."""

    def addresses(self) -> Iterator[Address]:
        """Yield the addresses of all packages in a fixed order. Cheap; runs on the driver.

        Raises:
            SourceError: If the source as a whole cannot be read.
        """

    def read(self, address: Address) -> Iterator[Package]:
        """Yield the packages at an address, at least one; invalid ones have a ``defect``.

        Runs on workers and never raises for the content of packages. Memory is bounded by the
        largest single file, not by the archive.
        """


class SourceJob(Protocol):
    """Functions of a module that replace those of the job ``harvest`` for one source."""

    def check(self, config: "HarvestConfig") -> None:
        """Reject invalid settings of the source, before anything is written."""

    def estimate(self, config: "HarvestConfig") -> str:
        """Return an estimate of size and time, as text."""

    def harvest(self, config: "HarvestConfig", report: "Progress") -> "Manifest":
        """Publish figures and articles, and return the manifest."""


@runtime_checkable
class HasJob(Protocol):
    """Settings of a source that has its own harvest job, with steps on the cluster."""

    def job(self) -> SourceJob:
        """Return the module with the harvest job of this source."""
