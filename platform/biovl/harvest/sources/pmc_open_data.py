"""PMC's open-data bucket: objects per article version, PMC's distribution format since 2026.

The distributed steps are in ``biovl/harvest/pmc``, run by the job ``harvest``. This module runs the
same steps sequentially in one process.
"""

import tempfile
from collections.abc import Iterator

from biovl.core.folders import Folder
from biovl.core.limits import Limiter, LocalLimiter
from biovl.harvest.pmc import articles, steps
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.endpoint import bucket_url
from biovl.harvest.pmc.inventory import RECORDS
from biovl.harvest.pmc.records import Record
from biovl.harvest.pmc.settings import HOW, Config
from biovl.harvest.pmc.store import Store
from biovl.harvest.pmc.unfetched import Unfetched
from biovl.harvest.pmc.version_selection import CatalogueVersion
from biovl.harvest.sources import Address, Package

__all__ = ["HOW", "Config", "OpenData", "build"]

GONE = "article is not to be had"


def build(config: Config) -> "OpenData":
    """Return the source for a configuration."""
    return OpenData(config)


class OpenData:
    """PMC's open-data bucket as a source, read in one process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.limiter: Limiter = LocalLimiter(config.limits)
        self._url = ""

    def addresses(self) -> Iterator[Address]:
        """Yield the address of each selected article version, ordered by article number."""
        with tempfile.TemporaryDirectory() as folder:
            place = AcquisitionContext(config=self.config, out=folder, limiter=self.limiter)
            for record in _all_records(place):
                uri = articles.source_uri(record.name, self.config.bucket)
                yield Address(uri, record.name)

    def read(self, address: Address) -> Iterator[Package]:
        """Yield the article at an address, with its current record."""
        number, _, version = address.name.removeprefix("PMC").partition(".")
        known = CatalogueVersion(int(number), int(version), "")
        with tempfile.TemporaryDirectory() as folder, self._service() as service:
            store = Store(Folder(folder), "store", is_kept=False)
            found = next(iter(service.listed(f"{RECORDS}{address.name}.json")), None)
            if found is None:
                yield Package(name=address.name, uri=address.uri, defect=GONE)
                return
            known = CatalogueVersion(known.number, known.version, found.last_modified[:10])
            record = steps.read_record(self.config, service, store, known, found.etag)
            if isinstance(record, str):
                yield Package(name=address.name, uri=address.uri, defect=record)
                return
            yield from self.packages([record], service, store)

    def packages(
        self,
        records: list[Record],
        service: BucketClient,
        store: Store,
        unfetched: Unfetched | None = None,
    ) -> Iterator[Package]:
        """Yield the package of each record, in order; ``unfetched`` collects failed downloads."""
        config = self.config
        return articles.packages(
            records,
            service,
            store,
            bucket=config.bucket,
            sizes=config.sizes,
            threads=config.threads,
            unfetched=unfetched,
        )

    def _service(self) -> BucketClient:
        config = self.config
        if not self._url:
            self._url = bucket_url(config.endpoint, config.bucket, self.limiter, config.patience)
        return BucketClient(self._url, self.limiter, config.patience, config.threads)


def _all_records(place: AcquisitionContext) -> Iterator[Record]:
    plan, _, compared = steps.compare_all(place)
    chunks = steps.chunks_of(compared)
    for number in range(len(chunks)):
        done = steps.read_records(place, plan, chunks, number)
        steps.delete_downloads(place, number)
        yield from steps.chosen_records(place, number, 0, done["chosen"])
