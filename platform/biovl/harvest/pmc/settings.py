"""What to take of the open-data bucket, and how hard to ask for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from biovl.core.limits import Limits
from biovl.core.records import LicenseGroup
from biovl.enrich.config import Service
from biovl.harvest.pmc.articles import Sizes
from biovl.harvest.pmc.choosing import Filters
from biovl.harvest.pmc.service import Patience

_DATE = re.compile(r"(?:\d{4}(?:-\d\d(?:-\d\d)?)?)?")
_DATES = ("modified_from", "modified_until", "published_from", "published_until")

HOW = (
    *("requests_per_s", "concurrent", "tries", "first_wait_s", "read_s"),
    *("cache", "listed_up_to", "entrez"),
)
"""Settings that change when and how things are fetched, and no byte of what is published."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to take of the bucket, and how hard to ask for it."""

    endpoint: str = "https://pmc-oa-opendata.s3.amazonaws.com"
    """Where the bucket is: any S3 that serves it without a login, or a mirror by plain HTTP. Its
    name may come in the host, in the path, or be left to us: http://127.0.0.1:9000."""

    bucket: str = "pmc-oa-opendata"
    """Its name in the ``s3://`` URLs of records."""

    inventory: str = ""
    """The prefix of its daily inventories; empty for inventory-reports/BUCKET/metadata/."""

    snapshot: str = ""
    """Harvest by the inventory of this date (2026-10-01); empty for the newest."""

    since: str = ""
    """A harvest of this source: only what is different from it is harvested, beside a list of what
    of it no longer holds, tombstones.parquet. Its other settings must be the same."""

    ids: str = ""
    """A text file, local or s3://, with a PMCID on each line: only these."""

    search: str = ""
    """Only what this search finds, in the language of PMC's and PubMed's search page."""

    search_in: Literal["pmc", "pubmed"] = "pmc"
    """Which of the two is searched; of PubMed's answer, what is in PMC counts."""

    search_limit: int = 1_000_000
    """How many articles of what a search finds are taken, in its order."""

    entrez: Service = field(default_factory=Service)
    """Who is asked for the search, and how fast: ``entrez.url``, ``entrez.email`` … of enrich."""

    listed_up_to: int = 5_000
    """So many articles that are asked for are looked up one by one; for more, the inventory of
    everything is read. The rows are the same."""

    licenses: Sequence[LicenseGroup] = ("commercial", "noncommercial", "other")
    """Groups of licences that are harvested. What the bucket does not clear is in group other."""

    retracted: Literal["left out", "harvested"] = "left out"
    """Articles that the bucket says are retracted."""

    ocr: Literal["left out", "harvested"] = "left out"
    """Scanned articles whose text was read by a machine."""

    modified_from: str = ""
    """Only articles whose record changed on this date or later: 2026, 2026-10 or 2026-10-01."""

    modified_until: str = ""
    """… or earlier."""

    published_from: str = ""
    """Only articles published on this date or later, by their citation."""

    published_until: str = ""
    """… or earlier."""

    requests_per_s: float = 100.0
    """Requests to the bucket that all workers together begin in a second, at most."""

    concurrent: int = 32
    """Requests to the bucket that all workers together have open, at most."""

    tries: int = 6
    """How often one object is asked for while the bucket fails."""

    first_wait_s: float = 0.5
    """Up to so long, at random, before a second try; twice as long before each other."""

    read_s: float = 30.0
    """Without a byte for so long, a try has failed; at most 45, as who is silent for a minute loses
    its turn to others."""

    cache: str = ""
    """A folder that keeps what was fetched, for other harvests as well; empty keeps it only until
    it is in the figures."""

    max_xml_mb: int = 100
    """Larger XML is a defect."""

    max_file_mb: int = 512
    """Larger images are not fetched."""

    def __post_init__(self) -> None:
        for name in (*HOW[:5], "search_limit", "max_xml_mb", "max_file_mb"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        if self.read_s > 45:
            raise ValueError("read_s must be 45 at most")
        for name in _DATES:
            if not _DATE.fullmatch(getattr(self, name)):
                raise ValueError(f"{name}: expected 2026, 2026-10 or 2026-10-01")
        if not re.fullmatch(r"(?:\d{4}-\d\d-\d\d)?", self.snapshot):
            raise ValueError("snapshot: expected a date, as 2026-10-01")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", self.bucket):
            raise ValueError(f"bucket: {self.bucket!r} is no name of a bucket")
        if self.ids and self.search:
            raise ValueError("give ids or search, not both")

    @property
    def limits(self) -> Limits:
        """What the bucket may be asked."""
        return Limits(requests_per_s=self.requests_per_s, concurrent=self.concurrent)

    @property
    def patience(self) -> Patience:
        """How long to wait for it."""
        return Patience(tries=self.tries, first_wait_s=self.first_wait_s, read_s=self.read_s)

    @property
    def sizes(self) -> Sizes:
        """What is believed of it."""
        return Sizes(xml_mb=self.max_xml_mb, file_mb=self.max_file_mb)

    @property
    def filters(self) -> Filters:
        """What is wanted of it."""
        return Filters(
            licenses=tuple(self.licenses),
            retracted=self.retracted,
            ocr=self.ocr,
            **{name: getattr(self, name) for name in _DATES},
        )

    @property
    def threads(self) -> int:
        """How many requests one worker tries to have open."""
        return min(self.concurrent, 32)
