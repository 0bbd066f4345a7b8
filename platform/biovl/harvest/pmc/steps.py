"""The steps from a bucket to the selected records; each can be repeated.

    plan          select the inventory and the articles                               listing.py
    inventory     read its files into tables of versions      one task per file
    comparison    sort versions, and find the changed ones    one per range of article numbers
    records       read them, and select a version of each     one per thousand articles
    catalogue     write every version with its state          one per range           outcome.py

Each step writes its tables into the draft, below ``.draft/acquired``; its return value is small.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.core.folders import Folder
from biovl.harvest.pmc import catalogue, inventory, listing, records, unfetched, version_selection
from biovl.harvest.pmc.client import DAMAGED_TRIES, FAILING, BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.records import Record
from biovl.harvest.pmc.settings import Config
from biovl.harvest.pmc.store import Store
from biovl.harvest.pmc.version_selection import CatalogueVersion
from biovl.harvest.sources import FileError

ARTICLES_PER_CHUNK = 1_000
"""Number of articles whose records one task reads."""
_MOST_NAMED = 10
"""Number of articles that a warning names."""

_VERSIONS = catalogue.SCHEMA.append(pa.field("same", pa.bool_(), nullable=False)).append(
    pa.field("asked", pa.bool_(), nullable=False)
)
STATES = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        # Unchanged since the earlier harvest: neither a tombstone nor harvested again.
        pa.field("stands", pa.bool_(), nullable=False),
    ]
)


def chunks_of(compared: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    """Return the chunks of all ranges as (range, first row, end)."""
    return [
        (part, start, stop)
        for part, receipt in enumerate(compared)
        for start, stop in receipt["chunks"]
    ]


def compare_all(
    place: AcquisitionContext,
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Plan, list and compare in this process, for callers without Ray.

    Returns:
        The plan, the receipts of ``listing.read_inventory``, and those of ``compare``, one per
        range of article numbers.

    Raises:
        SourceError: If the source as a whole cannot be read.
        StorageError: If the service fails.
    """
    plan = listing.plan(place)
    files = len(plan.get("lists") or plan["files"])
    read = [listing.read_inventory(place, plan, number) for number in range(files)]
    parts = listing.parts_of(read, plan)
    return plan, read, [compare(place, plan, files, parts, n) for n in range(len(parts))]


def compare(
    place: AcquisitionContext,
    plan: Mapping[str, Any],
    files: int,
    parts: Sequence[tuple[int, int]],
    number: int,
) -> dict[str, Any]:
    """Sort the versions of a range, and compare them with the earlier harvest."""
    range_ = catalogue.Range(*parts[number])
    folder = Folder(place.out)
    paths = [folder.at(f".draft/acquired/inventory/{n:06d}.parquet") for n in range(files)]
    refused: Counter[str] = Counter()
    new = catalogue.distinct(
        pq.read_table(
            paths, filesystem=folder.filesystem, filters=range_.filters(), schema=inventory.LISTED
        ),
        refused,
    )
    old = _earlier(place.config.since, range_)
    numbers = None if plan["asked"] is None else np.array(plan["asked"], np.int64)
    broken = unfetched.numbers_before(place.config.since, range_).to_numpy(zero_copy_only=False)
    found = catalogue.difference(new, old, numbers, broken)
    is_asked = (
        np.ones(new.num_rows, bool)
        if numbers is None
        else np.isin(new["number"].to_numpy(), numbers)
    )
    states = pa.array([state or "" for state in found.state], pa.string())
    whole = pa.table(
        [*new.columns, states, pa.array(found.same), pa.array(is_asked)], schema=_VERSIONS
    )
    touched = whole.filter(pa.array(found.touched & is_asked))
    rest = whole.filter(pa.array(~(found.touched & is_asked)))
    # Articles that are not requested need no record.
    state = pc.if_else(rest["asked"], rest["state"], catalogue.NOT_ASKED)
    at = rest.schema.get_field_index("state")
    rest = rest.set_column(at, _VERSIONS.field("state"), state)
    place.write("versions", number, touched)
    place.write("rest", number, rest.select(catalogue.SCHEMA.names))
    place.write("ended", number, found.ended)
    absent = _absent(numbers, new["number"].to_numpy(), range_)
    return {
        "chunks": _chunks(touched["number"].to_numpy()),
        "absent": {"count": len(absent), "first": absent[:_MOST_NAMED].tolist()},
        "refused": dict(refused),
        "changes": found.counts,
        "states": tally(rest["state"], catalogue.HARVESTED),
    }


def _absent(
    requested: np.ndarray | None, listed: np.ndarray, range_: catalogue.Range
) -> np.ndarray:
    """Return the requested numbers of a range that no version is listed of, sorted."""
    if requested is None:
        return np.array([], np.int64)
    inside = (requested >= range_.begin) & (requested < range_.end)
    return np.setdiff1d(requested[inside], listed)


def absent_warnings(compared: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]) -> list[str]:
    """Return a warning if the bucket does not list some of the requested articles.

    Args:
        compared: Receipts of ``compare``.
        plan: Result of ``listing.plan``.
    """
    # Receipts of drafts that an earlier version began lack this count.
    found = [receipt["absent"] for receipt in compared if "absent" in receipt]
    count = sum(each["count"] for each in found)
    if not count:
        return []
    names = [f"PMC{number}" for each in found for number in each["first"]][:_MOST_NAMED]
    more = ", …" if count > len(names) else ""
    return [
        f"{count:,} of {len(plan['asked']):,} requested articles are not in the bucket's list of "
        f"{plan['date']}: {', '.join(names)}{more}; it contains {listing.CONTENT}"
    ]


