"""Harvests in order: the parts of all of them, and which rows later ones end.

A harvest of what changed since another says in ``tombstones.parquet`` what of those before it no
longer holds. Nothing published is changed: a job that reads several harvests leaves those rows out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.core import tombstones
from biovl.core.artifacts import Folder, Manifest, fingerprint, read_manifest

KINDS = ("figures", "panels")
PARTS = "figures/"
"""Where the parts of figures, or of the panels they were split into, stand."""


@dataclass(frozen=True)
class Harvest:
    """A published folder of figures or panels."""

    uri: str
    fingerprint: str
    manifest: Manifest

    @property
    def parts(self) -> list[str]:
        """Its parts, by their path in it."""
        return sorted(name for name in self.manifest.files if name.startswith(PARTS))

    @property
    def same_articles(self) -> set[str]:
        """Fingerprints of the folders with its articles: its own, and of what it was split from."""
        return {self.fingerprint} | {
            item.fingerprint for item in self.manifest.inputs if item.name == "figures"
        }


@dataclass(frozen=True)
class HarvestPart:
    """A part of figures, with what was found elsewhere about its rows."""

    uri: str
    """Of the harvest."""
    path: str
    """In the harvest."""
    columns: tuple[str, ...]
    """Folders with further columns of this harvest."""
    article_columns: tuple[str, ...]
    """Folders with further columns of its articles: what enrich publishes."""
    later: tuple[str, ...]
    """The harvests after this one, whose tombstones are about it."""

    @property
    def name(self) -> str:
        """Its name in folders of columns."""
        return self.path.removeprefix(PARTS)


def open_harvests(uris: Sequence[str]) -> list[Harvest]:
    """Return harvests in the order given.

    Raises:
        ArtifactError: If one is not published, or is neither figures nor panels.
    """
    return [Harvest(uri, fingerprint(uri), read_manifest(uri, *KINDS)) for uri in uris]


class Tombstones:
    """What later harvests say of rows of earlier ones."""

    def __init__(self, later: Sequence[str]) -> None:
        """Read the tombstones of harvests, in order; those without any end nothing."""
        found = [table for table in map(_tombstones, later) if table is not None]
        self._all = pa.concat_tables(found) if found else None

    def of(self, source_uris: pa.ChunkedArray) -> pa.Array:
        """Return for each row why it no longer holds, as the first of the harvests says it.

        Args:
            source_uris: Of the rows. Shape [N], string.

        Returns:
            A reason, or null where the row holds. Shape [N], string.
        """
        if self._all is None:
            return pa.nulls(len(source_uris), pa.string())
        places = pc.index_in(source_uris, self._all["source_uri"].combine_chunks())
        return self._all["reason"].combine_chunks().take(places.combine_chunks())


def _tombstones(uri: str) -> pa.Table | None:
    folder = Folder(uri)
    if not folder.exists(tombstones.FILE):
        return None
    with folder.filesystem.open_input_file(folder.at(tombstones.FILE)) as stream:
        return pq.read_table(stream, columns=["source_uri", "reason"])
