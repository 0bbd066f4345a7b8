"""Listing of article versions: selects the inventory and articles, and reads them into tables.

The tables that these steps write into the draft are read by ``steps.py``.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from biovl.core.errors import SourceError, StorageError
from biovl.harvest.pmc import catalogue, inventory
from biovl.harvest.pmc.client import MISSING, BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.endpoint import bucket_url
from biovl.harvest.pmc.search import requested_articles
from biovl.harvest.sources import FileError

CONTENT = "the open access subset, author manuscripts and historical scans"
"""What the bucket consists of, for messages about articles that it does not contain."""
LISTED_AT_ONCE = 500
"""Articles per lookup task."""
ROWS_PER_RANGE = 500_000

_INVENTORY_FILE_BYTES = 8_000_000_000


def plan(place: AcquisitionContext) -> dict[str, Any]:
    """Return the bucket, inventory and articles to harvest, as plain values.

    Raises:
        SourceError: If there is no such bucket, inventory or article.
        StorageError: If the service fails.
    """
    config = place.config
    requested = requested_articles(config)
    url = bucket_url(config.endpoint, config.bucket, place.limiter, config.patience)
    numbers = None if requested is None else [int(number) for number in requested]
    if numbers is not None and len(numbers) <= config.listed_up_to and not config.snapshot:
        lists = [
            numbers[start : start + LISTED_AT_ONCE]
            for start in range(0, len(numbers), LISTED_AT_ONCE)
        ]
        today = datetime.now(UTC).date().isoformat()
        return {"url": url, "asked": numbers, "lists": lists, "date": today, "known": ""}
    where = config.inventory or f"inventory-reports/{config.bucket}/metadata/"
    with place.service(url) as service:
        found = inventory.newest(service, where, config.snapshot)
    return {
        "url": url,
        "asked": numbers,
        "date": found.date,
        "files": found.files,
        "columns": found.columns,
        "known": found.manifest_key,
    }


def read_inventory(
    place: AcquisitionContext, plan: Mapping[str, Any], number: int
) -> dict[str, Any]:
    """Store the article versions of one inventory file, or of one article list; return counts."""
    refused: Counter[str] = Counter()
    with place.service(plan["url"]) as service:
        if "lists" in plan:
            tables = [_looked_up(place, service, plan["lists"][number], refused)]
        else:
            service.known = plan["known"]
            tables = list(_file(place, service, plan, number, refused))
    table = pa.concat_tables([inventory.LISTED.empty_table(), *tables])
    place.write("inventory", number, table.sort_by("number"))
    return {
        "rows": table.num_rows,
        "refused": dict(refused),
        "counted": catalogue.number_histogram(table),
        "modified": _latest(table),
    }


def _looked_up(
    place: AcquisitionContext, service: BucketClient, numbers: Sequence[int], refused: Counter[str]
) -> pa.Table:
    # The dot keeps PMC11 from matching PMC1.
    prefixes = [f"{inventory.RECORDS}PMC{number}." for number in numbers]
    with ThreadPoolExecutor(place.config.threads) as pool:
        found = list(pool.map(lambda prefix: list(service.listed(prefix)), prefixes))
    return inventory.of_listing([item for items in found for item in items], refused)


def _file(
    place: AcquisitionContext,
    service: BucketClient,
    plan: Mapping[str, Any],
    number: int,
    refused: Counter[str],
) -> Iterator[pa.Table]:
    key, md5 = plan["files"][number]["key"], plan["files"][number]["md5"]
    with tempfile.TemporaryFile() as packed:
        try:
            # Without a checksum it cannot be cached.
            if md5 is None:
                service.download(key, packed, max_bytes=_INVENTORY_FILE_BYTES)
            else:
                store = place.store(f"inventory-{number:06d}")
                store.fetch(service, key, md5, max_bytes=_INVENTORY_FILE_BYTES)
                with store.open(md5) as stream:
                    while block := stream.read(1 << 22):
                        packed.write(block)
        except FileError as error:
            # With an incomplete listing, existing articles would count as removed: the job must
            # stop.
            if error.defect == MISSING:
                raise SourceError(
                    f"{key}, a part of the inventory of {plan['date']}, was not found: {error}. "
                    "Inventories are kept for 30 days; harvest by another (source.snapshot) into "
                    "another folder, or delete this one's draft"
                ) from error
            raise StorageError(
                f"{key}, a part of the inventory, is unavailable: {error.defect}: {error}"
            ) from error
        size = packed.tell()
        packed.seek(0)
        columns, bucket = plan["columns"], place.config.bucket
        yield from inventory.rows(packed, size, columns, bucket, refused)


def parts_of(read: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the ranges of article numbers, from the histograms of all inventory files.

    Raises:
        SourceError: If there is no article version at all.
    """
    if not any(receipt["rows"] for receipt in read):
        if "lists" in plan:
            raise SourceError(
                f"none of the {len(plan['asked']):,} requested articles is in the bucket, which "
                f"contains {CONTENT}: check source.ids or source.search"
            )
        refused = sum((Counter(receipt["refused"]) for receipt in read), Counter())
        raise SourceError(f"the source lists no article versions; left out: {dict(refused)}")
    found = catalogue.ranges([receipt["counted"] for receipt in read], ROWS_PER_RANGE)
    return [(part.begin, part.end) for part in found]


def delete_inventory_file(place: AcquisitionContext, number: int) -> None:
    """Delete the downloaded inventory file once it has been compared."""
    place.store(f"inventory-{number:06d}").drop()


def _latest(table: pa.Table) -> str:
    when = pc.max(table["last_modified"]).as_py()
    return when.date().isoformat() if when is not None else ""
