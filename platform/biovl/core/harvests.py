"""Ordered harvests: their parts, and the rows that later harvests invalidate.

An incremental harvest lists in ``tombstones.parquet`` the rows of earlier harvests that are no
longer valid. Published folders are never changed: jobs that read several harvests skip those rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from biovl.core import tombstones
from biovl.core.artifacts import Manifest, fingerprint, read_manifest
from biovl.core.folders import Folder
from biovl.core.tables import KINDS, PARTS, parts_of, read_table


@dataclass(frozen=True)
class Harvest:
    """A published folder of figures or panels, as one of several harvests."""

    uri: str
    fingerprint: str
    manifest: Manifest

    @property
    def parts(self) -> list[str]:
        """Paths of the parts, relative to the folder."""
        return parts_of(self.manifest)

    @property
    def same_articles(self) -> set[str]:
        """Fingerprints of this harvest and, for panels, of the figures that they are from."""
        return {self.fingerprint} | {
            item.fingerprint for item in self.manifest.inputs if item.name == "figures"
        }


@dataclass(frozen=True)
class HarvestPart:
    """A Parquet part of a harvest, with the folders of additional columns for its rows."""

    uri: str
    """Location of the harvest."""
    path: str
    """Path in the harvest."""
    columns: tuple[str, ...]
    """Folders with additional columns of this harvest."""
    article_columns: tuple[str, ...]
    """Folders with additional columns of its articles, as enrich publishes them."""
    later: tuple[str, ...]
    """Later harvests, whose tombstones may apply to this one."""

    @property
    def name(self) -> str:
        """File name of the part, which folders of columns share."""
        return self.path.removeprefix(PARTS)


def open_harvests(uris: Sequence[str]) -> list[Harvest]:
    """Open published folders of figures or panels, in the given order.

    Raises:
        ArtifactError: If one is not published, or is neither figures nor panels.
    """
    return [Harvest(uri, fingerprint(uri), read_manifest(uri, *KINDS)) for uri in uris]


class Tombstones:
    """Reads tombstones of later harvests by ``source_uri``."""

    def __init__(self, later: Sequence[str]) -> None:
        """Read the tombstones of harvests, in order; a harvest without any invalidates nothing."""
        found = [table for table in map(_tombstones, later) if table is not None]
        self._all = pa.concat_tables(found) if found else None

    def of(self, source_uris: pa.ChunkedArray) -> pa.Array:
        """Return the tombstone reason of each row, from the first harvest that has one.

        Args:
            source_uris: ``source_uri`` of the rows. Shape [N], string.

        Returns:
            A reason, or null if the row is valid. Shape [N], string.
        """
        if self._all is None:
            return pa.nulls(len(source_uris), pa.string())
        places = pc.index_in(source_uris, self._all["source_uri"].combine_chunks())
        return self._all["reason"].combine_chunks().take(places.combine_chunks())


def _tombstones(uri: str) -> pa.Table | None:
    folder = Folder(uri)
    if not folder.exists(tombstones.FILE):
        return None
    return read_table(folder, tombstones.FILE, ["source_uri", "reason"])
