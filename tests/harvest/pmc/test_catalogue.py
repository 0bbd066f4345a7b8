"""Inventories to catalogues: what is listed, what is refused, what is different."""

import gzip
import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from biovl.core.errors import SourceError, StorageError
from biovl.core.limits import LocalLimiter, RequestLimits
from biovl.harvest.pmc import catalogue, inventory, listing
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.settings import Config
from tests.harvest.pmc.bucket import Bucket, Fault, serving

COLUMNS = ["Bucket", "Key", "LastModifiedDate", "ETag"]


def row(number: int, version: int = 1, day: int = 1, etag: str = "e") -> dict:
    when = np.datetime64(f"2026-09-{day:02d}T10:00:00", "ms").item()
    return {"number": number, "version": version, "last_modified": when, "etag": etag}


def listed(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist(list(rows), inventory.LISTED)


def before(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist([{"state": "harvested", **r} for r in rows], catalogue.SCHEMA)


def read(text: str, refused: Counter[str]) -> list[tuple[int, int, str]]:
    packed = gzip.compress(text.encode())
    tables = inventory.rows(io.BytesIO(packed), len(packed), COLUMNS, "b", refused)
    return [
        (r["number"], r["version"], r["etag"])
        for table in tables
        for r in table.to_pylist()
    ]  # fmt: skip


def test_rows_that_are_none_are_counted_by_reason() -> None:
    refused: Counter[str] = Counter()
    found = read(
        '"b","metadata/PMC7.2.json","2026-09-01T10:00:00.000Z","abc-2"\n'
        "b,metadata%2FPMC8.1.json,2026-09-01T10:00:00Z,def\n"
        '"other","metadata/PMC9.1.json","2026-09-01T10:00:00.000Z","e"\n'
        '"b","metadata/../PMC9.1.json","2026-09-01T10:00:00.000Z","e"\n'
        '"b","PMC9.1/PMC9.1.xml","2026-09-01T10:00:00.000Z","e"\n'
        '"b","metadata/PMC9.1.json","yesterday","e"\n'
        '"b","metadata/PMC9.1.json"\n',
        refused,
    )
    assert found == [(7, 2, "abc-2"), (8, 1, "def")]
    assert refused == {
        "row is of another bucket": 1,
        "key is no record of an article version": 2,
        "row cannot be read": 2,
    }


@pytest.mark.parametrize("kind", ["no gzip", "a bomb", "nothing"])
def test_a_file_that_is_no_inventory_or_a_bomb_is_refused(kind: str) -> None:
    bomb = gzip.compress(bytes(10**8), 1, mtime=0) if kind == "a bomb" else b""
    data = {"no gzip": b"no gzip", "a bomb": 10 * bomb, "nothing": b""}[kind]
    with pytest.raises(SourceError):
        list(inventory.rows(io.BytesIO(data), len(data), COLUMNS, "b", Counter()))


def test_the_newest_inventory_that_is_complete_is_taken() -> None:
    bucket = Bucket()
    bucket.put("metadata/PMC1.1.json", b"{}")
    older = bucket.put_inventory("2026-10-01")
    bucket.drop(bucket.put_inventory("2026-10-02"))
    bucket.put(
        "inventory-reports/pmc-oa-opendata/metadata/2026-10-02T01-00Z/manifest.checksum", b""
    )
    limiter = LocalLimiter(RequestLimits(requests_per_s=1_000, concurrent=1))
    with serving(bucket) as server, BucketClient(server.url, limiter) as service:
        where = "inventory-reports/pmc-oa-opendata/metadata"
        found = inventory.newest(service, where)
        assert (found.date, found.manifest_key, len(found.files)) == ("2026-10-01", older, 2)
        with pytest.raises(SourceError, match="2026-09-09"):
            inventory.newest(service, where, "2026-09-09")
        for key in ("http://elsewhere/x.gz", "../x.gz", "inventory-reports/../x", "other/x.gz"):
            bucket.put(older, json.dumps({"files": [{"key": key}]}).encode())
            with pytest.raises(SourceError, match=re.escape(key)):
                inventory.newest(service, where)
        for data in (b"[]", b"{", b'{"files": 3}', b'{"files": []}', b"[" * 10**5):
            bucket.put(older, data)
            with pytest.raises(SourceError, match="manifest"):
                inventory.newest(service, where)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("gone", SourceError), ("error", StorageError), ("wrong", StorageError)],
)
def test_a_list_that_lacks_a_part_is_none(
    tmp_path: Path, fault: str, error: type[Exception]
) -> None:
    bucket = Bucket()
    for number in (1, 2):
        bucket.put(f"metadata/PMC{number}.1.json", b"{}")
    bucket.put_inventory("2026-10-01")
    key = next(key for key in bucket.objects if key.endswith(".csv.gz"))
    limiter = LocalLimiter(RequestLimits(requests_per_s=1_000, concurrent=1))
    with serving(bucket) as server:
        config = Config(endpoint=server.url, tries=2, first_wait_s=0.01)
        place = AcquisitionContext(config=config, out=str(tmp_path), limiter=limiter)
        plan = listing.plan(place)
        server.faults[key] = Fault(fault)
        with pytest.raises(error, match="part of the inventory"):
            [listing.read_inventory(place, plan, number) for number in range(2)]


