"""What every task of an acquisition shares, and the tables that steps hand on to each other."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import Folder
from biovl.core.limits import Limiter
from biovl.harvest.pmc.service import Service
from biovl.harvest.pmc.settings import Config
from biovl.harvest.pmc.store import Store


@dataclass(frozen=True, kw_only=True)
class Place:
    """What every task of an acquisition needs; it travels to the workers."""

    config: Config
    out: str
    limiter: Limiter

    def service(self, url: str) -> Service:
        """Return the bucket, for one task."""
        return Service(url, self.limiter, self.config.patience, self.config.threads)

    def store(self, scope: str) -> Store:
        """Return where a task keeps what it fetches: with it in the draft, or with the user's."""
        if self.config.cache:
            return Store(Folder(self.config.cache), "objects", is_kept=True)
        return Store(Folder(self.out), f".draft/store/{scope}", is_kept=False)

    def table(self, name: str, number: int, schema: pa.Schema | None = None) -> pa.Table:
        """Return what an earlier step wrote."""
        folder = Folder(self.out)
        path = folder.at(f".draft/acquired/{name}/{number:06d}.parquet")
        return pq.read_table(path, filesystem=folder.filesystem, schema=schema)

    def write(self, name: str, number: int, table: pa.Table) -> None:
        """Write what a later step reads."""
        written(Folder(self.out), f".draft/acquired/{name}/{number:06d}.parquet", table)


def written(folder: Folder, name: str, table: pa.Table) -> dict[str, int]:
    """Write a table as Parquet; return its rows and size, as a manifest has them."""
    with folder.writer(name) as stream:
        pq.write_table(table, stream, compression="zstd", row_group_size=100_000)
    size = folder.filesystem.get_file_info(folder.at(name)).size
    return {"rows": table.num_rows, "size_bytes": size}
