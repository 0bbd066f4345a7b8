"""Tables of images in parts, and additional columns that other jobs compute for them.

A table is a folder of Parquet parts with a row per image: ``figures/`` as harvest publishes it, or
any folder of Parquet files with a column ``image``. Additional columns are in folders of their own,
with the same parts and rows: ``<table>/columns/<name>/part-000000-000.parquet``. Adding a column
neither reads nor writes the images.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import COLUMNS as COLUMNS
from biovl.core.artifacts import Input, Manifest, find_manifest, fingerprint
from biovl.core.errors import ArtifactError, DamagedTable
from biovl.core.filesystems import below
from biovl.core.folders import Folder

KINDS = ("figures", "panels")
"""Published kinds that are tables of images."""
PARTS = "figures/"
"""Name of the folder with the parts of figures, or of panels."""

_NAMED = ("figure_id", "panel_id", "pair_id", "image_id", "id")


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """One file of a table, with its number of rows."""

    name: str
    """File name, shared with the files of additional columns: ``part-000000-000.parquet``."""
    path: str
    """Path in the folder of the table."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """The metadata of a table of images; opening it reads no image."""

    uri: str
    parts: tuple[TablePart, ...]
    """Parts of the table, sorted by name."""
    fingerprint: str
    """Hash of the content; folders of additional columns must have been computed for this hash."""
    names: tuple[str, ...]
    """Names of the columns."""
    id_column: str | None
    """Column with a unique id of each row; None if there is none."""

    @property
    def rows(self) -> int:
        """Number of images in the table."""
        return sum(part.rows for part in self.parts)

    def as_input(self) -> Input:
        """Return the manifest entry of a job that reads this table."""
        return Input(name="table", uri=self.uri, fingerprint=self.fingerprint)


def open_table(uri: str) -> Table:
    """Return a table of images, local or ``s3://``.

    Raises:
        ArtifactError: If there is no table, its parts have different columns, or it has no images.
    """
    folder, manifest = Folder(uri), find_manifest(uri)
    if manifest is None:
        return _plain_table(folder)
    if manifest.kind not in KINDS:
        raise ArtifactError(
            f"{uri} holds {manifest.kind}, expected a table of images: "
            f"{' or '.join(KINDS)}, or Parquet files with a column image"
        )
    found = parts_of(manifest)
    if not found:
        raise ArtifactError(f"{uri} holds no parts of {manifest.kind}")
    parts = tuple(
        TablePart(name=name.removeprefix(PARTS), path=name, rows=manifest.files[name]["rows"])
        for name in found
    )
    names = tuple(_metadata(folder, found[0]).schema.to_arrow_schema().names)
    return Table(
        uri=uri,
        parts=parts,
        fingerprint=fingerprint(uri),
        names=names,
        id_column=_id_column(names),
    )


def parts_of(manifest: Manifest) -> list[str]:
    """Return the paths of the parts of published figures or panels, sorted."""
    return sorted(name for name in manifest.files if name.startswith(PARTS))


def columns_of(uri: str, name: str) -> str:
    """Return the default folder of additional columns of a table, with a given name."""
    return below(uri, f"{COLUMNS}/{name}")


@contextlib.contextmanager
def open_part(folder: Folder, name: str, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading, and verify the checksums of its pages, if it has them.

    Args:
        folder: The folder of the file.
        name: The name of the file in it.
        options: Further options of ``pq.ParquetFile``.

    Raises:
        DamagedTable: If the file is truncated, or a page that is read in the block differs from its
            checksum.
    """
    with folder.filesystem.open_input_file(folder.at(name)) as stream:
        try:
            parquet = pq.ParquetFile(stream, page_checksum_verification=True, **options)
        except pa.ArrowInvalid as error:
            raise DamagedTable(
                f"{folder.described}/{name} is truncated or corrupt: {str(error).splitlines()[0]} "
                "Copy or publish it again"
            ) from error
        try:
            yield parquet
        except OSError as error:
            if "page integrity" not in str(error):
                raise
            raise DamagedTable(
                f"{folder.described}/{name} is damaged: the checksum of a page is wrong. Copy or "
                "publish it again"
            ) from error


def read_table(folder: Folder, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of a whole Parquet file, in the order given; None: all columns.

    Raises:
        DamagedTable: As in ``open_part``.
    """
    with open_part(folder, name, pre_buffer=True) as parquet:
        if columns is None:
            return parquet.read()
        return parquet.read(list(columns)).select(list(columns))


def write_table(folder: Folder, name: str, table: pa.Table, **options: Any) -> dict[str, int]:
    """Write a table as a Parquet file; return its rows and size, as in a manifest.

    Args:
        folder: The folder of the file.
        name: The name of the file in it.
        table: The table.
        options: Further options of ``pq.write_table``.
    """
    with folder.writer(name) as stream:
        pq.write_table(table, stream, compression="zstd", **options)
        return {"rows": len(table), "size_bytes": stream.tell()}


def damaged_tables(uri: str) -> list[str]:
    """Return the Parquet files of a published folder whose footer cannot be read."""
    manifest, folder = find_manifest(uri), Folder(uri)
    listed = [] if manifest is None else [n for n in manifest.files if n.endswith(".parquet")]
    found = []
    for name in sorted({*listed, *folder.names("", ".parquet")}):
        try:
            _metadata(folder, name)
        except (pa.ArrowInvalid, FileNotFoundError):
            found.append(f"{folder.described}/{name}")
    return found


def _plain_table(folder: Folder) -> Table:
    """Return the table in a folder that biovl did not publish, identified by its files' metadata.

    The fingerprint covers each file's name, size, Parquet footer and modification time: a file that
    was rewritten or copied counts as another file.
    """
    found = folder.names("", ".parquet")
    if not found:
        raise ArtifactError(
            f"{folder.described} is not a table of images: it has no manifest.json and no .parquet "
            "files"
        )
    known, parts = hashlib.sha256(), []
    schemas: list[pa.Schema] = []
    for name in found:
        try:
            metadata = _metadata(folder, name)
        except pa.ArrowInvalid as error:
            raise ArtifactError(f"{folder.described}/{name} is not Parquet: {error}") from error
        info = folder.filesystem.get_file_info(folder.at(name))
        # Column offsets and lengths distinguish most versions of a file, but not those with the
        # same rows in another order, or with other values of equal length.
        known.update(repr((name, info.size, info.mtime_ns, metadata.to_dict())).encode())
        schemas.append(metadata.schema.to_arrow_schema())
        parts.append(TablePart(name=name, path=name, rows=metadata.num_rows))
    for name, (before, after) in zip(found[1:], itertools.pairwise(schemas), strict=True):
        if before.names != after.names:
            raise ArtifactError(
                f"{folder.described}/{name} has other columns than the file before it: "
                f"{', '.join(sorted(set(before.names) ^ set(after.names)))}"
            )
    names = tuple(schemas[0].names)
    if "image" not in names:
        raise ArtifactError(
            f"{folder.described} has no column image; found {', '.join(sorted(names))}"
        )
    return Table(
        uri=folder.uri,
        parts=tuple(parts),
        fingerprint=known.hexdigest(),
        names=names,
        id_column=_id_column(names),
    )


def _metadata(folder: Folder, name: str) -> pq.FileMetaData:
    with folder.filesystem.open_input_file(folder.at(name)) as stream:
        return pq.read_metadata(stream)


def _id_column(names: tuple[str, ...]) -> str | None:
    return next((name for name in _NAMED if name in names), None)
