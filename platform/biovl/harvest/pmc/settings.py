"""Settings of the open-data bucket: which articles to harvest, and the request limits."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from biovl.core.limits import RequestLimits
from biovl.core.records import LicenseGroup
from biovl.enrich.config import EntrezSettings
from biovl.harvest.pmc.articles import SizeLimits
from biovl.harvest.pmc.client import Patience
from biovl.harvest.pmc.version_selection import Filters
from biovl.harvest.sources import SourceJob

_DATE = re.compile(r"(?:\d{4}(?:-\d\d(?:-\d\d)?)?)?")
_DATES = ("modified_from", "modified_until", "published_from", "published_until")

HOW = (
    *("requests_per_s", "concurrent", "tries", "first_wait_s", "read_s"),
    *("cache", "listed_up_to", "entrez"),
)
"""Settings that change when and how objects are fetched, but not the published bytes."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of PMC's open-data bucket as a source."""

    endpoint: str = "https://pmc-oa-opendata.s3.amazonaws.com"
    """Location of the bucket: an S3 endpoint without authentication, or a mirror over plain HTTP.
    The bucket's name may be in the host or the path, or be omitted: http://127.0.0.1:9000."""

    bucket: str = "pmc-oa-opendata"
    """Bucket name in the ``s3://`` URLs of records."""

    inventory: str = ""
    """Prefix of the bucket's daily inventories; empty: ``inventory-reports/BUCKET/metadata/``."""

    snapshot: str = ""
    """Harvest the inventory of this date (2026-10-01); empty for the newest."""

    since: str = ""
    """An earlier harvest of this source: only changes since then are harvested, with
    tombstones.parquet listing its rows that are no longer valid. All other settings must be the
    same."""

    ids: str = ""
    """A text file, local or s3://, with a PMCID on each line: harvest only these."""

    search: str = ""
    """Harvest only the results of this search, in the syntax of PMC's and PubMed's search page."""

    search_in: Literal["pmc", "pubmed"] = "pmc"
    """The database to search; of PubMed's results, only articles in PMC are harvested."""

    search_limit: PositiveInt = 1_000_000
    """Maximum number of search results to harvest, in the order of the search; of PubMed, more than
    9,999 are those that entered it last."""

    entrez: EntrezSettings = field(default_factory=EntrezSettings)
    """Service and rate of the search: ``entrez.url``, ``entrez.email`` … of enrich."""

    listed_up_to: int = 5_000
    """Up to this many requested articles are looked up one by one; for more, the full inventory is
    read. The rows are the same."""

    licenses: Sequence[LicenseGroup] = ("commercial", "noncommercial", "other")
    """Licence groups to harvest. Articles that the bucket does not clear are in group other."""

    retracted: Literal["left out", "harvested"] = "left out"
    """Whether retracted articles, as marked by the bucket, are ``left out`` or ``harvested``."""

    ocr: Literal["left out", "harvested"] = "left out"
    """Whether scanned articles with OCR text are ``left out`` or ``harvested``."""

    modified_from: str = ""
    """Only articles whose record changed on or after this date: 2026, 2026-10 or 2026-10-01."""

    modified_until: str = ""
    """Only articles whose record changed on or before this date."""

    published_from: str = ""
    """Only articles published on or after this date, according to their citation."""

    published_until: str = ""
    """Only articles published on or before this date, according to their citation."""

    requests_per_s: PositiveFloat = 100.0
    """Maximum requests per second to the bucket, all workers together."""

    concurrent: PositiveInt = 32
    """Maximum open requests to the bucket, all workers together."""

    tries: PositiveInt = 6
    """Attempts per object while the bucket fails."""

    first_wait_s: PositiveFloat = 0.5
    """Upper bound of the random wait before the second attempt; doubles with each further one."""

    read_s: Annotated[float, Field(gt=0, le=45)] = 30.0
    """Seconds without a byte after which an attempt fails; at most 45, because a request that
    receives nothing for a minute counts as dead."""

    cache: str = ""
    """A folder that caches downloads for other harvests; empty: they are deleted once the figures
    are written."""

    max_xml_mb: PositiveInt = 100
    """Maximum size of an XML file in MB; a larger one is a defect."""

    max_file_mb: PositiveInt = 512
    """Maximum size of an image file in MB; larger ones are not downloaded."""

    def job(self) -> SourceJob:
        """Return the job that selects records and downloads articles in steps."""
        # Imported here: it imports these settings.
        from biovl.harvest import pmc_job

        return pmc_job

    def __post_init__(self) -> None:
        for name in _DATES:
            if not _DATE.fullmatch(getattr(self, name)):
                raise ValueError(f"{name}: expected 2026, 2026-10 or 2026-10-01")
        if not re.fullmatch(r"(?:\d{4}-\d\d-\d\d)?", self.snapshot):
            raise ValueError("snapshot: expected a date, as 2026-10-01")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", self.bucket):
            raise ValueError(f"bucket: {self.bucket!r} is not a bucket name")
        if self.ids and self.search:
            raise ValueError("give ids or search, not both")

    @property
    def limits(self) -> RequestLimits:
        """Rate and concurrency limits of requests to the bucket."""
        return RequestLimits(requests_per_s=self.requests_per_s, concurrent=self.concurrent)

    @property
    def patience(self) -> Patience:
        """Timeouts and number of attempts of a request."""
        return Patience(tries=self.tries, first_wait_s=self.first_wait_s, read_s=self.read_s)

    @property
    def sizes(self) -> SizeLimits:
        """Maximum sizes of downloaded files."""
        return SizeLimits(
            xml_bytes=self.max_xml_mb * 1_000_000, file_bytes=self.max_file_mb * 1_000_000
        )

    @property
    def filters(self) -> Filters:
        """Criteria for the versions of articles to harvest."""
        return Filters(
            licenses=tuple(self.licenses),
            retracted=self.retracted,
            ocr=self.ocr,
            **{name: getattr(self, name) for name in _DATES},
        )

    @property
    def threads(self) -> int:
        """Maximum concurrent requests of one worker."""
        return min(self.concurrent, 32)
