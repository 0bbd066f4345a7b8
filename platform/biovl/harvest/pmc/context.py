"""Context shared by all tasks of an acquisition, and the tables that its steps exchange."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.folders import Folder
from biovl.core.limits import Limiter
from biovl.core.tables import write_table
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.settings import Config
from biovl.harvest.pmc.store import Store

_ROW_GROUP = 100_000
"""Rows per row group of tables by article: a reader of a range of articles skips the others."""


@dataclass(frozen=True, kw_only=True)
class AcquisitionContext:
    """Settings, output folder and limiter of an acquisition; sent to the workers."""

    config: Config
    out: str
    limiter: Limiter

    def service(self, url: str) -> BucketClient:
        """Return a client of the bucket, for one task."""
        return BucketClient(url, self.limiter, self.config.patience, self.config.threads)

    def store(self, scope: str) -> Store:
        """Return the store of a task's downloads: the user's cache, or a scope in the draft."""
        if self.config.cache:
            return Store(Folder(self.config.cache), "objects", is_kept=True)
        return Store(Folder(self.out), f".draft/store/{scope}", is_kept=False)

    def table(self, name: str, number: int, schema: pa.Schema | None = None) -> pa.Table:
        """Return a table that an earlier step wrote."""
        folder = Folder(self.out)
        path = folder.at(f".draft/acquired/{name}/{number:06d}.parquet")
        return pq.read_table(path, filesystem=folder.filesystem, schema=schema)

    def write(self, name: str, number: int, table: pa.Table) -> None:
        """Write a table for a later step."""
        self.publish(f".draft/acquired/{name}/{number:06d}.parquet", table)

    def publish(self, file: str, table: pa.Table) -> dict[str, dict[str, int]]:
        """Write a file of the output; return its rows and size in bytes, by file name."""
        return {file: write_table(Folder(self.out), file, table, row_group_size=_ROW_GROUP)}
