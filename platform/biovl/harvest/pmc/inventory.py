"""The daily inventory of a bucket: its manifest, and tables of article versions.

    <inventory>/<YYYY-MM-DDTHH-MMZ>/manifest.json    the files of the inventory
    <inventory>/data/<uuid>.csv.gz                   bucket, key, last modified, ETag; no header

Source: the bucket's README, and docs.aws.amazon.com/AmazonS3/latest/userguide/
storage-inventory-location.html for the format of the manifest.
"""

import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from biovl.core.errors import SourceError
from biovl.harvest.pmc.client import MISSING, BucketClient, Listed
from biovl.harvest.sources import FileError

LISTED = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),  # of the article: 7096724 of PMC7096724
        pa.field("version", pa.int32(), nullable=False),
        pa.field("last_modified", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
    ]
)
"""A version of an article, identified by its record in ``metadata/``."""

RECORDS = "metadata/"

_FOLDER = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d-\d\dZ/$")
# Inventories URL-encode keys; S3 does not encode the slash, others may.
_KEY = r"^metadata(?:/|%2[Ff])PMC(?P<number>[1-9]\d{0,11})\.(?P<version>[1-9]\d{0,5})\.json$"
_COLUMNS = ("Bucket", "Key", "LastModifiedDate", "ETag")
_MANIFEST_BYTES = 16_000_000
_MOST_FILES = 10_000
_MOST_UNPACKED_BYTES = 64_000_000_000
_MOST_TIMES_LARGER = 200
"""Maximum decompression ratio: CSV of keys and ETags compresses to a quarter, so more is a bomb."""
_BLOCK_BYTES = 1 << 22

