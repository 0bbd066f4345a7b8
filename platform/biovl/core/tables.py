"""Tables of images in parts, and the columns that others compute beside them.

A table is a folder of Parquet parts with a row per image: ``figures/`` as harvest publishes it, or
any folder of Parquet files with a column ``image``. Columns stand in folders of their own, part for
part and row for row: ``<table>/columns/<name>/part-000000-000.parquet``. To add one neither reads
nor writes the images of another.
"""

import hashlib
import itertools
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import COLUMNS, Folder, Input, find_manifest, fingerprint
from biovl.core.errors import ArtifactError

__all__ = ["COLUMNS", "Part", "Table", "columns_of", "open_table"]

_TABLES = {"figures": "figures/", "panels": "figures/"}
"""Published folders that are tables, and where their parts are."""

_NAMED = ("figure_id", "panel_id", "pair_id", "image_id", "id")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file of a table."""

    name: str
    """Of its file, and of those with further columns: ``part-000000-000.parquet``."""
    path: str
    """In the folder of the table."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of images, as far as is known without reading one."""

    uri: str
    parts: tuple[Part, ...]
    """Sorted by name."""
    fingerprint: str
    """What identifies its content: columns are made from tables of the same."""
    names: tuple[str, ...]
    """Of its columns."""
    id_column: str | None
    """What names a row uniquely, if it has such a column."""

    @property
    def rows(self) -> int:
        """How many images there are."""
        return sum(part.rows for part in self.parts)

    def as_input(self) -> Input:
        """Return what a job that reads the table says of it in its manifest."""
        return Input(name="table", uri=self.uri, fingerprint=self.fingerprint)


def open_table(uri: str) -> Table:
    """Return a table of images, local or ``s3://``.

    Raises:
        ArtifactError: If there is none, its parts have different columns, or none has images.
    """
    folder, manifest = Folder(uri), find_manifest(uri)
    if manifest is None:
        return _plain_table(folder)
    if manifest.kind not in _TABLES:
        raise ArtifactError(
            f"{uri} holds {manifest.kind}, expected a table of images: "
            f"{' or '.join(sorted(_TABLES))}, or Parquet files with a column image"
        )
    begin = _TABLES[manifest.kind]
    found = sorted(name for name in manifest.files if name.startswith(begin))
    if not found:
        raise ArtifactError(f"{uri} holds no parts of {manifest.kind}")
    parts = tuple(
        Part(name=name.removeprefix(begin), path=name, rows=manifest.files[name]["rows"])
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


def columns_of(table: Table, name: str) -> str:
    """Return the folder that columns of a name are in unless somebody says otherwise."""
    return f"{table.uri.rstrip('/')}/{COLUMNS}/{name}"


def _plain_table(folder: Folder) -> Table:
    """Return the table of a folder that is not ours; it is known by its files, which are not read.

    A file is known by its name, its size, its end and when it was written: one that was written
    again, or copied, is another.
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
        # Where each column begins and how long it is tells versions of a file apart; not those
        # with rows in another order, or other values as long.
        known.update(repr((name, info.size, info.mtime_ns, metadata.to_dict())).encode())
        schemas.append(metadata.schema.to_arrow_schema())
        parts.append(Part(name=name, path=name, rows=metadata.num_rows))
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