def _earlier(since: str, range_: catalogue.Range) -> pa.Table:
    if not since:
        return catalogue.SCHEMA.empty_table()
    folder = Folder(since)
    paths = [folder.at(f"catalogue/{name}") for name in folder.names("catalogue", ".parquet")]
    found = pq.read_table(
        paths, filesystem=folder.filesystem, filters=range_.filters(), schema=catalogue.SCHEMA
    )
    return found.sort_by([("number", "ascending"), ("version", "ascending")]).combine_chunks()


def _chunks(numbers: np.ndarray) -> list[list[int]]:
    """Return row ranges of ``ARTICLES_PER_CHUNK`` articles, given the article of each row."""
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    starts = [int(begin) for begin in begins[::ARTICLES_PER_CHUNK]]
    ends = [*starts[1:], len(numbers)][: len(starts)]
    return [[begin, end] for begin, end in zip(starts, ends, strict=True)]


def read_records(
    place: AcquisitionContext,
    plan: Mapping[str, Any],
    chunks: Sequence[tuple[int, int, int]],
    number: int,
) -> dict[str, Any]:
    """Read the records of a chunk's articles and select a version of each."""
    part, start, stop = chunks[number]
    rows = place.table("versions", part).slice(start, stop - start).to_pylist()
    articles: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        articles.setdefault(row["number"], []).append(row)
    store = place.store(f"records-{number:06d}")
    with place.service(plan["url"]) as service, ThreadPoolExecutor(place.config.threads) as pool:
        service.known = plan["known"]
        choose = functools.partial(choose_version, place.config, service, store)
        try:
            choices = list(pool.map(choose, articles.values()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    taken: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for versions, choice in zip(articles.values(), choices, strict=True):
        stands = _stands(versions, choice)
        if choice.record is not None and not stands:
            taken.append(asdict(choice.record))
        for row, state in zip(versions, choice.states, strict=True):
            is_kept = stands and state == catalogue.HARVESTED
            states.append(
                {
                    "number": row["number"],
                    "version": row["version"],
                    "state": state,
                    "stands": is_kept,
                }
            )
    place.write("records", number, pa.Table.from_pylist(taken, records.SCHEMA))
    place.write("states", number, pa.Table.from_pylist(states, STATES))
    return {
        "chosen": len(taken),
        "stand": sum(state["stands"] for state in states),
        "states": dict(Counter(s["state"] for s in states if s["state"] != catalogue.HARVESTED)),
    }


def delete_downloads(place: AcquisitionContext, number: int) -> None:
    """Delete the files that a chunk's task downloaded, once its receipt is written."""
    place.store(f"records-{number:06d}").drop()


def choose_version(
    config: Config, service: BucketClient, store: Store, versions: Sequence[Mapping[str, Any]]
) -> version_selection.VersionChoice:
    """Read the records of an article as far as necessary, and select a version.

    Args:
        config: Settings of the source.
        service: The bucket.
        store: Stores the records.
        versions: The versions of the article, rows of a catalogue.
    """
    etags = {row["version"]: row["etag"] for row in versions}
    return version_selection.choose_version(
        [
            CatalogueVersion(row["number"], row["version"], row["last_modified"].date().isoformat())
            for row in versions
        ],
        lambda known: read_record(config, service, store, known, etags[known.version]),
        config.filters,
    )


def read_record(
    config: Config, service: BucketClient, store: Store, known: CatalogueVersion, etag: str
) -> Record | str:
    """Return the metadata record of a version, or the reason why it is unavailable."""
    key = f"{inventory.RECORDS}PMC{known.number}.{known.version}.json"

    def read(data: bytes) -> Record:
        place = (known.number, known.version, known.modified, config.bucket)
        return records.read(data, *place)

    def is_whole(data: bytes) -> bool:
        try:
            read(data)
        except records.RecordError:
            return False
        return True

    def fetch() -> bytes:
        # No MD5 of a record is known: one that cannot be parsed may have been corrupted in transit.
        for _ in range(DAMAGED_TRIES - 1):
            data = service.get(key, max_bytes=records.RECORD_BYTES)
            if is_whole(data):
                return data
        return service.get(key, max_bytes=records.RECORD_BYTES)

    try:
        return read(store.fetch_unchecked(f"{config.bucket}/{key} {etag}", fetch, is_whole))
    except FileError as error:
        return catalogue.FAILED if error.defect == FAILING else catalogue.MISSING
    except records.RecordError:
        return catalogue.UNREADABLE


def _stands(versions: Sequence[Mapping[str, Any]], choice: version_selection.VersionChoice) -> bool:
    """Return whether the selected version is unchanged since the earlier harvest."""
    return any(
        state == catalogue.HARVESTED and row["same"] and row["state"] == catalogue.HARVESTED
        for row, state in zip(versions, choice.states, strict=True)
    )


def chosen_records(place: AcquisitionContext, chunk: int, start: int, stop: int) -> list[Record]:
    """Return the selected records ``start`` to ``stop`` (excluded) of a chunk."""
    rows = place.table("records", chunk).slice(start, stop - start).to_pylist()
    return [records.from_row(row) for row in rows]


def tally(column: pa.ChunkedArray, *without: str) -> dict[str, int]:
    """Return the count of each value of a column, except for those in ``without``."""
    counts = pc.value_counts(column).to_pylist() if len(column) else []
    return {c["values"]: c["counts"] for c in counts if c["values"] not in without}