NO_RECORD = "key is no record of an article version"
OTHER_BUCKET = "row is of another bucket"
UNREADABLE = "row cannot be read"
TWICE = "row comes twice"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The daily inventory of a bucket: its date and files."""

    date: str
    """Date of the inventory, ISO."""
    files: list[dict[str, Any]]
    """Inventory files in the order of the manifest: ``key`` and, if the manifest has it,
    ``md5``."""
    columns: list[str]
    manifest_key: str


def newest(service: BucketClient, inventory: str, date: str = "") -> Snapshot:
    """Return the newest complete inventory, or the newest of a date.

    Args:
        service: The bucket.
        inventory: The prefix of the inventories.
        date: ISO; empty for the newest of all.

    Raises:
        SourceError: If there is no inventory, or its manifest is invalid.
        StorageError: If the service fails.
    """
    inventory = inventory.rstrip("/") + "/"
    dated = [(m[1], name) for name in service.folders(inventory) if (m := _FOLDER.search(name))]
    wanted = sorted((folder for day, folder in dated if date in ("", day)), reverse=True)
    if not wanted:
        days = ", ".join(sorted({day for day, _ in dated})) or "none"
        raise SourceError(f"no inventory of {date or 'any day'} in {inventory}; available: {days}")
    for folder in wanted:
        key = f"{folder}manifest.json"
        try:
            data = service.get(key, max_bytes=_MANIFEST_BYTES)
        except FileError as error:
            # The manifest is written last.
            if error.defect == MISSING:
                continue
            raise SourceError(f"{key} cannot be read: {error.defect}: {error}") from error
        found = _FOLDER.search(folder)
        return _snapshot(data, key, inventory, found[1] if found else "")
    raise SourceError(f"no inventory in {inventory} has a manifest.json")


def _snapshot(data: bytes, key: str, inventory: str, date: str) -> Snapshot:
    try:
        values = json.loads(data)
        listed = [(entry["key"], entry.get("MD5checksum")) for entry in values["files"]]
        schema = str(values.get("fileSchema") or ", ".join(_COLUMNS))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SourceError(f"{key} is not a manifest of an inventory: {error!r}") from error
    columns = [name.strip() for name in schema.split(",")]
    if str(values.get("fileFormat") or "CSV") != "CSV" or not set(_COLUMNS) <= set(columns):
        raise SourceError(
            f"{key}: expected CSV with {', '.join(_COLUMNS)}, got {values.get('fileFormat')} with "
            f"{schema[:200]}"
        )
    if not 1 <= len(listed) <= _MOST_FILES:
        raise SourceError(f"{key} names {len(listed)} files, expected 1 to {_MOST_FILES}")
    files: dict[str, dict[str, Any]] = {}
    for name, md5 in listed:
        name = str(name)
        if name.startswith("data/"):
            name = inventory + name
        # Keys from the manifest must not lead out of the inventory.
        if not name.startswith(inventory.split("/")[0] + "/") or ".." in name or "://" in name:
            raise SourceError(f"{key} names a file that is not of the inventory: {name[:200]}")
        is_md5 = isinstance(md5, str) and re.fullmatch(r"[0-9a-fA-F]{32}", md5)
        files[name] = {"key": name, "md5": md5.lower() if is_md5 else None}
    return Snapshot(date=date, files=list(files.values()), columns=columns, manifest_key=key)


class _Bounded(io.RawIOBase):
    """A stream that decompresses while it is read, up to a limit."""

    def __init__(self, packed: BinaryIO, size_bytes: int) -> None:
        self._unpacked = gzip.GzipFile(fileobj=packed)
        self._left = min(_MOST_UNPACKED_BYTES, 1_000_000 + _MOST_TIMES_LARGER * size_bytes)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._unpacked.read(_BLOCK_BYTES if size < 0 else min(size, _BLOCK_BYTES))
        self._left -= len(data)
        if self._left < 0:
            raise SourceError("an inventory file exceeds its decompression limit: it may be a bomb")
        return data


def rows(
    packed: BinaryIO, size_bytes: int, columns: list[str], bucket: str, refused: Counter[str]
) -> Iterator[pa.Table]:
    """Yield the article versions of one inventory file, block by block.

    Args:
        packed: The file, gzip.
        size_bytes: Size of the file.
        columns: Columns of the file according to the manifest.
        bucket: Rows of other buckets are rejected.
        refused: Counts the rejected rows by reason.

    Raises:
        SourceError: If the file is invalid.
    """

    def invalid(row: Any) -> str:
        refused[UNREADABLE] += 1
        return "skip"

    try:
        reader = csv.open_csv(
            pa.PythonFile(_Bounded(packed, size_bytes), mode="r"),
            read_options=csv.ReadOptions(
                column_names=columns, block_size=_BLOCK_BYTES, use_threads=False
            ),
            parse_options=csv.ParseOptions(invalid_row_handler=invalid),
            convert_options=csv.ConvertOptions(
                include_columns=list(_COLUMNS),
                column_types=dict.fromkeys(_COLUMNS, pa.string()),
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield _versions(pa.table(batch), bucket, refused)
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"an inventory file is not CSV in gzip: {error}") from error


def of_listing(found: Iterable[Listed], refused: Counter[str]) -> pa.Table:
    """Return the article versions among listed objects, as the inventory would list them."""
    plain = [(item.key, item.last_modified, item.etag) for item in found]
    keys, dates, etags = zip(*plain, strict=True) if plain else ((), (), ())
    names = ["Key", "LastModifiedDate", "ETag"]
    arrays = [pa.array(part, pa.string()) for part in (keys, dates, etags)]
    return _versions(pa.table(arrays, names), None, refused)


def _versions(batch: pa.Table, bucket: str | None, refused: Counter[str]) -> pa.Table:
    if bucket is not None:
        own = pc.equal(batch["Bucket"], bucket)
        batch = _only(batch, own, OTHER_BUCKET, refused)
    parts = pc.extract_regex(batch["Key"], _KEY)
    batch = batch.append_column("parts", parts)
    batch = _only(batch, pc.is_valid(parts), NO_RECORD, refused)
    # Fractional seconds are not documented; they are ignored.
    text = pc.utf8_slice_codeunits(batch["LastModifiedDate"], 0, 19)
    when = pc.strptime(text, "%Y-%m-%dT%H:%M:%S", "s", error_is_null=True)
    batch = batch.append_column("when", when)
    batch = _only(batch, pc.is_valid(when), UNREADABLE, refused)
    return pa.table(
        [
            pc.struct_field(batch["parts"], "number").cast(pa.int64()),
            pc.struct_field(batch["parts"], "version").cast(pa.int32()),
            batch["when"].cast(pa.timestamp("ms", "UTC")),
            pc.utf8_trim(batch["ETag"], characters='"'),
        ],
        schema=LISTED,
    )


def _only(batch: pa.Table, mask: Any, reason: str, refused: Counter[str]) -> pa.Table:
    kept = batch.filter(mask)
    if kept.num_rows < batch.num_rows:
        refused[reason] += batch.num_rows - kept.num_rows
    return kept
