"""Plug-ins for sources of packages. The file name is the name used in a configuration."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from biovl.articles.content import ArticleContent

if TYPE_CHECKING:
    from biovl.core.artifacts import Manifest
    from biovl.harvest.config import HarvestConfig
    from biovl.runtime.progress import Progress


def _no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """Metadata of an article from its source, which takes precedence over its XML."""

    article_id: str
    version: str
    license_code: str | None = None
    cleared: bool = True
    """Whether the source clears it for reuse; if not, a licence in its XML does not count."""
    retracted: bool | None = None
    snapshot: str | None = None
    """ISO date on which its record last changed."""
    pmid: str | None = None
    doi: str | None = None


class FileError(OSError):
    """A file of a package is unavailable; the reason becomes the defect of the figure's row."""

    def __init__(self, defect: str, detail: str) -> None:
        super().__init__(detail)
        self.defect = defect


@dataclass(frozen=True, kw_only=True)
class Package:
    """The files published for one article. Valid until the next package is requested."""

    name: str
    """Name that is unique in its source and stable across reads; becomes part of ``figure_id``."""
    uri: str
    """Location of the article's XML (or row); unique in its source."""
    xml: bytes | None = None
    content: ArticleContent | None = None
    """Set by sources that are not JATS, and by those that have already parsed ``xml``."""
    stated: Stated | None = None
    files: Mapping[str, int | None] = field(default_factory=dict)
    """The package's other files: name relative to the XML's folder -> size in bytes, None if
    unknown before the file is read."""
    place: str = ""
    """The folder in which files are looked up, if it is not the XML's."""
    read: Callable[[str], bytes] = _no_file
    """Return one of ``files``. Raises OSError if it cannot be read, FileError with the reason."""
    defect: str | None = None
    """Reason why this package must not be read further."""
    defect_detail: str | None = None


@dataclass(frozen=True)
class Address:
    """The location of one unit of reading: a folder, an archive, a range of rows."""

    uri: str
    name: str
    """Name that is unique in the source, of letters, digits, ``.``, ``_`` and ``-``."""
    size_bytes: int | None = None
    """Size in bytes; None if the listing does not include it."""


@runtime_checkable
class Warns(Protocol):
    """A source that can warn about problems of the resulting corpus."""

    def warnings(self) -> list[str]:
        """Return warnings for the user, one per line. Runs on the driver."""


class Source(Protocol):
    """A source of packages."""

    def addresses(self) -> Iterator[Address]:
        """Return the addresses in a fixed order. Cheap; runs on the driver.

        Raises:
            SourceError: If the source as a whole cannot be read.
        """

    def read(self, address: Address) -> Iterator[Package]:
        """Return the packages at an address, at least one; invalid ones with a ``defect``.

        Runs on workers and never raises for the content of packages. Memory is bounded by the
        largest single file, not by the archive.
        """


class SourceJob(Protocol):
    """The functions of a module that replace the job ``harvest`` for a source."""

    def check(self, config: "HarvestConfig") -> None:
        """Reject invalid settings, before anything is written."""

    def estimate(self, config: "HarvestConfig") -> str:
        """Return an estimate of size and time, as text."""

    def harvest(self, config: "HarvestConfig", report: "Progress") -> "Manifest":
        """Publish figures and articles."""


@runtime_checkable
class HasJob(Protocol):
    """Settings of a source whose packages are selected and downloaded in steps on the cluster."""

    def job(self) -> SourceJob:
        """Return the job that takes these steps."""
