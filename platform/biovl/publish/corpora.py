"""Redistributable subset of a corpus, published as a corpus of its own.

The bytes of pairs are copied unchanged from their shards, and pairs keep their order, so that the
shuffle is preserved.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble import pairs as pairing
from biovl.assemble import statistics
from biovl.assemble.finishing import DROPPED, INDEX
from biovl.core import shards
from biovl.core.artifacts import Draft
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.tables import open_part, read_table, write_table
from biovl.publish.rights import READS, RequestedRows, groups_of, reasons

_PLANS = ".draft/plans"

_PLAN = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("shard", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("offset", "size", "new_offset")),
    ]
)
"""A pair: its row in the index, and its positions in the old and the new shards."""


def plan(
    uri: str, out: str, requested: RequestedRows, *, max_bytes: int, max_pairs: int
) -> dict[str, int]:
    """Assign redistributable pairs to shards, and write a plan for each shard.

    Args:
        uri: The corpus.
        out: Folder of the draft.
        requested: Licence groups to include, and whether to include third-party figures.
        max_bytes: Maximum size of a shard; a single pair may be larger.
        max_pairs: Maximum pairs per shard.

    Returns:
        The number of shards of each split.
    """
    source, folder = Folder(uri), Draft(out).folder
    pieces, first = [], 0
    places = ["split", "shard", "offset", "size"]
    for rows in groups_of(source, INDEX, [*READS, *places]):
        numbered = rows.select(places).append_column(
            "row", pa.array(np.arange(first, first + len(rows)))
        )
        pieces.append(numbered.filter(pc.is_null(reasons(rows, requested))))
        first += len(rows)
    pairs = pa.concat_tables(pieces).sort_by([("shard", "ascending"), ("offset", "ascending")])
    counts: dict[str, int] = {}
    for split in statistics.SPLITS:
        own = pairs.filter(pc.equal(pairs["split"], split))
        sizes = own["size"].to_numpy()
        begins = _begins(sizes, max_bytes, max_pairs)
        counts[split] = len(begins)
        for number, (begin, end) in enumerate(itertools.pairwise([*begins, len(own)])):
            here = own.slice(begin, end - begin)
            offsets = np.cumsum(sizes[begin:end]) - sizes[begin:end]
            table = here.append_column("new_offset", pa.array(offsets)).select(_PLAN.names)
            write_table(folder, _plan(shards.shard_name(split, number)), table.cast(_PLAN))
    return counts


def copy(uri: str, out: str, names: Sequence[str], number: int) -> dict[str, int]:
    """Write one shard with the unchanged bytes of its pairs; return its rows and size.

    Args:
        uri: The corpus.
        out: Folder of the draft.
        names: Paths of all shards, without suffix.
        number: Number of the shard to write.

    Raises:
        ArtifactError: If a shard of the corpus is truncated.
    """
    source, folder = Folder(uri), Draft(out).folder
    with folder.writer(f"{names[number]}.tar") as stream:
        target = shards.ShardWriter(stream)
        planned = read_table(folder, _plan(names[number]))
        places = ((row["shard"], row["offset"], row["size"]) for row in planned.to_pylist())
        shards.copy_pairs(source, target, places)
        return {"rows": len(planned), "size_bytes": target.finish()}


def index(uri: str, out: str, shards_of: Mapping[str, int]) -> Iterator[pa.Table]:
    """Yield the index of the new corpus, one table per row group of the old index."""
    folder = Draft(out).folder
    placed = []
    for name in shards.shard_names(shards_of):
        own = read_table(folder, _plan(name))
        placed.append(own.append_column("new_shard", pa.array([f"{name}.tar"] * len(own))))
    pairs = pa.concat_tables(placed).sort_by("row")
    row_of = pairs["row"].to_numpy()
    first = 0
    for rows in groups_of(Folder(uri), INDEX):
        begin, end = np.searchsorted(row_of, [first, first + len(rows)])
        here = pairs.slice(begin, end - begin)
        selected = rows.take(pa.array(row_of[begin:end] - first))
        for name, new in (("shard", "new_shard"), ("offset", "new_offset")):
            place = selected.schema.get_field_index(name)
            selected = selected.set_column(
                place, selected.schema.field(name), here[new].cast(selected.schema.field(name).type)
            )
        first += len(rows)
        yield selected


def dropped_rows(uri: str, requested: RequestedRows) -> Iterator[pa.Table]:
    """Yield all figures that are not in the new corpus: dropped by assemble, or left out here."""
    source = Folder(uri)
    with open_part(source, DROPPED) as parquet:
        schema = parquet.schema_arrow
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group)
    for rows in groups_of(source, INDEX, [*READS, "article_id"]):
        rows = rows.append_column("dropped_by", reasons(rows, requested))
        held_back = rows.filter(rows["dropped_by"].is_valid())
        columns = [
            held_back[name] if name in rows.column_names else pa.nulls(len(held_back), kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        yield pa.table(columns, names=schema.names).cast(schema)


def remaining_labels(
    before: Mapping[str, Mapping[str, Mapping[str, int]]],
    found: Mapping[str, Counter[tuple[str, str]]],
) -> dict[str, Any]:
    """Return the label counts of ``stats.json`` for the remaining pairs.

    Args:
        before: Label counts of the corpus.
        found: Number of remaining pairs with each label and licence group, by column.
    """
    remaining = {column: statistics.over_groups(counts) for column, counts in found.items()}
    return {
        column: {
            name: {**counts, "pairs": remaining[column][name]} for name, counts in names.items()
        }
        for column, names in before.items()
    }


def _begins(sizes: np.ndarray, max_bytes: int, max_pairs: int) -> list[int]:
    """Return the first pair of each shard, so that no shard exceeds the limits."""
    begins: list[int] = []
    held_bytes = held = 0
    for place, size in enumerate(sizes.tolist()):
        if not begins or held == max_pairs or held_bytes + size > max_bytes:
            begins.append(place)
            held_bytes = held = 0
        held_bytes, held = held_bytes + size, held + 1
    return begins


def _plan(shard: str) -> str:
    return f"{_PLANS}/{shard}.parquet"


def schema_of_records(out: str) -> pa.Schema:
    """Return the fields of the ``.json`` of pairs, which the first pair has."""
    folder = Folder(out)
    first = read_table(folder, INDEX, ["shard", "offset", "size"]).slice(0, 1).to_pylist()[0]
    uri = below(out, first["shard"])
    record = shards.read_pair(uri, first["offset"], first["size"])["json"]
    return pairing.pair_schema(list(json.loads(record)))