def test_a_version_that_comes_twice_is_as_it_was_modified_last() -> None:
    refused: Counter[str] = Counter()
    table = listed(row(2), row(1, etag="new", day=3), row(1, etag="old", day=2), row(1, 2))
    found = catalogue.distinct(table, refused).to_pylist()
    assert [(r["number"], r["version"], r["etag"]) for r in found] == [
        (1, 1, "new"), (1, 2, "e"), (2, 1, "e"),
    ]  # fmt: skip
    assert refused == {"row comes twice": 1}


def test_ranges_hold_every_number_and_no_article_is_in_two() -> None:
    counts = [{"3": 5, "9": 5}, {"3": 1, "4": 4, "9": 2}]
    ranges = catalogue.ranges(counts, 6)
    width = catalogue.WIDTH
    assert [(r.begin, r.end) for r in ranges] == [
        (0, 4 * width), (4 * width, np.iinfo(np.int64).max)
    ]  # fmt: skip
    assert len(catalogue.ranges([{"5": 1}], 100)) == 1


def test_all_versions_of_an_article_are_looked_at_where_one_is_different() -> None:
    old = before(row(1), row(2), row(3), row(4), row(4, 2), row(5))
    new = listed(row(1), row(2, etag="f"), row(3, day=2), row(4), row(6), row(6, 2))
    found = catalogue.difference(new, old, None)
    assert found.counts == {"new": 2, "changed": 2, "same": 2, "gone": 2}
    assert found.same.tolist() == [True, False, False, True, False, False]
    assert found.touched.tolist() == [False, True, True, True, True, True]
    assert [r["number"] for r in found.ended.to_pylist()] == [2, 3, 4, 4, 5]


def test_what_is_asked_for_may_change_without_the_articles() -> None:
    old = before(row(1), {**row(2), "state": "not asked for"}, row(3))
    found = catalogue.difference(listed(row(1), row(2), row(3)), old, np.array([2, 3]))
    assert found.touched.tolist() == [True, True, False]
    assert [r["number"] for r in found.ended.to_pylist()] == [1]


def test_what_could_not_be_had_is_asked_for_again_though_nothing_changed() -> None:
    reasons = (
        "record cannot be fetched",
        "record is missing",
        "record cannot be read",
        "retracted",
    )
    old = before(*({**row(n), "state": reason} for n, reason in enumerate(reasons, 1)), row(5))
    new = listed(*(row(number) for number in range(1, 6)))
    found = catalogue.difference(new, old, None)
    assert found.touched.tolist() == [True, True, True, False, False]
    # A file of the fifth: it does not stand as it was harvested.
    broken = catalogue.difference(new, old, None, [5])
    assert (broken.touched[4], broken.same[4], broken.counts["same"]) == (True, False, 5)
    assert [r["number"] for r in broken.ended.to_pylist()] == [5]


def test_the_first_harvest_is_a_difference_from_nothing() -> None:
    found = catalogue.difference(listed(row(1), row(2)), catalogue.SCHEMA.empty_table(), None)
    assert found.touched.tolist() == [True, True]
    assert found.state == [None, None]
    gone = catalogue.difference(inventory.LISTED.empty_table(), before(row(1)), None)
    assert gone.ended.num_rows == 1
